"""Conversion between the agent's state and the messages of the registration service. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from google.protobuf.duration_pb2 import Duration

from pointsman.names import MAX_CHUNK_TOPICS
from pointsman.v1 import broker_pb2
from pointsman.v1 import registration_service_pb2 as wire
from pointsman.wire.wire_time import seconds_of
from pointsman_agent.core.deltas import TopicDelta
from pointsman_agent.core.own_state import OwnState
from pointsman_agent.core.probe_verdict import Evidence, ProbeStatus
from pointsman_agent.core.registration_session import BeatStatus
from pointsman_agent.core.topic_set import DataVersion, TopicConfig

_PROBE_STATUS = {
    ProbeStatus.UNSPECIFIED: broker_pb2.PROBE_STATUS_UNSPECIFIED,
    ProbeStatus.PASSING: broker_pb2.PROBE_STATUS_PASSING,
    ProbeStatus.FAILING: broker_pb2.PROBE_STATUS_FAILING,
}

_PROBE_EVIDENCE = {
    Evidence.UNSPECIFIED: broker_pb2.PROBE_EVIDENCE_UNSPECIFIED,
    Evidence.WEAK: broker_pb2.PROBE_EVIDENCE_WEAK,
    Evidence.STRONG: broker_pb2.PROBE_EVIDENCE_STRONG,
}

_BEAT_STATUS = {
    wire.BEAT_STATUS_OK: BeatStatus.OK,
    wire.BEAT_STATUS_UNKNOWN_BROKER: BeatStatus.UNKNOWN_BROKER,
    wire.BEAT_STATUS_STALE_GENERATION: BeatStatus.STALE_GENERATION,
    wire.BEAT_STATUS_TOPICS_OUT_OF_DATE: BeatStatus.TOPICS_OUT_OF_DATE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerProfile:
    """What the broker says of itself and does not change while the agent runs."""

    cluster: str
    broker_name: str
    addr: str
    ha_addr: str = ""
    agent_addr: str = ""
    zone: str = ""
    host: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    broker_version: str = ""
    agent_version: str = ""
    acting_master: bool = True
    filter_servers: tuple[str, ...] = ()
    interval_seconds: float = 30.0
    """As requested; the interval in the server's response applies."""
    expiry_seconds: float = 120.0

    def to_identity(self, broker_id: int) -> broker_pb2.BrokerIdentity:
        """Build the claim on a position in the group; which one may change while the agent runs."""
        return broker_pb2.BrokerIdentity(
            cluster=self.cluster, broker_name=self.broker_name, broker_id=broker_id, addr=self.addr
        )


