"""Brokers in the memory of this process, for tests: like :class:`RedisStreamsTransport`, without a server.

A broker exists as soon as its address is used. Messages are encoded as on Redis, so both lose the same information.
One test suite covers both.
"""

from __future__ import annotations

import asyncio
import copy
from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from pointsman.clock import Clock, SystemClock
from pointsman.redis_queues import stream_key
from pointsman_client.aio import done_within
from pointsman_client.core.checks import check_number
from pointsman_client.core.lease import GroupBacklog, Lease, LeasedMessage
from pointsman_client.core.message import OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.send_outcome import SendStatus
from pointsman_client.core.stream_entry import born_at, to_fields, to_received
from pointsman_client.core.transactions import HalfMessage, TransactionState
from pointsman_client.errors import (
    BrokerRefusedError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    ClientClosedError,
    OffsetBeyondEndError,
    ResponseCode,
)
from pointsman_client.memory.memory_leases import LeaseGroup
from pointsman_client.memory.memory_transactions import Halves, MemoryProducerGroup
from pointsman_client.ports.leases import PoppedMessages
from pointsman_client.ports.producer_group import ProducerGroup, ProducerGroupRequest
from pointsman_client.ports.transport import PulledMessages, Reader, SendReceipt


class MemoryTransport:
    """Implements :class:`Transport`, :class:`LeasesMessages` and ``HasTransactions``.

    ``max_length`` and ``wait_replicas`` are those of the Redis transport.

    Waits, timeouts and leases use ``clock``, which may be one that tests advance.
    """

    keeps_lease_offsets = False
    """See :class:`LeasesMessages`."""
    notices_late_acknowledgements = True
    """See :class:`LeasesMessages`."""

    def __init__(
        self, *, max_length: int | None = 1_000_000, wait_replicas: int = 0, clock: Clock | None = None
    ) -> None:
        if max_length is not None:
            check_number("max_length", max_length)
        check_number("wait_replicas", wait_replicas, at_least=0)
        self._max_length = max_length
        self._wait_replicas = wait_replicas
        self._clock = clock or SystemClock()
        self._brokers: defaultdict[str, _Broker] = defaultdict(_Broker)
        self._closed = False

    async def send(
        self, addr: str, queue: MessageQueue, messages: Sequence[OutgoingMessage], *, timeout_seconds: float
    ) -> SendReceipt:
        """See :meth:`Transport.send`."""
        broker = await self._reach(addr, timeout_seconds, to_write=True)
        if queue.queue_id >= broker.topics.get(queue.topic, queue.queue_id + 1):
            problem = f"queue {queue.queue_id} is beyond the {broker.topics[queue.topic]} queues of topic {queue.topic}"
            raise BrokerRefusedError(addr, ResponseCode.SYSTEM_ERROR, problem)
        if messages and messages[0].internal_properties:
            half = broker.halves.hold(addr, queue, messages[0], now=self._clock.monotonic())
            return SendReceipt(SendStatus.SEND_OK, (None,), half)
        entries = [to_fields(message, queue.topic) for message in messages]
        offsets = broker.append(queue, entries, self._max_length)
        replicas = [other for other in self._brokers.values() if other.master == addr and not other.is_unavailable]
        for replica in replicas:
            replica.copy_of(broker)
        status = SendStatus.SEND_OK
        if len(replicas) < self._wait_replicas:
            status = SendStatus.FLUSH_SLAVE_TIMEOUT if replicas else SendStatus.SLAVE_NOT_AVAILABLE
        return SendReceipt(status, offsets)

    def producer_group(self, request: ProducerGroupRequest) -> ProducerGroup:
        """See :meth:`HasTransactions.producer_group`. Half messages are not replicated; unknown ones are checked."""
        return MemoryProducerGroup(request, halves_at=self._halves_at, end=self._end_transaction)

    def _halves_at(self, addr: str) -> Halves | None:
        broker = self._brokers.get(addr)
        return None if broker is None or broker.is_unavailable else broker.halves

    async def _end_transaction(self, half: HalfMessage, state: TransactionState, timeout_seconds: float) -> None:
        broker = await self._reach(half.addr, timeout_seconds)
        held = broker.halves.take(half)
        if state is TransactionState.COMMIT:
            broker.append(held.queue, [held.entry], self._max_length)

    async def pull(
        self,
        addr: str,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int,
        wait_seconds: float,
        timeout_seconds: float,
        reader: Reader | None = None,  # noqa: ARG002  # the consumer filters
    ) -> PulledMessages:
        """See :meth:`Transport.pull`."""
        ends_at = self._clock.monotonic() + wait_seconds
        while True:
            broker = await self._reach(addr, timeout_seconds)
            pulled = _read(addr, broker.log(queue), queue, offset, max_messages)
            seconds = ends_at - self._clock.monotonic()
            if pulled.next_offset != offset or seconds <= 0:
                return pulled
            await self._until(broker.changed(), seconds)

    async def min_offset(self, addr: str, queue: MessageQueue, *, timeout_seconds: float) -> int:
        """See :meth:`Transport.min_offset`."""
        return (await self._reach(addr, timeout_seconds)).log(queue).first

    async def max_offset(self, addr: str, queue: MessageQueue, *, timeout_seconds: float) -> int:
        """See :meth:`Transport.max_offset`."""
        return (await self._reach(addr, timeout_seconds)).log(queue).end

    async def offset_at(self, addr: str, queue: MessageQueue, at: datetime, *, timeout_seconds: float) -> int:
        """See :meth:`Transport.offset_at`; a binary search, as in the Redis transport."""
        log = (await self._reach(addr, timeout_seconds)).log(queue)
        low, high = log.first, log.end
        while low < high:
            middle = (low + high) // 2
            born = born_at(log.entries[middle - log.first])
            if born is None or born >= at:
                high = middle
            else:
                low = middle + 1
        return low

    async def pop(
        self,
        addr: str,
        queues: Sequence[MessageQueue],
        *,
        reader: Reader,
        max_messages: int,
        invisible_seconds: float,
        is_ordered: bool,
        timeout_seconds: float,
    ) -> PoppedMessages:
        """See :meth:`LeasesMessages.pop`."""
        broker = await self._reach(addr, timeout_seconds, to_write=True)
        messages: list[LeasedMessage] = []
        trimmed: dict[MessageQueue, int] = {}
        now = self._clock.monotonic()
        for queue in queues:
            group, log = broker.group(queue, reader.group), broker.log(queue)
            if group is None:
                continue
            taken, removed = group.take(
                max_messages - len(messages),
                first=log.first,
                end=log.end,
                now=now,
                ends_at=now + invisible_seconds,
                is_ordered=is_ordered,
            )
            if removed:
                trimmed[queue] = removed
            for offset, count in taken:
                message = to_received(log.entries[offset - log.first], queue, offset)
                message = message._replace(reconsume_times=message.reconsume_times + count - 1)
                messages.append(LeasedMessage(message, Lease(queue, offset, str(count))))
        without = tuple(queue for queue in queues if broker.group(queue, reader.group) is None)
        return PoppedMessages(tuple(messages), trimmed, without)

    async def wait_for_messages(
        self,
        addr: str,
        queues: Sequence[MessageQueue],
        *,
        reader: Reader,
        is_ordered: bool,
        wait_seconds: float,
        timeout_seconds: float,
    ) -> None:
        """See :meth:`LeasesMessages.wait_for_messages`."""
        ends_at = self._clock.monotonic() + wait_seconds
        while True:
            broker = await self._reach(addr, timeout_seconds, to_write=True)
            wake_at = ends_at
            for queue in queues:
                group = broker.group(queue, reader.group)
                change = 0.0 if group is None else group.next_change(end=broker.log(queue).end, is_ordered=is_ordered)
                wake_at = wake_at if change is None else min(wake_at, change)
            seconds = wake_at - self._clock.monotonic()
            if seconds <= 0:
                return
            await self._until(broker.changed(), seconds)

    async def acknowledge(
        self, addr: str, leases: Sequence[Lease], *, group: str, timeout_seconds: float
    ) -> tuple[Lease, ...]:
        """See :meth:`LeasesMessages.acknowledge`."""
        broker = await self._reach(addr, timeout_seconds, to_write=True)
        over = []
        for lease in leases:
            held = broker.group(lease.queue, group)
            if held is not None and not held.finish(lease.queue_offset, int(lease.receipt)):
                over.append(lease)
        broker.wake()
        return tuple(over)

    async def change_invisible(
        self, addr: str, leases: Sequence[Lease], *, group: str, invisible_seconds: float, timeout_seconds: float
    ) -> tuple[Lease | None, ...]:
        """See :meth:`LeasesMessages.change_invisible`."""
        broker = await self._reach(addr, timeout_seconds, to_write=True)
        ends_at = self._clock.monotonic() + invisible_seconds
        changed: list[Lease | None] = []
        for lease in leases:
            held = broker.group(lease.queue, group)
            is_held = held is not None and held.extend(lease.queue_offset, int(lease.receipt), ends_at=ends_at)
            changed.append(lease if is_held else None)
        broker.wake()
        return tuple(changed)

    async def begin_group(
        self, addr: str, queue: MessageQueue, offset: int, *, group: str, timeout_seconds: float
    ) -> None:
        """See :meth:`LeasesMessages.begin_group`."""
        broker = await self._reach(addr, timeout_seconds, to_write=True)
        broker.groups.setdefault((queue.topic, queue.queue_id, group), LeaseGroup(offset))
        broker.wake()

    async def backlogs(
        self, addr: str, queues: Collection[MessageQueue], *, group: str, timeout_seconds: float
    ) -> Mapping[MessageQueue, GroupBacklog]:
        """See :meth:`LeasesMessages.backlogs`."""
        broker = await self._reach(addr, timeout_seconds)
        found = ((queue, broker.group(queue, group)) for queue in queues)
        return {queue: held.backlog for queue, held in found if held is not None}

    def forget(self, addr: str) -> None:
        """See :meth:`Transport.forget`. There is no connection to close; the broker keeps its messages."""

    async def close(self) -> None:
        """See :meth:`Transport.close`."""
        self._closed = True
        for broker in self._brokers.values():
            broker.wake()

    # For tests: state of brokers

    def set_queues(self, addr: str, topics: Mapping[str, int]) -> None:
        """Set the broker's number of queues by topic. It rejects messages for queues beyond them.

        A topic without a number has any queue, as on Redis, where the first message creates the queue.
        """
        self._brokers[addr].topics = dict(topics)

    def take_down(self, addr: str) -> None:
        """Crash the broker: it is unreachable, and keeps its messages."""
        broker = self._brokers[addr]
        broker.is_down, broker.is_hanging = True, False
        broker.detach()
        broker.wake()

    def hang(self, addr: str) -> None:
        """Suspend the broker: it no longer responds (SIGSTOP)."""
        broker = self._brokers[addr]
        broker.is_hanging = True
        broker.detach()
        broker.wake()

    def bring_up(self, addr: str) -> None:
        """Make the broker available again, with its messages; a replica also copies its master's."""
        broker = self._brokers[addr]
        broker.is_down = broker.is_hanging = False
        self._copy_from_master(broker)
        broker.wake()

    def lose_messages(self, addr: str) -> None:
        """Delete all messages of the broker and its replicas, as with a Redis master that has no AOF."""
        broker = self._brokers[addr]
        broker.logs.clear()
        broker.groups.clear()
        broker.halves = Halves()
        broker.wake()
        for other in self._brokers.values():
            if other.master == addr:
                self._copy_from_master(other)

    def replicate(self, master_addr: str, slave_addr: str) -> None:
        """Make one broker a replica of another: it copies all of its messages and rejects sends."""
        broker = self._brokers[slave_addr]
        broker.master = master_addr
        self._brokers[master_addr].master = None
        broker.logs.clear()
        self._copy_from_master(broker)

    def promote(self, addr: str) -> None:
        """Make a replica a master."""
        broker = self._brokers[addr]
        broker.master = None
        broker.detach()

    def trim(self, addr: str, queue: MessageQueue, first: int) -> None:
        """Remove the messages before offset ``first``."""
        self._brokers[addr].log(queue).trim(first)

    def _copy_from_master(self, broker: _Broker) -> None:
        if broker.master is None or broker.is_unavailable:
            return
        master = self._brokers[broker.master]
        if not master.is_unavailable:
            broker.copy_of(master)

    async def _reach(self, addr: str, timeout_seconds: float, *, to_write: bool = False) -> _Broker:
        broker = self._brokers[addr]
        ends_at = self._clock.monotonic() + timeout_seconds
        # As with Redis, other tasks run before the response.
        await asyncio.sleep(0)
        while True:
            if self._closed:
                raise ClientClosedError
            if broker.is_down:
                raise BrokerUnreachableError(addr, "it is down")
            if not broker.is_hanging:
                break
            seconds = ends_at - self._clock.monotonic()
            if seconds <= 0:
                raise BrokerTimeoutError(addr, f"no response within {timeout_seconds:g} s")
            await self._until(broker.changed(), seconds)
        if to_write and broker.master is not None:
            raise BrokerRefusedError(addr, ResponseCode.NO_PERMISSION, "it is a replica; send to the master")
        return broker

    async def _until(self, changed: asyncio.Future[None], seconds: float) -> None:
        try:
            await done_within(changed, seconds, clock=self._clock)
        finally:
            changed.cancel()


