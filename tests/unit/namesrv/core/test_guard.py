"""The guard's count: what is lost, the baseline, when it turns on and off, and what it keeps."""

from __future__ import annotations

import pytest

from pointsman_namesrv.core import guard as guard_module
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.group import Replica
from pointsman_namesrv.core.guard import Guard, GuardMode, GuardRules
from pointsman_namesrv.core.liveness import LivenessRules, Pulse, Punctuality
from pointsman_namesrv.core.model import (
    BrokerIdentity,
    DataVersion,
    Evidence,
    Health,
    ProbeVerdict,
    Reason,
    Registration,
)
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.replica_state import Phase

NOW = 10_000.0
FAILING = Health(ProbeVerdict.FAILING)


def replica(number: int = 0, *, cluster: str = "c1", silent: float = 0.0, known: float = 1_000.0) -> Replica:
    """A broker with its last heartbeat ``silent`` seconds before NOW, registered for ``known`` seconds."""
    identity = BrokerIdentity(cluster, f"b{number}", 0, f"h{number}:1")
    return Replica(
        registration=Registration(identity=identity, topics={}),
        generation=1,
        registered_at=NOW - known,
        alive_since=NOW - known,
        pulse=Pulse(last_seen=NOW - silent, heartbeat_interval=30.0, expiry=120.0),
        health=Health(),
        punctuality=Punctuality(0.0),
    )


def failing(number: int, *, since: float) -> Replica:
    one = replica(number)
    one.health, one.failing_since = FAILING, NOW - since
    return one


def guard(**rules: float) -> Guard:
    return Guard(GuardRules(**rules), hand_over=60.0)  # type: ignore[arg-type]


def judged(replicas: list[Replica], *, covered: int = 0, now: float = NOW, judge: Guard | None = None) -> Guard:
    """The guard after it counted these, the first few of them in maintenance."""
    judge = judge or guard()
    judge.judge([(one, number < covered) for number, one in enumerate(replicas)], now=now)
    return judge


def counted(judge: Guard, cluster: str = "c1") -> tuple[int, int]:
    status = judge.status(cluster)
    return status.lost, status.baseline


def facts(events: list[Event] | tuple[Event, ...]) -> list[tuple[EventKind, Reason | None]]:
    return [(event.kind, event.reason) for event in events]


def cut(count: int, of: int) -> list[Replica]:
    return [replica(number, silent=80.0 if number < count else 0.0) for number in range(of)]


@pytest.mark.parametrize(
    ("lost", "lived", "active"),
    [
        pytest.param(5, 10, False, id="exactly-half"),
        pytest.param(6, 10, True, id="more-than-half"),
        pytest.param(2, 2, False, id="all-but-fewer-than-three"),
        pytest.param(3, 3, True, id="three-of-three"),
        pytest.param(3, 6, False, id="three-of-six"),
        pytest.param(0, 0, False, id="none"),
    ],
)
def test_it_turns_on_above_the_share_and_from_three_lost(lost: int, lived: int, active: bool) -> None:
    judge = judged(cut(lost, lived))
    assert counted(judge) == (lost, lived)
    assert judge.status("c1").active is active


@pytest.mark.parametrize(("silent", "lost"), [(75.0, 0), (75.001, 1)])
def test_silence_counts_past_two_and_a_half_intervals(silent: float, lost: int) -> None:
    assert counted(judged([replica(silent=silent)])) == (lost, 1)


def test_a_broken_stream_counts_immediately() -> None:
    one = replica()
    one.pulse.stream_broken_at = NOW
    assert counted(judged([one])) == (1, 1)


@pytest.mark.parametrize(
    ("since", "expected"),
    [pytest.param(120.0, (1, 1), id="within-its-expiry"), pytest.param(120.001, (0, 0), id="before-the-window")],
)
def test_a_failing_probe_counts_within_its_expiry_only(since: float, expected: tuple[int, int]) -> None:
    assert counted(judged([failing(0, since=since)])) == expected


def test_a_broker_out_before_the_window_is_not_lost_when_its_stream_breaks_or_it_is_removed() -> None:
    one = failing(0, since=500.0)
    one.pulse.stream_broken_at = NOW
    judge = judged([one])
    assert counted(judge) == (0, 0)
    judge.note_departed(one, now=NOW)
    assert counted(judged([], judge=judge)) == (0, 0)


@pytest.mark.parametrize(("since", "lost"), [(60.0, 0), (60.001, 1)])
def test_a_hand_over_counts_once_it_is_overdue(since: float, lost: int) -> None:
    one = replica(silent=since)
    one.pulse.handed_over_at = NOW - since
    assert counted(judged([one])) == (lost, 1)


