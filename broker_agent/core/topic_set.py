"""A broker's topics and the version they are known by.

The version of a source that keeps no counter is derived from the content, so the same topics have the same version
after a restart and on another machine, and a name server that holds them need not be sent them again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

COUNTER_BYTES = 8
"""Of the digest; the counter on the wire is a uint64."""


@dataclass(frozen=True, slots=True, order=True)
class TopicConfig:
    """The queues of one topic on this broker."""

    topic: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    """Bits: priority 8, read 4, write 2, inherit 1."""
    topic_sys_flag: int = 0
    """Bits: unit 1, unit-sub 2."""


@dataclass(frozen=True, slots=True)
class DataVersion:
    """Version of a topic set; equality compares all three parts."""

    state_version: int = 0
    """Decides between two claims on one identity; whoever promotes a replica raises it."""
    timestamp_millis: int = 0
    """As the source wrote it; 0 where the version is derived from content."""
    counter: int = 0


@dataclass(frozen=True, slots=True)
class TopicSet:
    """All topics of the broker, by name, with their version."""

    topics: tuple[TopicConfig, ...]
    data_version: DataVersion

    @classmethod
    def from_content(cls, topics: Iterable[TopicConfig], *, state_version: int) -> TopicSet:
        """Build a set whose version follows from its content, whatever the order of ``topics``."""
        ordered = tuple(sorted(topics))
        return cls(ordered, DataVersion(state_version=state_version, counter=_content_counter(ordered)))


def _content_counter(ordered: tuple[TopicConfig, ...]) -> int:
    digest = hashlib.sha256()
    for each in ordered:
        # A line a topic. Neither character can stand in a topic name, so no two sets share a text.
        digest.update(
            f"{each.topic} {each.read_queue_nums} {each.write_queue_nums} {each.perm} {each.topic_sys_flag}\n".encode()
        )
    return int.from_bytes(digest.digest()[:COUNTER_BYTES], "big")
