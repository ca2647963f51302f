"""Between what the server holds and the contents of segments. What is read is checked as if it came from the wire."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp

from namesrv.core.errors import NameServerError
from namesrv.core.guard import GuardSetting
from namesrv.core.kv import KvConfig, KvEntry
from namesrv.core.maintenance import MaintenanceWindow, MaintenanceWindows
from namesrv.core.model import DataVersion, FromBroker, GroupKey, Health, QueueConfig, Registration
from namesrv.core.validation import (
    MAX_INCARNATION_LENGTH,
    IntervalBounds,
    name_violations,
    text_violations,
)
from namesrv.rpc import admin_codec, codec
from namesrv.snapshot.segment import SegmentRefused
from pointsman.v1 import admin_service_pb2, broker_pb2, registration_service_pb2, snapshot_pb2
from pointsman.wire.names import MAX_CHUNK_TOPICS
from pointsman.wire.violation import FieldViolation


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorState:
    """What operators set. Equal when nothing was set since."""

    kv: tuple[KvEntry, ...] = ()
    wipes: Mapping[GroupKey, str] = field(default_factory=dict)
    """Incarnation by group."""
    tombstones: Mapping[GroupKey, Mapping[str, DataVersion]] = field(default_factory=dict)
    """Version by topic, by group."""
    windows: tuple[MaintenanceWindow, ...] = ()
    guards: tuple[GuardSetting, ...] = ()


# --- a broker -------------------------------------------------------------------------------------------------


def encode_broker(registration: Registration, generation: int, health: Health) -> bytes:
    """Encode one replica with the health that it has now."""
    head = snapshot_pb2.BrokerSegment(broker=_broker(registration, health), generation=generation)
    if registration.from_broker is not None:
        head.from_broker.acting_master = registration.from_broker.acting_master
    parts = [head.SerializeToString()]
    topics = iter(registration.topics.items())
    # Encoded messages may be joined; one of all topics would hold the interpreter, and so the loop, for too long.
    while chunk := list(itertools.islice(topics, MAX_CHUNK_TOPICS)):
        parts.append(snapshot_pb2.BrokerSegment(topics=itertools.starmap(_topic, chunk)).SerializeToString())
    return b"".join(parts)


def _broker(registration: Registration, health: Health) -> registration_service_pb2.BrokerRegistration:
    return registration_service_pb2.BrokerRegistration(
        identity=codec.to_identity(registration.identity),
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
        data_version=codec.to_data_version(registration.data_version),
        health=codec.to_health(health),
    )


def _topic(topic: str, queues: QueueConfig) -> broker_pb2.TopicConfig:
    return broker_pb2.TopicConfig(
        topic=topic,
        read_queue_nums=queues.read_queue_nums,
        write_queue_nums=queues.write_queue_nums,
        perm=queues.perm,
        topic_sys_flag=queues.topic_sys_flag,
    )


def decode_broker(content: bytes, *, bounds: IntervalBounds, max_topics: int) -> tuple[Registration, int]:
    """Decode one replica: its registration and generation. Raises SegmentRefused."""
    try:
        message = snapshot_pb2.BrokerSegment.FromString(content)
        if not message.generation:
            raise SegmentRefused("holds no generation")
        if len(message.topics) > max_topics:
            raise SegmentRefused(f"holds {len(message.topics)} topics of {max_topics} allowed")
        registration = codec.registration(message.broker, bounds=bounds)
        topics = codec.topics(message.topics, path="topics")
    except (DecodeError, NameServerError) as error:
        raise SegmentRefused(f"breaks a rule: {error}") from error
    from_broker = FromBroker(message.from_broker.acting_master) if message.HasField("from_broker") else None
    return replace(registration, topics=topics, from_broker=from_broker), message.generation


# --- operators ------------------------------------------------------------------------------------------------


def encode_operator(state: OperatorState, *, now: float, utc_now: datetime) -> bytes:
    """Encode what operators set; windows with the time that they still have."""
    return snapshot_pb2.OperatorSegment(
        kv=[admin_service_pb2.KvEntry(namespace=e.namespace, key=e.key, value=e.value) for e in state.kv],
        wipes=[
            snapshot_pb2.WipedGroup(cluster=key.cluster, broker_name=key.broker_name, incarnation=incarnation)
            for key, incarnation in state.wipes.items()
        ],
        tombstones=[
            snapshot_pb2.Tombstone(
                topic=topic,
                cluster=key.cluster,
                broker_name=key.broker_name,
                data_version=codec.to_data_version(version),
            )
            for key, topics in state.tombstones.items()
            for topic, version in topics.items()
        ],
        maintenance=[
            admin_service_pb2.MaintenanceWindow(
                cluster=window.key.cluster,
                broker_name=window.key.broker_name,
                remaining=_exactly(window.until - now),
                note=window.note,
                by=window.by,
            )
            for window in state.windows
            if window.until > now
        ],
        guards=[
            snapshot_pb2.GuardSetting(
                cluster=setting.cluster,
                mode=admin_codec.to_guard_mode(setting.mode),
                remaining=None if setting.until is None else _exactly(setting.until - now),
            )
            for setting in state.guards
            if setting.until is None or setting.until > now
        ],
        saved_at=codec.timestamp(utc_now),
    ).SerializeToString()


def decode_operator(content: bytes, *, now: float, utc_now: datetime) -> OperatorState:
    """Decode what operators set. Raises SegmentRefused.

    The time since it was written is taken from the windows, but a wall clock that was set back adds nothing to them.
    """
    try:
        message = snapshot_pb2.OperatorSegment.FromString(content)
        codec.refuse_if_any(_operator_violations(message))
        # The tables themselves check what they are given, and these are thrown away.
        kv = KvConfig()
        kv.restore(KvEntry(entry.namespace, entry.key, entry.value) for entry in message.kv)
        windows = MaintenanceWindows()
        elapsed = max(0.0, utc_now.timestamp() - _unix_seconds(message.saved_at))
        windows.restore(
            MaintenanceWindow(
                key=GroupKey(window.cluster, window.broker_name),
                until=now + remaining - elapsed,
                note=window.note,
                by=window.by,
            )
            for window in message.maintenance
            if (remaining := _seconds(window.remaining)) > elapsed
        )
        guards = [
            GuardSetting(
                guard.cluster,
                admin_codec.guard_mode(guard.mode),
                now + _seconds(guard.remaining) - elapsed if guard.HasField("remaining") else None,
            )
            for guard in message.guards
            if not guard.HasField("remaining") or _seconds(guard.remaining) > elapsed
        ]
    except (DecodeError, NameServerError) as error:
        raise SegmentRefused(f"breaks a rule: {error}") from error
    tombstones: dict[GroupKey, dict[str, DataVersion]] = {}
    for tombstone in message.tombstones:
        of_group = tombstones.setdefault(GroupKey(tombstone.cluster, tombstone.broker_name), {})
        of_group[tombstone.topic] = codec.data_version(tombstone.data_version)
    return OperatorState(
        kv=tuple(kv.entries()),
        wipes={GroupKey(wipe.cluster, wipe.broker_name): wipe.incarnation for wipe in message.wipes},
        tombstones=tombstones,
        windows=tuple(windows.windows()),
        guards=tuple(sorted(guards)),
    )


MAX_WINDOW = timedelta(days=7).total_seconds()
"""As SetMaintenance allows."""


def _operator_violations(message: snapshot_pb2.OperatorSegment) -> Iterator[FieldViolation]:
    for i, wipe in enumerate(message.wipes):
        yield from name_violations(f"wipes[{i}].cluster", wipe.cluster)
        yield from name_violations(f"wipes[{i}].broker_name", wipe.broker_name)
        yield from text_violations(f"wipes[{i}].incarnation", wipe.incarnation)
        if len(wipe.incarnation) > MAX_INCARNATION_LENGTH:
            yield FieldViolation(f"wipes[{i}].incarnation", f"has more than {MAX_INCARNATION_LENGTH} characters")
    for i, tombstone in enumerate(message.tombstones):
        yield from name_violations(f"tombstones[{i}].topic", tombstone.topic)
        yield from name_violations(f"tombstones[{i}].cluster", tombstone.cluster)
        yield from name_violations(f"tombstones[{i}].broker_name", tombstone.broker_name)
    for i, window in enumerate(message.maintenance):
        yield from name_violations(f"maintenance[{i}].cluster", window.cluster)
        if window.broker_name:
            yield from name_violations(f"maintenance[{i}].broker_name", window.broker_name)
        yield from text_violations(f"maintenance[{i}].note", window.note)
        yield from text_violations(f"maintenance[{i}].by", window.by)
        if _seconds(window.remaining) > MAX_WINDOW:
            yield FieldViolation(f"maintenance[{i}].remaining", f"is longer than {MAX_WINDOW:g}s")
    for i, guard in enumerate(message.guards):
        yield from name_violations(f"guards[{i}].cluster", guard.cluster)
        yield from admin_codec.guard_mode_violations(guard.mode)


# --- times ----------------------------------------------------------------------------------------------------


def _exactly(seconds: float) -> Duration:
    """Encode to the nanosecond: rounded to microseconds, an expiry of three intervals may be less than three."""
    nanos = round(seconds * 1e9)
    return Duration(seconds=nanos // 10**9, nanos=nanos % 10**9)


def _seconds(value: Duration) -> float:
    return value.seconds + value.nanos / 1e9


def _unix_seconds(at: Timestamp) -> float:
    return at.seconds + at.nanos / 1e9
