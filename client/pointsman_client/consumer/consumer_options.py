"""Options of consumers, and their checks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pointsman.group_topics import MAX_GROUP_LENGTH
from pointsman_client.consumer.listener import BatchListener, Listener
from pointsman_client.core.allocation import AllocationStrategy
from pointsman_client.core.checks import check_name, check_number, check_seconds
from pointsman_client.core.lease import MAX_INVISIBLE_SECONDS, MIN_INVISIBLE_SECONDS, ConsumeMode
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.namespace import with_namespace
from pointsman_client.core.process_queue import FlowLimits
from pointsman_client.core.rebalance import REBALANCE_MIN_INTERVAL_SECONDS, ConsumeFrom, MessageModel
from pointsman_client.core.retry_rules import MAX_RECONSUME_TIMES
from pointsman_client.core.subscription import Subscriptions
from pointsman_client.errors import InvalidNameError, InvalidOptionError
from pointsman_client.ownership import MessagingOptions
from pointsman_client.ports.coordination import MakeCoordination

MAX_CONCURRENCY = 64
MAX_BATCH = 1_024


@dataclass(frozen=True, kw_only=True)
class GroupOptions(MessagingOptions):
    """Options of all kinds of consumers; a value out of bounds raises :class:`InvalidOptionError`. In brackets
    RocketMQ's names, of ``DefaultMQPushConsumer`` unless stated otherwise."""

    group: str
    """The consumer group (``consumerGroup``)."""
    consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET
    """Where a queue without a committed offset begins (``consumeFromWhere``)."""
    consume_timestamp: datetime | None = None
    """With TIMESTAMP: the time to begin at, with a time zone (``consumeTimestamp``)."""
    persist_offset_interval_seconds: float = 5.0
    """Commit interval (``persistConsumerOffsetInterval``, 5 s)."""
    close_timeout_seconds: float = 10.0
    """Maximum duration of ``close()``."""
    client_id: str = ""
    """Id of this member, unique in its group; empty: built from address, process and zone."""
    route_zone: str = ""
    """Read only from brokers of this zone; all members of a group need the same value."""
    make_coordination: MakeCoordination | None = None
    """For tests: makes the coordination of group, locks and offsets. None: by RocketMQ brokers, else by agents."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name("group", self.group)
        # Everything inside has the full name.
        object.__setattr__(self, "group", with_namespace(self.namespace, self.group))
        if len(self.group) > MAX_GROUP_LENGTH:
            problem = f"has {len(self.group)} characters, at most {MAX_GROUP_LENGTH} are allowed"
            raise InvalidNameError("group", self.group, problem)
        if self.consume_from is ConsumeFrom.TIMESTAMP and self.consume_timestamp is None:
            raise InvalidOptionError("consume_timestamp", None, "must be set when consume_from is TIMESTAMP")
        if self.consume_timestamp is not None and self.consume_timestamp.tzinfo is None:
            raise InvalidOptionError("consume_timestamp", self.consume_timestamp, "must have a time zone")


@dataclass(frozen=True, kw_only=True)
class ConsumerOptions(GroupOptions):
    """Options of consumers that store offsets."""

    message_model: MessageModel = MessageModel.CLUSTERING
    """CLUSTERING: the members of the group share the messages. BROADCASTING: each member gets all
    (``messageModel``)."""
    strategy: AllocationStrategy | None = None
    """How queues are divided among the members (``allocateMessageQueueStrategy``); None: ``Averagely()``."""
    pull_batch_size: int = 32
    """Messages of one pull, 1 to 1,024 (``pullBatchSize``, 32); with POP, of one request (``popBatchNums``, 32)."""
    pull_wait_seconds: float = 15.0
    """How long a pull waits at the broker for a first message (``BROKER_SUSPEND_MAX_TIME_MILLIS``, 15,000)."""
    pull_timeout_seconds: float = 5.0
    """Timeout of a pull, in addition to the wait."""
    pull_threshold_for_queue: int = 1_000
    """Unfinished messages of a queue at which pulling pauses (``pullThresholdForQueue``, 1,000)."""
    pull_threshold_size_for_queue_bytes: int = 100 * 1024 * 1024
    """Bytes of unfinished bodies of a queue at which pulling pauses (``pullThresholdSizeForQueue``, 100 MiB)."""
    consume_max_span: int = 2_000
    """Distance of the lowest to the highest unfinished offset of a queue at which pulling pauses
    (``consumeConcurrentlyMaxSpan``, 2,000)."""
    rebalance_interval_seconds: float = 20.0
    """Longest time between two rebalances (``rocketmq.client.rebalance.waitInterval``, 20 s)."""
    handover_timeout_seconds: float = 5.0
    """How long a concurrent consumer waits for the lock of a queue's old owner, and the old owner for its messages in
    flight."""
    zone: str = ""
    """Zone of this member, for strategies by zone."""
    offset_file: str | Path | None = None
    """Offset file of a broadcasting consumer; None: below ``~/.pointsman/offsets``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rebalance_interval_seconds < REBALANCE_MIN_INTERVAL_SECONDS:
            problem = f"must be at least {REBALANCE_MIN_INTERVAL_SECONDS:g}"
            raise InvalidOptionError("rebalance_interval_seconds", self.rebalance_interval_seconds, problem)
        check_number("pull_batch_size", self.pull_batch_size, at_most=MAX_BATCH)
        check_number("pull_threshold_for_queue", self.pull_threshold_for_queue)
        check_number("pull_threshold_size_for_queue_bytes", self.pull_threshold_size_for_queue_bytes)
        check_number("consume_max_span", self.consume_max_span)

    @property
    def limits(self) -> FlowLimits:
        """The limits at which pulling a queue pauses."""
        return FlowLimits(
            messages=self.pull_threshold_for_queue,
            size_bytes=self.pull_threshold_size_for_queue_bytes,
            span=self.consume_max_span,
        )


