"""A transport for producers' tests that accepts messages, refuses, fails, hangs or is slow, as the test sets."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from pointsman_client.core.message import OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.send_outcome import SendStatus
from pointsman_client.errors import BrokerRefusedError, BrokerTimeoutError, BrokerUnreachableError
from pointsman_client.ports.transport import PulledMessages, Reader, SendReceipt


@dataclass(frozen=True)
class Call:
    """A send as it was called."""

    addr: str
    queue: MessageQueue
    bodies: tuple[bytes, ...]
    timeout_seconds: float

    @property
    def place(self) -> str:
        """As ``broker:queue``."""
        return f"{self.queue.broker_name}:{self.queue.queue_id}"


class ScriptedTransport:
    """Implements Transport for what a producer does. ``behaviour`` has what an address does; others take messages."""

    def __init__(self) -> None:
        self.behaviour: dict[str, Callable[[], SendStatus]] = {}
        self.hanging: set[str] = set()
        self.before_answer: Callable[[], object] = lambda: None
        self.calls: list[Call] = []
        self.probes: list[tuple[str, MessageQueue, float]] = []
        self.written: defaultdict[MessageQueue, list[OutgoingMessage]] = defaultdict(list)
        self.forgotten: list[str] = []
        self.closed = 0
        self._called = asyncio.Condition()

    def unreachable(self, *addrs: str) -> None:
        """From now on connections to these addresses are refused."""

        def fail(addr: str) -> SendStatus:
            raise BrokerUnreachableError(addr, "connection refused")

        self._all(addrs, fail)

    def late(self, *addrs: str) -> None:
        """From now on these brokers do not respond before the transport's own timeout."""

        def fail(addr: str) -> SendStatus:
            raise BrokerTimeoutError(addr, "no answer")

        self._all(addrs, fail)

    def refuse(self, code: int, *addrs: str) -> None:
        """Their brokers answer no from now on."""

        def fail(addr: str) -> SendStatus:
            raise BrokerRefusedError(addr, code, "scripted")

        self._all(addrs, fail)

    def break_down(self, error: Exception, *addrs: str) -> None:
        """The transport itself has a fault there."""

        def fail(_: str) -> SendStatus:
            raise error

        self._all(addrs, fail)

    def answer(self, status: SendStatus, *addrs: str) -> None:
        """Their brokers take messages with this status from now on."""
        self._all(addrs, lambda _: status)

    def hang(self, *addrs: str) -> None:
        """Calls there never end, whatever their timeout."""
        self.hanging.update(addrs)

    def recover(self, *addrs: str) -> None:
        """From now on these addresses work again."""
        for addr in addrs:
            self.behaviour.pop(addr, None)
            self.hanging.discard(addr)

    def _all(self, addrs: Sequence[str], act: Callable[[str], SendStatus]) -> None:
        for addr in addrs:
            self.behaviour[addr] = lambda addr=addr: act(addr)  # type: ignore[misc]

    @property
    def places(self) -> list[str]:
        """Where each send went, in order."""
        return [call.place for call in self.calls]

    async def called(self, times: int) -> None:
        """Wait until this number of sends has come."""
        async with asyncio.timeout(60), self._called:
            await self._called.wait_for(lambda: len(self.calls) >= times)

    async def send(
        self, addr: str, queue: MessageQueue, messages: Sequence[OutgoingMessage], *, timeout_seconds: float
    ) -> SendReceipt:
        self.calls.append(Call(addr, queue, tuple(each.message.body for each in messages), timeout_seconds))
        async with self._called:
            self._called.notify_all()
        await self._enter(addr)
        status = self.behaviour[addr]() if addr in self.behaviour else SendStatus.SEND_OK
        first = len(self.written[queue])
        self.written[queue] += messages
        return SendReceipt(status, tuple(range(first, first + len(messages))))

    async def max_offset(self, addr: str, queue: MessageQueue, *, timeout_seconds: float) -> int:
        self.probes.append((addr, queue, timeout_seconds))
        await self._enter(addr)
        if addr in self.behaviour:
            self.behaviour[addr]()
        return len(self.written[queue])

    async def _enter(self, addr: str) -> None:
        if addr in self.hanging:
            await asyncio.Event().wait()
        self.before_answer()

    async def pull(
        self,
        addr: str,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int,
        wait_seconds: float,
        timeout_seconds: float,
        reader: Reader,
    ) -> PulledMessages:
        raise NotImplementedError

    async def min_offset(self, addr: str, queue: MessageQueue, *, timeout_seconds: float) -> int:
        raise NotImplementedError

    async def offset_at(self, addr: str, queue: MessageQueue, at: datetime, *, timeout_seconds: float) -> int:
        raise NotImplementedError

    def forget(self, addr: str) -> None:
        self.forgotten.append(addr)

    async def close(self) -> None:
        self.closed += 1
