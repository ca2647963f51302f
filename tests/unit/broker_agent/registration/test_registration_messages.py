"""The agent's messages on the wire."""

from __future__ import annotations

from dataclasses import replace

import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st

from pointsman.v1 import broker_pb2
from pointsman.v1 import registration_service_pb2 as wire
from pointsman_agent.core.deltas import TopicDelta
from pointsman_agent.core.own_state import OwnState
from pointsman_agent.core.probe_verdict import Evidence, ProbeStatus, Role, Verdict
from pointsman_agent.core.registration_session import BeatStatus
from pointsman_agent.core.topic_set import DataVersion, TopicConfig, TopicSet
from pointsman_agent.registration.registration_messages import (
    BrokerProfile,
    from_beat_status,
    from_duration,
    from_held_version,
    from_unregister_status,
    to_beat,
    to_health,
    to_registration,
    to_unregister,
    to_update,
)

PROFILE = BrokerProfile(
    cluster="c1",
    broker_name="a",
    addr="10.0.0.1:10911",
    ha_addr="10.0.0.1:10912",
    agent_addr="10.0.0.1:9880",
    zone="z1",
    host="host-1",
    labels={"rack": "r1"},
    broker_version="7.0.15",
    agent_version="0.1.0",
    acting_master=False,
    filter_servers=("10.0.0.1:1",),
    interval_seconds=1.5,
    expiry_seconds=4.5,
)
VERDICT = Verdict(ProbeStatus.FAILING, "refused", incarnation="run-1", evidence=Evidence.STRONG, ever_passed=True)
HEALTH = broker_pb2.BrokerHealth(
    status=broker_pb2.PROBE_STATUS_FAILING,
    detail="refused",
    evidence=broker_pb2.PROBE_EVIDENCE_STRONG,
    ever_passed=True,
)


def own(topic_count: int, *, state_version: int = 3) -> OwnState:
    topics = [TopicConfig(f"t{i:06}", i % 7, i % 5, 6, 1) for i in range(topic_count)]
    return OwnState(1, TopicSet.from_content(topics, state_version=state_version), VERDICT)


def test_a_registration_has_all_fields_of_the_design() -> None:
    state = own(1)
    (request,) = to_registration(PROFILE, state)

    assert request.broker == wire.BrokerRegistration(
        identity=broker_pb2.BrokerIdentity(cluster="c1", broker_name="a", broker_id=1, addr="10.0.0.1:10911"),
        ha_addr="10.0.0.1:10912",
        agent_addr="10.0.0.1:9880",
        zone="z1",
        host="host-1",
        labels={"rack": "r1"},
        broker_version="7.0.15",
        agent_version="0.1.0",
        incarnation="run-1",
        heartbeat_interval=Duration(seconds=1, nanos=500_000_000),
        expiry=Duration(seconds=4, nanos=500_000_000),
        acting_master=False,
        filter_servers=["10.0.0.1:1"],
        data_version=broker_pb2.DataVersion(state_version=3, counter=state.topics.data_version.counter),
        health=HEALTH,
    )
    assert request.broker.HasField("acting_master")


@pytest.mark.parametrize(("count", "sizes"), [(0, [0]), (1, [1]), (5_000, [5_000]), (5_001, [5_000, 1])])
def test_chunks_hold_at_most_5000_topics_and_the_last_one_commits(count: int, sizes: list[int]) -> None:
    requests = list(to_registration(PROFILE, own(count)))

    assert [len(request.topics) for request in requests] == sizes
    assert [request.HasField("broker") for request in requests] == [i == 0 for i in range(len(sizes))]
    assert [request.HasField("commit") for request in requests] == [i == len(sizes) - 1 for i in range(len(sizes))]
    assert requests[-1].commit == wire.RegistrationCommit(topic_count=count, chunk_count=len(sizes))
    sent = [
        (t.topic, t.read_queue_nums, t.write_queue_nums, t.perm, t.topic_sys_flag) for r in requests for t in r.topics
    ]
    assert sent == [(f"t{i:06}", i % 7, i % 5, 6, 1) for i in range(count)]


def test_a_heartbeat_carries_generation_version_and_health() -> None:
    state = own(2)
    beat = to_beat(PROFILE, state, broker_id=3, generation=2**64 - 1, hand_over=True)

    assert beat.identity == PROFILE.to_identity(3)
    assert beat.generation == 2**64 - 1
    assert beat.data_version.counter == state.topics.data_version.counter
    assert beat.health == HEALTH
    assert beat.hand_over


@pytest.mark.parametrize("evidence", list(Evidence))
@pytest.mark.parametrize("ever_passed", [False, True])
def test_health_states_the_evidence_and_whether_the_probe_ever_passed(evidence: Evidence, *, ever_passed: bool) -> None:
    health = to_health(replace(own(0), verdict=replace(VERDICT, evidence=evidence, ever_passed=ever_passed)))

    assert broker_pb2.ProbeEvidence.Name(health.evidence) == f"PROBE_EVIDENCE_{evidence.name}"
    assert health.HasField("ever_passed")
    assert health.ever_passed is ever_passed


