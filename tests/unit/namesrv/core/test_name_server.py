"""Properties of the core that scenarios do not show: complete responses, and refusals without a trace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pointsman.wire.refusals import InvalidRequest
from pointsman_namesrv.core.broker_events import full_checkpoint_events
from pointsman_namesrv.core.broker_responses import BeatStatus
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.guard import GuardMode
from pointsman_namesrv.core.liveness import LivenessRules
from pointsman_namesrv.core.model import (
    BrokerIdentity,
    DataVersion,
    GroupKey,
    Health,
    ProbeVerdict,
    QueueConfig,
    Reason,
    Registration,
)
from pointsman_namesrv.core.name_server import MAX_OVERDUE_PER_SWEEP, NameServer
from pointsman_namesrv.core.node_refusals import BrokerUnknown, ClusterNotFound, IdentityHeld, StaleGeneration
from pointsman_namesrv.core.replica_state import Phase, ReplicaState

A = BrokerIdentity("c1", "a", 0, "10.0.0.1:10911")
ORDERS = {"orders": QueueConfig(4, 4, 6)}


def claim(identity: BrokerIdentity = A, *, state_version: int = 0, **more: object) -> Registration:
    version = DataVersion(state_version, 0, 1)
    return Registration(identity=identity, topics=ORDERS, data_version=version, **more)  # type: ignore[arg-type]


def picture(core: NameServer) -> object:
    """Everything that can be seen of the core."""
    return (
        core.routes.change,
        [core.routes.route(topic) for topic in core.routes.topic_names()],
        [(r.registration, r.generation, r.state, r.pulse.last_seen) for _, r in core.replicas()],
    )


def test_a_refused_claim_leaves_no_trace(core: NameServer) -> None:
    core.register(claim(state_version=2), now=0.0)
    core.register(claim(BrokerIdentity("c1", "a", 1, "10.0.0.2:10911")), now=0.0)
    before = picture(core)
    with pytest.raises(IdentityHeld) as refused:
        core.register(claim(BrokerIdentity("c1", "a", 0, "10.0.0.2:10911"), state_version=1), now=9.0)
    assert picture(core) == before
    assert refused.value.event is not None
    assert refused.value.facts == {"holder_addr": A.addr}


def test_the_history_has_the_owner_of_a_broker(core: NameServer) -> None:
    registered = core.register(claim(labels={"owner": "web team", "rack": "r1"}), now=0.0).events[0]
    assert (registered.kind, registered.detail["owner"]) == (EventKind.REGISTERED, "web team")

    ((group, replica),) = core.replicas()
    checkpoint, _ = full_checkpoint_events(group, replica, Reason.DAY, number=1, of=1, writable=True, now=1.0)
    assert checkpoint.detail["owner"] == "web team"
    assert "rack" not in {**registered.detail, **checkpoint.detail}

    without = core.register(claim(BrokerIdentity("c1", "b", 0, "10.0.0.2:10911")), now=0.0).events[0]
    assert "owner" not in without.detail


def test_the_generation_after_the_last_is_not_zero_which_means_none_on_the_wire() -> None:
    core = NameServer(rules=LivenessRules(), first_generation=2**64 - 1, started_at=0.0)
    assert core.register(claim(), now=0.0).generation == 2**64 - 1
    assert core.register(claim(), now=0.0).generation == 1


def test_a_beat_with_the_right_generation_from_another_address_is_stale(core: NameServer) -> None:
    generation = core.register(claim(), now=0.0).generation
    elsewhere = A._replace(addr="10.0.0.9:10911")
    answer = core.beat(elsewhere, generation, data_version=DataVersion(0, 0, 1), now=1.0)
    assert (answer.status, answer.holder_addr) == (BeatStatus.STALE_GENERATION, A.addr)


def test_a_delta_of_a_stranger_or_a_stale_generation_is_refused(core: NameServer) -> None:
    delta = {
        "base": DataVersion(0, 0, 1),
        "data_version": DataVersion(0, 0, 2),
        "changed": {},
        "removed": [],
        "max_topics": 9,
        "now": 0.0,
    }
    with pytest.raises(BrokerUnknown):
        core.update_topics(A, 1, **delta)  # type: ignore[arg-type]
    generation = core.register(claim(), now=0.0).generation
    with pytest.raises(StaleGeneration):
        core.update_topics(A, generation + 1, **delta)  # type: ignore[arg-type]
    before = picture(core)
    with pytest.raises(InvalidRequest):
        core.update_topics(A, generation, **(delta | {"removed": ["nowhere"]}))  # type: ignore[arg-type]
    assert picture(core) == before


def test_the_view_of_a_group_omits_brokers_that_are_not_routed(core: NameServer) -> None:
    failing = Health(ProbeVerdict.FAILING, "refused")
    master = core.register(claim(health=failing, ha_addr="10.0.0.1:10912"), now=0.0)
    assert master.view.min_broker_addr == ""
    slave = core.register(claim(BrokerIdentity("c1", "a", 1, "10.0.0.2:10911")), now=0.0)
    assert (slave.view.min_broker_id, slave.view.master_addr, slave.view.ha_addr) == (1, "", "")


def test_members_with_the_same_topics_share_one_table(core: NameServer) -> None:
    core.register(claim(), now=0.0)
    other = Registration(identity=BrokerIdentity("c1", "a", 1, "h:1"), topics=dict(ORDERS))
    core.register(other, now=0.0)
    tables = {id(replica.registration.topics) for _, replica in core.replicas()}
    assert len(tables) == 1


def test_the_longest_silent_broker_expires_first(core: NameServer) -> None:
    for number, seen in enumerate((3.0, 1.0, 2.0)):
        core.register(claim(BrokerIdentity(f"c{number}", f"b{number}", 0, f"h{number}:1")), now=seen)
    gone = [event.broker.identity.broker_name for event in core.sweep(now=200.0) if event.broker]
    assert gone == ["b1", "b2", "b0"]


def test_beyond_one_sweep_each_is_expired_once_though_it_failed_in_a_window(core: NameServer) -> None:
    core.guard.set_mode("c1", GuardMode.OFF, until=None, now=0.0)
    core.maintenance.open(GroupKey("c1", ""), until=60.0)
    for number in range(MAX_OVERDUE_PER_SWEEP + 1):
        broker = BrokerIdentity("c1", f"b{number}", 0, f"h{number}:1")
        core.register(claim(broker, health=Health(ProbeVerdict.FAILING)), now=0.0)
    kinds = [event.kind for event in core.sweep(now=121.0)]
    assert kinds == [EventKind.MAINTENANCE_OFF, *[EventKind.EXPIRED] * MAX_OVERDUE_PER_SWEEP]
    assert [event.kind for event in core.sweep(now=121.0)] == [EventKind.EXPIRED]


def test_replicas_are_narrowed_by_cluster_and_name(core: NameServer) -> None:
    for cluster, name in (("c1", "a"), ("c1", "b"), ("c2", "a")):
        core.register(claim(BrokerIdentity(cluster, name, 0, f"{cluster}{name}:1")), now=0.0)
    keys = [group.key for group, _ in core.replicas(cluster="c1", broker_name="a")]
    assert keys == [GroupKey("c1", "a")]
    assert len(core.replicas(broker_name="a")) == 2
    with pytest.raises(ClusterNotFound):
        core.topic_names("c9")


def cut_off(core: NameServer, count: int) -> list[tuple[BrokerIdentity, int]]:
    """``count`` brokers that have expired and that the guard keeps."""
    brokers = [BrokerIdentity("c1", f"b{number}", 0, f"h{number}:1") for number in range(count)]
    held = [(broker, core.register(claim(broker), now=0.0).generation) for broker in brokers]
    core.sweep(now=121.0)
    assert {replica.state.phase for _, replica in core.replicas()} == {Phase.PROTECTED}
    return held


def test_a_protected_broker_with_a_failing_probe_goes_out_once_the_guard_is_off(core: NameServer) -> None:
    (broker, generation), *_ = cut_off(core, 3)
    core.guard.set_mode("c1", GuardMode.OFF, until=None, now=121.0)
    failing = Health(ProbeVerdict.FAILING, "refused")
    answer = core.beat(broker, generation, data_version=DataVersion(0, 0, 1), health=failing, now=122.0)
    assert [event.kind for event in answer.events] == [EventKind.PROBE_FAILED]
    assert core.replicas()[0][1].state == ReplicaState(Phase.OUT, Reason.PROBE)


def test_new_brokers_that_fail_do_not_turn_the_guard_on(core: NameServer) -> None:
    events: list[Event] = []
    for number in range(3):
        broker = BrokerIdentity("c1", f"b{number}", 0, f"h{number}:1")
        events += core.register(claim(broker, health=Health(ProbeVerdict.FAILING)), now=0.0).events
    assert not [event for event in (*events, *core.sweep(now=1.0)) if event.group]
    assert {replica.state.phase for _, replica in core.replicas()} == {Phase.OUT}


def test_a_thousand_brokers_that_were_lost_and_returned_are_no_longer_lost(core: NameServer) -> None:
    core.guard.set_mode("c1", GuardMode.OFF, until=None, now=0.0)
    brokers = [BrokerIdentity("c1", f"b{number}", 0, f"h{number}:1") for number in range(1_000)]
    for broker in brokers:
        core.register(claim(broker), now=0.0)
    expired = [len(core.sweep(now=121.0))]
    while core.sweep_interval() == 0.0:
        expired.append(len(core.sweep(now=121.0)))
    assert expired == [MAX_OVERDUE_PER_SWEEP] * 5
    for broker in brokers:
        core.register(claim(broker), now=122.0)
    core.sweep(now=122.0)
    status = core.guard.status("c1")
    assert (status.lost, status.baseline) == (0, 1_000)


def test_a_pause_shorter_than_a_second_is_credited_and_not_recorded(core: NameServer) -> None:
    core.register(claim(), now=0.0)
    assert core.credit_pause(0.9, now=50.0) == ()
    assert core.sweep(now=75.9) == ()
    (paused,) = core.credit_pause(1.0, now=80.0)
    assert (paused.kind, paused.detail) == (EventKind.NAMESRV_PAUSED, {"seconds": 1.0})
    assert [event.kind for event in core.sweep(now=121.9)] == [EventKind.SUSPECTED]
    assert [event.kind for event in core.sweep(now=122.0)] == [EventKind.EXPIRED]


def test_the_snapshot_does_not_displace_a_broker_that_registered_first(core: NameServer) -> None:
    core.register(claim(), now=0.0)
    before = picture(core)
    core.restore(claim(A._replace(addr="10.0.0.9:10911")), 99, now=1.0)
    core.restore(claim(A._replace(broker_id=1)), 98, now=1.0)
    assert picture(core) == before


def test_a_wrong_probe_port_pushed_to_four_hundred_agents_removes_no_broker_permanently() -> None:
    core = NameServer(rules=LivenessRules(), first_generation=7, started_at=0.0)
    claims = [claim(BrokerIdentity("c1", f"b{n}", 0, f"10.0.{n // 100}.{n % 100}:10911")) for n in range(400)]
    generations = [core.register(each, now=0.0).generation for each in claims]

    def beats(now: float, numbers: range) -> None:
        for number in numbers:
            core.beat(claims[number].identity, generations[number], data_version=claims[number].data_version, now=now)

    for beat in range(1, 21):
        beats(30.0 * beat, range(400))
    never_passed = Health(ProbeVerdict.FAILING, "connection refused", ever_passed=False)
    fewest = 400
    for restarted, each in enumerate(claims, 1):  # four a second
        now = 600.0 + restarted / 4
        core.register(replace(each, health=never_passed), now=now)
        if restarted % 20 == 0:
            core.sweep(now=now)
        if restarted % 120 == 0:
            beats(now, range(restarted, 400))
        fewest = min(fewest, routed(core))
    assert fewest >= 199
    assert routed(core) == 400
    core.check_invariants()


def routed(core: NameServer) -> int:
    return len(core.routes.route("orders").groups)