class _Log:
    """One queue."""

    def __init__(self) -> None:
        self.entries: deque[Sequence[bytes]] = deque()
        self.end = 0

    @property
    def first(self) -> int:
        return self.end - len(self.entries)

    def trim(self, first: int) -> None:
        while self.entries and self.first < first:
            self.entries.popleft()


class _Broker:
    def __init__(self) -> None:
        self.logs: defaultdict[tuple[str, int], _Log] = defaultdict(_Log)
        self.groups: dict[tuple[str, int, str], LeaseGroup] = {}
        """By topic, queue id and group; those of its master, while it is a replica that has all changes."""
        self.halves = Halves()
        self.topics: dict[str, int] = {}
        self.is_down = False
        self.is_hanging = False
        self.master: str | None = None
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def is_unavailable(self) -> bool:
        return self.is_down or self.is_hanging

    def log(self, queue: MessageQueue) -> _Log:
        return self.logs.get((queue.topic, queue.queue_id)) or _Log()

    def group(self, queue: MessageQueue, group: str) -> LeaseGroup | None:
        return self.groups.get((queue.topic, queue.queue_id, group))

    def append(
        self, queue: MessageQueue, entries: Sequence[Sequence[bytes]], max_length: int | None
    ) -> tuple[int, ...]:
        log = self.logs[queue.topic, queue.queue_id]
        offsets = tuple(range(log.end, log.end + len(entries)))
        log.entries.extend(entries)
        log.end += len(entries)
        if max_length is not None:
            log.trim(log.end - max_length)
        self.wake()
        return offsets

    def copy_of(self, master: _Broker) -> None:
        for key in self.logs.keys() - master.logs.keys():
            del self.logs[key]
        for key, theirs in master.logs.items():
            mine = self.logs.get(key)
            if mine is None or mine.end > theirs.end or mine.end < theirs.first:
                mine = self.logs[key] = _Log()
                mine.end = theirs.first
            mine.entries.extend(theirs.entries[at] for at in range(mine.end - theirs.first, len(theirs.entries)))
            mine.end = theirs.end
            mine.trim(theirs.first)
        self.groups = master.groups
        self.wake()

    def detach(self) -> None:
        """Receive no further changes of groups from the master."""
        self.groups = copy.deepcopy(self.groups)

    def changed(self) -> asyncio.Future[None]:
        """Done when anything changes."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting = [other for other in self._waiting if not other.done()]
        self._waiting.append(waiting)
        return waiting

    def wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            # Tests may change brokers from another thread than the client's.
            if not (future.done() or future.get_loop().is_closed()):
                future.get_loop().call_soon_threadsafe(_set, future)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _read(addr: str, log: _Log, queue: MessageQueue, offset: int, max_messages: int) -> PulledMessages:
    if offset > log.end:
        raise OffsetBeyondEndError(addr, stream_key(queue.topic, queue.queue_id), offset=offset, end=log.end)
    begin = max(offset, log.first)
    end = min(begin + max_messages, log.end)
    messages = tuple(to_received(log.entries[at - log.first], queue, at) for at in range(begin, end))
    return PulledMessages(messages, end, begin - offset)
