"""What writes a topic source. A writer is any class with :class:`TopicWriter`'s methods."""

from __future__ import annotations

from typing import Protocol

from pointsman_agent.core.topic_set import TopicConfig


class TopicWriteFailedError(Exception):
    """The source could not be changed now, and has what it had before. The text is for operators."""


class TopicUnwritableError(Exception):
    """The source cannot be changed here; the text says why."""


class TopicWriter(Protocol):
    """Writes one topic at a time. Calls do not overlap."""

    source: str
    """Kind of the topic source."""

    def unwritable(self) -> str:
        """Return why the source cannot be written; empty: it can."""
        ...

    async def write(self, topic: TopicConfig) -> None:
        """Create a topic, or set its queues and permission. Raises both errors; returns in bounded time."""
        ...

    async def remove(self, topic: str) -> None:
        """Remove a topic; one that is not there stays so. Raises both errors; returns in bounded time."""
        ...


class UnwritableTopics:
    """For a topic source that nothing but its own program writes."""

    def __init__(self, source: str, why: str) -> None:
        self.source = source
        self._why = why

    def unwritable(self) -> str:
        """See :meth:`TopicWriter.unwritable`."""
        return self._why

    async def write(self, topic: TopicConfig) -> None:
        """See :meth:`TopicWriter.write`."""
        raise TopicUnwritableError(f"topic {topic.topic}: {self._why}")

    async def remove(self, topic: str) -> None:
        """See :meth:`TopicWriter.remove`."""
        raise TopicUnwritableError(f"topic {topic}: {self._why}")
