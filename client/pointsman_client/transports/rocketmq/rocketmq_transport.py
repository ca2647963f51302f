"""The transport for RocketMQ brokers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pointsman_client.client_options import takes_options
from pointsman_client.core.message import OutgoingMessage, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.transports.rocketmq.rocketmq_options import RocketmqOptions
from pointsman_client.transports.transport import PulledMessages, Reader, SendReceipt


class RocketmqTransport:
    """Carries messages to and from RocketMQ brokers, 4.9 or later. Implements ``Transport`` and ``SendsBack``."""

    @takes_options(RocketmqOptions)
    def __init__(self, options: RocketmqOptions) -> None:
        """See :class:`~pointsman_client.transports.rocketmq.rocketmq_options.RocketmqOptions`."""
        self.options = options

    async def send(
        self, addr: str, queue: MessageQueue, messages: Sequence[OutgoingMessage], *, timeout_seconds: float
    ) -> SendReceipt:
        """See :meth:`Transport.send`."""
        raise NotImplementedError

    async def send_one_way(
        self, addr: str, queue: MessageQueue, messages: Sequence[OutgoingMessage], *, timeout_seconds: float
    ) -> None:
        """Send without a response: returns when the messages are on their way to the socket."""
        raise NotImplementedError

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
        """See :meth:`Transport.pull`."""
        raise NotImplementedError

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
        """See :meth:`SendsBack.send_back`."""
        raise NotImplementedError

    async def min_offset(self, addr: str, queue: MessageQueue, *, timeout_seconds: float) -> int:
        """See :meth:`Transport.min_offset`."""
        raise NotImplementedError

    async def max_offset(self, addr: str, queue: MessageQueue, *, timeout_seconds: float) -> int:
        """See :meth:`Transport.max_offset`."""
        raise NotImplementedError

    async def offset_at(self, addr: str, queue: MessageQueue, at: datetime, *, timeout_seconds: float) -> int:
        """See :meth:`Transport.offset_at`; by the time at which the broker stored a message."""
        raise NotImplementedError

    def forget(self, addr: str) -> None:
        """See :meth:`Transport.forget`."""

    async def close(self) -> None:
        """See :meth:`Transport.close`."""
