"""Codec between the wire's messages and the core's values; checks what only the wire can get wrong."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp

from pointsman.names import registered_name_problem, text_problem
from pointsman.v1 import admin_service_pb2, broker_pb2, registration_service_pb2
from pointsman.wire.refusals import FieldViolation, InvalidRequest, field_violations, refuse_if_any
from pointsman.wire.wire_time import seconds_of
from pointsman_namesrv.core import broker_responses
from pointsman_namesrv.core.events import Event
from pointsman_namesrv.core.group import Group, MemberView, Replica
from pointsman_namesrv.core.model import (
    BrokerIdentity,
    DataVersion,
    Evidence,
    Health,
    NodeState,
    ProbeVerdict,
    QueueConfig,
    Reason,
    Registration,
    TopicTable,
)
from pointsman_namesrv.core.replica_state import Phase, rule_of
from pointsman_namesrv.core.reported_queue_stats import TOP, GroupTotals, QueueLag, QueuePuts, QueueStats, TopicTotals
from pointsman_namesrv.core.request_rules import (
    IntervalBounds,
    duplicate_topic,
    identity_violations,
    name_violations,
    registration_violations,
    topic_violations,
)
from pointsman_namesrv.core.static_topics import QueueMapping

DEFAULT_HEARTBEAT_INTERVAL = 30.0
DEFAULT_EXPIRY = 120.0

NO_TOPICS: TopicTable = {}

STATS_LISTS = ("top_put_rates", "top_lags", "top_topics", "top_groups")

_VERDICTS = {
    broker_pb2.PROBE_STATUS_UNSPECIFIED: ProbeVerdict.UNKNOWN,
    broker_pb2.PROBE_STATUS_PASSING: ProbeVerdict.PASSING,
    broker_pb2.PROBE_STATUS_FAILING: ProbeVerdict.FAILING,
}
_STATUSES = {verdict: status for status, verdict in _VERDICTS.items()}
_EVIDENCE = {
    broker_pb2.PROBE_EVIDENCE_UNSPECIFIED: Evidence.WEAK,
    broker_pb2.PROBE_EVIDENCE_WEAK: Evidence.WEAK,
    broker_pb2.PROBE_EVIDENCE_STRONG: Evidence.STRONG,
}
_TO_EVIDENCE = {
    None: broker_pb2.PROBE_EVIDENCE_UNSPECIFIED,
    Evidence.WEAK: broker_pb2.PROBE_EVIDENCE_WEAK,
    Evidence.STRONG: broker_pb2.PROBE_EVIDENCE_STRONG,
}
_STATES = {
    Phase.UP: broker_pb2.BROKER_STATE_UP,
    Phase.SUSPECT: broker_pb2.BROKER_STATE_SUSPECT,
    Phase.PROVISIONAL: broker_pb2.BROKER_STATE_PROVISIONAL,
    Phase.PROTECTED: broker_pb2.BROKER_STATE_PROTECTED,
    Phase.OUT: broker_pb2.BROKER_STATE_OUT,
}
_NODE_STATES = {
    NodeState.WARMING: broker_pb2.NODE_STATE_WARMING,
    NodeState.READY: broker_pb2.NODE_STATE_READY,
    NodeState.DRAINING: broker_pb2.NODE_STATE_DRAINING,
}
_BEAT_STATUSES = {
    broker_responses.BeatStatus.OK: registration_service_pb2.BEAT_STATUS_OK,
    broker_responses.BeatStatus.UNKNOWN_BROKER: registration_service_pb2.BEAT_STATUS_UNKNOWN_BROKER,
    broker_responses.BeatStatus.STALE_GENERATION: registration_service_pb2.BEAT_STATUS_STALE_GENERATION,
    broker_responses.BeatStatus.TOPICS_OUT_OF_DATE: registration_service_pb2.BEAT_STATUS_TOPICS_OUT_OF_DATE,
}
_UNREGISTER_STATUSES = {
    broker_responses.UnregisterStatus.UNREGISTERED: registration_service_pb2.UNREGISTER_STATUS_UNREGISTERED,
    broker_responses.UnregisterStatus.UNKNOWN_BROKER: registration_service_pb2.UNREGISTER_STATUS_UNKNOWN_BROKER,
    broker_responses.UnregisterStatus.STALE_GENERATION: registration_service_pb2.UNREGISTER_STATUS_STALE_GENERATION,
}
_STATS_STATUSES = {
    broker_responses.StatsStatus.RECORDED: registration_service_pb2.REPORT_QUEUE_STATS_STATUS_RECORDED,
    broker_responses.StatsStatus.UNKNOWN_BROKER: registration_service_pb2.REPORT_QUEUE_STATS_STATUS_UNKNOWN_BROKER,
    broker_responses.StatsStatus.STALE_GENERATION: registration_service_pb2.REPORT_QUEUE_STATS_STATUS_STALE_GENERATION,
}
_UNREGISTER_REASONS = {
    registration_service_pb2.UNREGISTER_REASON_SHUTDOWN: Reason.SHUTDOWN,
    registration_service_pb2.UNREGISTER_REASON_DRAIN: Reason.DRAIN,
    registration_service_pb2.UNREGISTER_REASON_REMOVED_FROM_CONFIG: Reason.REMOVED_FROM_CONFIG,
}


# --- from the wire --------------------------------------------------------------------------------------------


def identity(message: broker_pb2.BrokerIdentity) -> BrokerIdentity:
    """Decode without checking."""
    return BrokerIdentity(message.cluster, message.broker_name, message.broker_id, message.addr)


def checked_identity(message: broker_pb2.BrokerIdentity, *, path: str) -> BrokerIdentity:
    """Decode and check. Raises InvalidRequest."""
    decoded = identity(message)
    refuse_if_any(identity_violations(decoded, path=path))
    return decoded


def data_version(message: broker_pb2.DataVersion) -> DataVersion:
    """Decode; any numbers are a valid version."""
    return DataVersion(message.state_version, message.timestamp_millis, message.counter)


def health(message: broker_pb2.BrokerHealth) -> Health:
    """Decode without checking."""
    return Health(
        _VERDICTS.get(message.status, ProbeVerdict.UNKNOWN),
        message.detail,
        _EVIDENCE.get(message.evidence, Evidence.WEAK),
        message.ever_passed if message.HasField("ever_passed") else None,
    )


def to_health(health: Health) -> broker_pb2.BrokerHealth:
    """Encode."""
    return broker_pb2.BrokerHealth(
        status=_STATUSES[health.verdict],
        detail=health.detail,
        evidence=_TO_EVIDENCE[health.failing],
        ever_passed=health.ever_passed,
    )


def _health_violations(message: broker_pb2.BrokerHealth, *, path: str) -> Iterator[FieldViolation]:
    if message.status not in _VERDICTS:
        yield FieldViolation(f"{path}.status", f"unknown probe status: {message.status}")
    if message.evidence not in _EVIDENCE:
        yield FieldViolation(f"{path}.evidence", f"unknown probe evidence: {message.evidence}")
    if (problem := text_problem(message.detail)) is not None:
        yield from field_violations(f"{path}.detail", message.detail, problem)


class Beat(NamedTuple):
    """A decoded ``Beat``."""

    identity: BrokerIdentity
    generation: int
    data_version: DataVersion
    health: Health
    hand_over: bool
    sent_at_millis: int
    """0: not reported."""


def beat(message: registration_service_pb2.Beat) -> Beat:
    """Decode, and check all but the identity, which is checked only if it is not registered. Raises InvalidRequest."""
    who = identity(message.identity)
    faults = list(_health_violations(message.health, path="beat.health"))
    if message.sent_at_millis < 0:
        faults.append(FieldViolation("beat.sent_at_millis", f"is before 1970: {message.sent_at_millis}"))
    if faults:
        refuse_if_any([*identity_violations(who, path="beat.identity"), *faults])
    return Beat(
        who,
        message.generation,
        data_version(message.data_version),
        health(message.health),
        message.hand_over,
        message.sent_at_millis,
    )


def live_queues_behind(request: bytes, beat: bytes) -> bytes | None:
    """Return the measurement of a ``KeepAliveRequest`` that begins with the bytes of one with a heartbeat alone.

    Messages may be cut between fields, so the rest is one, too. Empty: it has no measurement. None: it does not begin
    with them, or has another heartbeat behind them.
    """
    if not request.startswith(beat):
        return None
    if len(request) == len(beat):
        return b""
    rest = registration_service_pb2.KeepAliveRequest.FromString(request[len(beat) :])
    return None if rest.HasField("beat") else rest.live_queues


def registration(message: registration_service_pb2.BrokerRegistration, *, bounds: IntervalBounds) -> Registration:
    """Decode and check everything but the topics, which come in chunks. Raises InvalidRequest."""
    decoded = Registration(
        identity=identity(message.identity),
        topics={},
        data_version=data_version(message.data_version),
        heartbeat_interval=seconds_of(message.heartbeat_interval)
        if message.HasField("heartbeat_interval")
        else DEFAULT_HEARTBEAT_INTERVAL,
        expiry=seconds_of(message.expiry) if message.HasField("expiry") else DEFAULT_EXPIRY,
        acting_master=message.acting_master if message.HasField("acting_master") else True,
        incarnation=message.incarnation,
        health=health(message.health),
        ha_addr=message.ha_addr,
        agent_addr=message.agent_addr,
        zone=message.zone,
        host=message.host,
        broker_version=message.broker_version,
        agent_version=message.agent_version,
        labels=dict(message.labels),
        filter_servers=tuple(message.filter_servers),
    )
    refuse_if_any(
        itertools.chain(
            registration_violations(decoded, bounds=bounds), _health_violations(message.health, path="broker.health")
        )
    )
    return decoded


def topics(
    messages: Iterable[broker_pb2.TopicConfig],
    *,
    path: str,
    before: Collection[str] = (),
    held: TopicTable = NO_TOPICS,
) -> dict[str, QueueConfig]:
    """Decode and check topics that follow those of ``before``. Raises InvalidRequest.

    Registrations may have 100,000 topics: those ``held`` were checked when they were registered, and are reused. Equal
    queues are checked once, and share one tuple.
    """
    read: dict[str, QueueConfig] = {}
    checked: dict[tuple[int, int, int, int, int], QueueConfig] = {}
    violations: list[FieldViolation] = []
    for i, message in enumerate(messages, len(before)):
        name = message.topic
        of_topic = (
            message.read_queue_nums,
            message.write_queue_nums,
            message.perm,
            message.topic_sys_flag,
            message.queue_weight or 1,
        )
        queues = held.get(name)
        if queues is None or queues != of_topic:
            equal = checked.get(of_topic)
            if equal is None or (queues is None and registered_name_problem(name) is not None):
                equal = checked[of_topic] = QueueConfig(*of_topic)
                violations += topic_violations(name, equal, path=f"{path}[{i}]")
            queues = equal
        if name in read or name in before:
            violations.append(duplicate_topic(name, path=f"{path}[{i}]"))
        read[sys.intern(name)] = queues
    refuse_if_any(violations)
    return read


def removed_topics(names: Iterable[str], changed: Mapping[str, QueueConfig]) -> list[str]:
    """Check the removed names of a delta. Raises InvalidRequest."""
    checked: dict[str, None] = {}

    def violations() -> Iterator[FieldViolation]:
        for i, name in enumerate(names):
            yield from name_violations(f"removed[{i}]", name)
            if name in checked or name in changed:
                yield duplicate_topic(name, path=f"removed[{i}]")
            checked[name] = None

    refuse_if_any(violations())
    return list(checked)


def unregister_reason(value: registration_service_pb2.UnregisterReason.ValueType) -> Reason:
    """Decode and check. Raises InvalidRequest."""
    reason = _UNREGISTER_REASONS.get(value)
    if reason is None:
        known = ", ".join(_UNREGISTER_REASONS.values())
        raise InvalidRequest([FieldViolation("reason", f"must be one of {known}, not {value}")])
    return reason


def queue_stats(message: registration_service_pb2.QueueStats, *, path: str) -> QueueStats:
    """Decode and check. Raises InvalidRequest."""
    lengths = {field: len(getattr(message, field)) for field in STATS_LISTS}
    refuse_if_any(
        FieldViolation(f"{path}.{field}", f"may hold at most {TOP} entries, not {length}")
        for field, length in lengths.items()
        if length > TOP
    )
    decoded = QueueStats(
        period=seconds_of(message.period),
        queue_count=message.queue_count,
        unmeasured_queue_count=message.unmeasured_queue_count,
        topic_count=message.topic_count,
        depth=message.depth,
        put_rate=message.put_rate,
        lag=message.lag,
        top_put_rates=tuple(
            QueuePuts(each.topic, each.queue_id, each.put_rate, each.depth, each.bytes)
            for each in message.top_put_rates
        ),
        top_lags=tuple(
            QueueLag(
                each.group,
                each.topic,
                each.queue_id,
                each.lag,
                each.put_rate,
                seconds_of(each.oldest_unread) if each.HasField("oldest_unread") else None,
            )
            for each in message.top_lags
        ),
        top_topics=tuple(
            TopicTotals(
                each.topic,
                each.queue_count,
                each.idle_queue_count,
                each.put_rate,
                each.highest_put_rate,
                each.depth,
                each.highest_depth,
            )
            for each in message.top_topics
        ),
        top_groups=tuple(
            GroupTotals(
                each.group,
                each.topic,
                each.queue_count,
                each.lag,
                each.highest_lag,
                each.member_count,
                each.put_rate,
                each.commit_rate if each.HasField("commit_rate") else None,
                each.behind_queue_count,
                each.stuck_queue_count,
                each.membership_changes,
                max(each.membership_changes, each.membership_changes_in_hour),
            )
            for each in message.top_groups
        ),
    )
    refuse_if_any(decoded.violations(path=path))
    return decoded


# --- to the wire ----------------------------------------------------------------------------------------------


def duration(seconds: float) -> Duration:
    """Encode seconds to the nearest microsecond."""
    encoded = Duration()
    encoded.FromTimedelta(timedelta(seconds=seconds))
    return encoded


def timestamp(at: datetime) -> Timestamp:
    """Encode a UTC time."""
    encoded = Timestamp()
    encoded.FromDatetime(at)
    return encoded


def struct(fields: Mapping[str, Any]) -> Struct:
    """Encode a JSON object; ``ParseDict`` would take three times as long."""
    encoded = Struct()
    encoded.update(fields)
    return encoded


def node_state(state: NodeState) -> broker_pb2.NodeState.ValueType:
    """Encode the state of this node."""
    return _NODE_STATES[state]


def group_view(view: MemberView) -> broker_pb2.GroupView:
    """Encode a replica's view of its group."""
    return broker_pb2.GroupView(
        min_broker_id=view.min_broker_id,
        min_broker_addr=view.min_broker_addr,
        master_addr=view.master_addr,
        ha_addr=view.ha_addr,
        master_agent_addr=view.master_agent_addr,
        also_at_addr=map(to_identity, view.also_at_addr),
    )


