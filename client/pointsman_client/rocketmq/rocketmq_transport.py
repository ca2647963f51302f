"""The transport for RocketMQ brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar

from pointsman.clock import Clock, SystemClock
from pointsman.rocketmq.codes import BrokerRequestCode, BrokerResponseCode
from pointsman_client.aio import deadline_in
from pointsman_client.core.lease import ConsumeMode, GroupBacklog, Lease
from pointsman_client.core.message import OutgoingMessage, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.option_fields import takes_options
from pointsman_client.core.reply_address import REPLY_TYPE
from pointsman_client.core.send_outcome import SendStatus
from pointsman_client.errors import (
    BrokerError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    ClientClosedError,
    InvalidMessageError,
    RequesterGoneError,
    UnreadableMessageError,
)
from pointsman_client.ports.coordination import Coordination, CoordinationRequest
from pointsman_client.ports.leases import PoppedMessages
from pointsman_client.ports.producer_group import ProducerGroup, ProducerGroupRequest, RequestGroup
from pointsman_client.ports.transport import PulledMessages, Reader, SendReceipt
from pointsman_client.rocketmq.broker_connection import AbandonedError, Response
from pointsman_client.rocketmq.broker_leases import BrokerLeases
from pointsman_client.rocketmq.broker_link import Link
from pointsman_client.rocketmq.broker_refusals import refused, send_refused
from pointsman_client.rocketmq.groups.broker_coordination import broker_coordination
from pointsman_client.rocketmq.groups.producer_membership import ProducerMembership
from pointsman_client.rocketmq.half_messages import sent_half
from pointsman_client.rocketmq.message_codec import (
    commit_log_offset,
    milliseconds,
    properties_text,
    store_times,
)
from pointsman_client.rocketmq.pulling import GRID_SECONDS, SEARCHER, number, pull_fields, read_pulled
from pointsman_client.rocketmq.recall_handle import recall_place
from pointsman_client.rocketmq.rocketmq_options import RocketmqOptions
from pointsman_client.rocketmq.sending import DEFAULT_TOPIC, DEFAULT_TOPIC_QUEUE_NUMS, SendRequests

MAX_SUSPEND_SECONDS = 15.0
"""Longest time that a broker holds one request, as in the Java client; longer waits are several requests."""
PAUSE_SECONDS = 0.5
"""Pause after a pull that a broker should have held but did not, such as a slave that is behind."""
IN_THREAD_BYTES = 128 * 1024
"""Messages of this size and more are encoded and decoded in a thread: compressing them would block the event loop."""
NO_THREAD = "no thread was free in time: the application's own calls of asyncio.to_thread may use all of them"

_VERSION_WITH_EXACT_SEARCH = 441
"""5.1.4; before, a search by time returns the nearest message."""

ResultT = TypeVar("ResultT")

_STATUSES: dict[int, SendStatus] = {
    BrokerResponseCode.SUCCESS: SendStatus.SEND_OK,
    BrokerResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    BrokerResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    BrokerResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


class RocketmqTransport:
    """Carries messages to and from RocketMQ brokers, 4.9 or later.

    Implements ``Transport``, ``SendsBack``, ``SendsOneWay``, ``ChecksMessages``, ``CreatesTopics``,
    ``CoordinatesGroups``, ``HasTransactions``, ``HasRequests``, ``FiltersBySql``, ``RecallsMessages`` and, with brokers
    5.0 or later, ``LeasesMessages`` and ``StatesConsumeMode``. Each broker has one connection, opened when it is first
    used. A receipt has no offset for a delayed message: the broker puts it into an internal topic first. A batch cannot
    contain delayed messages. Properties that RocketMQ uses itself, such as ``DELAY``, cannot be sent and are not in
    received messages.
    """

    ends_in_time = True
    """See ``Transport``."""
    keeps_lease_offsets = True
    """See ``LeasesMessages``."""
    notices_late_acknowledgements = False
    """See ``LeasesMessages``."""
    filters_by_sql = True
    """See ``FiltersBySql``; needs ``enablePropertyFilter`` at the broker."""
    default_topic = DEFAULT_TOPIC
    """See ``CreatesTopics``."""
    default_topic_queue_nums = DEFAULT_TOPIC_QUEUE_NUMS
    """See ``CreatesTopics``."""

    @takes_options(RocketmqOptions)
    def __init__(self, options: RocketmqOptions) -> None:
        """Check and keep the options: see :class:`RocketmqOptions` in ``rocketmq_options``.

        Raises :class:`InvalidOptionError`.
        """
        self._options = options
        self._clock: Clock = options.clock or SystemClock()
        self._requests = SendRequests(options)
        self._links: dict[str, Link] = {}
        self._leases = BrokerLeases(lambda addr: self._link(addr), max_body_bytes=options.max_body_bytes)  # noqa: PLW0108  # below
        self._closed = False

    @property
    def options(self) -> RocketmqOptions:
        """The options, for the connections of group members."""
        return self._options

    async def send(
        self, addr: str, queue: MessageQueue, messages: Sequence[OutgoingMessage], *, timeout_seconds: float
    ) -> SendReceipt:
        """See :meth:`Transport.send`."""
        deadline = deadline_in(timeout_seconds)
        head, body = await self._to_request(addr, queue, messages, deadline)
        link = self._links.get(addr) or self._link(addr)
        connection = link.connection or await link.connect(deadline)
        command = (await connection.request(head, body, deadline)).command
        status = _STATUSES.get(command.code)
        internal = messages[0].internal_properties
        if status is None:
            if internal and command.code == BrokerResponseCode.SYSTEM_ERROR and internal.get("MSG_TYPE") == REPLY_TYPE:
                raise RequesterGoneError(addr, command.reason)
            raise send_refused(addr, command, messages[0].due_at)
        if messages[0].due_at is not None:
            return SendReceipt(status, (None,), None, command.ext.get("recallHandle", ""))
        first = number(addr, command, "queueOffset")
        if internal and "TRAN_MSG" in internal:
            return SendReceipt(status, (None,), sent_half(addr, messages[0], command))
        return SendReceipt(status, tuple(range(first, first + len(messages))))

    def coordination(self, request: CoordinationRequest) -> Coordination:
        """See :meth:`CoordinatesGroups.coordination`. Members have their own connections."""
        return broker_coordination(request, self, self._options)

    def producer_group(self, request: ProducerGroupRequest) -> ProducerGroup:
        """See :meth:`HasTransactions.producer_group`. Producers in groups have their own connections."""
        return ProducerMembership(request, self._options)

    def request_group(self, request: ProducerGroupRequest) -> RequestGroup:
        """See :meth:`HasRequests.request_group`."""
        return ProducerMembership(request, self._options)

    async def send_one_way(
        self, addr: str, queue: MessageQueue, messages: Sequence[OutgoingMessage], *, timeout_seconds: float
    ) -> None:
        """See :meth:`SendsOneWay.send_one_way`; ``max_unsent_bytes`` limits the buffer."""
        deadline = deadline_in(timeout_seconds)
        head, body = await self._to_request(addr, queue, messages, deadline, is_one_way=True)
        link = self._link(addr)
        connection = link.connection or await link.connect(deadline)
        connection.send_one_way(head, body, deadline)

    def recall_place(self, handle: str) -> tuple[str, str]:
        """See :meth:`RecallsMessages.recall_place`."""
        return recall_place(handle)

    async def recall(self, addr: str, handle: str, *, timeout_seconds: float) -> None:
        """See :meth:`RecallsMessages.recall` (RECALL_MESSAGE); needs ``recallMessageEnable`` at the broker."""
        topic, broker_name = recall_place(handle)
        fields = {
            "producerGroup": self._options.producer_group,
            "topic": topic,
            "recallHandle": handle,
            "bname": broker_name,
        }
        response = await self._link(addr).request(
            BrokerRequestCode.RECALL_MESSAGE, fields, timeout_seconds=timeout_seconds
        )
        if response.command.code != BrokerResponseCode.SUCCESS:
            raise refused(addr, response.command)

    def check(self, queue: MessageQueue, message: OutgoingMessage) -> None:
        """See :meth:`ChecksMessages.check`. How long a message may be delayed depends on the broker."""
        properties_text(message, queue.topic)

    async def _to_request(
        self,
        addr: str,
        queue: MessageQueue,
        messages: Sequence[OutgoingMessage],
        deadline: float,
        *,
        is_one_way: bool = False,
    ) -> tuple[bytes, bytes]:
        first = messages[0]
        now, version = first.born_at, 0
        if first.due_at is not None:
            now = self._clock.utc_now()
            # How a broker delays messages depends on its version, which may have changed since its last connection.
            connection = self._link(addr).connection
            version = 0 if connection is None else connection.version
            if not version:
                await self._offset(addr, queue, BrokerRequestCode.GET_MIN_OFFSET, {}, deadline)
                version = self._link(addr).version
        encode = self._requests.to_request
        if len(first.message.body) < IN_THREAD_BYTES:
            return encode(queue, messages, now=now, version=version, is_one_way=is_one_way)
        encode = partial(encode, queue, messages, now=now, version=version, is_one_way=is_one_way)
        return await _in_thread(encode, deadline, BrokerUnreachableError(addr, NO_THREAD))

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
        """See :meth:`Transport.pull`. A broker returns at most 32 messages or 256 KiB at a time.

        For a wait of more than 5 s the broker holds the request, and this returns up to 5 s before ``wait_seconds``,
        when the broker does. Shorter than that a broker cannot wait: the request is abandoned in time and another one
        sent that does not wait.
        """
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + wait_seconds
        while True:
            link = self._links.get(addr) or self._link(addr)
            if link.connection is None:
                await link.connect(loop.time() + timeout_seconds)
            sent_at = loop.time()
            left = ends_at - sent_at
            suspend_seconds, deadline = 0.0, sent_at + timeout_seconds
            is_held = left > GRID_SECONDS
            if is_held:
                # The broker responds up to GRID_SECONDS after the time that it is given.
                suspend_seconds = min(left - GRID_SECONDS, MAX_SUSPEND_SECONDS)
                deadline += suspend_seconds + GRID_SECONDS
            elif left > 0:
                suspend_seconds, deadline = 0.001, ends_at
            fields = pull_fields(
                queue, offset, max_messages=max_messages, suspend_seconds=suspend_seconds, reader=reader
            )
            may_be_abandoned = left > 0 and not is_held
            try:
                response = await link.exchange(
                    BrokerRequestCode.PULL_MESSAGE,
                    fields,
                    b"",
                    deadline,
                    is_read=True,
                    may_be_abandoned=may_be_abandoned,
                )
            except AbandonedError:
                continue
            read_by = max(deadline, sent_at + timeout_seconds)
            pulled = await self._to_pulled(addr, queue, offset, response, max_messages, read_by)
            now = loop.time()
            if pulled.next_offset != offset or pulled.is_reset or now >= ends_at:
                return pulled
            if now - sent_at < (min(PAUSE_SECONDS, suspend_seconds) if is_held else PAUSE_SECONDS):
                await asyncio.sleep(min(PAUSE_SECONDS, ends_at - now))
            elif ends_at - now <= GRID_SECONDS:
                return pulled

    async def _to_pulled(
        self, addr: str, queue: MessageQueue, offset: int, response: Response, max_messages: int, deadline: float
    ) -> PulledMessages:
        command, body = response
        read = partial(
            read_pulled,
            addr,
            queue,
            offset,
            command,
            body,
            max_messages=max_messages,
            max_body_bytes=self._options.max_body_bytes,
        )
        if len(body) < IN_THREAD_BYTES:
            return read()
        return await _in_thread(read, deadline, BrokerTimeoutError(addr, NO_THREAD))

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
        """See :meth:`LeasesMessages.pop`. A broker returns at most 32 messages at a time."""
        return await self._leases.pop(
            addr,
            queues,
            reader=reader,
            max_messages=max_messages,
            invisible_seconds=invisible_seconds,
            is_ordered=is_ordered,
            timeout_seconds=timeout_seconds,
        )

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
        """See :meth:`LeasesMessages.wait_for_messages` (NOTIFICATION)."""
        await self._leases.wait(
            addr,
            queues,
            reader=reader,
            is_ordered=is_ordered,
            wait_seconds=wait_seconds,
            timeout_seconds=timeout_seconds,
        )

    async def acknowledge(
        self, addr: str, leases: Sequence[Lease], *, group: str, timeout_seconds: float
    ) -> tuple[Lease, ...]:
        """See :meth:`LeasesMessages.acknowledge`."""
        return await self._leases.acknowledge(addr, leases, group=group, timeout_seconds=timeout_seconds)

    async def change_invisible(
        self, addr: str, leases: Sequence[Lease], *, group: str, invisible_seconds: float, timeout_seconds: float
    ) -> tuple[Lease | None, ...]:
        """See :meth:`LeasesMessages.change_invisible`."""
        return await self._leases.change_invisible(
            addr, leases, group=group, invisible_seconds=invisible_seconds, timeout_seconds=timeout_seconds
        )

    async def begin_group(
        self, addr: str, queue: MessageQueue, offset: int, *, group: str, timeout_seconds: float
    ) -> None:
        """See :meth:`LeasesMessages.begin_group`."""
        await self._leases.begin_group(addr, queue, offset, group=group, timeout_seconds=timeout_seconds)

    async def backlogs(
        self, addr: str, queues: Collection[MessageQueue], *, group: str, timeout_seconds: float
    ) -> Mapping[MessageQueue, GroupBacklog]:
        """See :meth:`LeasesMessages.backlogs`."""
        return await self._leases.backlogs(addr, queues, group=group, timeout_seconds=timeout_seconds)

    async def consume_mode(
        self, addr: str, topic: str, *, group: str, client_id: str, timeout_seconds: float
    ) -> ConsumeMode | None:
        """See :meth:`StatesConsumeMode.consume_mode` (QUERY_ASSIGNMENT)."""
        return await self._leases.consume_mode(
            addr, topic, group=group, client_id=client_id, timeout_seconds=timeout_seconds
        )

    async def send_back(
        self,
        addr: str,
        message: ReceivedMessage,
        *,
        group: str,
        max_reconsume_times: int,
        delay_level: int = 0,
        timeout_seconds: float,
    ) -> None:
        """See :meth:`SendsBack.send_back` (CONSUMER_SEND_MSG_BACK); the broker copies the message itself."""
        log_offset = commit_log_offset(message.offset_message_id)
        if log_offset is None:
            problem = "is not the id of a message that was read from a RocketMQ broker"
            raise InvalidMessageError("offset_message_id", message.offset_message_id, problem)
        fields = {
            "offset": str(log_offset),
            "group": group,
            "delayLevel": str(delay_level),
            "originMsgId": message.offset_message_id,
            "originTopic": message.topic,
            "unitMode": "false",
            "maxReconsumeTimes": str(max_reconsume_times),
        }
        code = BrokerRequestCode.CONSUMER_SEND_MSG_BACK
        response = await self._link(addr).request(code, fields, timeout_seconds=timeout_seconds)
        if response.command.code != BrokerResponseCode.SUCCESS:
            raise refused(addr, response.command)

    async def min_offset(self, addr: str, queue: MessageQueue, *, timeout_seconds: float) -> int:
        """See :meth:`Transport.min_offset`."""
        deadline = deadline_in(timeout_seconds)
        return await self._offset(addr, queue, BrokerRequestCode.GET_MIN_OFFSET, {}, deadline)

    async def max_offset(self, addr: str, queue: MessageQueue, *, timeout_seconds: float) -> int:
        """See :meth:`Transport.max_offset`. A broker counts a message some milliseconds after it was sent."""
        deadline = deadline_in(timeout_seconds)
        return await self._offset(addr, queue, BrokerRequestCode.GET_MAX_OFFSET, {}, deadline)

    async def offset_at(self, addr: str, queue: MessageQueue, at: datetime, *, timeout_seconds: float) -> int:
        """See :meth:`Transport.offset_at`; by the time at which the broker stored a message, not by its birth."""
        deadline = deadline_in(timeout_seconds)
        at_ms = milliseconds(at)
        fields = {"timestamp": str(at_ms), "boundaryType": "LOWER"}
        found = await self._offset(addr, queue, BrokerRequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields, deadline)
        if self._link(addr).version >= _VERSION_WITH_EXACT_SEARCH:
            return found
        low = await self._offset(addr, queue, BrokerRequestCode.GET_MIN_OFFSET, {}, deadline)
        high = await self._offset(addr, queue, BrokerRequestCode.GET_MAX_OFFSET, {}, deadline)
        # The broker returned the nearest message: mostly that one, or the next, is the first that is not too early.
        hints = (found, found + 1, found - 1)
        while low < high:
            middle = next((hint for hint in hints if low <= hint < high), (low + high) // 2)
            stored_ms = await self._store_time(addr, queue, middle, deadline)
            if stored_ms is None or stored_ms < at_ms:
                low = middle + 1
            else:
                high = middle
        return low

    async def _store_time(self, addr: str, queue: MessageQueue, offset: int, deadline: float) -> int | None:
        """When the broker stored a message, in milliseconds; None: it has no message there."""
        fields = pull_fields(queue, offset, max_messages=1, suspend_seconds=0.0, reader=SEARCHER)
        code = BrokerRequestCode.PULL_MESSAGE
        command, body = await self._link(addr).exchange(code, fields, b"", deadline, is_read=True)
        if command.code != BrokerResponseCode.SUCCESS:
            return None
        try:
            return next((stored_ms for at, stored_ms in store_times(body) if at == offset), None)
        except ValueError as error:
            raise UnreadableMessageError(addr, str(queue), offset=offset, problem=str(error)) from error

    async def _offset(
        self, addr: str, queue: MessageQueue, code: BrokerRequestCode, more: Mapping[str, str], deadline: float
    ) -> int:
        fields = {"topic": queue.topic, "queueId": str(queue.queue_id), **more}
        link = self._links.get(addr) or self._link(addr)
        command, _ = await link.exchange(code, fields, b"", deadline, is_read=True)
        if command.code != BrokerResponseCode.SUCCESS:
            raise refused(addr, command)
        return max(number(addr, command, "offset"), 0)

    def forget(self, addr: str) -> None:
        """See :meth:`Transport.forget`."""
        if addr in self._links:
            self._links[addr].retire()
        for known, link in list(self._links.items()):
            if link.is_idle:
                del self._links[known]

    async def close(self) -> None:
        """See :meth:`Transport.close`."""
        self._closed = True
        links, self._links = self._links, {}
        await asyncio.gather(*(link.close() for link in links.values()))

    def _link(self, addr: str) -> Link:
        if self._closed:
            raise ClientClosedError
        link = self._links.get(addr)
        if link is None:
            link = self._links[addr] = Link(addr, self._options)
        return link


async def _in_thread(work: Callable[[], ResultT], deadline: float, late: BrokerError) -> ResultT:
    """Return the result of work that takes long; raise ``late`` if it has not ended by the deadline."""
    try:
        async with asyncio.timeout_at(deadline):
            return await asyncio.to_thread(work)
    except TimeoutError:
        raise late from None
