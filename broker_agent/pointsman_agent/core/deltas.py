"""What changed from one topic set to the next, where saying only that is worth it.

A delta is small: what the wire takes in one message, and less than half of what the whole registration would say. A
change of the state version is a claim, and claims are made by registering.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

from pointsman.wire.names import MAX_CHUNK_TOPICS
from pointsman_agent.core.topic_set import DataVersion, TopicConfig, TopicSet

KNOWN_SETS = 2
"""Topic sets that are remembered for each name server: what it held, and what it was told since. A server that comes
back from its snapshot, or did not hear the last change, holds one of them."""

_NAME = attrgetter("topic")
_PARTS = attrgetter("read_queue_nums", "write_queue_nums", "perm", "topic_sys_flag")


@dataclass(frozen=True, slots=True)
class TopicDelta:
    """The change of a topic set from the version ``base``."""

    base: DataVersion
    changed: tuple[TopicConfig, ...]
    """Topics that are new or different."""
    removed: tuple[str, ...]


def small_delta(held: TopicSet, wanted: TopicSet) -> TopicDelta | None:
    """Say what leads from ``held`` to ``wanted``; None where a whole registration is the better way to say it."""
    if held.data_version.state_version != wanted.data_version.state_version:
        return None
    # By parts: two of 100,000 topics are compared in half the time that their own equality takes.
    before = dict(zip(map(_NAME, held.topics), map(_PARTS, held.topics), strict=True))
    now = zip(wanted.topics, map(_NAME, wanted.topics), map(_PARTS, wanted.topics), strict=True)
    changed = tuple(each for each, name, parts in now if before.pop(name, None) != parts)
    removed = tuple(before)
    size = len(changed) + len(removed)
    if size > MAX_CHUNK_TOPICS or 2 * size >= len(wanted.topics):
        return None
    return TopicDelta(held.data_version, changed, removed)


class KnownTopicSets:
    """The last topic sets that one name server was told, newest last; each may be what it holds."""

    def __init__(self) -> None:
        self._sets: list[TopicSet] = []

    def remember(self, topics: TopicSet) -> None:
        """Take in a set that the server is about to be told."""
        others = [each for each in self._sets if each.data_version != topics.data_version]
        self._sets = [*others, topics][-KNOWN_SETS:]

    def of_version(self, version: DataVersion) -> TopicSet | None:
        """Return the set of that version, if it is still known."""
        return next((each for each in self._sets if each.data_version == version), None)
