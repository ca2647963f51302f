"""A consumer that is asked for messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from contextlib import AsyncExitStack
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from pointsman.wire.clock import Clock
from pointsman_client.aio import Wakeup
from pointsman_client.client import NameServerClient
from pointsman_client.client_options import takes_options
from pointsman_client.consumer.consumer_options import PullConsumerOptions
from pointsman_client.consumer.group_consumer import ConsumerSetting, GroupConsumer
from pointsman_client.consumer.held_queue import HeldQueue
from pointsman_client.consumer.standing import Standing
from pointsman_client.core.allocation import Averagely
from pointsman_client.core.checks import check_number
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import ClientNotStartedError, InvalidOptionError
from pointsman_client.ownership import OwnedParts

LOOK_SECONDS = 15.0


class PullConsumer:
    """Hands out messages when it is asked.

    ::

        async with PullConsumer("10.0.0.1:9876", group="billing", subscriptions={"orders": "*"},
                                transport=RedisStreamsTransport) as consumer:
            async for message in consumer:
                print(message.body)

    A message is finished when the next one is asked for, and those of a ``poll`` at the next ``poll``; what is finished
    is committed every five seconds, on :meth:`commit` and on close. With ``auto_commit=False`` only :meth:`commit`
    commits. With ``subscriptions`` the members of the group share the queues; without, queues come from :meth:`assign`,
    and nobody else is asked. Failed messages are the application's: there is no retry topic.

    One consumer belongs to one event loop, and one task at a time asks it.
    """

    @takes_options(PullConsumerOptions)
    def __init__(self, options: PullConsumerOptions) -> None:
        """Check and keep the options: see
        :class:`~pointsman_client.consumer.consumer_options.PullConsumerOptions`.

        Raises :class:`InvalidOptionError`, :class:`InvalidNameError` and :class:`InvalidAddressError`.
        """
        parts = OwnedParts(options, zone=options.route_zone, zone_option="route_zone", owner="PullConsumer")
        self._options = options
        self._standing = Standing(parts, options, options.subscriptions or {})
        self._setting = ConsumerSetting(
            group=options.group,
            client_id=self._standing.client_id,
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

    # Life

    async def start(self) -> Self:
        """Join the group; a second call changes nothing. Waits for no broker."""
        parts = self._standing.parts
        await parts.start()
        if self._core is None:
            async with AsyncExitStack() as undo:
                undo.push_async_callback(self.close)
                self._buffer = PullBuffer(parts.clock)
                self._core = self._standing.make_core(self._setting, is_listener=False, offer=self._buffer.offer)
                await self._core.start()
                undo.pop_all()
        return self

    async def close(self) -> None:
        """Commit what is finished, unlock, leave; takes at most ``close_timeout_seconds``. Iterations end.

        A message that was handed out last is not finished: nobody asked for the next one. A second call does nothing.
        """
        parts = self._standing.parts
        parts.stop_use()
        core, self._core = self._core, None
        if self._buffer is not None:
            self._buffer.close()
        timeout_seconds = self._options.close_timeout_seconds
        try:
            if core is not None:
                # Nobody will finish what was handed out: there is nothing to wait for.
                await core.close(timeout_seconds=timeout_seconds * 0.8, finish_seconds=0.0)
        finally:
            await parts.close(timeout_seconds=timeout_seconds * 0.2)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def client(self) -> NameServerClient:
        """The client that it asks for routes."""
        return self._standing.parts.client

    @property
    def client_id(self) -> str:
        """Who this member is in its group."""
        return self._standing.client_id

    # Messages

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Finish the message before and wait for the next; the iteration ends when the consumer is closed."""
        if self._buffer is not None and self._buffer.is_closed:
            raise StopAsyncIteration
        messages = await self._take(1, timeout_seconds=None)
        if not messages:
            raise StopAsyncIteration
        return messages[0]

    async def poll(self, timeout_seconds: float = 1.0) -> tuple[ReceivedMessage, ...]:
        """Finish those before and return up to ``max_poll_messages``, as soon as there is one; empty after the time."""
        return await self._take(self._options.max_poll_messages, timeout_seconds=timeout_seconds)

    async def _take(self, most: int, *, timeout_seconds: float | None) -> tuple[ReceivedMessage, ...]:
        buffer = self._started()[1]
        buffer.finish_handed_out()
        clock, tracing = self._standing.parts.clock, self._options.tracing_hook
        began_at = clock.monotonic()
        messages = await buffer.take(most, timeout_seconds=timeout_seconds)
        if messages and tracing is not None:
            tracing.received(messages, group=self._options.group, seconds=clock.monotonic() - began_at)
        return messages

    # Queues

    def subscribe(self, topic: str, expression: str = "*") -> None:
        """Read a topic too, or other tags of it, from now on. Every member of the group must do the same."""
        if not self._setting.shares:
            raise InvalidOptionError(
                "topic", topic, "cannot be subscribed: this consumer was made to be assigned queues"
            )
        self._standing.subscribe(topic, expression)
        if self._core is not None:
            self._core.subscriptions_changed()

    def unsubscribe(self, topic: str) -> None:
        """Read a topic no more."""
        if self._standing.unsubscribe(topic) and self._core is not None:
            self._core.subscriptions_changed()

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that are held now, sorted."""
        return () if self._core is None else tuple(sorted(self._core.table.queues))

    async def assign(self, queues: Collection[MessageQueue]) -> None:
        """Read exactly these queues from now on; others are committed and let go of."""
        core = self._started()[0]
        if self._setting.shares:
            raise InvalidOptionError("subscriptions", tuple(self._standing.subscriptions), "must be left out to assign")
        for topic in sorted({queue.topic for queue in queues}):
            await self._standing.parts.client.topic_route(topic)
        wanted = frozenset(queues)
        # Whoever could finish what was handed out is here, and did not.
        core.table.drop(core.table.queues - wanted, finish_seconds=0.0)
        await core.table.settled()
        core.table.add(sorted(wanted - core.table.queues))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Hand out nothing of these queues until they are resumed."""
        for held in self._held(queues):
            held.pause(paused=True)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on with paused queues."""
        for held in self._held(queues):
            held.pause(paused=False)

    # Offsets

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from an offset; the commit follows it, backwards too."""
        check_number("offset", offset, at_least=0)
        for held in self._held([queue]):
            held.seek(offset)

    async def seek_to_time(self, queue: MessageQueue, at: datetime) -> int:
        """Go on from the first message born at or after a time, which must have a time zone; return its offset."""
        if at.tzinfo is None:
            raise InvalidOptionError("at", at, "must have a time zone")
        core = self._started()[0]
        self._held([queue])
        offset = await core.reader.offset_at(queue, at)
        self.seek(queue, offset)
        return offset

    async def commit(self) -> None:
        """Finish what was handed out, and commit. Raises why a queue could not be committed."""
        core, buffer = self._started()
        buffer.finish_handed_out()
        await core.commit()

    def position(self, queue: MessageQueue) -> int | None:
        """The offset that is handed out next; None while the start of the queue is not known."""
        messages = self._held([queue])[0].process_queue
        return None if messages is None else messages.position

    async def committed(self, queue: MessageQueue) -> int | None:
        """The committed offset of a queue; None: there is none."""
        return await self._started()[0].committed(queue)

    def describe(self) -> dict[str, Any]:
        """The queues held with their positions, the members and the subscriptions, as JSON values."""
        if self._core is None:
            return {"group": self._setting.group, "clientId": self.client_id, "started": False}
        return self._core.describe() | {"started": True}

    def _started(self) -> tuple[GroupConsumer, PullBuffer]:
        self._standing.parts.binding.check()
        if self._core is None or self._buffer is None:
            raise ClientNotStartedError
        return self._core, self._buffer

    def _held(self, queues: Iterable[MessageQueue]) -> list[HeldQueue]:
        core, _ = self._started()
        found = []
        for queue in queues:
            held = core.table.find(queue)
            if held is None:
                raise InvalidOptionError("queue", queue, "is not held by this consumer now")
            found.append(held)
        return found


