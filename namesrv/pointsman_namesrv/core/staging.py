"""The topics of a registration while it is read, compared in chunks with those that are held.

The differences that the route table, the history and the response to a large registration need are computed chunk by
chunk, so that accepting it is one swap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pointsman_namesrv.core.model import QueueConfig, TopicTable

COMING_IN_BYTES = 112 * 1024 * 1024
"""Estimated memory of all registrations that are being read, on any wire. One of 200,000 topics fits if their names
have at most 210 characters on average."""
COMING_IN_BYTES_A_TOPIC = 235
"""What a higher ``max_topics`` adds, so that a fleet of any size can register after a restart."""
COMING_IN_LIMIT = "bytes_of_registrations_at_once"
"""Name of that bound in errors and metrics."""
BYTES_OF_STAGED_TOPIC = 130
"""Memory of a topic that was read, in addition to twice its bytes on the wire: name, entry, numbers."""


def coming_in_bytes(max_topics: int) -> int:
    """Return the bound on the memory of all registrations that are being read, for this ``max_topics``."""
    return max(COMING_IN_BYTES, COMING_IN_BYTES_A_TOPIC * max_topics)


@dataclass(frozen=True, slots=True)
class StagedTopics:
    """A complete topic set, and how it differs from another. Must not be altered."""

    topics: TopicTable
    """All topics; the compared table itself if nothing differs."""
    compared_with: TopicTable
    changed: Mapping[str, QueueConfig] = field(default_factory=dict)
    """Topics that are new or changed."""
    removed: tuple[str, ...] = ()

    @property
    def is_unchanged(self) -> bool:
        """Return whether the set equals the one that it was compared with."""
        return self.topics is self.compared_with


class Staging:
    """Collects chunks; :meth:`finish` returns the total difference."""

    def __init__(self, held: TopicTable) -> None:
        self.topics: dict[str, QueueConfig] = {}
        self._held = held
        self._changed: dict[str, QueueConfig] = {}
        self._new = 0

    @property
    def changed(self) -> Mapping[str, QueueConfig]:
        """Return the topics so far that are new or changed."""
        return self._changed

    def add(self, chunk: Mapping[str, QueueConfig]) -> None:
        """Add the next topics, none of which was in an earlier chunk."""
        held, changed = self._held, self._changed
        for topic, queues in chunk.items():
            before = held.get(topic)
            if before is queues:
                continue
            if before is None:
                self._new += 1
                changed[topic] = queues
            elif before != queues:
                changed[topic] = queues
        self.topics.update(chunk)

    def finish(self) -> StagedTopics:
        """Return the complete set and how it differs from what is held."""
        removed: tuple[str, ...] = ()
        if len(self.topics) - self._new < len(self._held):
            removed = tuple(topic for topic in self._held if topic not in self.topics)
        if not self._changed and not removed:
            return StagedTopics(self._held, self._held)
        return StagedTopics(self.topics, self._held, self._changed, removed)


def staged(topics: TopicTable, *, held: TopicTable) -> StagedTopics:
    """Compare a complete set in one call."""
    if topics is held:
        return StagedTopics(held, held)
    staging = Staging(held)
    staging.add(topics)
    return staging.finish()
