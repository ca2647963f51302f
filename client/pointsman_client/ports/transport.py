"""Interface of a transport: it sends messages to the queues of a broker at an address, and reads them.

Producer and consumer choose broker and queue by the route; a transport only gets addresses. It does not retry, since
its caller may choose another broker, and it ends every call within its timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from pointsman.tag_expression import ALL
from pointsman_client.core.message import OutgoingMessage, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.send_outcome import SendStatus
from pointsman_client.core.transactions import HalfMessage
from pointsman_client.errors import BrokerRefusedError, BrokerTimeoutError, PointsmanError, ResponseCode
from pointsman_client.ports.coordination import Coordination, CoordinationRequest

ResultT = TypeVar("ResultT")


class SendReceipt(NamedTuple):
    """A broker's confirmation of messages."""

    status: SendStatus
    queue_offsets: tuple[int | None, ...]
    """One per message, in their order; None: the broker assigns it when the message is due, or its transaction ends."""
    half: HalfMessage | None = None
    """Of the message of a transaction: where the broker holds it."""
    recall_handle: str = ""
    """Of a delayed message, for brokers that recall messages: what names it to them."""


@dataclass(frozen=True, slots=True)
class PulledMessages:
    """Result of a pull."""

    messages: tuple[ReceivedMessage, ...]
    """In offset order; empty: no message arrived during the wait."""
    next_offset: int
    """Offset of the next pull."""
    trimmed: int = 0
    """Messages that were removed before they were read; the pull continued at the first one still stored."""
    is_reset: bool = False
    """An operator reset the group's offset at the broker: continue at ``next_offset``, which may be lower."""


@dataclass(frozen=True, slots=True)
class Reader:
    """The consumer group that pulls, for brokers that filter messages themselves; other transports ignore it."""

    group: str
    expression: str = ALL
    """Messages to read, in the form of ``Subscription.expression``."""


class Transport(Protocol):
    """Sends and reads messages. One object serves a producer, a consumer or both, in one event loop.

    Every method raises :class:`BrokerUnreachableError` when the broker cannot be reached, and
    :class:`BrokerTimeoutError` when it did not respond in time; a sent message may then be stored or not. When the
    broker rejects a request, :class:`BrokerRefusedError` has RocketMQ's code for the reason. Messages that were read
    are created with :meth:`Message.unchecked`, because other programs may write to queues too.

    A transport whose calls are tested to end within their timeout may have an attribute ``ends_in_time = True``. For
    any other one the client starts its own timer for each call.
    """

    async def send(
        self, addr: str, queue: MessageQueue, messages: Sequence[OutgoingMessage], *, timeout_seconds: float
    ) -> SendReceipt:
        """Append messages to a queue of the broker at ``addr``, in their order, all or none."""
        ...

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
        """Read from ``offset``; without messages, wait at the broker for at most ``wait_seconds``.

        Raises :class:`OffsetBeyondEndError` when the queue ends before ``offset``. ``timeout_seconds`` is in addition
        to the wait. After a cancellation the connection remains usable for other calls.
        """
        ...

    async def min_offset(self, addr: str, queue: MessageQueue, *, timeout_seconds: float) -> int:
        """Return the offset of the first stored message; the end, if there is none. 0 for a queue never written."""
        ...

    async def max_offset(self, addr: str, queue: MessageQueue, *, timeout_seconds: float) -> int:
        """Return the offset after the last message. 0 for a queue never written."""
        ...

    async def offset_at(self, addr: str, queue: MessageQueue, at: datetime, *, timeout_seconds: float) -> int:
        """Return the offset of the first message born at or after ``at``; the end, if there is none."""
        ...

    def forget(self, addr: str) -> None:
        """Close idle connections to a broker that is no longer in any route."""
        ...

    async def close(self) -> None:
        """End all calls and connections; takes at most 2 s. A second call does nothing."""
        ...


