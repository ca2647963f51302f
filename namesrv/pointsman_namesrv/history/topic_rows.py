"""A topic set in the history: spread over rows, so that no row is long however many topics a broker has."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from pointsman_namesrv.core.events import TopicsPayload
from pointsman_namesrv.core.model import QueueConfig

ROW_ENTRIES = 500
"""Maximum topics of one row, changed and removed together."""


def row_count(topics: TopicsPayload) -> int:
    """Return the number of rows of a set without a walk over its topics; an empty set is one row."""
    return max(1, -(-entry_count(topics) // ROW_ENTRIES))


def entry_count(topics: TopicsPayload) -> int:
    """Return the number of topics of a set, changed and removed."""
    return len(topics.changed) + len(topics.removed)


def spread(topics: TopicsPayload) -> Iterator[dict[str, object]]:
    """Return the detail of each row. Walks over every topic: for the history's thread, never for the loop."""
    parts = row_count(topics)
    entries = chain(topics.changed.items(), ((name, None) for name in topics.removed))
    for part in range(1, parts + 1):
        chunk = list(islice(entries, ROW_ENTRIES))
        detail: dict[str, object] = {"part": part, "parts": parts, "full": topics.base is None}
        if topics.base is not None:
            detail["base"] = str(topics.base)
        detail["topics"] = {name: _numbers(queues) for name, queues in chunk if queues is not None}
        detail["removed"] = [name for name, queues in chunk if queues is None]
        yield detail


def _numbers(queues: QueueConfig) -> list[int]:
    """Return four numbers, and the weight unless it is 1: rows without weights stay as readers of four know them."""
    return list(queues if queues.queue_weight != 1 else queues[:4])
