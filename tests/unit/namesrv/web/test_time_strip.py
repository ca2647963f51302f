"""Strips of absences and curves of penalties, by events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pointsman_namesrv.core.events import BrokerFacts, Event, EventKind
from pointsman_namesrv.core.model import BrokerIdentity, Reason
from pointsman_namesrv.core.replica_state import UP, Phase, ReplicaState
from pointsman_namesrv.history.recent import PER_BROKER
from pointsman_namesrv.history.row import Record
from pointsman_namesrv.web.time_strip import CURVE_HEIGHT, LEAST_WIDTH, WIDTH, absences, penalty_curve, strip

WHO = BrokerIdentity("c1", "a", 0, "a:1")
NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
OUT = ReplicaState(Phase.OUT, Reason.REFUSED)
GONE = ReplicaState(Phase.GONE, Reason.SILENCE)
PLANNED = ReplicaState(Phase.GONE, Reason.SHUTDOWN, planned=True)


def record(
    kind: EventKind, state: ReplicaState, hours_ago: float, *, state_for: float | None = 0.0, who: BrokerIdentity = WHO
) -> Record:
    facts = BrokerFacts(who, 1, "i", "", "", "", None, state, state_for)
    at = NOW - timedelta(hours=hours_ago)
    return Record(Event(kind=kind, broker=facts), at, 0, int(1e6 - hours_ago * 1_000))


REGISTERED = record(EventKind.REGISTERED, UP, 30)


def bars(*records: Record, hours: float = 24.0) -> list[tuple[str, float, float]]:
    found = strip([*records], WHO.position, now=NOW, hours=hours, known_since=NOW - timedelta(hours=48))
    return [(bar.kind, bar.x, bar.width) for bar in found]


def test_an_absence_is_a_bar_from_its_first_event_to_the_next_routed_state() -> None:
    failed, still = record(EventKind.PROBE_FAILED, OUT, 12), record(EventKind.EXPIRED, GONE, 9)
    back = record(EventKind.REGISTERED, UP, 6)
    assert bars(REGISTERED, failed, still, back) == [("out", 500.0, 250.0)]
    (absence,) = absences([REGISTERED, failed, still, back], WHO.position)
    assert (absence.began_at, absence.ended_at, absence.planned) == (failed.event_at, back.event_at, False)


def test_an_absence_that_lasts_ends_at_the_right_edge_and_a_short_one_is_seen() -> None:
    assert bars(REGISTERED, record(EventKind.EXPIRED, GONE, 6)) == [("out", 750.0, 250.0)]
    short = bars(REGISTERED, record(EventKind.EXPIRED, GONE, 0.0001))
    assert short == [("out", WIDTH - LEAST_WIDTH, LEAST_WIDTH)]


def test_a_planned_absence_has_another_colour() -> None:
    left, back = record(EventKind.UNREGISTERED, PLANNED, 12), record(EventKind.REGISTERED, UP, 11.5)
    assert [kind for kind, _, _ in bars(REGISTERED, left, back)] == ["planned"]
    assert [kind for kind, _, _ in bars(REGISTERED, left, record(EventKind.EXPIRED, GONE, 11.8), back)] == ["out"]


def test_what_ended_before_the_strip_begins_and_other_replicas_are_not_on_it() -> None:
    before = (record(EventKind.EXPIRED, GONE, 29), record(EventKind.REGISTERED, UP, 28))
    other = record(EventKind.EXPIRED, GONE, 5, who=WHO._replace(broker_id=1))
    assert bars(REGISTERED, *before, other) == []


def test_the_time_before_the_memory_begins_is_not_shown_as_routed() -> None:
    found = strip([], WHO.position, now=NOW, hours=24, known_since=NOW - timedelta(hours=6))
    assert [(bar.kind, bar.x, bar.width) for bar in found] == [("unknown", 0.0, 750.0)]
    # A restarted name server knows from its snapshot since when a broker is lost.
    lost = record(EventKind.CHECKPOINT, GONE, 6, state_for=6 * 3_600.0)
    found = strip([lost], WHO.position, now=NOW, hours=24, known_since=NOW - timedelta(hours=6))
    assert [(bar.kind, bar.x, bar.width) for bar in found] == [("unknown", 0.0, 750.0), ("out", 500.0, 500.0)]


def test_the_curve_is_the_penalty_of_the_core_and_halves_every_hour() -> None:
    events = [REGISTERED, record(EventKind.EXPIRED, GONE, 2), record(EventKind.REGISTERED, UP, 1.9)]
    curve = penalty_curve(events, WHO.position, now=NOW, hours=24)

    assert curve is not None
    assert 240 < curve.now < 260
    assert 900 < curve.highest <= 1_000
    assert curve.suppress_y < curve.reuse_y < CURVE_HEIGHT
    assert curve.points.startswith("0,120 ")
    assert penalty_curve([REGISTERED], WHO.position, now=NOW, hours=24) is None


def test_of_a_name_with_very_many_events_only_the_last_are_known() -> None:
    many = [record(EventKind.REREGISTERED, UP, 12 - number / 10) for number in range(PER_BROKER)]
    assert bars(*many) == [("unknown", 0.0, 500.0)]
    assert bars(*many[1:]) == []