@dataclass(frozen=True, kw_only=True)
class PushConsumerOptions(ConsumerOptions):
    """Options of :class:`PushConsumer`."""

    listener: Listener | None = None
    """A function of one message, ``async def`` or plain; a plain one runs in a thread."""
    batch_listener: BatchListener | None = None
    """In place of ``listener``: a function of several messages of one queue, in their order. Its result is that of
    each: if it fails, all are delivered again."""
    consume_message_batch_max_size: int = 32
    """Maximum number of messages of one call of ``batch_listener``, 1 to 1,024 (``consumeMessageBatchMaxSize``, 1)."""
    subscriptions: Subscriptions
    """Topics with their tags (``{"orders": "paid || refunded"}``) or, on RocketMQ brokers, a :class:`SqlFilter`; a list
    of topics, or one topic."""
    consume_mode: ConsumeMode = ConsumeMode.PULL
    """PULL: queues are assigned to members. POP: any member gets any message, with a lease (``setConsumeMode``)."""
    invisible_seconds: float = 60.0
    """With POP: lease of a message, 10 s to 12 h, renewed until the listener has finished it (``popInvisibleTime``,
    60 s)."""
    pop_threshold: int = 96
    """With POP: messages here that are not acknowledged at which no further ones are requested
    (``popThresholdForQueue``, 96)."""
    ordered: bool = False
    """Whether the listener gets one message of a queue at a time (``MessageListenerOrderly``)."""
    consume_concurrency: int = 20
    """Listener calls at the same time, 1 to 64 (``consumeThreadMax``, 20)."""
    consume_timeout_seconds: float = 900.0
    """Longest call of the listener (``consumeTimeout``, 15 min)."""
    max_reconsume_times: int | None = None
    """Retries before a message goes to the dead letters (``maxReconsumeTimes``); None: 16, and without limit for an
    ordered consumer."""
    send_back_timeout_seconds: float = 3.0
    """Timeout for sending a failed message to the retry or dead-letter topic."""
    on_dead_letter: Callable[[ReceivedMessage, str], object] | None = None
    """Called in the event loop with each message that this consumer moved to the dead letters, and its error; must not
    block."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("consume_concurrency", self.consume_concurrency, at_most=MAX_CONCURRENCY)
        if self.max_reconsume_times is not None:
            # RocketMQ brokers have a Java int.
            check_number("max_reconsume_times", self.max_reconsume_times, at_least=0, at_most=2**31 - 1)
        check_invisible_seconds("invisible_seconds", self.invisible_seconds)
        check_number("pop_threshold", self.pop_threshold)
        mode: object = self.consume_mode
        if not isinstance(mode, ConsumeMode):
            raise InvalidOptionError("consume_mode", mode, "must be a ConsumeMode")
        if mode is ConsumeMode.POP:
            if self.message_model is not MessageModel.CLUSTERING:
                raise InvalidOptionError("message_model", self.message_model, "must be CLUSTERING with ConsumeMode.POP")
            if self.strategy is not None:
                problem = "must be None with ConsumeMode.POP: no queues are assigned"
                raise InvalidOptionError("strategy", type(self.strategy).__name__, problem)
        check_number("consume_message_batch_max_size", self.consume_message_batch_max_size, at_most=MAX_BATCH)
        listener: object = self.listener
        batch_listener: object = self.batch_listener
        if batch_listener is None:
            if not callable(listener):
                raise InvalidOptionError("listener", listener, "must be a function of one message")
        elif listener is not None:
            raise InvalidOptionError("batch_listener", batch_listener, "must be None if listener is set")
        elif not callable(batch_listener):
            raise InvalidOptionError("batch_listener", batch_listener, "must be a function of a list of messages")
        _check_on_dead_letter(self.on_dead_letter)


@dataclass(frozen=True, kw_only=True)
class PullConsumerOptions(ConsumerOptions):
    """Options of :class:`PullConsumer`."""

    subscriptions: Subscriptions | None = None
    """As for a push consumer; None: queues come from :meth:`PullConsumer.assign`, without a rebalance."""
    auto_commit: bool = True
    """Whether finished messages are committed at the interval above, and on close (``autoCommit``)."""
    max_poll_messages: int = 32
    """Maximum number of messages of one poll."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("max_poll_messages", self.max_poll_messages)


