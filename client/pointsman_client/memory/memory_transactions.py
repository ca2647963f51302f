"""Half messages of brokers in memory, and the checks of those that have not ended, by the clock of the transport."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from pointsman_client.aio import end_tasks, start_task
from pointsman_client.core.message import OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.stream_entry import to_fields, to_received
from pointsman_client.core.transactions import HalfMessage, TransactionState
from pointsman_client.errors import BrokerRefusedError, ResponseCode
from pointsman_client.ports.producer_group import ProducerGroupRequest, masters_of

AGE_SECONDS = 6.0
"""Age of the youngest half message that is checked (``transactionTimeOut``)."""
CHECK_INTERVAL_SECONDS = 30.0
"""Time between two checks of one (``transactionCheckInterval``)."""
MAX_CHECKS = 15
"""After as many without an answer a half message is dropped (``transactionCheckMax``)."""
ROUND_SECONDS = 1.0


@dataclass(slots=True)
class Half:
    """A message of a transaction that has not ended."""

    queue: MessageQueue
    entry: Sequence[bytes]
    message_id: str
    group: str
    next_check_at: float
    checks: int = 0


@dataclass(slots=True)
class Halves:
    """The half messages of one broker, by a number of each."""

    by_number: dict[int, Half] = field(default_factory=dict)
    _last: int = 0

    def hold(self, addr: str, queue: MessageQueue, message: OutgoingMessage, *, now: float) -> HalfMessage:
        """Hold a message until its transaction ends."""
        self._last += 1
        group = message.internal_properties["PGROUP"]
        entry = to_fields(message, queue.topic)
        self.by_number[self._last] = Half(queue, entry, message.message_id, group, now + AGE_SECONDS)
        return self._place(addr, self._last)

    def due(self, addr: str, group: str, *, now: float) -> Iterator[tuple[HalfMessage, Half]]:
        """Yield what is to be checked now; each is due again after the interval, for any producer of its group."""
        for number, half in list(self.by_number.items()):
            if half.group != group or half.next_check_at > now:
                continue
            half.checks += 1
            half.next_check_at = now + CHECK_INTERVAL_SECONDS
            if half.checks > MAX_CHECKS:
                del self.by_number[number]
            else:
                yield self._place(addr, number), half

    def take(self, place: HalfMessage) -> Half:
        """Remove a half message, whose transaction ended. Raises :class:`BrokerRefusedError` if it is not held."""
        half = self.by_number.pop(place.queue_offset, None)
        if half is None:
            problem = f"the transaction of message {place.message_id} has ended"
            raise BrokerRefusedError(place.addr, ResponseCode.SYSTEM_ERROR, problem)
        return half

    def _place(self, addr: str, number: int) -> HalfMessage:
        half = self.by_number[number]
        return HalfMessage(addr, half.queue.topic, half.message_id, number, number, half.message_id)


class MemoryProducerGroup:
    """See :class:`~pointsman_client.ports.producer_group.ProducerGroup`."""

    def __init__(
        self,
        request: ProducerGroupRequest,
        *,
        halves_at: Callable[[str], Halves | None],
        end: Callable[[HalfMessage, TransactionState, float], Awaitable[None]],
    ) -> None:
        """``halves_at``: returns those of the broker at an address; None: it does not respond."""
        self._request = request
        self._halves_at = halves_at
        self._end = end
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """See :meth:`ProducerGroup.start`."""
        if not self._tasks:
            self._tasks.append(start_task(self._check(), name=f"pointsman-producer-group-{self._request.group}"))

    async def end(
        self,
        half: HalfMessage,
        state: TransactionState,
        *,
        is_checked: bool,  # noqa: ARG002  # as real brokers need it
        timeout_seconds: float,
    ) -> None:
        """See :meth:`ProducerGroup.end`."""
        await self._end(half, state, timeout_seconds)

    async def close(self) -> None:
        """See :meth:`ProducerGroup.close`."""
        await end_tasks(self._tasks, timeout_seconds=0.5)

    async def _check(self) -> None:
        request = self._request
        while True:
            for addr in await masters_of(request.routes, request.topics):
                halves = self._halves_at(addr)
                if halves is not None:
                    self._check_at(addr, halves)
            await request.clock.sleep(ROUND_SECONDS)

    def _check_at(self, addr: str, halves: Halves) -> None:
        for place, half in halves.due(addr, self._request.group, now=self._request.clock.monotonic()):
            # Its offset is not known before the commit.
            self._request.on_check(place, partial(to_received, half.entry, half.queue, 0))
