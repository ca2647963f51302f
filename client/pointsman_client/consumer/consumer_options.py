"""The settings of a consumer, checked as a whole. Defaults stand at the faces, where users meet them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime

from pointsman_client.consumer.start_offset import ConsumeFrom
from pointsman_client.core.checks import check_number, check_seconds
from pointsman_client.core.process_queue import FlowLimits
from pointsman_client.core.rebalance import REBALANCE_MIN_INTERVAL_SECONDS
from pointsman_client.errors import InvalidOptionError

MAX_CONCURRENCY = 64
MAX_BATCH = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """Settings that both faces share; a value out of bounds raises :class:`InvalidOptionError`. In brackets RocketMQ's
    names, of ``DefaultMQPushConsumer`` unless said otherwise."""

    consume_from: ConsumeFrom
    """Where a queue without a committed offset begins (``consumeFromWhere``)."""
    consume_timestamp: datetime | None
    """With TIMESTAMP: from when on; has a time zone (``consumeTimestamp``)."""
    pull_batch_size: int
    """Messages of one pull, 1 to 1,024 (``pullBatchSize``, 32)."""
    pull_wait_seconds: float
    """How long a pull waits at the broker while there is nothing (``BROKER_SUSPEND_MAX_TIME_MILLIS``, 15,000)."""
    pull_timeout_seconds: float
    """For a broker's answer, on top of the wait."""
    pull_threshold_for_queue: int
    """Unfinished messages of a queue at which it is not pulled further (``pullThresholdForQueue``, 1,000)."""
    pull_threshold_size_for_queue_bytes: int
    """The same in bytes of their bodies (``pullThresholdSizeForQueue``, 100 MiB)."""
    consume_max_span: int
    """The same in offsets from the lowest to the highest unfinished one (``consumeConcurrentlyMaxSpan``, 2,000)."""
    rebalance_interval_seconds: float
    """Longest time between two rebalances (``rocketmq.client.rebalance.waitInterval``, 20 s)."""
    handover_timeout_seconds: float
    """How long a concurrent consumer waits for the lock of a queue's old owner, and the old owner for what it has in
    flight."""
    persist_offset_interval_seconds: float
    """Between two commits (``persistConsumerOffsetInterval``, 5 s)."""
    close_timeout_seconds: float
    """Longest time that ``close()`` takes."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("_seconds"):
                check_seconds(field.name, value)
        if self.rebalance_interval_seconds < REBALANCE_MIN_INTERVAL_SECONDS:
            problem = f"must be at least {REBALANCE_MIN_INTERVAL_SECONDS:g}"
            raise InvalidOptionError("rebalance_interval_seconds", self.rebalance_interval_seconds, problem)
        check_number("pull_batch_size", self.pull_batch_size, at_most=MAX_BATCH)
        check_number("pull_threshold_for_queue", self.pull_threshold_for_queue)
        check_number("pull_threshold_size_for_queue_bytes", self.pull_threshold_size_for_queue_bytes)
        check_number("consume_max_span", self.consume_max_span)
        if self.consume_from is ConsumeFrom.TIMESTAMP and self.consume_timestamp is None:
            raise InvalidOptionError("consume_timestamp", None, "must be set when consume_from is TIMESTAMP")
        if self.consume_timestamp is not None and self.consume_timestamp.tzinfo is None:
            raise InvalidOptionError("consume_timestamp", self.consume_timestamp, "must have a time zone")

    @property
    def limits(self) -> FlowLimits:
        """When a queue is not pulled further."""
        return FlowLimits(
            messages=self.pull_threshold_for_queue,
            size_bytes=self.pull_threshold_size_for_queue_bytes,
            span=self.consume_max_span,
        )