@pytest.mark.parametrize(("known", "lived"), [(120.0, 1), (119.999, 0)])
def test_a_broker_that_registered_after_the_window_began_is_not_in_the_baseline(known: float, lived: int) -> None:
    assert counted(judged([replica(known=known)])) == (0, lived)


def test_brokers_silent_in_a_maintenance_window_count_in_neither() -> None:
    assert counted(judged(cut(4, 6), covered=4)) == (0, 2)
    assert counted(judged(cut(0, 6), covered=4)) == (0, 6)


def test_each_cluster_is_counted_for_itself() -> None:
    judge = judged([*cut(3, 3), *(replica(number, cluster="c2") for number in range(9))])
    assert (counted(judge), counted(judge, "c2")) == ((3, 3), (0, 9))
    assert judge.status("c1").active
    assert not judge.status("c2").active


@pytest.mark.parametrize(("after", "expected"), [(120.0, (1, 1)), (120.001, (0, 0))])
def test_a_removed_broker_counts_for_its_own_expiry(after: float, expected: tuple[int, int]) -> None:
    judge = guard()
    judge.note_departed(replica(), now=NOW)
    assert counted(judged([], judge=judge, now=NOW + after)) == expected


def test_a_planned_departure_counts_in_neither() -> None:
    judge = guard()
    planned = replica()
    planned.left_in_window = True
    judge.note_departed(planned, now=NOW)
    assert counted(judged([], judge=judge)) == (0, 0)


def test_strong_evidence_counts_in_neither_and_is_never_kept() -> None:
    members = [replica(number) for number in range(4)]
    for one in members[:3]:
        one.health, one.failing_since = Health(ProbeVerdict.FAILING, evidence=Evidence.STRONG), NOW
    judge = judged(members)
    assert counted(judge) == (0, 1)
    judge.note_departed(members[0], now=NOW)
    assert counted(judged(members[1:], judge=judge)) == (0, 1)
    judge.set_mode("c1", GuardMode.HOLD, until=None, now=NOW)
    assert not judge.protects(members[1], now=NOW)
    assert judge.protects(members[3], now=NOW)


def test_a_broker_that_was_never_alive_counts_in_neither_and_is_not_kept_while_its_probe_fails() -> None:
    members = [failing(number, since=1.0) for number in range(3)]
    for one in members:
        one.alive_since = None
    judge = judged(members)
    assert (counted(judge), judge.status("c1").active) == ((0, 0), False)
    judge.set_mode("c1", GuardMode.HOLD, until=None, now=NOW)
    assert not judge.protects(members[0], now=NOW)


def test_newcomers_that_are_up_keep_it_off_and_end_it() -> None:
    newcomers = [replica(number, known=1.0) for number in range(10, 12)]
    assert not judged([*cut(3, 3), *newcomers]).status("c1").active
    judge = judged(cut(3, 3))
    assert judged([*cut(3, 3), *newcomers[:1]], judge=judge).status("c1").active
    assert not judged([*cut(3, 3), *newcomers], judge=judge).status("c1").active


def test_while_it_is_on_the_window_does_not_move() -> None:
    judge = guard()
    judge.note_departed(replica(9), now=NOW)
    judged(cut(2, 2), judge=judge)
    assert (counted(judge), judge.status("c1").active) == ((3, 3), True)
    later = [(replica(number, silent=80.0), False) for number in range(2)]
    assert judge.judge(later, now=NOW + 500.0) == []
    assert counted(judge) == (3, 3)


def test_a_broker_that_returned_is_no_longer_lost_and_keeps_its_first_time() -> None:
    judge, one = guard(), replica()
    judge.note_departed(one, now=NOW)
    assert judge.note_back("c1", one.identity.position) == NOW - 1_000.0
    assert judge.note_back("c1", one.identity.position) is None
    assert counted(judged([], judge=judge)) == (0, 0)


def test_on_and_off_are_recorded_once_and_again_after_the_limit() -> None:
    judge, members = guard(limit=600.0), [(one, False) for one in cut(3, 3)]
    assert facts(judge.judge(members, now=NOW)) == [(EventKind.GUARD_ON, Reason.SHARE)]
    assert judge.judge(members, now=NOW + 600.0) == []
    assert facts(judge.judge(members, now=NOW + 600.1)) == [(EventKind.GUARD_ON, Reason.LIMIT)]
    assert judge.overdue() == ["c1"]
    assert judge.judge(members, now=NOW + 2_000.0) == []
    for one, _ in members:
        one.pulse.beat(now=NOW + 2_000.0, stream=None, hand_over=False)
    (off,) = judge.judge(members, now=NOW + 2_000.0)
    assert facts([off]) == [(EventKind.GUARD_OFF, Reason.SHARE)]
    assert off.detail["active_seconds"] == 2_000.0
    assert judge.overdue() == []


