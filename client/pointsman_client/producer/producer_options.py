"""Options of a producer, and of messages whose queue cannot be written."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from pointsman_client.core.application_view import ApplicationView
from pointsman_client.core.checks import check_function, check_number
from pointsman_client.core.fault_strategy import NEWER_FAULT_RULES, FaultRules
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.send_outcome import RETRY_RESPONSE_CODES
from pointsman_client.core.sharding import ShardingMap
from pointsman_client.errors import InvalidOptionError
from pointsman_client.ownership import MessagingOptions
from pointsman_client.producer.outbox import Outbox

ChooseFallback = Callable[[MessageQueue, tuple[MessageQueue, ...]], MessageQueue]
"""Returns the queue to use instead; called with the unavailable queue and the topic's writable queues."""


@dataclass(frozen=True, slots=True)
class Park:
    """Store the message in a file and send it, in order, when the queue can be written; it survives a crash."""

    outbox: Outbox

    def __post_init__(self) -> None:
        outbox: object = self.outbox
        if not isinstance(outbox, Outbox):
            raise InvalidOptionError("outbox", outbox, "must be an Outbox: Park(Outbox(path))")


@dataclass(frozen=True, slots=True)
class Fallback:
    """Send the message to another queue: immediately, but out of order."""

    queue: MessageQueue | ChooseFallback

    def __post_init__(self) -> None:
        if not isinstance(self.queue, MessageQueue):
            check_function("queue", self.queue, "must be a MessageQueue, or a function that chooses one")

    def queue_instead_of(self, queue: MessageQueue, writable: tuple[MessageQueue, ...]) -> MessageQueue:
        """Return the other queue."""
        return self.queue if isinstance(self.queue, MessageQueue) else self.queue(queue, writable)

    def within(self, view: ApplicationView) -> Fallback:
        """Return the same for queues with full names."""
        return Fallback(
            lambda queue, writable: view.full_queue(
                self.queue_instead_of(view.short_queue(queue), view.short_queues(writable))
            )
        )


OnUnavailable = Literal["raise"] | Park | Fallback
"""What to do with a message while its queue cannot be written; ``"raise"`` raises :class:`QueueUnavailableError`."""


def check_on_unavailable(value: OnUnavailable) -> None:
    """Raise :class:`InvalidOptionError` for any other value."""
    if value != "raise" and not isinstance(value, Park | Fallback):
        problem = 'must be "raise", Park(outbox) or Fallback(queue)'
        raise InvalidOptionError("on_unavailable", value, problem)


@dataclass(frozen=True, kw_only=True)
class ProducerOptions(MessagingOptions):
    """Options of :class:`Producer`; an invalid value raises :class:`InvalidOptionError`. In brackets: RocketMQ's names,
    of ``DefaultMQProducer`` or ``ClientConfig``."""

    send_msg_timeout_seconds: float = 3.0
    """Timeout of one send with all its attempts (``sendMsgTimeout``, 3,000 ms)."""
    send_msg_max_timeout_per_request_seconds: float | None = 1.5
    """Timeout of one attempt if another one is left; None: a broker that hangs can use up the time of the send. If a
    broker takes longer, some messages are stored twice (``sendMsgMaxTimeoutPerRequest``; off by default there)."""
    retry_times_when_send_failed: int = 2
    """Attempts after the first one (``retryTimesWhenSendFailed``, 2)."""
    retry_times_when_send_async_failed: int = 2
    """Attempts of ``send_async`` after the first one (``retryTimesWhenSendAsyncFailed``, 2)."""
    retry_another_broker_when_not_store_ok: bool = False
    """Whether a message with a status other than SEND_OK is also sent to another broker
    (``retryAnotherBrokerWhenNotStoreOK``, false)."""
    retry_response_codes: Collection[int] = RETRY_RESPONSE_CODES
    """Response codes of a broker after which the next broker is tried (``retryResponseCodes``)."""
    send_latency_fault_enable: bool = True
    """Whether brokers that were slow or failed are isolated for a while (``sendLatencyFaultEnable``, there false). If
    false, a broker that is down gets its share of first attempts until it is removed from the route."""
    fault_rules: FaultRules = NEWER_FAULT_RULES
    """How long such a broker is isolated (``latencyMax``, ``notAvailableDuration``)."""
    start_detector_enable: bool = True
    """Whether unreachable brokers are probed (``startDetectorEnable``, there false)."""
    detector_interval_seconds: float = 3.0
    """Interval between two rounds of the detector (3,000 ms)."""
    detect_interval_seconds: float = 2.0
    """Minimum interval between two probes of a broker (``detectInterval``, 2,000 ms)."""
    detect_timeout_seconds: float = 0.2
    """Timeout of one probe (``detectTimeout``, 200 ms)."""
    max_message_size: int = 4 * 1024 * 1024
    """Maximum size of a message, or of all messages of a batch together, bytes (``maxMessageSize``, 4 MiB)."""
    back_pressure_for_async_send_num: int = 10_000
    """Maximum number of messages of ``send_async`` and ``send_oneway`` in flight; beyond it
    :class:`TooManyInFlightError` is raised (``backPressureForAsyncSendNum``)."""
    back_pressure_for_async_send_size: int = 100 * 1024 * 1024
    """Maximum bytes of these messages (``backPressureForAsyncSendSize``, 100 MiB)."""
    sharding: ShardingMap | None = None
    """The map from keys to queues of :meth:`Producer.send_by_key`; None: a hash ring."""
    on_unavailable: OnUnavailable = "raise"
    """Default of ``on_unavailable`` of the calls that send to one queue: what happens while it cannot be written.
    :meth:`Producer.start` opens an outbox given here and starts to send its messages."""
    zone: str = ""
    """Zone of the brokers to send to; empty: all (``rocketmq.zone``)."""
    close_timeout_seconds: float = 5.0
    """Longest time that ``close()`` takes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for option, least in (
            ("retry_times_when_send_failed", 0),
            ("retry_times_when_send_async_failed", 0),
            ("max_message_size", 1),
            ("back_pressure_for_async_send_num", 1),
            ("back_pressure_for_async_send_size", 1),
        ):
            check_number(option, getattr(self, option), at_least=least)
        fault_rules: object = self.fault_rules
        if not isinstance(fault_rules, FaultRules):
            raise InvalidOptionError("fault_rules", fault_rules, "must be FaultRules, such as OLDER_FAULT_RULES")
        if self.sharding is not None and not hasattr(self.sharding, "over"):
            raise InvalidOptionError("sharding", self.sharding, "must be a map such as HashRing()")
        check_on_unavailable(self.on_unavailable)
