"""The live flap score: what is charged, how it decays, when the flag is set and cleared."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman_namesrv.core import flap_penalties
from pointsman_namesrv.core.events import BrokerFacts, Event, EventKind
from pointsman_namesrv.core.flap_penalties import FlapRules, FlapScore, Penalties, ReplayedPenalties
from pointsman_namesrv.core.model import BrokerIdentity, DataVersion, GroupKey, Position, Reason
from pointsman_namesrv.core.replica_state import UP, Phase, ReplicaState
from pointsman_report.parameters import FlapParameters

HOUR = 3_600.0
A = Position("c1", "a", 0)


OUT = {
    EventKind.EXPIRED: Phase.GONE,
    EventKind.UNREGISTERED: Phase.GONE,
    EventKind.PROBE_FAILED: Phase.OUT,
}


def event(
    kind: EventKind,
    reason: Reason | None = None,
    *,
    who: Position = A,
    phase: Phase | None = None,
    planned: bool = False,
) -> Event:
    identity = BrokerIdentity(*who, "10.0.0.1:10911")
    state = ReplicaState(phase or OUT.get(kind, Phase.UP), reason, planned or kind is EventKind.UNREGISTERED)
    return Event(kind=kind, reason=reason, broker=BrokerFacts(identity, 1, "", "", "", "", DataVersion(), state, 0.0))


def score(penalties: Penalties, *, now: float, who: Position = A) -> FlapScore:
    found = penalties.score(who, now=now)
    assert found is not None
    return found


def charged(*events: Event) -> float:
    penalties = Penalties()
    for each in events:
        penalties.record(each, now=0.0)
    found = penalties.score(A, now=0.0)
    return 0.0 if found is None else found.penalty


def test_the_numbers_are_those_of_the_nightly_report() -> None:
    ours, report = FlapRules(), FlapParameters()
    assert ours.half_life == report.half_life_minutes * 60
    assert (ours.suppress_above, ours.reuse_below, ours.ceiling) == (
        report.suppress_above,
        report.reuse_below,
        report.ceiling,
    )
    assert (ours.outage, ours.restarted, ours.moved) == (
        report.points_outage,
        report.points_restarted,
        report.points_moved,
    )
    assert (ours.suspected, ours.shutdown, ours.late, ours.shutdown_return) == (
        report.points_suspected,
        report.points_shutdown,
        report.points_late,
        report.shutdown_return_seconds,
    )


@pytest.mark.parametrize(
    ("kind", "reason", "points"),
    [
        (EventKind.EXPIRED, Reason.SILENCE, 1000),
        (EventKind.EXPIRED, Reason.STREAM_BROKEN, 1000),
        (EventKind.PROBE_FAILED, Reason.PROBE, 1000),
        (EventKind.RESTARTED, None, 1000),
        (EventKind.ADDRESS_CHANGED, None, 500),
        (EventKind.ROLE_CHANGED, None, 500),
        (EventKind.RECOVERED, Reason.HEARTBEAT, 300),
        (EventKind.LATE_HEARTBEAT, None, 100),
        (EventKind.SUSPECTED, Reason.SILENCE, 0),
        (EventKind.RECOVERED, Reason.PROBE, 0),
        (EventKind.REGISTERED, None, 0),
        (EventKind.REREGISTERED, Reason.SNAPSHOT, 0),
        (EventKind.UNREGISTERED, Reason.SHUTDOWN, 0),
        (EventKind.UNREGISTERED, Reason.ADMIN, 0),
        (EventKind.HEARTBEATS, None, 0),
    ],
)
def test_each_event_has_its_points(kind: EventKind, reason: Reason | None, points: int) -> None:
    assert charged(event(kind, reason)) == points


def test_an_event_without_a_broker_is_not_counted() -> None:
    penalties = Penalties()
    penalties.record(Event(kind=EventKind.GUARD_ON, group=GroupKey("c1", "a")), now=0.0)
    assert len(penalties) == 0


def test_an_outage_is_charged_once_however_many_signs_it_has() -> None:
    failed, expired = event(EventKind.PROBE_FAILED, Reason.PROBE), event(EventKind.EXPIRED, Reason.SILENCE)
    assert charged(failed, expired, failed) == 1000
    assert charged(failed, event(EventKind.RECOVERED, Reason.PROBE), expired) == 2000
    assert charged(expired, event(EventKind.REGISTERED), expired) == 2000
    assert charged(event(EventKind.UNREGISTERED, Reason.ADMIN), failed) == 0


def test_an_outage_in_a_maintenance_window_is_not_charged_and_neither_is_its_end() -> None:
    planned = event(EventKind.EXPIRED, Reason.SILENCE, planned=True)
    assert charged(planned, event(EventKind.REGISTERED)) == 0
    assert charged(planned, event(EventKind.REGISTERED), event(EventKind.EXPIRED, Reason.SILENCE)) == 1000


def test_an_outage_that_outlives_its_maintenance_window_is_charged_once() -> None:
    for kind, reason in ((EventKind.EXPIRED, Reason.SILENCE), (EventKind.PROBE_FAILED, Reason.PROBE)):
        planned, outlived = event(kind, reason, planned=True), event(kind, reason)
        assert charged(planned, outlived, outlived) == 1000
    shut_down = event(EventKind.UNREGISTERED, Reason.SHUTDOWN)
    assert charged(shut_down, event(EventKind.REGISTERED, Reason.PROBE, phase=Phase.OUT)) == 0


def test_nothing_in_a_maintenance_window_counts_against_a_broker() -> None:
    penalties = Penalties()
    penalties.record(event(EventKind.UNREGISTERED, Reason.SHUTDOWN), now=0.0, in_window=True)
    for kind in (EventKind.REGISTERED, EventKind.RESTARTED, EventKind.ADDRESS_CHANGED, EventKind.LATE_HEARTBEAT):
        penalties.record(event(kind), now=1.0, in_window=True)
    assert penalties.score(A, now=1.0) is None
    penalties.record(event(EventKind.UNREGISTERED, Reason.SHUTDOWN), now=2.0)
    penalties.record(event(EventKind.REGISTERED), now=3.0, in_window=True)
    assert score(penalties, now=3.0).penalty == 200, "it left before the window"


def test_a_registration_whose_probe_fails_is_an_outage_and_its_recovery_ends_it() -> None:
    failing = event(EventKind.REGISTERED, Reason.REFUSED, phase=Phase.OUT)
    recovered = event(EventKind.RECOVERED, Reason.PROBE)
    assert charged(failing, event(EventKind.PROBE_FAILED, Reason.REFUSED), recovered) == 1000
    assert charged(failing, recovered, event(EventKind.PROBE_FAILED, Reason.PROBE)) == 2000


@pytest.mark.parametrize(("away", "points"), [(0.0, 200), (300.0, 200), (300.001, 0)])
def test_a_shutdown_is_charged_when_it_is_back_within_five_minutes(away: float, points: int) -> None:
    penalties = Penalties()
    penalties.record(event(EventKind.UNREGISTERED, Reason.SHUTDOWN), now=0.0)
    penalties.record(event(EventKind.REGISTERED), now=away)
    penalties.record(event(EventKind.REREGISTERED), now=away)
    found = penalties.score(A, now=away)
    assert (0 if found is None else found.penalty) == points
    if found is not None:
        assert (found.last_event, found.outages) == (EventKind.UNREGISTERED, 0)


def test_the_penalty_halves_every_hour() -> None:
    penalties = Penalties()
    penalties.record(event(EventKind.EXPIRED), now=0.0)
    assert [score(penalties, now=hours * HOUR).penalty for hours in (0, 1, 2, 3)] == [1000, 500, 250, 125]
    assert penalties.score(A, now=11 * HOUR) is None


def outages(penalties: Penalties, count: int, *, now: float, who: Position = A) -> None:
    for _ in range(count):
        penalties.record(event(EventKind.EXPIRED, Reason.SILENCE, who=who), now=now)
        penalties.record(event(EventKind.REGISTERED, who=who), now=now)


def test_the_flag_goes_up_above_three_thousand_and_comes_down_below_one_thousand() -> None:
    penalties = Penalties()
    outages(penalties, 3, now=0.0)
    assert (score(penalties, now=0.0).penalty, score(penalties, now=0.0).flapping) == (3000, False)
    outages(penalties, 1, now=0.0)
    assert score(penalties, now=0.0).flapping
    assert (score(penalties, now=2 * HOUR).penalty, score(penalties, now=2 * HOUR).flapping) == (1000, True)
    assert not score(penalties, now=2 * HOUR + 1).flapping


def test_flapping_brokers_are_counted_until_they_are_below_the_lower_threshold() -> None:
    penalties = Penalties()
    outages(penalties, 4, now=0.0)
    outages(penalties, 3, now=0.0, who=Position("c1", "b", 0))
    assert [penalties.flapping_count(now=at) for at in (0.0, 2 * HOUR, 2 * HOUR + 1)] == [1, 1, 0]


def test_once_the_flag_is_cleared_the_higher_threshold_applies_again() -> None:
    penalties = Penalties()
    outages(penalties, 4, now=0.0)
    outages(penalties, 1, now=3 * HOUR)
    assert (score(penalties, now=3 * HOUR).penalty, score(penalties, now=3 * HOUR).flapping) == (1500, False)


def test_a_charge_between_the_thresholds_keeps_the_flag() -> None:
    penalties = Penalties()
    outages(penalties, 4, now=0.0)
    outages(penalties, 1, now=1.5 * HOUR)
    assert score(penalties, now=1.5 * HOUR).penalty < 3000
    assert score(penalties, now=1.5 * HOUR).flapping


def test_no_penalty_rises_above_the_ceiling() -> None:
    penalties = Penalties()
    outages(penalties, 20, now=0.0)
    assert (score(penalties, now=0.0).penalty, score(penalties, now=0.0).outages) == (16_000, 20)
    assert not score(penalties, now=4 * HOUR + 1).flapping


def test_a_broker_that_returns_under_another_address_keeps_its_penalty() -> None:
    penalties = Penalties()
    penalties.record(event(EventKind.EXPIRED), now=0.0)
    moved = BrokerIdentity(*A, "10.9.9.9:1")
    facts = BrokerFacts(moved, 2, "", "", "", "", DataVersion(), UP, 0.0)
    penalties.record(Event(kind=EventKind.ADDRESS_CHANGED, broker=facts), now=0.0)
    assert score(penalties, now=0.0).penalty == 1500


def test_the_highest_penalties_come_first_whenever_they_were_charged() -> None:
    penalties = Penalties()
    old, late, other = Position("c1", "old", 0), Position("c1", "late", 0), Position("c2", "x", 1)
    outages(penalties, 3, now=0.0, who=old)
    outages(penalties, 1, now=2 * HOUR, who=late)
    outages(penalties, 5, now=2 * HOUR, who=other)
    penalties.record(event(EventKind.UNREGISTERED, Reason.DRAIN, who=A), now=2 * HOUR)
    found = penalties.top(now=2 * HOUR)
    assert [(s.position.broker_name, s.penalty) for s in found] == [("x", 5000), ("late", 1000), ("old", 750)]
    assert [s.position.broker_name for s in penalties.top(now=2 * HOUR, cluster="c1")] == ["late", "old"]
    assert [s.position.broker_name for s in penalties.top(now=2 * HOUR, limit=1)] == ["x"]
    assert [s.position.broker_name for s in penalties.top(now=13 * HOUR)] == ["x"]


def test_equal_penalties_are_ordered_by_position() -> None:
    penalties = Penalties()
    names = ["b", "c", "a"]
    for name in names:
        outages(penalties, 1, now=0.0, who=Position("c1", name, 0))
    assert [s.position.broker_name for s in penalties.top(now=0.0)] == sorted(names)


def test_above_the_bound_the_lowest_penalties_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flap_penalties, "MAX_POSITIONS", 10)
    monkeypatch.setattr(flap_penalties, "DROPPED_PER_SCAN", 2)
    penalties = Penalties()
    for i in range(10):
        outages(penalties, 1 + (i * 7) % 10, now=float(i), who=Position("c1", f"b{i}", 0))
    outages(penalties, 5, now=10.0, who=Position("c1", "new", 0))
    assert len(penalties) == 9
    assert penalties.score(Position("c1", "b0", 0), now=10.0) is None
    assert penalties.score(Position("c1", "b3", 0), now=10.0) is None
    assert score(penalties, now=10.0, who=Position("c1", "new", 0)).penalty == 5000


_signs = st.sampled_from(
    [
        (EventKind.RESTARTED, None, 1000),
        (EventKind.ADDRESS_CHANGED, None, 500),
        (EventKind.RECOVERED, Reason.HEARTBEAT, 300),
        (EventKind.LATE_HEARTBEAT, None, 100),
        (EventKind.REGISTERED, None, 0),
    ]
)


@given(st.lists(st.tuples(st.floats(0, 20_000), _signs), max_size=60), st.floats(0, 50_000))
def test_any_sequence_of_events_gives_the_penalty_of_the_plain_formula(
    story: list[tuple[float, tuple[EventKind, Reason | None, int]]], later: float
) -> None:
    penalties = Penalties()
    now, penalty, flapping_now = 0.0, 0.0, False
    for wait, (kind, reason, points) in story:
        now += wait
        penalties.record(event(kind, reason), now=now)
        penalty *= math.pow(2, -wait / HOUR)
        flapping_now = flapping_now and round(penalty, 6) >= 1000
        penalty = min(16_000.0, penalty + points)
        flapping_now = flapping_now or round(penalty, 6) > 3000
    penalty *= math.pow(2, -later / HOUR)
    found = penalties.score(A, now=now + later)
    if found is None:
        assert penalty < flap_penalties.LEAST_SHOWN + 1e-6
        return
    assert found.penalty == pytest.approx(penalty, rel=1e-9)
    if abs(penalty - 1000) > 1e-3:
        assert found.flapping is (flapping_now and penalty >= 1000)


def test_the_highest_penalty_is_forgotten_within_fifteen_hours() -> None:
    penalties, seconds = Penalties(), FlapRules().remembered_seconds
    for _ in range(20):
        penalties.record(event(EventKind.RESTARTED), now=0.0)
    assert seconds <= 15 * HOUR
    assert penalties.score(A, now=seconds - 1.0) is not None
    assert penalties.score(A, now=seconds + 1.0) is None


def test_earlier_events_count_with_the_maintenance_windows_of_their_time() -> None:
    key, late = GroupKey("c1", "a"), event(EventKind.LATE_HEARTBEAT)
    opened = Event(kind=EventKind.MAINTENANCE_ON, reason=Reason.ADMIN, group=key, detail={"seconds": 60})
    closed = Event(kind=EventKind.MAINTENANCE_OFF, reason=Reason.ADMIN, group=key)
    replayed = ReplayedPenalties()
    for at, happened in ((0.0, opened), (59.0, late), (60.0, late), (70.0, opened), (71.0, closed), (72.0, late)):
        replayed.add_earlier(happened, at=at)
    assert score(replayed.penalties, now=72.0).penalty == pytest.approx(200, abs=1.0)
