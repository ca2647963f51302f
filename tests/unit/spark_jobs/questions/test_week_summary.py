"""The summary of a week: its sums, what they are compared with, and its exit code."""

from __future__ import annotations

import json
import re
from datetime import date, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from pointsman.history.row_format import Row
from pointsman_report.questions.week_summary import MAX_BROKERS, MAX_INCIDENTS, WeekSummary, week_summary
from tests.kit.report.stated_past import StatedPast
from tests.spark.histories import MIDNIGHT, moment

LAST = MIDNIGHT.date()
FIRST = LAST - timedelta(days=6)
BEFORE = FIRST - timedelta(days=1)

DOWN = "3 brokers of 5 down"
HIT, NOT_HIT = "9 topics hit, 2 without a writable queue for 2 min", "0 topics hit, 0 without a writable queue"


def health(day: date, cluster: str = "c", down: float = 0.0, **change: Any) -> Row:
    known = {"dt": day, "cluster": cluster, "brokers": 2, "up_seconds": 1_000.0 - down, "down_seconds": down}
    return known | {"outages": 1, "slo": 0.95} | change


def incident(name: str = "i", day: date = LAST, brokers: int = 3, **change: Any) -> Row:
    known = {"dt": day, "incident_id": name, "cluster": "c", "scope": "zone", "scope_name": "z", "cause": "network"}
    times = {"last_heard_at": moment(88), "from_at": moment(100), "back_at": moment(400)}
    return known | times | {"brokers": brokers, "known_brokers": 5} | change


def broker(name: str, day: date = LAST, down: float = 60.0, outages: int = 1) -> Row:
    return {"dt": day, "cluster": "c", "broker_name": name, "broker_id": 0, "down_seconds": down, "outages": outages}


def summary(**tables: list[Row]) -> WeekSummary:
    days = [{"dt": day} for day in (BEFORE, FIRST, LAST)]
    return week_summary(StatedPast({"computed_days": days, **tables}), LAST)


def test_clusters_are_summed_over_the_week_and_over_the_week_before() -> None:
    found = summary(
        cluster_health=[
            health(BEFORE - timedelta(days=7), down=999.0),
            health(BEFORE, down=20.0, outages=4),
            health(FIRST, down=50.0, slo=0.5),
            health(LAST, down=150.0),
            health(LAST, cluster="new", down=1.0),
        ]
    )
    old, new = found.clusters

    assert (found.days, found.days_before) == (2, 1)
    assert (old.cluster, old.availability, old.down_seconds, old.outages) == ("c", 0.9, 200.0, 2)
    assert (old.availability_before, old.down_seconds_before, old.outages_before) == (0.98, 20.0, 4)
    assert (old.objective, old.is_below_objective) == (0.95, True)
    assert (new.cluster, new.availability_before, new.outages_before, new.is_below_objective) == (
        "new",
        None,
        None,
        False,
    )


def test_incidents_are_those_of_the_week_the_largest_first_with_the_topics_that_they_hit() -> None:
    many = [incident(f"i{n:02}", brokers=3 + n) for n in range(MAX_INCIDENTS + 1)]
    hit = {"dt": LAST, "incident_id": "i20", "topics_hit": 9, "topics_unwritable": 2, "unwritable_seconds": 120.0}
    found = summary(incidents=[incident("earlier", BEFORE), *many], blast_radius=[hit])

    assert (found.incidents_in_all, found.incidents_before) == (MAX_INCIDENTS + 1, 1)
    assert [row.brokers for row in found.incidents] == list(range(23, 3, -1))
    assert (found.incidents[0].topics_hit, found.incidents[1].topics_hit) == (9, None)


