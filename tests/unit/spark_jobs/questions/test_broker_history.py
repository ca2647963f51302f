"""What happened to a broker: which intervals, causes and charges are its, and how they are said."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from pointsman.history.row_format import Row, microseconds
from pointsman.history.topic_selection import ROW_FIELDS
from pointsman_report.questions.broker_history import MAX_LINES, BrokerHistory, BrokerName, broker_history, days_until
from tests.kit.report.stated_past import StatedPast
from tests.spark.histories import MIDNIGHT, moment

UTC = ZoneInfo("UTC")
DAY = MIDNIGHT.date()
BEFORE, AFTER = DAY - timedelta(days=1), DAY + timedelta(days=1)
A = {"cluster": "c1", "broker_name": "a", "broker_id": 0}


def interval(state: str, start: float, end: float, *, dt: date = DAY, about: Row = A, **fields: Any) -> Row:
    flags = {"planned": False, "continues": False, "open": False, "start_censored": False, "end_censored": False}
    return {**about, "dt": dt, "state": state, "start_at": moment(start), "end_at": moment(end), **flags, **fields}


@pytest.fixture
def past() -> StatedPast:
    """A day with an outage, and one that was open at the end of both days."""
    cause = {**A, "dt": DAY, "start_at": moment(100), "cause": "process_died", "evidence": "probe refused"}
    return StatedPast(
        {
            "computed_days": [{"dt": BEFORE, "continues": False}, {"dt": DAY, "continues": True}],
            "broker_intervals": [
                interval("up", -50, 0, dt=BEFORE, open=True, end_censored=True, start_censored=True),
                interval("up", -50, 100, start_censored=True),
                interval("down", 100, 160, event="EXPIRED", reason="SILENCE", last_sign_of_life_at=moment(90)),
                interval("up", 160, 500),
                interval("down", 500, 86_400, open=True, event="PROBE_FAILED", reason="REFUSED"),
                interval("down", 1, 2, about=A | {"broker_id": 1}),
                interval("down", 1, 2, about=A | {"cluster": "c2"}),
                interval("down", 1, 2, about=A | {"broker_name": "b"}),
            ],
            "outage_causes": [cause | {"dt": AFTER, "cause": "network"}, cause | {"cause": "unknown"}, cause],
            "flap_charges": [
                {**A, "dt": DAY, "charged_at": moment(100), "cause": "EXPIRED", "points": 1_000.0, "penalty": 1_500.0},
                {**A, "dt": DAY, "charged_at": moment(300), "cause": "SUSPECTED", "points": 200.0, "penalty": 1_690.0},
            ],
            "broker_changes": [
                {**A, "dt": DAY, "changed_at": moment(160), "what": "version", "before": None, "after": "7.2"}
            ],
            "flapping": [
                {**A, "dt": DAY, "class": "degraded", "down_count": 2, "penalty_start": 700.0, "penalty_max": 1_690.0}
            ],
            "availability": [{**A, "dt": DAY, "availability": 0.9, "down_seconds": 86_000.0}],
        }
    )


def asked(past: StatedPast, name: BrokerName = BrokerName("a", "c1", 0)) -> BrokerHistory:  # noqa: B008  # a tuple
    return broker_history(past, name, BEFORE, DAY)


def test_each_interval_is_listed_once_and_the_last_one_as_open(past: StatedPast) -> None:
    (one,) = asked(past).replicas

    assert [(each.state, each.start_at, each.end_at) for each in one.intervals] == [
        ("up", moment(-50), moment(100)),
        ("down", moment(100), moment(160)),
        ("up", moment(160), moment(500)),
        ("down", moment(500), None),
    ]


def test_an_interval_that_no_later_day_continues_is_kept_and_ends_with_its_day(past: StatedPast) -> None:
    """A night was left out, or computed before the one that it should have continued from."""
    open_one = interval("up", -50, 0, dt=BEFORE, open=True, end_censored=True)
    past.tables["broker_intervals"] = [open_one, interval("up", 10, 86_400, open=True, start_censored=True)]
    past.tables["computed_days"][1]["continues"] = False
    (one,) = asked(past).replicas

    assert [(each.start_at, each.end_at) for each in one.intervals] == [(moment(-50), moment(0)), (moment(10), None)]


def test_charges_of_one_moment_are_all_listed(past: StatedPast) -> None:
    charge = past.tables["flap_charges"][0]
    past.tables["flap_charges"] += [charge | {"cause": "RESTARTED", "points": 7.0, "penalty": 500.0}, charge]
    text = asked(past).text(UTC)

    assert "penalty 1,500 (+1000)\n  02 Mar 00:01:40  RESTARTED; penalty 500 (+7)\n" in text
    assert text.count("EXPIRED; penalty 1,500 (+1000)") == 1


def test_an_outage_has_the_cause_of_its_last_day(past: StatedPast) -> None:
    (one,) = broker_history(past, BrokerName("a", "c1", 0), BEFORE, AFTER).replicas

    assert [(each.cause, each.evidence) for each in one.outages] == [("network", "probe refused"), (None, None)]


@pytest.mark.parametrize(
    ("name", "replicas"),
    [
        (BrokerName("a"), [("c1", "a", 0), ("c1", "a", 1), ("c2", "a", 0)]),
        (BrokerName("a", "c1"), [("c1", "a", 0), ("c1", "a", 1)]),
        (BrokerName("a", "c1", 1), [("c1", "a", 1)]),
        (BrokerName("nowhere"), []),
    ],
)
def test_a_name_stands_for_all_replicas_that_it_fits(
    past: StatedPast, name: BrokerName, replicas: list[tuple[str, str, int]]
) -> None:
    found = asked(past, name)

    assert [one.replica for one in found.replicas] == replicas
    assert found.exit_code == 1


def test_a_broker_without_an_outage_is_exit_code_0(past: StatedPast) -> None:
    rows = past.tables["broker_intervals"]
    past.tables["broker_intervals"] = [row | {"planned": True} for row in rows if row["broker_id"] == 0]

    assert asked(past).exit_code == 0


def test_a_person_reads_outages_with_cause_and_penalty_and_what_else_changed(past: StatedPast) -> None:
    past.tables["outage_causes"].pop(0)
    text = asked(past).text(UTC)

    assert text.splitlines() == [
        "c1/a/0, 2026-03-01 to 2026-03-02 (UTC days): 2 outages, 23 h 53 min down",
        "  01 Mar 23:59:10  up; it was not monitored before",
        (
            "  02 Mar 00:01:40  down until 02 Mar 00:02:40 (1 min): EXPIRED, SILENCE; last heartbeat 02 Mar 00:01:30; "
            "broker process died: probe refused; penalty 1,500 (+1000)"
        ),
        "  02 Mar 00:02:40  version: \N{EN DASH} to 7.2",
        "  02 Mar 00:05:00  SUSPECTED; penalty 1,690 (+200)",
        "  02 Mar 00:08:20  down lasting: PROBE_FAILED, REFUSED",
        "",
        "  day         class      outages        down  available  penalty  cause",
        "  2026-03-02  degraded         2 23 h 53 min   90.000 %    1,690",
        "",
        "Computed up to 2026-03-02.",
    ]


def test_a_planned_absence_and_a_continued_outage_are_kept_apart(past: StatedPast) -> None:
    past.tables["broker_intervals"] = [
        interval("down", 1, 11, planned=True, event="UNREGISTERED", reason="SHUTDOWN"),
        interval("down", 20, 30, continues=True, end_censored=True, event="EXPIRED"),
    ]
    found = asked(past)

    assert "down as planned until 02 Mar 00:00:11 (10 s): UNREGISTERED, SHUTDOWN\n" in found.text(UTC)
    assert "down again, the same outage until 02 Mar 00:00:30 (10 s), then not monitored: EXPIRED\n" in found.text(UTC)
    assert found.as_dict()["replicas"][0]["outages"] == 0


def test_later_rows_are_listed_as_each_name_server_wrote_them(past: StatedPast) -> None:
    row: Row = dict.fromkeys(ROW_FIELDS) | A | {"event": "EXPIRED", "reason": "SILENCE", "state": "GONE", "node": "ns1"}
    later = row | {"dt": AFTER, "at": microseconds(moment(86_401))}
    of_the_name = later | {"broker_id": None, "event": "PERM_CHANGED"}
    past.broker = [row | {"dt": DAY, "at": microseconds(moment(1))}, later, of_the_name]
    before = row | {"dt": BEFORE - timedelta(days=1), "at": microseconds(moment(-86_401))}
    found = broker_history(past, BrokerName("a", "c1"), AFTER, AFTER)
    past.broker.append(before)
    longer = broker_history(past, BrokerName("a", "c1", 0), BEFORE - timedelta(days=1), AFTER)

    (one,), (other,) = found.replicas, longer.replicas
    assert [(each.at, each.event) for each in one.recorded] == [(moment(86_401), "EXPIRED")]
    assert [each.at for each in other.recorded] == [moment(-86_401), moment(86_401)]
    assert (
        "  Not computed yet, as recorded by each name server:\n  03 Mar 00:00:01  GONE: EXPIRED, SILENCE, by ns1"
        in (found.text(UTC))
    )
    assert longer.text(UTC).endswith("Computed up to 2026-03-02; 2 days not.")


def test_without_computed_days_only_rows_are_known() -> None:
    row: Row = dict.fromkeys(ROW_FIELDS) | A | {"event": "REGISTERED", "state": "UP", "node": "ns1"}
    found = asked(StatedPast(broker=[row | {"dt": DAY, "at": microseconds(moment(1))}]))

    assert [len(one.recorded) for one in found.replicas] == [1]
    assert found.text(UTC).endswith("No nightly run has computed these days.")


def test_very_many_events_are_cut_as_text_alone(past: StatedPast) -> None:
    past.tables["broker_intervals"] = [interval("down", n, n + 0.5) for n in range(MAX_LINES)]
    found = asked(past)

    assert "(3 earlier events are omitted here; --output json has them)" in found.text(UTC)
    assert len([line for line in found.text(UTC).splitlines() if line.startswith("  02 Mar")]) == MAX_LINES
    assert len(found.as_dict()["replicas"][0]["intervals"]) == MAX_LINES


def test_an_unknown_broker_is_named_with_the_days(past: StatedPast) -> None:
    text = asked(past, BrokerName("no\nwhere")).text(UTC)

    assert text == (
        "no\N{REPLACEMENT CHARACTER}where: nothing is known of it from 2026-03-01 to 2026-03-02 (UTC days). "
        "Computed up to 2026-03-02."
    )


def test_the_days_end_today_unless_a_last_one_is_given() -> None:
    assert days_until(DAY, 1) == (DAY, DAY)
    assert days_until(DAY, 7) == (DAY - timedelta(days=6), DAY)
    first, last = days_until(None, 3)
    assert last - first == timedelta(days=2)