def test_health_without_a_probe_states_neither() -> None:
    assert to_health(replace(own(0), verdict=Verdict())) == broker_pb2.BrokerHealth()


@pytest.mark.parametrize(
    ("is_drained", "reason"), [(False, wire.UNREGISTER_REASON_SHUTDOWN), (True, wire.UNREGISTER_REASON_DRAIN)]
)
def test_a_leave_names_its_reason(*, is_drained: bool, reason: wire.UnregisterReason.ValueType) -> None:
    leave = to_unregister(PROFILE, broker_id=3, generation=7, is_drained=is_drained)

    assert (leave.generation, leave.reason) == (7, reason)
    assert leave.identity == PROFILE.to_identity(3)


def test_the_claim_is_of_the_position_and_the_version_that_hold_now() -> None:
    promoted = OwnState(
        1,
        TopicSet.from_content([], state_version=3),
        Verdict(ProbeStatus.PASSING, role=Role.MASTER, master_epoch=5),
        replica_id=1,
    )
    (request,) = to_registration(PROFILE, promoted)

    assert request.broker.identity.broker_id == 0
    assert request.broker.data_version.state_version == 8


def test_a_change_of_topics_names_its_base_and_only_what_changed() -> None:
    state = own(3)
    delta = TopicDelta(DataVersion(1, 2, 3), (TopicConfig("new", 4, 2, 6, 1),), ("gone",))

    request = to_update(PROFILE, state, delta, generation=7)

    assert request == wire.UpdateTopicsRequest(
        identity=PROFILE.to_identity(1),
        generation=7,
        base_data_version=broker_pb2.DataVersion(state_version=1, timestamp_millis=2, counter=3),
        data_version=broker_pb2.DataVersion(state_version=3, counter=state.data_version.counter),
        changed=[broker_pb2.TopicConfig(topic="new", read_queue_nums=4, write_queue_nums=2, perm=6, topic_sys_flag=1)],
        removed=["gone"],
    )


@pytest.mark.parametrize(("weight", "sent"), [(1, 0), (2, 2), (100, 100)])
def test_a_weight_of_1_is_not_sent(weight: int, sent: int) -> None:
    delta = TopicDelta(DataVersion(1, 2, 3), (TopicConfig("orders", 4, 4, 6, queue_weight=weight),), ())

    (changed,) = to_update(PROFILE, own(3), delta, generation=7).changed

    assert changed.queue_weight == sent


def test_the_servers_data_version_is_read_where_it_is_sent() -> None:
    held = broker_pb2.DataVersion(state_version=1, timestamp_millis=2, counter=3)

    assert from_held_version(wire.BeatAnswer(held_data_version=held)) == DataVersion(1, 2, 3)
    assert from_held_version(wire.BeatAnswer(held_data_version=broker_pb2.DataVersion())) == DataVersion()
    assert from_held_version(wire.BeatAnswer()) is None


def test_every_status_of_the_wire_is_read() -> None:
    read = {name: from_beat_status(wire.BeatStatus.Value(name)) for name in wire.BeatStatus.keys()}  # noqa: SIM118  # no dict

    assert read == {
        "BEAT_STATUS_UNSPECIFIED": BeatStatus.OK,
        "BEAT_STATUS_OK": BeatStatus.OK,
        "BEAT_STATUS_UNKNOWN_BROKER": BeatStatus.UNKNOWN_BROKER,
        "BEAT_STATUS_STALE_GENERATION": BeatStatus.STALE_GENERATION,
        "BEAT_STATUS_TOPICS_OUT_OF_DATE": BeatStatus.TOPICS_OUT_OF_DATE,
    }


def test_the_outcome_of_an_unregister_has_a_name_even_if_it_is_unknown_here() -> None:
    assert from_unregister_status(wire.UNREGISTER_STATUS_STALE_GENERATION) == "stale_generation"
    assert from_unregister_status(wire.UnregisterBrokerResponse(status=99).status) == "99"  # type: ignore[arg-type]  # of a later version


@given(st.floats(0.05, 86_400))
def test_durations_survive_the_wire_to_a_nanosecond(seconds: float) -> None:
    profile = BrokerProfile(cluster="c", broker_name="a", addr="h:1", interval_seconds=seconds)
    (request,) = to_registration(profile, own(0))

    assert from_duration(request.broker.heartbeat_interval, default=0) == pytest.approx(seconds, abs=1e-9)


def test_a_missing_duration_is_the_default() -> None:
    assert from_duration(Duration(), default=30) == 30
    assert from_duration(Duration(nanos=500_000_000), default=30) == 0.5
