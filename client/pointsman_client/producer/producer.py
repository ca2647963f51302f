"""The producer: sends messages to brokers in the routes and avoids slow or failed ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Self

from pointsman_client.aio import Closing, deadline_in, finish_tasks
from pointsman_client.client import NameServerClient
from pointsman_client.core.checks import check_function, check_seconds
from pointsman_client.core.message import (
    NO_PROPERTIES,
    Message,
    OutgoingMessage,
    ReceivedMessage,
    check_batch,
    check_key,
)
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.option_fields import takes_options
from pointsman_client.core.reply_address import reply_topic
from pointsman_client.core.send_outcome import SendMode, SendResult
from pointsman_client.core.serializer import encoded
from pointsman_client.core.sharding import HashRing, KeyQueues, OrderKey
from pointsman_client.errors import (
    ClientClosedError,
    ClientNotStartedError,
    InvalidMessageError,
    InvalidOptionError,
    PointsmanError,
    SendFailedError,
    TooManyInFlightError,
)
from pointsman_client.ownership import Resources
from pointsman_client.producer.awaited_replies import AwaitedReplies
from pointsman_client.producer.explicit_send import ExplicitSends, check_queue
from pointsman_client.producer.producer_options import (
    Fallback,
    OnUnavailable,
    Park,
    ProducerOptions,
    check_on_unavailable,
)
from pointsman_client.producer.recalling import recall
from pointsman_client.producer.sender import UNCONFIRMED, Sender

SelectQueue = Callable[[tuple[MessageQueue, ...], Message, Any], MessageQueue]
"""Chooses a queue; called with the topic's writable queues, message, argument (RocketMQ ``MessageQueueSelector``)."""

SendCallback = Callable[[SendResult | Exception], object]
"""Called in the event loop with the result of a send, or with the error that :meth:`Producer.send` would raise."""
SendMessages = Callable[[Sequence[OutgoingMessage]], Coroutine[Any, Any, tuple[SendResult, ...]]]
PARKED = "PARKED"
"""Outcome passed to the metrics hook when a message was put into an outbox."""
CANCELLED = "CANCELLED"
"""Outcome passed to the metrics hook when the caller cancelled the send."""

_UUID_VERSION_4 = 1 << 128 | 4 << 76 | 0b10 << 62
"""The version and variant bits of a random UUID (RFC 9562), and one above them, which keeps all 32 digits."""
_UUID_RANDOM = ~(0b1111 << 76 | 0b11 << 62)


