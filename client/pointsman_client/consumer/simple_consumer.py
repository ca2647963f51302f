"""A consumer that receives and acknowledges single messages (RocketMQ's POP consumption)."""

from __future__ import annotations

import logging
from collections import deque
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from pointsman_client.aio import Closing
from pointsman_client.client import NameServerClient
from pointsman_client.consumer.consumer_assembly import make_leasing_member
from pointsman_client.consumer.consumer_identity import ConsumerIdentity
from pointsman_client.consumer.consumer_options import MAX_BATCH, SimpleConsumerOptions, check_invisible_seconds
from pointsman_client.consumer.leasing_member import LeasingMember, LeasingSetting
from pointsman_client.core.checks import check_number, check_seconds
from pointsman_client.core.consumer_health import NOT_STARTED, ConsumerHealth
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.option_fields import takes_options
from pointsman_client.errors import ClientNotStartedError, PointsmanError
from pointsman_client.ownership import Resources

ITERATION_WAIT_SECONDS = 15.0

logger = logging.getLogger(__name__)


class SimpleConsumer:
    """Consumer whose application receives messages, works on each for a limited time, and acknowledges it.

    ::

        async with SimpleConsumer("10.0.0.1:9876", group="billing", subscriptions={"orders": "*"},
                                  transport=RedisStreamsTransport) as consumer:
            for message in await consumer.receive(max_messages=16, invisible_seconds=60):
                print(message.body)
                await consumer.ack(message)

    Any number of members shares every queue, without a rebalance: a received message is invisible to the others for
    ``invisible_seconds``. Unless it is acknowledged in that time it is delivered again, to any member, with
    ``reconsume_times`` one higher. After ``max_reconsume_times`` it goes to the dead letters instead. Iteration
    acknowledges a message when the next one is requested. Order is not kept, except with ``ordered=True``.

    A group either leases the messages of a topic or stores offsets, as push and pull consumers do. One consumer belongs
    to one event loop; any number of tasks may receive and acknowledge, and one may iterate.
    """

    @takes_options(SimpleConsumerOptions)
    def __init__(self, options: SimpleConsumerOptions) -> None:
        """Create a consumer with the options of
        :class:`~pointsman_client.consumer.consumer_options.SimpleConsumerOptions`.

        Raises :class:`InvalidOptionError`, :class:`InvalidNameError` and :class:`InvalidAddressError`.
        """
        self._resources = Resources(options, zone=options.route_zone, zone_option="route_zone", owner="SimpleConsumer")
        self._options = options
        self._identity = ConsumerIdentity(options, options.subscriptions, self._resources)
        self._member: LeasingMember | None = None
        self._closing = Closing()
        self._received: deque[ReceivedMessage] = deque()
        """Those that iteration hands out next."""
        self._handed_out: ReceivedMessage | None = None

    # Life cycle

    async def start(self) -> Self:
        """Start, without waiting for a broker; the group is joined by the first :meth:`receive`. A second call does
        nothing."""
        await self._resources.start()
        if self._member is None:
            async with AsyncExitStack() as undo:
                undo.push_async_callback(self.close)
                self._member = self._make_member()
                self._member.start()
                undo.pop_all()
        return self

    def _make_member(self) -> LeasingMember:
        options = self._options
        setting = LeasingSetting(
            group=options.group,
            client_id=self.client_id,
            is_ordered=options.ordered,
            consume_from=options.consume_from,
            consume_timestamp=options.consume_timestamp,
            request_timeout_seconds=options.request_timeout_seconds,
            send_back_timeout_seconds=options.send_back_timeout_seconds,
            persist_offset_interval_seconds=options.persist_offset_interval_seconds,
            max_renew_seconds=options.max_renew_seconds if options.renew else None,
            max_reconsume_times=options.max_reconsume_times,
            on_dead_letter=options.on_dead_letter,
            raises_refusals=True,
            view=self._resources.view,
        )
        return make_leasing_member(setting, options, self._identity, self._resources)

    async def close(self) -> None:
        """Leave the group; takes at most ``close_timeout_seconds``. Receives and iterations end.

        Messages that are not acknowledged are delivered again when their leases end. A second call joins the first,
        and a cancelled one does not stop it.
        """
        self._resources.stop_use()
        await self._closing.do(self._close)

    async def _close(self) -> None:
        member = self._member
        timeout_seconds = self._options.close_timeout_seconds
        try:
            if member is not None:
                await member.close(timeout_seconds=timeout_seconds * 0.8)
        finally:
            self._member = None
            await self._resources.close(timeout_seconds=timeout_seconds * 0.2)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def client(self) -> NameServerClient:
        """The name server client that provides the routes."""
        return self._resources.client

    @property
    def client_id(self) -> str:
        """Id of this member in its group."""
        return self._identity.client_id

    # Messages

    async def receive(
        self,
        max_messages: int | None = None,
        invisible_seconds: float | None = None,
        *,
        timeout_seconds: float = 15.0,
    ) -> tuple[ReceivedMessage, ...]:
        """Return up to ``max_messages`` as soon as there is one; none after the timeout, or when it is closed.

        ``invisible_seconds``: 10 s to 12 h, counted from the delivery. None: the values of the options. If the call is
        cancelled, messages may be delivered again only after that time. Raises :class:`GroupModeError`.
        """
        messages = await self._receive(max_messages, invisible_seconds, timeout_seconds=timeout_seconds)
        return self._resources.view.opened_all(messages)

    async def _receive(
        self, max_messages: int | None, invisible_seconds: float | None, *, timeout_seconds: float
    ) -> tuple[ReceivedMessage, ...]:
        options = self._options
        most = options.max_messages if max_messages is None else max_messages
        seconds = options.invisible_seconds if invisible_seconds is None else invisible_seconds
        check_number("max_messages", most, at_most=MAX_BATCH)
        check_invisible_seconds("invisible_seconds", seconds)
        check_seconds("timeout_seconds", timeout_seconds)
        clock, tracing, member = self._resources.clock, options.tracing_hook, self._started()
        began_at = clock.monotonic()
        messages = await member.receive(most, invisible_seconds=seconds, timeout_seconds=timeout_seconds)
        if messages and tracing is not None:
            tracing.received(messages, group=options.group, seconds=clock.monotonic() - began_at)
        return messages

    async def ack(self, *messages: ReceivedMessage) -> None:
        """Acknowledge received messages: they are not delivered again.

        Raises :class:`LeaseExpiredError` for those that were delivered again, or not received here, and
        :class:`BrokerError` if a broker did not confirm; the others are acknowledged. Call it again after the latter.
        """
        await self._started().leases.acknowledge([*map(self._as_leased, messages)])

    async def change_invisible_duration(self, message: ReceivedMessage, invisible_seconds: float) -> None:
        """Let the message come back ``invisible_seconds`` from now, 10 s to 12 h: sooner, or later than agreed.

        With ``renew=True`` its lease is not renewed any further. Raises as :meth:`ack`.
        """
        check_invisible_seconds("invisible_seconds", invisible_seconds)
        await self._started().leases.change([self._as_leased(message)], invisible_seconds)

    def _as_leased(self, message: ReceivedMessage) -> ReceivedMessage:
        return message._replace(queue=self._resources.view.full_queue(message.queue))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Acknowledge the previous message and wait for the next. The iteration ends when the consumer is closed.

        The previous one is not acknowledged if you changed its invisible duration.
        """
        while (member := self._member) is not None and not member.popper.is_stopped:
            await self._finish_handed_out(member)
            while self._received:
                message = self._received.popleft()
                # A message whose lease is over is delivered again, maybe to another member.
                if member.leases.is_valid(message):
                    self._handed_out = message
                    return self._resources.view.opened(message)
            self._received.extend(await self._receive(None, None, timeout_seconds=ITERATION_WAIT_SECONDS))
        if not self._resources.binding.is_closed:
            self._started()
        raise StopAsyncIteration

    async def _finish_handed_out(self, member: LeasingMember) -> None:
        message, self._handed_out = self._handed_out, None
        if message is None or not member.leases.is_unchanged(message):
            return
        try:
            await member.leases.acknowledge([message])
        except PointsmanError as error:
            logger.warning("message %s was not acknowledged: %s", message.message_id, error)

    # Subscriptions and state

    def subscribe(self, topic: str, expression: str = "*") -> None:
        """Subscribe to a topic, or change its tags. Every member of the group must do the same."""
        self._identity.subscribe(topic, expression)
        if self._member is not None:
            self._member.subscriptions_changed()

    def unsubscribe(self, topic: str) -> None:
        """Remove the subscription of a topic."""
        if self._identity.unsubscribe(topic) and self._member is not None:
            self._member.subscriptions_changed()

    def health(self) -> ConsumerHealth:
        """Return what keeps this consumer from its work now, for readiness probes."""
        return NOT_STARTED if self._member is None else self._member.health()

    def describe(self) -> dict[str, Any]:
        """Return queues with the group's progress, leases, members and subscriptions, as JSON values."""
        if self._member is None:
            return {"group": self._options.group, "clientId": self.client_id, "started": False}
        return self._member.describe() | {"started": True}

    def _started(self) -> LeasingMember:
        self._resources.binding.check()
        if self._member is None:
            raise ClientNotStartedError
        return self._member
