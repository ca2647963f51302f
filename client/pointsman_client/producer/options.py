"""The settings of a producer, checked as a whole. Defaults stand at :class:`Producer`, where users meet them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pointsman_client.core.checks import check_number, check_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """Settings of one producer; a value out of bounds raises :class:`InvalidOptionError`. In brackets RocketMQ's
    names, all of ``DefaultMQProducer`` or ``ClientConfig``."""

    send_msg_timeout_seconds: float
    """For one send with all its tries (``sendMsgTimeout``, 3,000 ms)."""
    send_msg_max_timeout_per_request_seconds: float | None
    """Longest time of one try while another is left; None: a broker that hangs may take all of the time
    (``sendMsgMaxTimeoutPerRequest``; there it is off by default)."""
    retry_times_when_send_failed: int
    """Tries after the first one (``retryTimesWhenSendFailed``, 2)."""
    retry_times_when_send_async_failed: int
    """The same for ``send_async`` (``retryTimesWhenSendAsyncFailed``, 2)."""
    retry_another_broker_when_not_store_ok: bool
    """Whether a message that a broker took, but not as safely as wanted, is sent to another one too
    (``retryAnotherBrokerWhenNotStoreOK``, false)."""
    retry_response_codes: Collection[int]
    """Reasons of a broker's no for which another one is asked (``retryResponseCodes``)."""
    send_latency_fault_enable: bool
    """Whether brokers that were slow or failed are left out for a while (``sendLatencyFaultEnable``, there false)."""
    start_detector_enable: bool
    """Whether brokers that could not be reached are probed (``startDetectorEnable``, there false)."""
    detector_interval_seconds: float
    """Between two rounds of the detector (3,000 ms)."""
    detect_interval_seconds: float
    """Least time between two probes of a broker (``detectInterval``, 2,000 ms)."""
    detect_timeout_seconds: float
    """For one probe (``detectTimeout``, 200 ms)."""
    max_message_size: int
    """Bytes of a message, or of a batch together (``maxMessageSize``, 4 MiB)."""
    back_pressure_for_async_send_num: int
    """Messages of ``send_async`` and ``send_oneway`` on their way at the same time; one more is refused
    (``backPressureForAsyncSendNum``)."""
    back_pressure_for_async_send_size: int
    """Their bytes together (``backPressureForAsyncSendSize``, 100 MiB)."""
    close_timeout_seconds: float
    """Longest time that ``close()`` takes."""

    def __post_init__(self) -> None:
        for option in (
            "send_msg_timeout_seconds",
            "detector_interval_seconds",
            "detect_interval_seconds",
            "detect_timeout_seconds",
            "close_timeout_seconds",
        ):
            check_seconds(option, getattr(self, option))
        if self.send_msg_max_timeout_per_request_seconds is not None:
            check_seconds("send_msg_max_timeout_per_request_seconds", self.send_msg_max_timeout_per_request_seconds)
        for option, least in (
            ("retry_times_when_send_failed", 0),
            ("retry_times_when_send_async_failed", 0),
            ("max_message_size", 1),
            ("back_pressure_for_async_send_num", 1),
            ("back_pressure_for_async_send_size", 1),
        ):
            check_number(option, getattr(self, option), at_least=least)