class Producer:
    """Sends messages.

    ::

        async with Producer(["10.0.0.1:9876"], transport=RedisStreamsTransport) as producer:
            await producer.send(Message("orders", b"4711"))

    The constructor opens and starts nothing. One producer belongs to one event loop; share it between tasks. Delivery
    is at least once: an attempt without a response may have stored the message, and the next attempt then stores a
    second copy with the same message id. :class:`TransactionProducer` has transactions.
    """

    @takes_options(ProducerOptions)
    def __init__(self, options: ProducerOptions) -> None:
        """Check and store the options: see
        :class:`~pointsman_client.producer.producer_options.ProducerOptions`.

        Raises :class:`InvalidAddressError` or :class:`InvalidOptionError`.
        """
        self._options = options
        self._resources = Resources(options, zone=options.zone, owner="Producer")
        self._rng = self._resources.rng
        self._clock = self._resources.clock
        self._tracing = options.tracing_hook
        self._view = self._resources.view
        self._in_flight = _InFlight(
            most=options.back_pressure_for_async_send_num, most_bytes=options.back_pressure_for_async_send_size
        )
        self._key_queues = KeyQueues(options.sharding or HashRing(), zone=self._resources.client.zone)
        self._requests = AwaitedReplies(self._resources)
        self._sends: ExplicitSends | None = None
        self._starting = asyncio.Lock()
        self._closing = Closing()

    # Start and close

    async def start(self) -> Self:
        """Bind the producer to the running event loop; a second call does nothing.

        Does not wait for a name server or broker. Raises :class:`OutboxFailedError` if its outbox cannot be opened.
        """
        async with self._starting:
            await self._resources.start()
            if self._sends is None:
                if self._options.rng is None:
                    # If it was made before a fork, producers in the children would assign the same message ids.
                    self._rng.seed()
                sender = Sender(self._resources, options=self._options, rng=self._rng)
                sends = ExplicitSends(self._resources, sender, options=self._options, key_queues=self._key_queues)
                try:
                    if isinstance(self._options.on_unavailable, Park):
                        await sends.open(self._options.on_unavailable.outbox)
                    sender.start()
                    self._sends = sends
                finally:
                    if self._sends is None:
                        await sends.close(timeout_seconds=1.0)
                        await self._resources.close(timeout_seconds=self._options.close_timeout_seconds)
        return self

    async def close(self) -> None:
        """Wait for sends in flight, then close; waits at most ``close_timeout_seconds``.

        Callbacks of sends that did not end in time get :class:`ClientClosedError`. Parked messages stay in the outbox.
        """
        self._resources.stop_use()
        await self._closing.do(self._close)

    async def _close(self) -> None:
        seconds = self._options.close_timeout_seconds
        ends_at = deadline_in(seconds)
        await self._in_flight.close(timeout_seconds=max(seconds / 2, seconds - 2.5))
        await self._requests.close()
        if self._sends is not None:
            await self._sends.close(timeout_seconds=seconds / 8)
        left = ends_at - asyncio.get_running_loop().time()
        await self._resources.close(timeout_seconds=max(left, seconds / 8))

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def client(self) -> NameServerClient:
        """The client that it gets routes from; ``client.describe(topic)`` also has its isolations."""
        return self._resources.client

    @property
    def parked(self) -> int:
        """Number of messages in its outboxes."""
        return 0 if self._sends is None else self._sends.parked

    # To any queue

    def message(
        self,
        topic: str,
        value: Any,  # noqa: ANN401  of the application
        *,
        tags: str = "",
        keys: tuple[str, ...] = (),
        properties: Mapping[str, str] = NO_PROPERTIES,
        deliver_at: datetime | None = None,
    ) -> Message:
        """Return the message whose body the ``serializer`` encodes from ``value``, for any method that sends.

        Raises as the constructor of :class:`Message`, and :class:`InvalidMessageError` for a value that the serializer
        refuses.
        """
        return Message(topic, encoded(self._options.serializer, value), tags, keys, properties, deliver_at)

    async def send(self, message: Message, *, timeout_seconds: float | None = None) -> SendResult:
        """Send, with retries at other brokers; return when a broker has stored the message.

        ``timeout_seconds``: for all attempts together. Raises :class:`InvalidNameError`, :class:`InvalidMessageError`,
        :class:`MessageTooLargeError`, :class:`TopicNotFoundError`, :class:`NameServersUnavailableError`,
        :class:`NoWritableQueueError`, :class:`NoBrokerUpError` (at the deadline), and :class:`SendFailedError` with
        each attempt and its cause.
        """
        sends, outgoing, deadline = self._begin([message], timeout_seconds)
        (result,) = await self._counted(outgoing, partial(sends.sender.send, mode=SendMode.SYNC, deadline=deadline))
        return result

    async def send_batch(
        self, messages: Sequence[Message], *, timeout_seconds: float | None = None
    ) -> tuple[SendResult, ...]:
        """Send messages of one topic to one queue, all or none; ``max_message_size`` limits their total size.

        Raises as :meth:`send` does.
        """
        sends, outgoing, deadline = self._begin(messages, timeout_seconds)
        return await self._counted(outgoing, partial(sends.sender.send, mode=SendMode.SYNC, deadline=deadline))

    def send_async(self, message: Message, callback: SendCallback, *, timeout_seconds: float | None = None) -> None:
        """Send in the background; returns immediately. Call it in the event loop.

        ``callback`` gets the result, or the error that :meth:`send` would raise; exceptions that it raises go to the
        event loop's exception handler. Connection failures are retried, rejections by a broker are not. Raises
        immediately for an invalid message, and :class:`TooManyInFlightError`.
        """
        check_function("callback", callback, "must be a function of the result")
        sends, (outgoing,), deadline = self._begin([message], timeout_seconds)
        self._send_unawaited(outgoing, partial(sends.sender.send, mode=SendMode.ASYNC, deadline=deadline), callback)

    def send_oneway(self, message: Message, *, timeout_seconds: float | None = None) -> None:
        """Send in the background, in one attempt; the result is only reported to the metrics hook.

        Returns immediately. RocketMQ brokers do not respond: the send ends when the message is in the connection's
        write buffer, with the outcome UNCONFIRMED. Raises for an invalid message, and :class:`TooManyInFlightError`.
        """
        sends, (outgoing,), deadline = self._begin([message], timeout_seconds)

        async def send(messages: Sequence[OutgoingMessage]) -> tuple[SendResult, ...]:
            return (await sends.sender.send_one_way(messages[0], deadline=deadline),)

        self._send_unawaited(outgoing, send, None)

    # Requests and replies

    async def request(self, message: Message, *, timeout_seconds: float | None = None) -> ReceivedMessage:
        """Send a message and return the reply to it (RocketMQ ``DefaultMQProducer.request``).

        ``timeout_seconds``: for all, until the reply is there. Consumers get the message like any other; one of them
        calls :meth:`reply`. Needs RocketMQ brokers. Raises as :meth:`send`, :class:`NoReplyError`, and
        :class:`InvalidOptionError` for a transport without requests.
        """
        sends, (outgoing,), deadline = self._begin([message], timeout_seconds)
        seconds = deadline - self._clock.monotonic()

        async def send(request: OutgoingMessage) -> object:
            return await self._counted([request], partial(sends.sender.send, mode=SendMode.SYNC, deadline=deadline))

        return self._view.opened(await self._requests.request(outgoing, send, timeout_seconds=seconds))

    async def reply(self, request: ReceivedMessage, body: bytes, *, timeout_seconds: float | None = None) -> SendResult:
        """Send the reply to a received request; return when its sender has it.

        Raises as :meth:`send`, with :class:`RequesterGoneError` as the cause when the sender no longer waits, and
        :class:`InvalidMessageError` for a message that awaits no reply.
        """
        address = request.reply_address
        if address is None:
            raise InvalidMessageError("request", request.message_id, "is the id of a message that awaits no reply")
        topic = reply_topic(request.queue.cluster)
        sends, (outgoing,), deadline = self._begin([Message(topic, body)], timeout_seconds)
        # The brokers' own topic is in no namespace.
        outgoing = outgoing._replace(message=Message(topic, body), internal_properties=address.reply_properties())
        send = partial(sends.sender.send, mode=SendMode.SYNC, deadline=deadline)
        (result,) = await self._counted([outgoing], send)
        return result

    # Delayed messages

    async def recall(self, handle: str, *, timeout_seconds: float | None = None) -> None:
        """Have the broker drop a delayed message, named by ``SendResult.recall_handle``, before it delivers it.

        Any producer can do it, also one of another process. Needs RocketMQ brokers 5.3.3 or later with
        ``recallMessageEnable=true``. Raises :class:`InvalidMessageError` for no handle, :class:`BrokerRefusedError`
        also for a message that was due, the errors of route lookups, :class:`BrokerUnreachableError`,
        :class:`BrokerTimeoutError`, and :class:`InvalidOptionError` for a transport that cannot do it.
        """
        self._usable()
        seconds = self._deadline(timeout_seconds) - self._clock.monotonic()
        await recall(self._resources, handle, timeout_seconds=seconds)

    # To a given queue

    async def send_to(
        self,
        queue: MessageQueue,
        message: Message,
        *,
        on_unavailable: OnUnavailable | None = None,
        timeout_seconds: float | None = None,
    ) -> SendResult:
        """Send to this queue, in one attempt.

        ``on_unavailable``: what to do while the queue cannot be written (None: the producer's option): ``"raise"``
        :class:`QueueUnavailableError`, :class:`Park` or :class:`Fallback`. Also raises as :meth:`send` does, and with
        :class:`Park` :class:`OutboxFullError` and :class:`OutboxFailedError`.
        """
        sends, (outgoing,), deadline = self._begin([message], timeout_seconds)
        given: object = queue
        if not isinstance(given, MessageQueue):
            raise InvalidOptionError("queue", given, "must be a MessageQueue, such as those of client.publish_queues()")
        queue = self._view.full_queue(queue)
        if queue.topic != outgoing.message.topic:
            raise InvalidMessageError("topic", message.topic, f"is not the topic of {queue}")
        return await self._explicit(sends, outgoing, queue, on_unavailable, deadline)

    async def send_selected(
        self,
        message: Message,
        selector: SelectQueue,
        argument: Any = None,  # noqa: ANN401  only the selector uses it
        *,
        on_unavailable: OnUnavailable | None = None,
        timeout_seconds: float | None = None,
    ) -> SendResult:
        """Send to the queue that ``selector(queues, message, argument)`` returns; otherwise as :meth:`send_to`.

        The queues are those that can be written now, so a selector that uses their number moves keys while a broker is
        down; :meth:`send_by_key` does not.
        """
        sends, (outgoing,), deadline = self._begin([message], timeout_seconds)
        check_function("selector", selector, "must be a function of queues, message and argument")
        topic, view = outgoing.message.topic, self._view
        info = await sends.sender.publish_info(topic, deadline)
        queue = view.full_queue(selector(view.short_queues(info.queues), message, argument))
        check_queue("selector", queue, topic)
        return await self._explicit(sends, outgoing, queue, on_unavailable, deadline)

    async def send_by_key(
        self,
        message: Message,
        key: str,
        *,
        second: str | None = None,
        on_unavailable: OnUnavailable | None = None,
        timeout_seconds: float | None = None,
    ) -> SendResult:
        """Send to the queue of a sharding key: messages of a key stay in order. Otherwise as :meth:`send_to`.

        The map covers all queues of the topic, also those that cannot be written: see
        :mod:`~pointsman_client.core.sharding`. When all brokers of a topic are down, its last known map is used;
        without one :class:`TopicNotFoundError` is raised. A key with parked messages keeps its queue until they are
        sent, also when queues are added. ``second``: distributes a key that has sub-shards.
        """
        sends, (outgoing,), deadline = self._begin([message], timeout_seconds)
        check_key(key)
        if second is not None:
            check_key(second, name="second")
        what = self._on_unavailable(on_unavailable)
        topic = outgoing.message.topic
        queue = await sends.queue_of_key(topic, key, second=second, on_unavailable=what, deadline=deadline)
        order_key = self._key_queues.order_key(topic, key, second)
        return await self._explicit(sends, outgoing, queue, what, deadline, order_key)

    def drop_absent_brokers(self, topic: str) -> None:
        """Make :meth:`send_by_key` use only the brokers in the route, after others were removed permanently.

        Keys of the removed brokers move, with their parked messages. Without this call a broker retains its keys while
        the producer runs.
        """
        topic = self._view.full(topic)
        self._key_queues.drop_absent(topic)
        if self._sends is not None:
            self._sends.drop_absent(topic)

    # Implementation

    def _on_unavailable(self, given: OnUnavailable | None) -> OnUnavailable:
        what = self._options.on_unavailable if given is None else given
        check_on_unavailable(what)
        return what.within(self._view) if isinstance(what, Fallback) and self._options.namespace else what

    def _begin(
        self, messages: Sequence[Message], timeout_seconds: float | None
    ) -> tuple[ExplicitSends, list[OutgoingMessage], float]:
        """Check a send, and return what it needs: the messages of one request, and its deadline."""
        sends = self._usable()
        check_batch(messages, max_message_size=self._options.max_message_size)
        # The id is the hex form of a random (version 4) UUID; making a UUID object takes eight times as long.
        random_bits, now = self._rng.getrandbits, self._clock.utc_now()
        if self._options.namespace:
            messages = [self._view.full_message(message) for message in messages]
        outgoing = [
            OutgoingMessage(
                message, hex(random_bits(128) & _UUID_RANDOM | _UUID_VERSION_4)[3:], now, 0, message.deliver_at
            )
            for message in messages
        ]
        return sends, outgoing, self._deadline(timeout_seconds)

    def _usable(self) -> ExplicitSends:
        self._resources.binding.check()
        if self._sends is None:
            raise ClientNotStartedError
        return self._sends

    def _deadline(self, timeout_seconds: float | None) -> float:
        if timeout_seconds is None:
            return self._clock.monotonic() + self._options.send_msg_timeout_seconds
        check_seconds("timeout_seconds", timeout_seconds)
        return self._clock.monotonic() + timeout_seconds

    def _send_unawaited(self, outgoing: OutgoingMessage, send: SendMessages, callback: SendCallback | None) -> None:
        size = outgoing.message.size
        self._in_flight.check_limits(size)

        async def first_result() -> SendResult:
            without_status = UNCONFIRMED if callback is None else PARKED
            return (await self._counted([outgoing], send, without_status=without_status))[0]

        self._in_flight.start(first_result(), size=size, callback=callback)

    async def _explicit(
        self,
        sends: ExplicitSends,
        outgoing: OutgoingMessage,
        queue: MessageQueue,
        on_unavailable: OnUnavailable | None,
        deadline: float,
        order_key: OrderKey | None = None,
    ) -> SendResult:
        what = self._on_unavailable(on_unavailable)

        async def send(messages: Sequence[OutgoingMessage]) -> tuple[SendResult, ...]:
            sent = await sends.send(queue, messages[0], on_unavailable=what, deadline=deadline, order_key=order_key)
            return (sent,)

        return (await self._counted([outgoing], send))[0]

    async def _counted(
        self, messages: Sequence[OutgoingMessage], send: SendMessages, without_status: str = PARKED
    ) -> tuple[SendResult, ...]:
        began_at = self._clock.monotonic()
        outcome, tries = CANCELLED, 0
        topic = messages[0].message.topic
        span = None if self._tracing is None else self._tracing.sending(messages)
        self._in_flight.began()
        try:
            results = await send(messages if span is None else span.messages)
            outcome, tries = results[0].status or without_status, results[0].tries
        except BaseException as error:  # a cancelled send also ends its span
            if isinstance(error, PointsmanError):
                outcome, tries = error.code, len(getattr(error, "tries", ()))
            if span is not None:
                last = error.tries[-1].addr if isinstance(error, SendFailedError) and error.tries else ""
                span.end(outcome, addr=last, error=error)
            raise
        finally:
            self._in_flight.ended()
            seconds = self._clock.monotonic() - began_at
            self._resources.metrics_hook.sent(topic=topic, outcome=outcome, seconds=seconds, tries=tries)
        if span is not None:
            addr = "" if outcome is PARKED else self._addr_of(results[0].queue)
            span.end(outcome, queue=results[0].queue, addr=addr)
        return tuple(map(self._view.short_result, results)) if self._options.namespace else results

    def _addr_of(self, queue: MessageQueue) -> str:
        """Return the address of the broker that got the message; empty: it is not in the routes."""
        group = self._resources.client.broker(*queue.broker_key)
        return "" if group is None or group.master is None else group.master.addr