class PullBuffer:
    """What was handed out counts as finished when the application says so, or asks for more."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ring: deque[HeldQueue] = deque()
        self._in_ring: set[HeldQueue] = set()
        self._handed_out: list[tuple[HeldQueue, ReceivedMessage]] = []
        self._wakeup = Wakeup(clock)
        self.is_closed = False

    def offer(self, held: HeldQueue) -> None:
        """Note that a queue may have something to hand out."""
        if held not in self._in_ring:
            self._in_ring.add(held)
            self._ring.append(held)
        self._wakeup.wake()

    def close(self) -> None:
        """End every wait."""
        self.is_closed = True
        self._wakeup.wake()

    def finish_handed_out(self) -> None:
        """Count everything that was handed out as finished."""
        handed_out, self._handed_out = self._handed_out, []
        for held, message in handed_out:
            held.finish(message)

    async def take(self, most: int, *, timeout_seconds: float | None) -> tuple[ReceivedMessage, ...]:
        """Hand out up to ``most`` messages, as soon as there is one; none after the time, or when closed."""
        ends_at = None if timeout_seconds is None else self._clock.monotonic() + timeout_seconds
        while not self.is_closed:
            messages = self._take_now(most)
            if messages:
                return messages
            left = LOOK_SECONDS if ends_at is None else ends_at - self._clock.monotonic()
            if left <= 0:
                break
            await self._wakeup.wait(min(left, LOOK_SECONDS))
        return ()

    def _take_now(self, most: int) -> tuple[ReceivedMessage, ...]:
        taken: list[ReceivedMessage] = []
        while self._ring and len(taken) < most:
            held = self._ring.popleft()
            messages = held.process_queue
            message = None if messages is None or messages.is_dropped or held.is_paused else messages.take()
            if message is None:
                self._in_ring.discard(held)
                continue
            self._ring.append(held)
            self._handed_out.append((held, message))
            taken.append(message)
        return tuple(taken)
