"""Sources of a broker's topics. A source is any class with :class:`TopicSource`'s one method."""

from __future__ import annotations

from typing import Protocol

from pointsman_agent.core.topic_set import TopicSet


class TopicSourceError(Exception):
    """The source cannot be read now; the last valid topics apply. The text is for operators."""


class TopicSourceNotInstalledError(Exception):
    """The source needs a package that is not installed; the text names it."""


class TopicSource(Protocol):
    """Reads the topics."""

    async def read(self) -> TopicSet:
        """Return all topics with their version. Raises TopicSourceError.

        Need not return in time: the caller has a deadline and cancels. Calls do not overlap.
        """
        ...