@pytest.mark.parametrize(
    ("quiet", "after", "kept"),
    [
        pytest.param(80.0, 75.0, True, id="two-beats-time"),
        pytest.param(80.0, 75.1, False, id="and-no-more"),
        pytest.param(-1.0, 10.0, False, id="not-who-spoke-since"),
    ],
)
def test_brokers_silent_at_the_end_of_the_guard_are_kept_for_a_while(quiet: float, after: float, kept: bool) -> None:
    judge = judged(cut(3, 3))
    judged(cut(1, 3), judge=judge)
    assert judge.protects(replica(silent=quiet), now=NOW + after) is kept


@pytest.mark.parametrize(
    ("since", "after", "kept"),
    [
        pytest.param(1.0, 30.0, True, id="until-its-next-heartbeat"),
        pytest.param(1.0, 30.1, False, id="and-no-longer"),
        pytest.param(-1.0, 2.0, False, id="not-one-that-begins-to-fail"),
        pytest.param(121.0, 1.0, False, id="not-one-that-failed-before-the-window"),
    ],
)
def test_after_a_release_a_failing_probe_that_was_kept_has_one_interval(since: float, after: float, kept: bool) -> None:
    judge = judged(cut(3, 3))
    judged(cut(1, 3), judge=judge)
    assert judge.protects(failing(0, since=since), now=NOW + after) is kept


def test_a_pause_of_this_process_does_not_use_up_the_time_after_a_release() -> None:
    judge = judged(cut(3, 3))
    judged(cut(1, 3), judge=judge)
    judge.credit_pause(100.0)
    assert judge.protects(replica(silent=80.0), now=NOW + 150.0)


def test_when_an_operator_sets_off_no_extra_time_is_given() -> None:
    judge = judged(cut(3, 3))
    assert facts(judge.set_mode("c1", GuardMode.OFF, until=None, now=NOW)) == [(EventKind.GUARD_OFF, Reason.ADMIN)]
    assert not judge.protects(replica(silent=80.0), now=NOW)
    assert not judged(cut(3, 3), judge=judge).status("c1").active


def test_in_mode_hold_it_keeps_brokers_until_the_mode_ends() -> None:
    judge = guard()
    judge.set_mode("c1", GuardMode.HOLD, until=NOW + 10.0, now=NOW)
    assert judge.protects(replica(), now=NOW)
    assert judge.judge([], now=NOW + 10.0) == []
    assert facts(judge.judge([], now=NOW + 10.1)) == [(EventKind.GUARD_OFF, Reason.TIME_OVER)]
    assert judge.status("c1").mode is GuardMode.AUTO


def test_a_disabled_guard_still_has_the_mode_hold() -> None:
    judge = judged(cut(9, 9), judge=guard(enabled=False))
    assert not judge.status("c1").active
    judge.set_mode("c1", GuardMode.HOLD, until=None, now=NOW)
    assert judge.status("c1").active


def test_a_cluster_is_in_use_while_it_has_a_broker_or_a_mode() -> None:
    lost = cut(3, of=4)
    judge = judged(lost)
    assert judge.status("c1").active
    judge.set_mode("c2", GuardMode.HOLD, until=None, now=NOW)
    assert judge.clusters_in_use() == ["c1", "c2"]
    for each in lost:
        each.left_in_window = True
        judge.note_departed(each, now=NOW)
    judge.set_mode("c2", GuardMode.AUTO, until=None, now=NOW)
    judged([], judge=judge)
    assert "c1" in judge.clusters()
    assert judge.clusters_in_use() == []


def test_one_more_failing_probe_is_judged_when_it_could_turn_the_guard_on() -> None:
    judge = judged(cut(1, 4))
    assert [judge.might_turn_on("c1") for _ in range(2)] == [False, True]


def test_a_cluster_without_brokers_or_settings_is_dropped() -> None:
    judge = judged(cut(3, 3))
    judge.note_departed(replica(9), now=NOW)
    assert judge.clusters() == ["c1"]
    judged([], judge=judge, now=NOW + 1_000.0)
    judged([], judge=judge, now=NOW + 100_000.0)
    assert judge.clusters() == []