@dataclass(frozen=True, kw_only=True)
class SimpleConsumerOptions(GroupOptions):
    """Options of :class:`SimpleConsumer`; in brackets RocketMQ's names, of its ``SimpleConsumer``."""

    subscriptions: Subscriptions
    """Topics with their tags (``{"orders": "paid || refunded"}``), a list of topics, or one topic."""
    ordered: bool = False
    """Whether a queue has no message for any member while one of its messages is leased."""
    max_messages: int = 32
    """Maximum number of messages that ``receive()`` returns and iteration receives (``maxMessageNum``), 1 to 1,024."""
    invisible_seconds: float = 30.0
    """How long other members do not get a received message (``invisibleDuration``), 10 s to 12 h."""
    renew: bool = False
    """Whether leases are renewed in the background until their messages are acknowledged."""
    max_renew_seconds: float = 3 * 3600.0
    """Time from the delivery of a message after which its lease is no longer renewed."""
    max_reconsume_times: int = MAX_RECONSUME_TIMES
    """Deliveries after the first one, before a message goes to the dead letters (``maxReconsumeTimes``)."""
    request_timeout_seconds: float = 5.0
    """Timeout of a request to a broker, in addition to its wait."""
    send_back_timeout_seconds: float = 3.0
    """Timeout for sending a message to the dead-letter topic."""
    on_dead_letter: Callable[[ReceivedMessage, str], object] | None = None
    """Called in the event loop with each message that this consumer moved to the dead letters, and its error; must not
    block."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("max_messages", self.max_messages, at_most=MAX_BATCH)
        check_invisible_seconds("invisible_seconds", self.invisible_seconds)
        check_number("max_reconsume_times", self.max_reconsume_times, at_least=0, at_most=2**31 - 1)
        _check_on_dead_letter(self.on_dead_letter)


def check_invisible_seconds(option: str, value: float) -> None:
    """Raise :class:`InvalidOptionError` unless the value is from 10 s to 12 h."""
    check_seconds(option, value)
    if not MIN_INVISIBLE_SECONDS <= value <= MAX_INVISIBLE_SECONDS:
        problem = f"must be from {MIN_INVISIBLE_SECONDS:g} to {MAX_INVISIBLE_SECONDS:g} (12 h)"
        raise InvalidOptionError(option, value, problem)


def _check_on_dead_letter(hook: object) -> None:
    if hook is not None and (not callable(hook) or inspect.iscoroutinefunction(hook)):
        raise InvalidOptionError("on_dead_letter", hook, "must be a plain function of a message and its error")