def to_registration(profile: BrokerProfile, own: OwnState) -> Iterator[wire.RegisterBrokerRequest]:
    """Build the chunks of a registration, one at a time so that 100,000 topics do not hold the loop."""
    topics = own.topics.topics
    chunk_count = max(1, -(-len(topics) // MAX_CHUNK_TOPICS))
    for number in range(chunk_count):
        part = topics[number * MAX_CHUNK_TOPICS : (number + 1) * MAX_CHUNK_TOPICS]
        is_last = number == chunk_count - 1
        yield wire.RegisterBrokerRequest(
            broker=_to_broker(profile, own) if number == 0 else None,
            topics=[_to_topic(each) for each in part],
            commit=wire.RegistrationCommit(topic_count=len(topics), chunk_count=chunk_count) if is_last else None,
        )


def to_update(profile: BrokerProfile, own: OwnState, delta: TopicDelta, *, generation: int) -> wire.UpdateTopicsRequest:
    """Build a change of some topics."""
    return wire.UpdateTopicsRequest(
        identity=profile.to_identity(own.broker_id),
        generation=generation,
        base_data_version=_to_data_version(delta.base),
        data_version=_to_data_version(own.data_version),
        changed=[_to_topic(each) for each in delta.changed],
        removed=delta.removed,
    )


def to_beat(
    profile: BrokerProfile,
    own: OwnState,
    *,
    broker_id: int,
    generation: int,
    hand_over: bool,
    sent_at: datetime | None = None,
) -> wire.Beat:
    """Build a heartbeat; ``sent_at`` is the agent's wall clock, if given."""
    return wire.Beat(
        identity=profile.to_identity(broker_id),
        generation=generation,
        data_version=_to_data_version(own.data_version),
        health=to_health(own),
        hand_over=hand_over,
        sent_at_millis=0 if sent_at is None else round(sent_at.timestamp() * 1_000),
    )


def to_unregister(
    profile: BrokerProfile, *, broker_id: int, generation: int, is_drained: bool
) -> wire.UnregisterBrokerRequest:
    """Build the leave of a broker that was stopped, or drained first."""
    return wire.UnregisterBrokerRequest(
        identity=profile.to_identity(broker_id),
        generation=generation,
        reason=wire.UNREGISTER_REASON_DRAIN if is_drained else wire.UNREGISTER_REASON_SHUTDOWN,
    )


def to_health(own: OwnState) -> broker_pb2.BrokerHealth:
    """Build the health; without a probe it states neither evidence nor whether the probe ever passed."""
    return broker_pb2.BrokerHealth(
        status=_PROBE_STATUS[own.status],
        detail=own.health_detail,
        evidence=_PROBE_EVIDENCE[own.verdict.evidence],
        ever_passed=own.verdict.ever_passed,
    )


def to_name(identity: broker_pb2.BrokerIdentity) -> str:
    """Render a position as ``cluster/name/id``, as the name server's history does."""
    return f"{identity.cluster}/{identity.broker_name}/{identity.broker_id}"


def from_held_version(answer: wire.BeatAnswer) -> DataVersion | None:
    """Read the version that the server holds; None where it does not say."""
    if not answer.HasField("held_data_version"):
        return None
    held = answer.held_data_version
    return DataVersion(held.state_version, held.timestamp_millis, held.counter)


def from_beat_status(status: wire.BeatStatus.ValueType) -> BeatStatus:
    """Read what the server wants; a status of a later version asks for nothing that we could do."""
    return _BEAT_STATUS.get(status, BeatStatus.OK)


def from_unregister_status(status: wire.UnregisterStatus.ValueType) -> str:
    """Read what became of a leave, for the log; a status of a later version is its number."""
    names = {number: name for name, number in wire.UnregisterStatus.items()}
    return names.get(status, str(status)).removeprefix("UNREGISTER_STATUS_").lower()


def from_duration(duration: Duration, *, default: float) -> float:
    """Read seconds; ``default`` where the server did not say."""
    seconds = seconds_of(duration)
    return seconds if seconds > 0 else default


def _to_broker(profile: BrokerProfile, own: OwnState) -> wire.BrokerRegistration:
    return wire.BrokerRegistration(
        identity=profile.to_identity(own.broker_id),
        ha_addr=profile.ha_addr,
        agent_addr=profile.agent_addr,
        zone=profile.zone,
        host=profile.host,
        labels=dict(profile.labels),
        broker_version=profile.broker_version,
        agent_version=profile.agent_version,
        incarnation=own.verdict.incarnation,
        heartbeat_interval=_to_duration(profile.interval_seconds),
        expiry=_to_duration(profile.expiry_seconds),
        acting_master=profile.acting_master,
        filter_servers=profile.filter_servers,
        data_version=_to_data_version(own.data_version),
        health=to_health(own),
    )


def _to_duration(seconds: float) -> Duration:
    whole, nanos = divmod(round(seconds * 1e9), 1_000_000_000)
    return Duration(seconds=whole, nanos=nanos)


def _to_data_version(version: DataVersion) -> broker_pb2.DataVersion:
    return broker_pb2.DataVersion(
        state_version=version.state_version, timestamp_millis=version.timestamp_millis, counter=version.counter
    )


def _to_topic(topic: TopicConfig) -> broker_pb2.TopicConfig:
    return broker_pb2.TopicConfig(
        topic=topic.topic,
        read_queue_nums=topic.read_queue_nums,
        write_queue_nums=topic.write_queue_nums,
        perm=topic.perm,
        topic_sys_flag=topic.topic_sys_flag,
        queue_weight=0 if topic.queue_weight == 1 else topic.queue_weight,
    )
