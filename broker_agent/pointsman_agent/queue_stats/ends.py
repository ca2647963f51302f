"""Where the queues of the broker begin and end. Whatever has :class:`QueueEnds`'s methods can be asked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from pointsman_agent.core.measured_queue_stats import QueueEnd
from pointsman_agent.core.queue import QueueKey


class QueueEndsError(Exception):
    """The broker cannot be asked now; the text says why."""


class QueueEnds(Protocol):
    """Asks the broker. A queue whose end the broker does not tell is absent from every answer."""

    async def ends(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, QueueEnd]:
        """Tell where queues begin and end, and how much they hold. Raises QueueEndsError; ends in bounded time."""
        ...

    async def max_offsets(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, int]:
        """Tell the offset one beyond the last message of each queue. Raises QueueEndsError; ends in bounded time."""
        ...


class UnknownQueueEnds:
    """For a broker that cannot be asked: knows no queue."""

    async def ends(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, QueueEnd]:  # noqa: ARG002  # the Protocol's name
        """See :meth:`QueueEnds.ends`."""
        return {}

    async def max_offsets(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, int]:  # noqa: ARG002  # as above
        """See :meth:`QueueEnds.max_offsets`."""
        return {}
