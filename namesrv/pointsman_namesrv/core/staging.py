"""The topics of a registration while it comes in, chunk by chunk, compared with those that are held already.

What the route table, the history and the answer need to know of a large registration is found out a chunk at a time,
so that accepting it is one swap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pointsman_namesrv.core.model import QueueConfig, TopicTable

COMING_IN_BYTES = 112 * 1024 * 1024
"""Memory of all registrations that are coming in, over any wire, estimated. One of 200,000 topics has room while their
names have no more than 210 characters on average."""
COMING_IN_BYTES_A_TOPIC = 235
"""What a higher ``max_topics`` adds to it: a fleet that registers after a restart has room at any size."""
COMING_IN_LIMIT = "bytes_of_registrations_at_once"
"""How errors and metrics name that bound."""
BYTES_OF_STAGED_TOPIC = 130
"""Memory of a topic that was read, besides twice its bytes on the wire: name, entry, numbers."""


def coming_in_bytes(max_topics: int) -> int:
    """Bound on the memory of all registrations that are coming in, of a server with that ``max_topics``."""
    return max(COMING_IN_BYTES, COMING_IN_BYTES_A_TOPIC * max_topics)


@dataclass(frozen=True, slots=True)
class StagedTopics:
    """A whole topic set, and how it differs from another. Never altered after it was made."""

    topics: TopicTable
    """The compared table itself where nothing differs."""
    compared_with: TopicTable
    changed: Mapping[str, QueueConfig] = field(default_factory=dict)
    """Topics that are new or different."""
    removed: tuple[str, ...] = ()

    @property
    def is_unchanged(self) -> bool:
        """Whether the set is the one that it was compared with."""
        return self.topics is self.compared_with


class Staging:
    """Collects chunks; :meth:`finish` says what they were together."""

    def __init__(self, held: TopicTable) -> None:
        self.topics: dict[str, QueueConfig] = {}
        self._held = held
        self._changed: dict[str, QueueConfig] = {}
        self._new = 0

    @property
    def changed(self) -> Mapping[str, QueueConfig]:
        """Topics so far that are new or different."""
        return self._changed

    def add(self, chunk: Mapping[str, QueueConfig]) -> None:
        """Take the next topics, none of which stood in an earlier chunk."""
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
        """Say how the whole set differs from what is held."""
        removed: tuple[str, ...] = ()
        if len(self.topics) - self._new < len(self._held):
            removed = tuple(topic for topic in self._held if topic not in self.topics)
        if not self._changed and not removed:
            return StagedTopics(self._held, self._held)
        return StagedTopics(self.topics, self._held, self._changed, removed)


def staged(topics: TopicTable, *, held: TopicTable) -> StagedTopics:
    """Compare a whole set at once."""
    if topics is held:
        return StagedTopics(held, held)
    staging = Staging(held)
    staging.add(topics)
    return staging.finish()