def beat_answer(answer: broker_responses.BeatAnswer) -> registration_service_pb2.BeatAnswer:
    """Encode the response to a heartbeat."""
    encoded = registration_service_pb2.BeatAnswer(
        status=_BEAT_STATUSES[answer.status], group=group_view(answer.view), holder_addr=answer.holder_addr
    )
    if answer.held_data_version is not None:
        encoded.held_data_version.CopyFrom(to_data_version(answer.held_data_version))
    return encoded


def unregister_response(
    answer: broker_responses.UnregisterResponse,
) -> registration_service_pb2.UnregisterBrokerResponse:
    """Encode the response to an unregistration."""
    return registration_service_pb2.UnregisterBrokerResponse(
        status=_UNREGISTER_STATUSES[answer.status], holder_addr=answer.holder_addr
    )


def stats_response(answer: broker_responses.StatsResponse) -> registration_service_pb2.ReportQueueStatsResponse:
    """Encode the response to a report of queue statistics."""
    return registration_service_pb2.ReportQueueStatsResponse(
        status=_STATS_STATUSES[answer.status], holder_addr=answer.holder_addr
    )


def to_identity(value: BrokerIdentity) -> broker_pb2.BrokerIdentity:
    """Encode an identity."""
    return broker_pb2.BrokerIdentity(
        cluster=value.cluster, broker_name=value.broker_name, broker_id=value.broker_id, addr=value.addr
    )