def test_the_status_has_a_reason() -> None:
    judge = judged(cut(3, 5))
    assert judge.status("c1").why == "3 lost, 2 up, of 5 alive when the window began"
    judge.set_mode("c1", GuardMode.HOLD, until=None, now=NOW)
    assert judge.status("c1").why.startswith("set to HOLD; 3 lost, 2 up, of 5")
    judge.set_mode("c1", GuardMode.OFF, until=None, now=NOW)
    assert judge.status("c1").why.startswith("set to OFF; 3 lost, 2 up, of 5")
    assert judge.status("elsewhere").why == ""


BROKERS = [BrokerIdentity(f"c{number % 2}", f"b{number}", 0, f"10.0.0.{number}:1") for number in range(6)]
OF_BOTH_CLUSTERS = ("c0", "c1")
LONG_KNOWN = 130.0
"""More than an expiry after all registered: each broker that left was in the baseline."""


@pytest.mark.parametrize(
    ("bound", "remembered"),
    [
        pytest.param(6, BROKERS, id="within-the-bound-all-are-remembered"),
        pytest.param(3, BROKERS[3:], id="beyond-it-the-first-to-leave-are-forgotten"),
    ],
)
def test_the_oldest_departures_are_dropped_first(
    bound: int, remembered: list[BrokerIdentity], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_module, "MAX_DEPARTED", bound)
    core = NameServer(rules=LivenessRules(), first_generation=1, started_at=0.0)
    generations = [_register(core, who, now=0.0) for who in BROKERS]

    for who, generation in zip(BROKERS, generations, strict=True):
        core.unregister(who, generation, reason=Reason.SHUTDOWN, now=LONG_KNOWN)
    core.sweep(now=LONG_KNOWN)

    assert [who for who in BROKERS if core.guard.note_back(who.cluster, who.position) is not None] == remembered


def test_a_broker_that_returned_is_remembered_by_its_last_departure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_module, "MAX_DEPARTED", 3)
    core = NameServer(rules=LivenessRules(), first_generation=1, started_at=0.0)
    flapping, *others = BROKERS[:3]
    generations = [_register(core, who, now=0.0) for who in others]

    for now in (LONG_KNOWN, LONG_KNOWN + 1.0):
        core.unregister(flapping, _register(core, flapping, now=now), reason=Reason.SHUTDOWN, now=now)
    for who, generation in zip(others, generations, strict=True):
        core.unregister(who, generation, reason=Reason.SHUTDOWN, now=LONG_KNOWN + 2.0)

    assert core.guard.note_back(flapping.cluster, flapping.position) is not None


@pytest.mark.parametrize("mode", [GuardMode.AUTO, GuardMode.HOLD])
def test_only_a_setting_is_remembered_of_a_cluster_without_brokers(mode: GuardMode) -> None:
    core, fleet = NameServer(rules=LivenessRules(), first_generation=1, started_at=0.0), BROKERS[::2]
    for who in fleet:
        _register(core, who, now=0.0)
    _register(core, BROKERS[1], now=900.0)
    core.sweep(now=130.0)  # silent together: the guard is on
    core.guard.set_mode("c0", mode, until=None, now=130.0)
    assert core.guard.status("c0").active
    for who in fleet:
        core.evict(who.cluster, who.broker_name, who.broker_id, now=200.0, detail={})
    core.sweep(now=200.0)
    core.sweep(now=500.0)
    assert core.guard.clusters() == (["c1"] if mode is GuardMode.AUTO else ["c0", "c1"])


def test_a_released_guard_is_remembered_while_its_cluster_has_brokers() -> None:
    core = NameServer(rules=LivenessRules(), first_generation=1, started_at=0.0)
    fleet = BROKERS[::2]
    for who in fleet:
        _register(core, who, now=0.0)
    core.sweep(now=130.0)
    assert core.guard.status("c0").active
    _register(core, fleet[0], now=131.0)
    _register(core, fleet[1], now=131.0)
    core.sweep(now=132.0)
    assert not core.guard.status("c0").active
    assert [replica.state.phase for _, replica in core.replicas(cluster="c0")][2] is Phase.PROTECTED


def _register(core: NameServer, who: BrokerIdentity, *, now: float) -> int:
    registration = Registration(
        identity=who, topics={}, data_version=DataVersion(), heartbeat_interval=30.0, expiry=120.0
    )
    return core.register(registration, now=now).generation
