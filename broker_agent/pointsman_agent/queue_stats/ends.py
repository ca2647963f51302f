"""Offsets at which the broker's queues begin and end. A source is any class with :class:`QueueEnds`'s methods."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol, runtime_checkable

from pointsman_agent.core.measured_queue_stats import QueueEnd
from pointsman_agent.core.queue import QueueKey


class QueueEndsError(Exception):
    """The broker cannot be queried now; the text has the reason."""


class QueueEnds(Protocol):
    """Queries the broker. A queue whose end the broker does not report is absent from every result."""

    async def ends(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, QueueEnd]:
        """Return begin, end and depth of queues. Raises QueueEndsError; returns in bounded time."""
        ...

    async def max_offsets(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, int]:
        """Return the offset after the last message of each queue. Raises QueueEndsError; returns in bounded time."""
        ...


@runtime_checkable
class QueueContents(Protocol):
    """Queries the broker about some queues. What the broker does not report is absent."""

    async def bytes_of(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, int]:
        """Return the memory that queues take, in bytes. Raises QueueEndsError; returns in bounded time."""
        ...

    async def born_at(self, messages: Collection[tuple[QueueKey, int]]) -> Mapping[tuple[QueueKey, int], float]:
        """Return when the first message from each offset was made, seconds since 1970 by its producer's clock.

        Raises QueueEndsError; returns in bounded time.
        """
        ...


class UnknownQueueEnds:
    """For a broker that cannot be queried: reports no queue."""

    async def ends(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, QueueEnd]:  # noqa: ARG002  # the Protocol's name
        """See :meth:`QueueEnds.ends`."""
        return {}

    async def max_offsets(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, int]:  # noqa: ARG002  # as above
        """See :meth:`QueueEnds.max_offsets`."""
        return {}