def test_brokers_are_those_with_downtime_the_most_first() -> None:
    downs = [broker(f"b{n:02}", down=float(n), outages=1) for n in range(1, MAX_BROKERS + 2)]
    found = summary(
        availability=[*downs, broker("b01", FIRST, 100.0), broker("well", down=0.0, outages=0), broker("old", BEFORE)]
    )

    assert found.brokers_in_all == MAX_BROKERS + 1
    assert (found.brokers[0].broker_name, found.brokers[0].down_seconds, found.brokers[0].outages) == ("b01", 101.0, 2)
    assert [row.down_seconds for row in found.brokers[1:]] == [float(n) for n in range(11, 2, -1)]


def test_the_text_shows_each_change_and_the_times_to_detect_and_to_recover() -> None:
    hit = {"dt": LAST, "incident_id": "i", "topics_hit": 9, "topics_unwritable": 2, "unwritable_seconds": 120.0}
    found = summary(
        cluster_health=[health(BEFORE, down=20.0), health(LAST, down=150.0), health(LAST, cluster="n\x1b", slo=None)],
        incidents=[incident(), incident("j", scope=None, last_heard_at=None, back_at=None, cause=None)],
        blast_radius=[hit],
        availability=[broker("a")],
    )

    # Cells of a table are two or more spaces apart.
    assert [re.split("  +", line.strip()) for line in found.text(ZoneInfo("Asia/Tokyo")).splitlines() if line] == [
        [f"{FIRST} to {LAST} (UTC days), compared with the 7 days before"],
        ["computed: 2 of 7 days, before 1 of 7"],
        ["Clusters"],
        ["cluster", "brokers", "availability", "objective", "downtime", "outages"],
        ["c", "2", "98.000 % → 85.000 %", "95 % missed", "20 s → 2 min 30 s", "1 → 1"],
        ["n\N{REPLACEMENT CHARACTER}", "2", "100 %", "\N{EN DASH}", "0 s", "1"],
        ["Incidents: 2, before 0"],
        ["2026-03-02 09:01:40 JST", f"zone z of c: {DOWN}, network, detected after 12 s, recovered after 5 min, {HIT}"],
        ["2026-03-02 09:01:40 JST", f"cluster z of c: {DOWN}, unknown, recovery not observed, {NOT_HIT}"],
        ["Brokers with downtime: 1"],
        ["broker", "downtime", "outages"],
        ["c/a/0", "1 min", "1"],
    ]


@pytest.mark.parametrize(
    ("tables", "code"),
    [
        pytest.param({"cluster_health": [health(LAST)]}, 0, id="calm"),
        pytest.param({"cluster_health": [health(LAST, down=900.0)]}, 1, id="below-its-objective"),
        pytest.param({"cluster_health": [health(LAST, down=900.0, slo=None)]}, 0, id="no-objective"),
        pytest.param({"incidents": [incident()]}, 1, id="an-incident"),
        pytest.param({"incidents": [incident(day=BEFORE)]}, 0, id="an-earlier-incident"),
        pytest.param({"computed_days": [{"dt": BEFORE}]}, 1, id="not-computed"),
    ],
)
def test_the_exit_code_is_1_where_the_week_needs_attention(tables: dict[str, list[Row]], code: int) -> None:
    assert summary(**tables).exit_code == code


def test_without_a_computed_day_nothing_is_counted() -> None:
    found = summary(computed_days=[])

    assert found.text(ZoneInfo("UTC")).splitlines()[1:] == [
        "computed: 0 of 7 days, before 0 of 7",
        "No nightly run has computed these days.",
    ]


def test_the_json_has_times_in_utc_and_what_the_text_shows() -> None:
    found = json.loads(json.dumps(summary(cluster_health=[health(LAST)], incidents=[incident()]).as_dict()))

    assert (found["from"], found["to"]) == (f"{FIRST}", f"{LAST}")
    assert found["clusters"][0]["is_below_objective"] is False
    assert found["incidents"]["rows"][0]["from_at"] == "2026-03-02T00:01:40.000Z"
    assert found["brokers"] == {"rows": [], "in_all": 0}