def to_data_version(value: DataVersion) -> broker_pb2.DataVersion:
    """Encode a version."""
    return broker_pb2.DataVersion(
        state_version=value.state_version, timestamp_millis=value.timestamp_millis, counter=value.counter
    )


def broker_data(group: Group) -> broker_pb2.BrokerData:
    """Encode a group as clients see it: its routed replicas, by id; zone and flag are those of the lowest."""
    routed = group.routed()
    lowest = routed[0].registration if routed else None
    return broker_pb2.BrokerData(
        cluster=group.key.cluster,
        broker_name=group.key.broker_name,
        replicas=[
            broker_pb2.BrokerReplica(
                broker_id=replica.identity.broker_id,
                addr=replica.identity.addr,
                ha_addr=replica.registration.ha_addr,
                agent_addr=replica.registration.agent_addr,
                state=_STATES[replica.state.phase],
                filter_servers=replica.registration.filter_servers,
            )
            for replica in routed
        ],
        zone=lowest.zone if lowest is not None else "",
        acting_master=lowest is not None and lowest.shown_acting_master,
    )


def broker_status(group: Group, replica: Replica, *, now: float, utc_now: datetime) -> broker_pb2.BrokerStatus:
    """Encode a replica with its state."""
    registration, state = replica.registration, replica.state
    return broker_pb2.BrokerStatus(
        identity=to_identity(replica.identity),
        state=_STATES[state.phase],
        reason=state.reason or "",
        planned=state.planned,
        state_for=None if replica.state_since is None else duration(now - replica.state_since),
        rule=rule_of(state).when,
        generation=replica.generation,
        ha_addr=registration.ha_addr,
        agent_addr=registration.agent_addr,
        zone=registration.zone,
        host=registration.host,
        labels=registration.labels,
        broker_version=registration.broker_version,
        agent_version=registration.agent_version,
        incarnation=registration.incarnation,
        data_version=to_data_version(registration.data_version),
        topic_count=len(registration.topics),
        brings_topics=group.contributor() is replica,
        heartbeat_interval=duration(registration.heartbeat_interval),
        expiry=duration(registration.expiry),
        registered_at=timestamp(utc_now - timedelta(seconds=now - replica.registered_at)),
        silence=duration(now - replica.pulse.last_seen),
        stream_open=replica.pulse.stream is not None,
        self_registered=registration.from_broker is not None,
        health=to_health(replica.health),
        acting_master=registration.shown_acting_master,
    )