@runtime_checkable
class SendsBack(Protocol):
    """A transport whose brokers move a failed message to the group's retry or dead-letter topic themselves."""

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
        """Have the master at ``addr`` deliver ``message`` to ``group`` once more, later.

        ``addr`` is the master of the broker that the message was read from. The message becomes a dead letter after
        ``max_reconsume_times`` attempts. ``delay_level`` 0: the delay grows with each attempt; above: that level of the
        broker; below: a dead letter immediately. Raises as the methods of :class:`Transport`;
        :class:`BrokerRefusedError` also when the broker has removed the message.
        """
        ...


@runtime_checkable
class CoordinatesGroups(Protocol):
    """A transport whose brokers coordinate consumer groups themselves; for any other one, the brokers' agents do."""

    def coordination(self, request: CoordinationRequest) -> Coordination:
        """Build what one consumer needs besides messages. Opens no connection."""
        ...


@runtime_checkable
class SendsOneWay(Protocol):
    """A transport that can send without waiting for a response of the broker."""

    async def send_one_way(
        self, addr: str, queue: MessageQueue, messages: Sequence[OutgoingMessage], *, timeout_seconds: float
    ) -> None:
        """As :meth:`Transport.send`, but return when the messages are in the connection's bounded write buffer.

        Raises :class:`BrokerUnreachableError` also when the buffer is full. ``close`` writes the buffer first.
        """
        ...


@runtime_checkable
class RecallsMessages(Protocol):
    """A transport whose brokers can drop a delayed message that they have not delivered."""

    def recall_place(self, handle: str) -> tuple[str, str]:
        """Return the topic and the broker name of a message. Raises :class:`InvalidMessageError` for no handle."""
        ...

    async def recall(self, addr: str, handle: str, *, timeout_seconds: float) -> None:
        """Have the master at ``addr`` drop the message. Raises as the methods of :class:`Transport`."""
        ...


@runtime_checkable
class ChecksMessages(Protocol):
    """A transport whose brokers do not accept every message."""

    def check(self, queue: MessageQueue, message: OutgoingMessage) -> None:
        """Raise :class:`InvalidInputError` for a message that ``send`` would refuse, whatever the broker.

        Called before a message waits in an outbox. Does not block.
        """
        ...


@runtime_checkable
class FiltersBySql(Protocol):
    """A transport whose brokers evaluate the conditions of a :class:`~pointsman_client.core.subscription.SqlFilter`."""

    filters_by_sql: bool


@runtime_checkable
class CreatesTopics(Protocol):
    """A transport whose brokers may create a topic when they get its first message."""

    default_topic: str
    """The topic that such brokers have; a new topic gets its permission."""
    default_topic_queue_nums: int
    """Maximum number of queues of a new topic on a broker."""


async def response_of(
    addr: str, call: Awaitable[ResultT], *, timeout_seconds: float, ends_in_time: bool = False
) -> ResultT:
    """Wait for a call of a transport; ``ends_in_time``: without a second timeout.

    Passes on any :class:`PointsmanError`. Raises :class:`BrokerTimeoutError` also when the transport exceeds its
    timeout, and :class:`BrokerRefusedError` with SYSTEM_ERROR for any other exception, which is a bug of the transport.
    """
    try:
        if ends_in_time:
            return await call
        async with asyncio.timeout(timeout_seconds):
            return await call
    except PointsmanError:
        raise
    except Exception as error:  # of foreign code, too
        raise broker_error(addr, error, timeout_seconds=timeout_seconds) from error


def broker_error(addr: str, error: Exception, *, timeout_seconds: float) -> PointsmanError:
    """Return what :func:`response_of` raises for an exception of a transport."""
    if isinstance(error, PointsmanError):
        return error
    if isinstance(error, TimeoutError):
        return BrokerTimeoutError(addr, f"no response within {timeout_seconds:.3g} s")
    # Of foreign code: treated as a rejection.
    return BrokerRefusedError(addr, ResponseCode.SYSTEM_ERROR, f"the transport raised {error!r}")
