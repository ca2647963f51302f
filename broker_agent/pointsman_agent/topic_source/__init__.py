"""Where a broker's topics are read from. A source is whatever has :class:`TopicSource`'s one method."""

from __future__ import annotations

from typing import Protocol

from pointsman_agent.core.topic_set import TopicSet


class TopicSourceError(Exception):
    """The source cannot be read now; what it said before still holds. The text is for people."""


class TopicSourceNotInstalledError(Exception):
    """The source needs a package that is not installed; the text says which."""


class TopicSource(Protocol):
    """Reads the topics from somewhere."""

    async def read(self) -> TopicSet:
        """Return all topics with their version. Raises TopicSourceError.

        Need not end by itself: the caller has the deadline and cancels. Never called twice at once.
        """
        ...
