"""The difference between two topic sets, where it is cheaper to send than a full registration.

A delta fits into one message and is less than half as large as the full registration. A change of the state version
is a claim, and only registrations make claims.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

from pointsman.names import MAX_CHUNK_TOPICS
from pointsman_agent.core.topic_set import DataVersion, TopicConfig, TopicSet

KNOWN_SETS = 2
"""Topic sets remembered for each name server: the one it held, and the one sent since. A server that restarts from its
snapshot, or missed the last change, holds one of them."""

_NAME = attrgetter("topic")
_PARTS = attrgetter("read_queue_nums", "write_queue_nums", "perm", "topic_sys_flag", "queue_weight")


@dataclass(frozen=True, slots=True)
class TopicDelta:
    """The change of a topic set from the version ``base``."""

    base: DataVersion
    changed: tuple[TopicConfig, ...]
    """Topics that are new or different."""
    removed: tuple[str, ...]


def small_delta(held: TopicSet, wanted: TopicSet) -> TopicDelta | None:
    """Return the change from ``held`` to ``wanted``; None where a full registration is better."""
    if held.data_version.state_version != wanted.data_version.state_version:
        return None
    # By attributes: two sets of 100,000 topics compare in half the time that ``==`` takes.
    before = dict(zip(map(_NAME, held.topics), map(_PARTS, held.topics), strict=True))
    now = zip(wanted.topics, map(_NAME, wanted.topics), map(_PARTS, wanted.topics), strict=True)
    changed = tuple(each for each, name, parts in now if before.pop(name, None) != parts)
    removed = tuple(before)
    size = len(changed) + len(removed)
    if size > MAX_CHUNK_TOPICS or 2 * size >= len(wanted.topics):
        return None
    return TopicDelta(held.data_version, changed, removed)


class KnownTopicSets:
    """The last topic sets sent to one name server, newest last; it may hold any of them."""

    def __init__(self) -> None:
        self._sets: list[TopicSet] = []

    def remember(self, topics: TopicSet) -> None:
        """Record a set that is about to be sent."""
        others = [each for each in self._sets if each.data_version != topics.data_version]
        self._sets = [*others, topics][-KNOWN_SETS:]

    def of_version(self, version: DataVersion) -> TopicSet | None:
        """Return the set of that version, if it is remembered."""
        return next((each for each in self._sets if each.data_version == version), None)
