"""Message trace in RocketMQ's format: who sent a message, and who consumed it, as ``mqadmin queryMsgTraceById`` shows.

Records are messages of RocketMQ's trace topic (``TraceDataEncoder``): fields end with U+0001, records with U+0002.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import NamedTuple

from pointsman.clock import Clock, SystemClock
from pointsman_client.core.message import Message, OutgoingMessage, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.send_outcome import SendResult, SendStatus
from pointsman_client.core.transactions import HalfMessage, TransactionState
from pointsman_client.errors import PointsmanError
from pointsman_client.producer.producer import Producer
from pointsman_client.tracing_hook import NoteEnd, SendSpan, TracesTransactions, TracingHook

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
"""Brokers with ``traceTopicEnable`` create it."""
REGION = "DefaultRegion"
MAX_RECORDS = 100
"""Records of one message (``AsyncTraceDispatcher``)."""
MAX_WAITING = 10_000
"""Records that wait for the next turn of the event loop."""

_RETURNS = {"success": 0, "timeout": 1, "raised": 2, "later": 4, "rejected": 4}
"""``ConsumeReturnType``, by the result of a listener call."""
_NORMAL, _HALF, _COMMIT, _DELAYED = 0, 1, 2, 3
"""``MessageType``."""
_STATES = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}
"""``LocalTransactionState``."""

logger = logging.getLogger(__name__)


class _Record(NamedTuple):
    text: str
    keys: tuple[str, ...]


class MessageTrace:
    """A tracing hook that sends records of each message sent or received, each listener call, and ends of transactions.

    ::

        async with Producer("rocketmq://10.0.0.1:9876") as records:
            trace = MessageTrace(records, producer_group="shop")
            async with Producer("rocketmq://10.0.0.1:9876", tracing_hook=trace) as producer:
                await producer.send(Message("orders", b"4711 paid"))

    One object serves any number of producers and consumers of an event loop; ``producer``, which the caller closes
    after them, sends the records in the background. Records that it cannot send are counted in :attr:`dropped`.
    """

    def __init__(
        self,
        producer: Producer,
        *,
        producer_group: str = "POINTSMAN_PRODUCER",
        beside: TracingHook | None = None,
        clock: Clock | None = None,
    ) -> None:
        """``producer``: sends the records; of a blocking one, ``producer.inner``.

        ``producer_group``: shown as the group of the sends. ``beside``: another hook that is called, too.
        """
        self._producer = producer
        self._producer_group = producer_group
        self._beside = beside
        self._clock = clock or SystemClock()
        self._waiting: list[_Record] = []
        self.dropped = 0
        """Number of records that were not sent."""

    def sending(self, messages: Sequence[OutgoingMessage]) -> SendSpan:
        """See :class:`TracingHook`."""
        return _TracedSend(self, messages, None if self._beside is None else self._beside.sending(messages))

    @contextmanager
    def processing(self, message: ReceivedMessage, *, group: str) -> Iterator[NoteEnd]:
        """See :class:`TracingHook`."""
        request_id, began_at = self._begin_call(message, group), self._clock.monotonic()
        result = "raised"
        beside: AbstractContextManager[NoteEnd | None] = nullcontext()
        if self._beside is not None:
            beside = self._beside.processing(message, group=group)
        try:
            with beside as note_beside:

                def note_end(outcome: str, problem: str, error: BaseException | None) -> None:
                    nonlocal result
                    result = outcome
                    if note_beside is not None:
                        note_beside(outcome, problem, error)

                yield note_end
        finally:
            self._end_call(message, group, request_id, result, self.milliseconds_since(began_at))

    def received(self, messages: Sequence[ReceivedMessage], *, group: str, seconds: float) -> None:
        """See :class:`TracingHook`; a record of a success, as RocketMQ's ``DefaultLitePullConsumer`` writes it."""
        if self._beside is not None:
            self._beside.received(messages, group=group, seconds=seconds)
        for message in messages:
            self._end_call(message, group, self._begin_call(message, group), "success", 0)

    def _begin_call(self, message: ReceivedMessage, group: str) -> str:
        request_id = uuid.uuid4().hex
        before = ("SubBefore", self._now(), REGION, group, request_id, message.message_id, message.reconsume_times)
        self._append(message, *before, " ".join(message.keys))
        return request_id

    def _end_call(self, message: ReceivedMessage, group: str, request_id: str, result: str, cost: int) -> None:
        is_success, keys = str(result == "success").lower(), " ".join(message.keys)
        after = ("SubAfter", request_id, message.message_id, cost, is_success, keys)
        self._append(message, *after, _RETURNS.get(result, 2), self._now(), group)

    def transaction_ended(
        self, half: HalfMessage, state: TransactionState, *, message: Message | None, group: str, is_checked: bool
    ) -> None:
        """See :class:`~pointsman_client.tracing_hook.TracesTransactions`."""
        if isinstance(self._beside, TracesTransactions):
            self._beside.transaction_ended(half, state, message=message, group=group, is_checked=is_checked)
        keys = () if message is None else message.keys
        head = ("EndTransaction", self._now(), REGION, group, half.topic, half.message_id)
        about = ("" if message is None else message.tags, " ".join(keys), half.addr, _COMMIT)
        end = (half.transaction_id, _STATES[state], str(is_checked).lower())
        self._add(half.topic, (half.message_id, *keys), *head, *about, *end)

    def sent(self, outgoing: OutgoingMessage, *, addr: str, began_at: float, outcome: str) -> None:
        """Record a message that a broker has stored; ``began_at``: monotonic seconds."""
        message, kind = outgoing.message, _NORMAL
        if "TRAN_MSG" in outgoing.internal_properties:
            kind = _HALF
        elif outgoing.due_at is not None:
            kind = _DELAYED
        cost, is_success = self.milliseconds_since(began_at), str(outcome == SendStatus.SEND_OK).lower()
        head = ("Pub", self._now() - cost, REGION, self._producer_group, message.topic, outgoing.message_id)
        tail = (message.tags, " ".join(message.keys), addr, len(message.body), cost, kind, "", is_success)
        self._append(outgoing, *head, *tail)

    def milliseconds_since(self, began_at: float) -> int:
        """Return the time since a monotonic second."""
        return round((self._clock.monotonic() - began_at) * 1000)

    @property
    def now(self) -> float:
        """Monotonic seconds."""
        return self._clock.monotonic()

    def _now(self) -> int:
        return round(self._clock.utc_now().timestamp() * 1000)

    def _append(self, of: OutgoingMessage | ReceivedMessage, *fields: object) -> None:
        self._add(of.message.topic, (of.message_id, *of.message.keys), *fields)

    def _add(self, topic: str, keys: tuple[str, ...], *fields: object) -> None:
        if topic == TRACE_TOPIC:
            return
        if len(self._waiting) >= MAX_WAITING:
            self._drop(1, "too many wait")
            return
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        self._waiting.append(_Record("\x01".join(map(str, fields)) + "\x02", keys))

    def _flush(self) -> None:
        """Send what was recorded in this turn of the event loop."""
        waiting, self._waiting = self._waiting, []
        for at in range(0, len(waiting), MAX_RECORDS):
            records = waiting[at : at + MAX_RECORDS]
            keys = tuple(dict.fromkeys(key for record in records for key in record.keys))
            body = "".join(record.text for record in records).encode()
            try:
                self._producer.send_async(Message(TRACE_TOPIC, body, keys=keys), partial(self._ended, len(records)))
            except PointsmanError as error:
                self._drop(len(records), error)

    def _ended(self, records: int, result: SendResult | Exception) -> None:
        if isinstance(result, Exception):
            self._drop(records, result)

    def _drop(self, records: int, why: object) -> None:
        if not self.dropped:
            logger.warning("records of the message trace are dropped, further ones silently: %s", why)
        self.dropped += records


class _TracedSend:
    def __init__(self, trace: MessageTrace, messages: Sequence[OutgoingMessage], beside: SendSpan | None) -> None:
        self._trace = trace
        self._beside = beside
        self._began_at = trace.now
        self.messages = messages if beside is None else beside.messages

    def end(
        self, outcome: str, *, addr: str, queue: MessageQueue | None = None, error: BaseException | None = None
    ) -> None:
        """See :class:`~pointsman_client.tracing_hook.SendSpan`."""
        if error is None and outcome in SendStatus.__members__:
            for message in self.messages:
                self._trace.sent(message, addr=addr, began_at=self._began_at, outcome=outcome)
        if self._beside is not None:
            self._beside.end(outcome, addr=addr, queue=queue, error=error)
