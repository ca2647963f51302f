"""Codec between a registered broker and the content of its row.

Content that is read is checked like a request from the wire.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp

from pointsman.v1 import broker_pb2, registration_service_pb2, snapshot_pb2
from pointsman.wire.refusals import Refusal, shown
from pointsman_namesrv.core.model import FromBroker, Health, QueueConfig, Reason, Registration, TopicTable
from pointsman_namesrv.core.request_rules import IntervalBounds
from pointsman_namesrv.core.static_topics import MAX_QUEUES_PER_BROKER, StaticTopics, queue_count, static_topics
from pointsman_namesrv.rpc import broker_codec
from pointsman_namesrv.slices import SLICE_TOPICS

MAX_CHUNK_MAPPINGS = 100
"""Mappings of static topics in one message."""


class ContentRefused(Exception):
    """Content of a row that breaks a current rule, named in the message."""


class HistoryMark(NamedTuple):
    """The last row of the history that the row of a broker contains; younger rows may say more."""

    boot: int
    seq: int


NO_MARK = HistoryMark(0, 0)


class Lost(NamedTuple):
    """A broker that is no longer registered, and was lost."""

    registration: Registration
    reason: str
    at: float
    """Unix time."""
    planned: bool = False
    """Whether it was lost in a maintenance window that has not ended yet."""
    unplanned_at: float | None = None
    """When that window ended, Unix time."""


def encode_mark(mark: HistoryMark) -> bytes:
    """Encode what goes to the end of a row."""
    message = snapshot_pb2.SnapshotBroker()
    message.contains.boot, message.contains.seq = mark
    return message.SerializeToString()


MARK_BYTES = len(encode_mark(NO_MARK))


def decode_mark(content: bytes) -> HistoryMark | None:
    """Decode the end of a row alone: its topics are large. None: it has no mark."""
    try:
        message = snapshot_pb2.SnapshotBroker.FromString(content[-MARK_BYTES:])
    except DecodeError:
        return None
    return HistoryMark(message.contains.boot, message.contains.seq) if message.HasField("contains") else None


def encode_lost(lost: Lost) -> bytes:
    """Encode a broker that was lost."""
    message = snapshot_pb2.SnapshotBroker()
    message.lost.reason = lost.reason
    message.lost.at.FromNanoseconds(round(lost.at * 1e9))
    message.lost.planned = lost.planned
    if lost.unplanned_at is not None:
        message.lost.unplanned_at.FromNanoseconds(round(lost.unplanned_at * 1e9))
    return encode_broker(lost.registration, 0, lost.registration.health) + message.SerializeToString()


def encode_broker(
    registration: Registration, generation: int, health: Health, *, pause: Callable[[], object] = lambda: None
) -> bytes:
    """Encode one replica with the health that it has now. ``pause()`` is called between chunks of topics."""
    head = snapshot_pb2.SnapshotBroker(broker=_broker(registration, health), generation=generation)
    if registration.from_broker is not None:
        head.from_broker.acting_master = registration.from_broker.acting_master
    parts = [head.SerializeToString()]
    topics = iter(registration.topics.items())
    # Encoded messages may be joined; one of all topics would hold the interpreter, and so the loop, for too long.
    while chunk := list(itertools.islice(topics, SLICE_TOPICS)):
        if len(parts) > 1:
            pause()
        parts.append(snapshot_pb2.SnapshotBroker(topics=itertools.starmap(_topic, chunk)).SerializeToString())
    mappings = iter(registration.static_topics.mappings.items())
    while few := list(itertools.islice(mappings, MAX_CHUNK_MAPPINGS)):
        static = [broker_codec.to_static_topic_mapping(mapping, topic=topic) for topic, mapping in few]
        parts.append(snapshot_pb2.SnapshotBroker(static_topics=static).SerializeToString())
    return b"".join(parts)


def _broker(registration: Registration, health: Health) -> registration_service_pb2.BrokerRegistration:
    return registration_service_pb2.BrokerRegistration(
        identity=broker_codec.to_identity(registration.identity),
        ha_addr=registration.ha_addr,
        agent_addr=registration.agent_addr,
        zone=registration.zone,
        host=registration.host,
        labels=registration.labels,
        broker_version=registration.broker_version,
        agent_version=registration.agent_version,
        incarnation=registration.incarnation,
        heartbeat_interval=_exactly(registration.heartbeat_interval),
        expiry=_exactly(registration.expiry),
        acting_master=registration.acting_master,
        filter_servers=registration.filter_servers,
        data_version=broker_codec.to_data_version(registration.data_version),
        health=broker_codec.to_health(health),
    )


def _topic(topic: str, queues: QueueConfig) -> broker_pb2.TopicConfig:
    return broker_pb2.TopicConfig(
        topic=topic,
        read_queue_nums=queues.read_queue_nums,
        write_queue_nums=queues.write_queue_nums,
        perm=queues.perm,
        topic_sys_flag=queues.topic_sys_flag,
        queue_weight=0 if queues.queue_weight == 1 else queues.queue_weight,
    )


def decode_lost(content: bytes, *, bounds: IntervalBounds, max_topics: int) -> Lost | None:
    """Decode a broker that was lost; None: it is registered. Raises ContentRefused."""
    try:
        message = snapshot_pb2.SnapshotBroker.FromString(content)
    except DecodeError as error:
        raise ContentRefused(f"breaks a rule: {error}") from error
    if not message.HasField("lost"):
        return None
    if message.lost.reason not in set(Reason):
        raise ContentRefused(f"holds no reason that is known: {shown(message.lost.reason)}")
    message.generation = 1
    registration, _ = decode_broker(message.SerializeToString(), bounds=bounds, max_topics=max_topics)
    ended = _seconds_of(message.lost.unplanned_at) if message.lost.HasField("unplanned_at") else None
    return Lost(registration, message.lost.reason, _seconds_of(message.lost.at), message.lost.planned, ended)


def decode_broker(content: bytes, *, bounds: IntervalBounds, max_topics: int) -> tuple[Registration, int]:
    """Decode one replica: its registration and generation. Raises ContentRefused."""
    try:
        message = snapshot_pb2.SnapshotBroker.FromString(content)
        if not message.generation:
            raise ContentRefused("holds no generation")
        if len(message.topics) > max_topics:
            raise ContentRefused(f"holds {len(message.topics)} topics of {max_topics} allowed")
        registration = broker_codec.registration(message.broker, bounds=bounds)
        topics = broker_codec.topics(message.topics, path="topics")
        static = _static_topics(message, topics)
    except (DecodeError, Refusal) as error:
        raise ContentRefused(f"breaks a rule: {error}") from error
    from_broker = FromBroker(message.from_broker.acting_master) if message.HasField("from_broker") else None
    known = replace(registration, topics=topics, from_broker=from_broker, static_topics=static)
    return known, message.generation


def _static_topics(message: snapshot_pb2.SnapshotBroker, topics: TopicTable) -> StaticTopics:
    mappings = {each.topic: broker_codec.static_topic_mapping(each) for each in message.static_topics}
    if (count := queue_count(mappings)) > MAX_QUEUES_PER_BROKER:
        raise ContentRefused(f"holds {count} queues of static topics of {MAX_QUEUES_PER_BROKER} allowed")
    for topic, mapping in mappings.items():
        if (problem := mapping.problem(topic)) is not None:
            raise ContentRefused(f"breaks a rule: {problem}")
    return static_topics(mappings, topics)


def _seconds_of(at: Timestamp) -> float:
    return at.seconds + at.nanos / 1e9


def _exactly(seconds: float) -> Duration:
    """Encode to the nanosecond: rounded to microseconds, an expiry of three intervals may be less than three."""
    nanos = round(seconds * 1e9)
    return Duration(seconds=nanos // 10**9, nanos=nanos % 10**9)