def broker_event(event: Event, *, event_at: datetime, seq: int) -> admin_service_pb2.BrokerEvent:
    """Encode an event of a broker as in the history."""
    encoded = admin_service_pb2.BrokerEvent(
        event_at=timestamp(event_at), event=event.kind, reason=event.reason or "", seq=seq
    )
    if event.broker is not None:
        encoded.identity.CopyFrom(to_identity(event.broker.identity))
        encoded.generation = event.broker.generation or 0
        encoded.incarnation = event.broker.incarnation or ""
        encoded.state, encoded.planned = event.broker.state.phase, event.broker.state.planned
        if event.broker.state_for is not None:
            encoded.state_for.CopyFrom(_as_recorded(event.broker.state_for))
    elif event.group is not None:
        encoded.identity.cluster, encoded.identity.broker_name = event.group
    if event.interval is not None:
        encoded.interval.CopyFrom(_as_recorded(event.interval))
    encoded.detail.CopyFrom(struct(event.detail))
    return encoded


def _as_recorded(seconds: float) -> Duration:
    # The history keeps milliseconds; half of one more would be shown as another tenth after a restart.
    return duration(round(seconds, 3))


def to_static_topic_mapping(
    mapping: QueueMapping, *, topic: str = "", cluster: str = ""
) -> broker_pb2.StaticTopicMapping:
    """Encode the mapping of a static topic; topic and cluster where the message around it has none."""
    return broker_pb2.StaticTopicMapping(
        topic=topic,
        cluster=cluster,
        broker_name=mapping.broker_name,
        scope=mapping.scope,
        total_queues=mapping.total_queues,
        epoch=mapping.epoch,
        dirty=mapping.dirty,
        logical_queue_ids=[logical for logical, _ in mapping.queue_ids],
        physical_queue_ids=[physical for _, physical in mapping.queue_ids],
    )


def static_topic_mapping(message: broker_pb2.StaticTopicMapping) -> QueueMapping:
    """Decode the mapping of a static topic, unchecked."""
    return QueueMapping(
        broker_name=message.broker_name,
        scope=message.scope,
        total_queues=message.total_queues,
        epoch=message.epoch,
        dirty=message.dirty,
        queue_ids=tuple(zip(message.logical_queue_ids, message.physical_queue_ids, strict=False)),
    )
