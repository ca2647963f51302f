"""Sends to a given queue, and handling of messages while that queue cannot be written."""

from __future__ import annotations

import asyncio

from pointsman_client.core.message import OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.send_outcome import SendResult
from pointsman_client.errors import (
    BrokerError,
    BrokerTimeoutError,
    InvalidOptionError,
    NameServersUnavailableError,
    PointsmanError,
    QueueUnavailableError,
    SendFailedError,
    TopicNotFoundError,
)
from pointsman_client.ownership import Resources
from pointsman_client.producer.outbox import Outbox
from pointsman_client.producer.outbox_sender import OutboxSender
from pointsman_client.producer.producer_options import Fallback, OnUnavailable, Park, ProducerOptions
from pointsman_client.producer.sender import Sender


class ExplicitSends:
    """Sends to given queues for one producer; owns its :class:`Sender` and its outboxes."""

    def __init__(self, resources: Resources, sender: Sender, *, options: ProducerOptions) -> None:
        self._resources = resources
        self.sender = sender
        self._options = options
        self._outbox_senders: dict[Outbox, OutboxSender] = {}
        self._opening = asyncio.Lock()
        self._end_waking = resources.client.on_route_change(lambda _: self._wake())

    async def send(
        self, queue: MessageQueue, outgoing: OutgoingMessage, *, on_unavailable: OnUnavailable, deadline: float
    ) -> SendResult:
        """Send to this queue in one attempt, or apply ``on_unavailable``.

        After an attempt without a response the message may have been stored; parked or sent to another queue it is
        then stored twice. Raises :class:`QueueUnavailableError`, :class:`SendFailedError`, :class:`OutboxFullError` and
        :class:`OutboxFailedError`.
        """
        match on_unavailable:
            case Park(outbox):
                return await self._send_or_park(queue, outgoing, await self.open(outbox), deadline)
            case Fallback():
                return await self._send_or_fall_back(queue, outgoing, on_unavailable, deadline)
            case _:
                return await self._send_to(queue, outgoing, deadline)

    async def open(self, outbox: Outbox) -> OutboxSender:
        """Return the outbox's sender; on first use, open the outbox and start to send its messages."""
        async with self._opening:
            outbox_sender = self._outbox_senders.get(outbox)
            if outbox_sender is None:
                outbox_sender = self._outbox_sender(outbox)
                try:
                    await outbox_sender.start()
                except asyncio.CancelledError:
                    await outbox_sender.close(timeout_seconds=1.0)
                    raise
                self._outbox_senders[outbox] = outbox_sender
            return outbox_sender

    @property
    def parked(self) -> int:
        """Number of messages in outboxes."""
        return sum(outbox_sender.waiting for outbox_sender in self._outbox_senders.values())

    async def close(self, *, timeout_seconds: float) -> None:
        """Close the outboxes, whose files retain unsent messages, and the sender."""
        self._end_waking()
        closings = [
            outbox_sender.close(timeout_seconds=timeout_seconds) for outbox_sender in self._outbox_senders.values()
        ]
        await asyncio.gather(self.sender.close(timeout_seconds=timeout_seconds), *closings)

    def _wake(self) -> None:
        for outbox_sender in self._outbox_senders.values():
            outbox_sender.wake()

    def _outbox_sender(self, outbox: Outbox) -> OutboxSender:
        clock, seconds = self._resources.clock, self._options.send_msg_timeout_seconds
        return OutboxSender(
            outbox,
            clock=clock,
            send=lambda queue, messages: self.sender.send_to(queue, messages, deadline=clock.monotonic() + seconds),
            max_batch_size=self._options.max_message_size,
            metrics_hook=self._resources.metrics_hook,
        )

    async def _send_or_park(
        self, queue: MessageQueue, outgoing: OutgoingMessage, outbox_sender: OutboxSender, deadline: float
    ) -> SendResult:
        tries = 0
        is_new = self.sender.is_new(queue)
        # Messages parked before must be sent first: a queue is chosen for its order.
        if not outbox_sender.is_waiting_for(queue):
            try:
                return await self._send_to(queue, outgoing, deadline)
            except (QueueUnavailableError, NameServersUnavailableError, SendFailedError, TopicNotFoundError) as error:
                # A topic leaves the routes with its last broker, but the caller has a queue of it: park the message.
                _raise_if_refused(error)
                if is_new:
                    raise  # Another broker may create the topic, and then this queue never exists.
                tries = _tries_of(error)
        self.sender.check(queue, outgoing)
        await outbox_sender.put(queue, outgoing)
        return SendResult(outgoing.message_id, queue, queue_offset=None, status=None, tries=tries)

    async def _send_or_fall_back(
        self, queue: MessageQueue, outgoing: OutgoingMessage, fallback: Fallback, deadline: float
    ) -> SendResult:
        now = self._resources.clock.monotonic()
        try:
            # If the broker hangs, half of the time remains for the other queue.
            return await self._send_to(queue, outgoing, now + (deadline - now) / 2)
        except (QueueUnavailableError, SendFailedError) as error:
            _raise_if_refused(error)
            tries = _tries_of(error)
            info = await self.sender.publish_info(queue.topic, deadline)
            other = fallback.queue_instead_of(queue, info.queues)
            check_queue("on_unavailable", other, queue.topic)
            result = await self._send_to(other, outgoing, deadline)
            return result._replace(tries=tries + result.tries)

    async def _send_to(self, queue: MessageQueue, outgoing: OutgoingMessage, deadline: float) -> SendResult:
        sent = await self.sender.send_to(queue, [outgoing], deadline=deadline)
        return sent.results([outgoing])[0]


def check_queue(option: str, queue: object, topic: str) -> None:
    """Raise :class:`InvalidOptionError` unless ``queue``, which a user's function returned, is one of the topic."""
    if not isinstance(queue, MessageQueue) or queue.topic != topic:
        raise InvalidOptionError(option, queue, f"is not a queue of topic {topic}")


def _tries_of(error: PointsmanError) -> int:
    """Return the number of calls to a broker before this error."""
    return 1 if isinstance(error.__cause__, BrokerError) else 0


def _raise_if_refused(error: PointsmanError) -> None:
    """Raise an error that a retry cannot fix, so that such a message is not parked."""
    if not isinstance(error, SendFailedError) or not error.tries:
        return
    if not isinstance(error.tries[-1].error, BrokerTimeoutError):
        raise error
