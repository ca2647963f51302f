"""A consumer that the application polls for messages."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable
from contextlib import AsyncExitStack
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from pointsman.clock import Clock
from pointsman_client.aio import Closing, Wakeup
from pointsman_client.client import NameServerClient
from pointsman_client.consumer.consumer_assembly import make_group_consumer
from pointsman_client.consumer.consumer_identity import ConsumerIdentity
from pointsman_client.consumer.consumer_options import PullConsumerOptions
from pointsman_client.consumer.group_consumer import ConsumerSetting, GroupConsumer
from pointsman_client.consumer.held_queue import HeldQueue
from pointsman_client.core.allocation import Averagely
from pointsman_client.core.checks import check_number
from pointsman_client.core.consumer_health import NOT_STARTED, ConsumerHealth
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.option_fields import takes_options
from pointsman_client.errors import ClientNotStartedError, InvalidOptionError
from pointsman_client.ownership import Resources

POLL_INTERVAL_SECONDS = 15.0


class PullConsumer:
    """Consumer that the application iterates over or polls.

    ::

        async with PullConsumer("10.0.0.1:9876", group="billing", subscriptions={"orders": "*"},
                                transport=RedisStreamsTransport) as consumer:
            async for message in consumer:
                print(message.body)

    A message is finished when the next one is requested, and those of a ``poll`` at the next ``poll``. Finished
    messages are committed every 5 s, on :meth:`commit` and on close; with ``auto_commit=False`` only on :meth:`commit`.
    With ``subscriptions`` the members of the group share the queues. Without them, queues come from :meth:`assign`,
    independently of other members. The application handles failed messages; there is no retry topic.

    One consumer belongs to one event loop; only one task at a time may read from it.
    """

    @takes_options(PullConsumerOptions)
    def __init__(self, options: PullConsumerOptions) -> None:
        """Create a consumer with the options of
        :class:`~pointsman_client.consumer.consumer_options.PullConsumerOptions`.

        Raises :class:`InvalidOptionError`, :class:`InvalidNameError` and :class:`InvalidAddressError`.
        """
        self._resources = Resources(options, zone=options.route_zone, zone_option="route_zone", owner="PullConsumer")
        self._options = options
        self._view = self._resources.view
        self._identity = ConsumerIdentity(
            options,
            options.subscriptions or {},
            self._resources,
            model=options.message_model,
            zone=options.zone,
        )
        self._setting = ConsumerSetting(
            group=options.group,
            client_id=self._identity.client_id,
            model=options.message_model,
            is_ordered=False,
            retries=False,
            shares=options.subscriptions is not None,
            auto_commit=options.auto_commit,
            finish_seconds=options.handover_timeout_seconds,
            options=options,
            strategy=options.strategy or Averagely(),
        )
        self._buffer: PullBuffer | None = None
        self._core: GroupConsumer | None = None
        self._closing = Closing()

    # Life cycle

    async def start(self) -> Self:
        """Join the group, without waiting for a broker. A second call does nothing."""
        await self._resources.start()
        if self._core is None:
            async with AsyncExitStack() as undo:
                undo.push_async_callback(self.close)
                self._buffer = PullBuffer(self._resources.clock)
                self._core = make_group_consumer(
                    self._setting, self._identity, self._resources, offer=self._buffer.offer
                )
                await self._core.start()
                undo.pop_all()
        return self

    async def close(self) -> None:
        """Commit finished messages, unlock, leave the group; takes at most ``close_timeout_seconds``. Iterations end.

        The last message handed out is not finished, since no next one was requested. A second call joins the
        first, and a cancelled one does not stop it.
        """
        self._resources.stop_use()
        await self._closing.do(self._close)

    async def _close(self) -> None:
        core, self._core = self._core, None
        if self._buffer is not None:
            self._buffer.close()
        timeout_seconds = self._options.close_timeout_seconds
        try:
            if core is not None:
                # Messages handed out are not finished any further, so there is nothing to wait for.
                await core.close(timeout_seconds=timeout_seconds * 0.8, finish_seconds=0.0)
        finally:
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

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Finish the previous message and wait for the next. The iteration ends when the consumer is closed."""
        if self._buffer is not None and self._buffer.is_closed:
            raise StopAsyncIteration
        messages = await self._take(1, timeout_seconds=None)
        if not messages:
            raise StopAsyncIteration
        return messages[0]

    async def poll(self, timeout_seconds: float = 1.0) -> tuple[ReceivedMessage, ...]:
        """Finish the previous messages; return up to ``max_poll_messages``, none after the timeout."""
        return await self._take(self._options.max_poll_messages, timeout_seconds=timeout_seconds)

    async def _take(self, most: int, *, timeout_seconds: float | None) -> tuple[ReceivedMessage, ...]:
        buffer = self._started()[1]
        buffer.finish_handed_out()
        clock, tracing = self._resources.clock, self._options.tracing_hook
        began_at = clock.monotonic()
        messages = await buffer.take(most, timeout_seconds=timeout_seconds)
        if messages and tracing is not None:
            tracing.received(messages, group=self._options.group, seconds=clock.monotonic() - began_at)
        return self._view.opened_all(messages)

    # Queues

    def subscribe(self, topic: str, expression: str = "*") -> None:
        """Subscribe to a topic, or change its tags. Every member of the group must do the same."""
        if not self._setting.shares:
            raise InvalidOptionError(
                "topic", topic, "cannot be subscribed: this consumer was created without subscriptions, use assign()"
            )
        self._identity.subscribe(topic, expression)
        if self._core is not None:
            self._core.subscriptions_changed()

    def unsubscribe(self, topic: str) -> None:
        """Remove the subscription of a topic."""
        if self._identity.unsubscribe(topic) and self._core is not None:
            self._core.subscriptions_changed()

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """The held queues, sorted."""
        return () if self._core is None else tuple(sorted(map(self._view.short_queue, self._core.table.queues)))

    async def assign(self, queues: Collection[MessageQueue]) -> None:
        """Read exactly these queues; others are committed and released."""
        core = self._started()[0]
        if self._setting.shares:
            raise InvalidOptionError(
                "subscriptions", tuple(self._identity.subscriptions), "must be None to use assign()"
            )
        wanted = frozenset(map(self._view.full_queue, queues))
        for topic in sorted({queue.topic for queue in wanted}):
            await self._resources.client.topic_route(topic)
        # Only the caller could finish messages handed out, and it is waiting here.
        core.table.drop(core.table.queues - wanted, finish_seconds=0.0)
        await core.table.settled()
        core.table.add(sorted(wanted - core.table.queues))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop handing out messages of these queues until they are resumed."""
        for held in self._held(queues):
            held.pause(paused=True)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Resume paused queues."""
        for held in self._held(queues):
            held.pause(paused=False)

    # Offsets

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue from an offset. Commits follow it, also backwards."""
        check_number("offset", offset, at_least=0)
        for held in self._held([queue]):
            held.seek(offset)

    async def seek_to_time(self, queue: MessageQueue, at: datetime) -> int:
        """Continue from the first message born at or after a time with a time zone; return its offset."""
        if at.tzinfo is None:
            raise InvalidOptionError("at", at, "must have a time zone")
        core = self._started()[0]
        (held,) = self._held([queue])
        offset = await core.reader.offset_at(held.queue, at)
        self.seek(queue, offset)
        return offset

    async def commit(self) -> None:
        """Finish the messages handed out, and commit. Raises the error of the first queue that failed."""
        core, buffer = self._started()
        buffer.finish_handed_out()
        await core.commit()

    def position(self, queue: MessageQueue) -> int | None:
        """Return the offset that is handed out next; None while the start offset is unknown."""
        messages = self._held([queue])[0].process_queue
        return None if messages is None else messages.position

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the committed offset of a queue; None: there is none."""
        return await self._started()[0].committed(self._view.full_queue(queue))

    def health(self) -> ConsumerHealth:
        """Return what keeps this consumer from its work now, for readiness probes."""
        return NOT_STARTED if self._core is None else self._core.health()

    def describe(self) -> dict[str, Any]:
        """Return held queues with positions, members and subscriptions, as JSON values."""
        if self._core is None:
            return {"group": self._setting.group, "clientId": self.client_id, "started": False}
        return self._core.describe() | {"started": True}

    def _started(self) -> tuple[GroupConsumer, PullBuffer]:
        self._resources.binding.check()
        if self._core is None or self._buffer is None:
            raise ClientNotStartedError
        return self._core, self._buffer

    def _held(self, queues: Iterable[MessageQueue]) -> list[HeldQueue]:
        core, _ = self._started()
        found = []
        for queue in queues:
            held = core.table.find(self._view.full_queue(queue))
            if held is None:
                raise InvalidOptionError("queue", queue, "is not held by this consumer")
            found.append(held)
        return found


