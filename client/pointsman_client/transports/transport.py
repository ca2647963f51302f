"""What a transport must do: carry messages to the queues of a broker at an address, and from them.

The producer and the consumer choose broker and queue by the route; a transport only knows addresses. It retries
nothing, since its caller may know a better broker, and ends every call by its timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from pointsman_client.core.message import OutgoingMessage, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.send_outcome import SendStatus
from pointsman_client.errors import BrokerRefusedError, BrokerTimeoutError, PointsmanError, ResponseCode

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class SendReceipt:
    """A broker's word for messages that it took."""

    status: SendStatus
    queue_offsets: tuple[int, ...]
    """One for each message, in their order."""


@dataclass(frozen=True, slots=True)
class PulledMessages:
    """What a pull brought."""

    messages: tuple[ReceivedMessage, ...]
    """In offset order; empty: nothing came while the pull waited."""
    next_offset: int
    """Where the next pull begins."""
    trimmed: int = 0
    """Messages that were gone before they could be read: the pull moved on to the first that is there."""


class Transport(Protocol):
    """Carries messages. One object serves a producer, a consumer or both, in one event loop.

    Every method raises :class:`BrokerUnreachableError` when the broker could not be spoken to,
    :class:`BrokerTimeoutError` when it did not answer in time (a message may then be in the queue or not), and
    :class:`BrokerRefusedError` when it answered no, with the code that RocketMQ has for the reason. What it reads it
    makes with :meth:`Message.unchecked`: other programs write to queues too.
    """

    async def send(
        self, addr: str, queue: MessageQueue, messages: Sequence[OutgoingMessage], *, timeout_seconds: float
    ) -> SendReceipt:
        """Append messages to a queue of the broker at ``addr``, all or none, in their order."""
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
    ) -> PulledMessages:
        """Read from ``offset`` on; while there is nothing, wait at the broker for at most ``wait_seconds``.

        Raises :class:`OffsetBeyondEndError` when the queue ends before ``offset``. ``timeout_seconds`` counts on top of
        the wait. Cancelling it leaves the connection usable for others.
        """
        ...

    async def min_offset(self, addr: str, queue: MessageQueue, *, timeout_seconds: float) -> int:
        """The offset of the first message that is still there; the end, if none is. 0 for a queue never written."""
        ...

    async def max_offset(self, addr: str, queue: MessageQueue, *, timeout_seconds: float) -> int:
        """One beyond the last message. 0 for a queue never written."""
        ...

    async def offset_at(self, addr: str, queue: MessageQueue, at: datetime, *, timeout_seconds: float) -> int:
        """The offset of the first message born at or after ``at``; the end, if there is none."""
        ...

    def forget(self, addr: str) -> None:
        """Note that no route has this broker any more: its connections may be closed when they are idle."""
        ...

    async def close(self) -> None:
        """End all calls and connections; takes at most two seconds. A second call does nothing."""
        ...


async def answer_of(addr: str, call: Awaitable[ResultT], *, timeout_seconds: float) -> ResultT:
    """Wait for a call of a transport.

    Raises what it raises of ours; :class:`BrokerTimeoutError` also when the transport does not keep its time; and
    :class:`BrokerRefusedError` with SYSTEM_ERROR for anything else, which is a fault of the transport.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            return await call
    except PointsmanError:
        raise
    except TimeoutError as error:
        raise BrokerTimeoutError(addr, f"no answer within {timeout_seconds:.3g} s") from error
    except Exception as error:  # the border to foreign code: a failure of a transport is a refusal
        message = f"the transport raised {error!r}"
        raise BrokerRefusedError(addr, ResponseCode.SYSTEM_ERROR, message) from error
