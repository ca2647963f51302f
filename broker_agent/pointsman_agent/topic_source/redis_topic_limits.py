"""What operators set of topics whose queues are Redis streams: fields of the hash ``pointsman:topics``. Pure.

A topic without a field has all its streams as queues, readable and writable.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pointsman.names import PERM_READ, PERM_WRITE
from pointsman_agent.core.topic_set import TopicConfig

LIMITS_KEY = "pointsman:topics"
NO_LIMIT = 10**9
"""More queues than there may be."""

_TEXT = re.compile(r"(?P<read>[0-9]{1,5}) (?P<write>[0-9]{1,5}) (?P<perm>[0246])")


class TopicLimit(NamedTuple):
    """The most queues of a topic, and its permission. Without any queue the topic is hidden."""

    read_queues: int
    write_queues: int
    perm: int = PERM_READ | PERM_WRITE

    @classmethod
    def of_text(cls, text: str) -> TopicLimit | None:
        """Read a field; None: it has none."""
        match = _TEXT.fullmatch(text)
        return None if match is None else cls(int(match["read"]), int(match["write"]), int(match["perm"]))

    def to_text(self) -> str:
        """Return the value of the field."""
        return f"{self.read_queues} {self.write_queues} {self.perm}"

    def restricts(self, streams: int) -> bool:
        """Whether a topic with this number of streams is another one than without the limit."""
        is_less = min(self.read_queues, self.write_queues) < streams
        return bool(streams) and (is_less or self.perm != PERM_READ | PERM_WRITE)

    def to_topic(self, topic: str, streams: int) -> TopicConfig | None:
        """Return the topic; None: it is hidden."""
        if not (self.read_queues or self.write_queues):
            return None
        return TopicConfig(topic, min(streams, self.read_queues), min(streams, self.write_queues), self.perm)


UNLIMITED = TopicLimit(NO_LIMIT, NO_LIMIT)