class PullBuffer:
    """Hands out messages; they are finished by :meth:`finish_handed_out`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ring: deque[HeldQueue] = deque()
        self._in_ring: set[HeldQueue] = set()
        self._handed_out: list[tuple[HeldQueue, ReceivedMessage]] = []
        self._wakeup = Wakeup(clock)
        self.is_closed = False

    def offer(self, held: HeldQueue) -> None:
        """Add a queue that may have messages to hand out."""
        if held not in self._in_ring:
            self._in_ring.add(held)
            self._ring.append(held)
        self._wakeup.wake()

    def close(self) -> None:
        """End all waits."""
        self.is_closed = True
        self._wakeup.wake()

    def finish_handed_out(self) -> None:
        """Mark all messages handed out as finished."""
        handed_out, self._handed_out = self._handed_out, []
        for held, message in handed_out:
            held.finish(message)

    async def take(self, most: int, *, timeout_seconds: float | None) -> tuple[ReceivedMessage, ...]:
        """Hand out up to ``most`` messages, as soon as there is one; none after the timeout or when closed."""
        ends_at = None if timeout_seconds is None else self._clock.monotonic() + timeout_seconds
        while not self.is_closed:
            messages = self._take_now(most)
            if messages:
                return messages
            left = POLL_INTERVAL_SECONDS if ends_at is None else ends_at - self._clock.monotonic()
            if left <= 0:
                break
            await self._wakeup.wait(min(left, POLL_INTERVAL_SECONDS, self._seconds_until_due()))
        return ()

    def _take_now(self, most: int) -> tuple[ReceivedMessage, ...]:
        taken: list[ReceivedMessage] = []
        delayed: list[HeldQueue] = []
        while self._ring and len(taken) < most:
            held = self._ring.popleft()
            messages = held.process_queue
            head = None if messages is None or messages.is_dropped or held.is_paused else messages.peek()
            if messages is None or head is None:
                self._in_ring.discard(held)
            elif head.due_at is not None and head.due_at > self._clock.utc_now():
                delayed.append(held)
            else:
                messages.take()
                self._ring.append(held)
                self._handed_out.append((held, head))
                taken.append(head)
        self._ring += delayed
        return tuple(taken)

    def _seconds_until_due(self) -> float:
        """Until the first of the delayed messages at the heads of queues is due; infinite if there is none."""
        now = self._clock.utc_now()
        heads = [held.process_queue.peek() for held in self._ring if held.process_queue is not None]
        waits = [(head.due_at - now).total_seconds() for head in heads if head is not None and head.due_at is not None]
        return max(0.0, min(waits, default=math.inf))
