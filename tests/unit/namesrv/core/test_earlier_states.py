"""The last event of a broker against its older snapshot: the younger counts, until the broker is heard."""

from __future__ import annotations

from pathlib import Path

import pytest

from pointsman_namesrv.core.model import BrokerIdentity, DataVersion, Evidence, Health, Position, ProbeVerdict, Reason
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.replica_state import Phase, ReplicaState
from tests.kit.history.recorded_fleet import RecordedFleet, restarted

A = Position("c1", "a", 0)
PASSES = Health(ProbeVerdict.PASSING, ever_passed=True)
REFUSES = Health(ProbeVerdict.FAILING, "LOADING", Evidence.STRONG, ever_passed=True)
FAILS = Health(ProbeVerdict.FAILING, "timeout", Evidence.WEAK, ever_passed=True)


@pytest.fixture
def fleet(tmp_path: Path) -> RecordedFleet:
    """Broker ``a`` is UP."""
    fleet = RecordedFleet(tmp_path)
    fleet.register("a")
    fleet.beat("a", PASSES)
    return fleet


def state_of(core: NameServer) -> ReplicaState | None:
    core.check_invariants()
    return next((replica.state for _, replica in core.replicas(broker_name="a")), None)


@pytest.mark.parametrize("knows_place", [True, False])
def test_a_broker_that_was_lost_after_the_snapshot_is_not_routed_but_absent(
    fleet: RecordedFleet, knows_place: bool
) -> None:
    snapshot = fleet.snapshot()
    fleet.wait(130.0)
    lost_at = fleet.now
    fleet.wait(20.0)
    core, _ = restarted(fleet, snapshot, knows_place=knows_place)
    assert state_of(core) is None
    (absent,) = core.routes.current("topic-a").absent
    assert (absent.phase, absent.reason) == (Phase.GONE, Reason.SILENCE)
    assert absent.since is not None
    assert lost_at - 10.0 < absent.since <= lost_at


@pytest.mark.parametrize("knows_place", [True, False])
def test_a_broker_that_left_after_the_snapshot_is_retired(fleet: RecordedFleet, knows_place: bool) -> None:
    snapshot = fleet.snapshot()
    fleet.leave("a", Reason.SHUTDOWN)
    core, _ = restarted(fleet, snapshot, knows_place=knows_place)
    assert state_of(core) is None
    assert core.departed.get(A) is None
    assert core.topic_names() == []


@pytest.mark.parametrize(("health", "reason"), [(REFUSES, Reason.REFUSED), (FAILS, Reason.PROBE)])
def test_a_probe_that_failed_after_the_snapshot_keeps_the_broker_out(
    fleet: RecordedFleet, health: Health, reason: Reason
) -> None:
    snapshot = fleet.snapshot()
    fleet.wait(10.0)
    fleet.beat("a", health)
    core, _ = restarted(fleet, snapshot)
    assert state_of(core) == ReplicaState(Phase.OUT, reason)
    ((_, replica),) = core.replicas()
    assert (replica.health.detail, replica.state_since) == (health.detail, 10.0)
    core.beat(replica.identity, replica.generation, data_version=DataVersion(0, 0, 1), health=PASSES, now=fleet.now)
    assert state_of(core) == ReplicaState(Phase.UP)


def test_a_broker_that_recovered_after_the_snapshot_is_routed(fleet: RecordedFleet) -> None:
    fleet.beat("a", REFUSES)
    snapshot = fleet.snapshot()
    fleet.beat("a", PASSES)
    core, _ = restarted(fleet, snapshot)
    assert state_of(core) == ReplicaState(Phase.PROVISIONAL, Reason.SNAPSHOT)
    fleet.wait(1.0)


def test_since_when_a_broker_is_out_is_known_from_the_history(fleet: RecordedFleet) -> None:
    fleet.wait(5.0)
    fleet.beat("a", REFUSES)
    snapshot = fleet.snapshot()
    fleet.wait(60.0)
    core, _ = restarted(fleet, snapshot)
    ((_, replica),) = core.replicas()
    assert (replica.state.phase, replica.state_since) == (Phase.OUT, 5.0)