class _InFlight:
    """Sends in flight: limits those without a waiting caller; ``close()`` waits for all."""

    def __init__(self, *, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._tasks: set[asyncio.Task[SendResult]] = set()
        self._bytes = 0
        self._number = 0
        self._none: asyncio.Event | None = None
        """Set when the last one ends; None: :meth:`close` does not wait for it."""

    def began(self) -> None:
        """Count a send until :meth:`ended`."""
        self._number += 1

    def ended(self) -> None:
        """Count it no longer."""
        self._number -= 1
        if self._none is not None and not self._number:
            self._none.set()

    def check_limits(self, size: int) -> None:
        """Raise :class:`TooManyInFlightError` unless another message of this size may be sent unawaited."""
        if len(self._tasks) >= self._most or (self._tasks and self._bytes + size > self._most_bytes):
            raise TooManyInFlightError(len(self._tasks), self._bytes)

    def start(self, send: Coroutine[Any, Any, SendResult], *, size: int, callback: SendCallback | None) -> None:
        """Run a send in its own task; ``callback`` gets the result or the error."""
        task = asyncio.create_task(send, name="pointsman-send")
        self._tasks.add(task)
        self._bytes += size
        task.add_done_callback(lambda done: self._end(done, size, callback))

    async def close(self, *, timeout_seconds: float) -> None:
        """Wait for sends in flight, at most ``timeout_seconds``; then cancel those that no caller awaits."""
        self._none = asyncio.Event()
        if not self._number:
            self._none.set()
        none = asyncio.create_task(self._none.wait(), name="pointsman-no-send-in-flight")
        _, late = await asyncio.wait([none, *self._tasks], timeout=timeout_seconds)
        await finish_tasks([*late], timeout_seconds=0.0)

    def _end(self, task: asyncio.Task[SendResult], size: int, callback: SendCallback | None) -> None:
        self._tasks.discard(task)
        self._bytes -= size
        error = ClientClosedError() if task.cancelled() else task.exception()
        if callback is None or not isinstance(error, Exception | None):
            return
        # Called by the event loop, so that an exception goes to the loop's exception handler.
        asyncio.get_running_loop().call_soon(callback, task.result() if error is None else error)
