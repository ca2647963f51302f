"""The producer for programs without an event loop."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from typing import Any

from pointsman.wire.clock import Clock
from pointsman_client.core.checks import check_function
from pointsman_client.core.fault_strategy import NEWER_FAULT_RULES, FaultRules
from pointsman_client.core.message import Message
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.send_outcome import RETRY_RESPONSE_CODES, SendResult
from pointsman_client.core.sharding import ShardingMap
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.ownership import TransportOrMaker
from pointsman_client.producer import producer as async_producer
from pointsman_client.producer.explicit_send import OnUnavailable
from pointsman_client.producer.producer import SelectQueue
from pointsman_client.sync.callback_thread import MAX_WAITING
from pointsman_client.sync.client import NameServerClient, client_for
from pointsman_client.sync.facade import CALL_TIMEOUT_SECONDS, Facade
from pointsman_client.sync.owed_callbacks import OwedCallbacks

SendCallback = Callable[[SendResult | Exception], object]
"""Called on a thread of the producer with the result of a send, or with the error that :meth:`Producer.send` raises."""


class Producer(Facade):
    """Sends messages, by calls that block.

    ::

        with Producer(["10.0.0.1:9876"], transport=RedisStreamsTransport) as producer:
            producer.send(Message("orders", b"4711"))

    The methods are those of :class:`pointsman_client.Producer`, and raise the same; so are the guarantees. Share it
    between threads.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | NameServerClient,
        *,
        transport: TransportOrMaker,
        send_msg_timeout_seconds: float = 3.0,
        send_msg_max_timeout_per_request_seconds: float | None = 1.5,
        retry_times_when_send_failed: int = 2,
        retry_times_when_send_async_failed: int = 2,
        retry_another_broker_when_not_store_ok: bool = False,
        retry_response_codes: Collection[int] = RETRY_RESPONSE_CODES,
        send_latency_fault_enable: bool = True,
        fault_rules: FaultRules = NEWER_FAULT_RULES,
        start_detector_enable: bool = True,
        detector_interval_seconds: float = 3.0,
        detect_interval_seconds: float = 2.0,
        detect_timeout_seconds: float = 0.2,
        max_message_size: int = 4 * 1024 * 1024,
        back_pressure_for_async_send_num: int = 10_000,
        back_pressure_for_async_send_size: int = 100 * 1024 * 1024,
        sharding: ShardingMap | None = None,
        on_unavailable: OnUnavailable = "raise",
        close_timeout_seconds: float = 5.0,
        poll_name_server_interval_seconds: float = 30.0,
        lookup_timeout_seconds: float = 3.0,
        zone: str = "",
        metrics_hook: MetricsHook | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        call_timeout_seconds: float = CALL_TIMEOUT_SECONDS,
    ) -> None:
        """See :class:`pointsman_client.Producer`; ``call_timeout_seconds`` is the longest time of a
        call, beyond what it is given itself.

        Give a callable that makes the transport, as ``transport=RedisStreamsTransport``: it is then closed as well.
        """
        self._client = client_for(
            name_servers,
            metrics_hook=metrics_hook,
            clock=clock,
            rng=rng,
            call_timeout_seconds=call_timeout_seconds,
            poll_name_server_interval_seconds=poll_name_server_interval_seconds,
            lookup_timeout_seconds=lookup_timeout_seconds,
            zone=zone,
        )
        self._producer = async_producer.Producer(
            self._client.inner,
            transport=transport,
            send_msg_timeout_seconds=send_msg_timeout_seconds,
            send_msg_max_timeout_per_request_seconds=send_msg_max_timeout_per_request_seconds,
            retry_times_when_send_failed=retry_times_when_send_failed,
            retry_times_when_send_async_failed=retry_times_when_send_async_failed,
            retry_another_broker_when_not_store_ok=retry_another_broker_when_not_store_ok,
            retry_response_codes=retry_response_codes,
            send_latency_fault_enable=send_latency_fault_enable,
            fault_rules=fault_rules,
            start_detector_enable=start_detector_enable,
            detector_interval_seconds=detector_interval_seconds,
            detect_interval_seconds=detect_interval_seconds,
            detect_timeout_seconds=detect_timeout_seconds,
            max_message_size=max_message_size,
            back_pressure_for_async_send_num=back_pressure_for_async_send_num,
            back_pressure_for_async_send_size=back_pressure_for_async_send_size,
            sharding=sharding,
            on_unavailable=on_unavailable,
            close_timeout_seconds=close_timeout_seconds,
            zone=zone,
            metrics_hook=metrics_hook,
            clock=clock,
            rng=rng,
        )
        self._owed = OwedCallbacks(most=min(back_pressure_for_async_send_num, MAX_WAITING))
        super().__init__(
            self._producer,
            call_timeout_seconds=call_timeout_seconds,
            below=None if self._client is name_servers else self._client,
        )

    @property
    def client(self) -> NameServerClient:
        """The client that it asks for routes; ``client.describe(topic)`` also has its isolations."""
        return self._client

    @property
    def parked(self) -> int:
        """Messages that wait in its outboxes."""
        return self._look(lambda: self._producer.parked)

    def send(self, message: Message, *, timeout_seconds: float | None = None) -> SendResult:
        """Send, trying other brokers after failures; return when a broker has it."""
        return self._call(
            lambda: self._producer.send(message, timeout_seconds=timeout_seconds), seconds=timeout_seconds or 0.0
        )

    def send_batch(
        self, messages: Sequence[Message], *, timeout_seconds: float | None = None
    ) -> tuple[SendResult, ...]:
        """Send messages of one topic to one queue, all or none; ``max_message_size`` bounds them together."""
        return self._call(
            lambda: self._producer.send_batch(messages, timeout_seconds=timeout_seconds), seconds=timeout_seconds or 0.0
        )

    def send_async(self, message: Message, callback: SendCallback, *, timeout_seconds: float | None = None) -> None:
        """Send in the background; returns at once. ``callback``, a plain function, runs on a thread of this.

        A message counts against ``back_pressure_for_async_send_num`` until its callback has returned.
        """
        check_function("callback", callback, "must be a function that takes the outcome")
        call, settle = self._owed.owe(callback, size=_bytes_of(message))
        called_back = self._called_back(call)
        with ExitStack() as undo:
            undo.callback(settle)
            self._look(lambda: self._producer.send_async(message, called_back, timeout_seconds=timeout_seconds))
            undo.pop_all()

    def send_oneway(self, message: Message, *, timeout_seconds: float | None = None) -> None:
        """Send in the background, in one try, and tell nobody how it ended, but for the metrics hook."""
        self._look(lambda: self._producer.send_oneway(message, timeout_seconds=timeout_seconds))

    def send_to(
        self,
        queue: MessageQueue,
        message: Message,
        *,
        on_unavailable: OnUnavailable | None = None,
        timeout_seconds: float | None = None,
    ) -> SendResult:
        """Send to this queue, in one try; while it cannot be written, ``on_unavailable`` decides."""
        return self._call(
            lambda: self._producer.send_to(
                queue, message, on_unavailable=on_unavailable, timeout_seconds=timeout_seconds
            ),
            seconds=timeout_seconds or 0.0,
        )

    def send_selected(
        self,
        message: Message,
        selector: SelectQueue,
        argument: Any = None,  # noqa: ANN401  what the selector makes of it is its own
        *,
        on_unavailable: OnUnavailable | None = None,
        timeout_seconds: float | None = None,
    ) -> SendResult:
        """Send to the queue that ``selector(queues, message, argument)`` chooses, in the background loop."""
        return self._call(
            lambda: self._producer.send_selected(
                message, selector, argument, on_unavailable=on_unavailable, timeout_seconds=timeout_seconds
            ),
            seconds=timeout_seconds or 0.0,
        )

    def send_by_key(
        self,
        message: Message,
        key: str,
        *,
        second: str | None = None,
        on_unavailable: OnUnavailable | None = None,
        timeout_seconds: float | None = None,
    ) -> SendResult:
        """Send to the queue of a sharding key: messages of a key stay in order."""
        return self._call(
            lambda: self._producer.send_by_key(
                message, key, second=second, on_unavailable=on_unavailable, timeout_seconds=timeout_seconds
            ),
            seconds=timeout_seconds or 0.0,
        )

    def forget_away_brokers(self, topic: str) -> None:
        """Let :meth:`send_by_key` spread keys over the brokers in the route only: the others were taken away."""
        self._look(lambda: self._producer.forget_away_brokers(topic))


def _bytes_of(message: object) -> int:
    """What counts in an error; whether it is a message at all is checked where it is sent."""
    return len(message.body) if isinstance(message, Message) and isinstance(message.body, bytes) else 0