def test_a_lost_broker_that_had_returned_is_absent_since_it_was_last_known_to_be_up(fleet: RecordedFleet) -> None:
    fleet.wait(130.0)
    snapshot = fleet.snapshot()
    fleet.wait(30.0)
    fleet.register("a")
    fleet.wait(7.0)
    core, _ = restarted(fleet, snapshot)
    lost = core.departed.get(A)
    assert lost is not None
    assert (lost.at, lost.reason) == (160.0, Reason.SILENCE)
    assert core.routes.current("topic-a").absent, "a client must not get not found"


def test_a_lost_broker_that_was_evicted_later_is_retired(fleet: RecordedFleet) -> None:
    fleet.wait(130.0)
    snapshot = fleet.snapshot()
    fleet.record(fleet.core.evict("c1", "a", 0, now=fleet.now, detail={"by": "ann"})[1])
    core, _ = restarted(fleet, snapshot)
    assert core.departed.get(A) is None
    core.check_invariants()
    assert core.topic_names() == []


def test_a_broker_that_was_lost_again_is_absent_since_then(fleet: RecordedFleet) -> None:
    fleet.wait(130.0)
    snapshot = fleet.snapshot()
    fleet.register("a", addr="other")
    fleet.wait(130.0)
    core, last = restarted(fleet, snapshot)
    lost = core.departed.get(A)
    assert lost is not None
    assert lost.at == last[A].at > 200.0
    assert lost.registration.identity == BrokerIdentity("c1", "a", 0, "other:1")


def test_a_broker_that_no_snapshot_contains_is_absent_without_its_topics(fleet: RecordedFleet) -> None:
    fleet.wait(130.0)
    core, _ = restarted(fleet, RecordedFleet(Path("unused")).snapshot())
    lost = core.departed.get(A)
    assert lost is not None
    assert (lost.registration.topics, lost.reason) == ({}, Reason.SILENCE)


def test_an_absence_that_outlived_its_maintenance_window_began_before_it(fleet: RecordedFleet) -> None:
    fleet.maintain("a", 200.0)
    snapshot = fleet.snapshot()
    fleet.wait(300.0)
    before = fleet.core.departed.get(A)
    core, _ = restarted(fleet, snapshot)
    after = core.departed.get(A)
    assert before is not None
    assert after is not None
    assert (after.planned, after.reason) == (False, Reason.SILENCE)
    assert after.at == pytest.approx(before.at, abs=0.01)
    assert after.unplanned_at == pytest.approx(before.unplanned_at, abs=0.01)


def test_an_event_that_the_snapshot_contains_changes_nothing(fleet: RecordedFleet) -> None:
    fleet.wait(130.0)
    fleet.register("a")
    # As if the row of that registration were lost, and the removal before it were the last one.
    core, last = restarted(fleet, fleet.snapshot(), lost_rows=1)
    assert last[A].event.kind == "EXPIRED"
    assert state_of(core) == ReplicaState(Phase.PROVISIONAL, Reason.SNAPSHOT)
    fleet.wait(130.0)
    core, last = restarted(fleet, fleet.snapshot(), lost_rows=1)
    assert last[A].event.kind == "SUSPECTED"
    lost = core.departed.get(A)
    assert lost is not None
    assert lost.at > last[A].at


def test_a_registration_whose_place_is_unknown_is_not_changed_by_another_one(fleet: RecordedFleet) -> None:
    snapshot = fleet.snapshot()
    fleet.register("a", incarnation="r2")
    fleet.wait(130.0)
    core, _ = restarted(fleet, snapshot, knows_place=False)
    assert state_of(core) == ReplicaState(Phase.PROVISIONAL, Reason.SNAPSHOT)
    core, _ = restarted(fleet, snapshot)
    assert state_of(core) is None


def test_a_rename_after_the_snapshot_ends_the_previous_name(fleet: RecordedFleet) -> None:
    snapshot = fleet.snapshot()
    fleet.wait(70.0)
    fleet.wait(6.0)
    fleet.register("b", addr="a")
    core, _ = restarted(fleet, snapshot)
    assert state_of(core) is None
    assert core.departed.get(A) is None
