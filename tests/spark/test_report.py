"""The report over a warehouse written by hand: its numbers equal the tables, its page equals its numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import SparkSession

from pointsman_report.io import Warehouse
from pointsman_report.parameters import Parameters, ReportParameters
from pointsman_report.report.collect import collect_report
from pointsman_report.report.formatting import (
    LocalTime,
    duration,
    milliseconds,
    number,
    objective,
    outage_duration,
    percent,
)
from pointsman_report.report.output import report_files
from pointsman_report.report.sections.broker_scores import cut_times
from pointsman_report.report.sections.broker_states import collect_drawn
from pointsman_report.report.sections.outage_lengths import Step, outage_lengths
from pointsman_report.report.sections.planned_work import maintenance_windows
from pointsman_report.report.sections.queue_advice import queues
from pointsman_report.report.span import Span
from pointsman_report.report.summary import summary
from pointsman_report.report.table_rows import Key, collect, key
from pointsman_report.run import Run
from tests.kit.report.contents import a_broker
from tests.kit.report.html_tables import HtmlTable, tables_of
from tests.spark.fake_warehouse import Outage, World, midnight, publish, rich_world
from tests.spark.tables import DayRunner

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SPRING, AUTUMN = date(2026, 3, 29), date(2026, 10, 25)
"""Days of 23 and of 25 hours in Berlin."""

RUN = Run(files=3, continues_yesterday=True, ends_before=None, rows_ahead=0)


@dataclass(frozen=True)
class Report:
    """A report and its input."""

    world: World
    warehouse: Path
    span: Span
    numbers: dict[str, Any]
    """The content of ``report.json``."""
    summary: str
    files: dict[str, str]

    @property
    def tables(self) -> dict[str, HtmlTable]:
        return tables_of(self.files["report.html"])


def make(spark: SparkSession, world: World, path: Path, day: date, zone: str = "UTC") -> Report:
    parameters = Parameters(report=ReportParameters(timezone=zone))
    warehouse, span = Warehouse(spark, str(path)), Span(day, day, ZoneInfo(zone))
    report = collect_report(warehouse, span, parameters=parameters, run=RUN, version="0.0")
    files = report_files(report, collect_drawn(warehouse, span, report.brokers))
    return Report(world, path, span, json.loads(files["report.json"]), summary(report), files)


@pytest.fixture(scope="module")
def spring(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Path]:
    world, path = rich_world(SPRING), tmp_path_factory.mktemp("spring")
    publish(spark, path, world.tables(), first_day=SPRING - timedelta(days=40), last_day=world.last_day)
    return world, path


@pytest.fixture(scope="module")
def autumn(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Path]:
    """One broker flaps in the last hour before local midnight, one across the hour that comes twice."""
    start = midnight(AUTUMN)
    names: list[Key] = [("c", name, 0) for name in ("early", "twice", "late", "well")]
    world = World(AUTUMN - timedelta(days=1), AUTUMN + timedelta(days=1), names)
    for n in range(5):
        world.outages.append(_minutes(names[0], start + timedelta(hours=-10, minutes=8 * n), 4))
        world.outages.append(_minutes(names[2], start + timedelta(hours=23, minutes=1 + 8 * n), 4))
    world.outages.append(_minutes(names[1], start + timedelta(minutes=-10), 130))
    path = tmp_path_factory.mktemp("autumn")
    publish(spark, path, world.tables(), first_day=world.first_day, last_day=world.last_day)
    return world, path


def _minutes(broker: Key, start: datetime, minutes: float) -> Outage:
    return Outage(broker, start, start + timedelta(minutes=minutes))


@pytest.fixture(scope="module")
def utc(spark: SparkSession, spring: tuple[World, Path]) -> Report:
    return make(spark, *spring, SPRING)


@pytest.fixture(scope="module")
def berlin(spark: SparkSession, spring: tuple[World, Path]) -> Report:
    return make(spark, *spring, SPRING, "Europe/Berlin")


def test_in_utc_every_broker_equals_its_rows_of_the_tables(utc: Report, run_days: DayRunner) -> None:
    brokers = {key(broker): broker for broker in utc.numbers["brokers"]}
    lives = run_days.rows(utc.warehouse, "availability", SPRING, SPRING)
    scores = run_days.rows(utc.warehouse, "flapping", SPRING, SPRING)

    assert len(lives) == len(scores) == len(brokers) == utc.numbers["headline"]["brokers_seen"]
    same_life = ("up_seconds", "down_seconds", "planned_seconds", "availability", "longest_outage_seconds")
    for row in lives:
        shown = brokers[key(row)]
        for name in (*same_life, "mttr_seconds", "mtbf_seconds"):
            assert shown[name] == (row[name] if row[name] is None else pytest.approx(row[name], abs=1e-9)), name
    same_score = ("class", "down_count", "penalty_start", "penalty_max", "penalty_end", "incident_downs", "flagged")
    for row in scores:
        assert {name: brokers[key(row)][name] for name in same_score} == {name: row[name] for name in same_score}


def test_a_clusters_figures_are_the_sums_of_its_brokers(utc: Report, run_days: DayRunner) -> None:
    lives = run_days.rows(utc.warehouse, "availability", SPRING, SPRING)
    for cluster in utc.numbers["headline"]["clusters"]:
        own = [row for row in lives if row["cluster"] == cluster["cluster"]]
        up, down = (sum(row[name] for row in own) for name in ("up_seconds", "down_seconds"))
        assert cluster["brokers"] == len(own) == sum(cluster["by_class"].values())
        assert cluster["availability"] == pytest.approx(up / (up + down), abs=1e-12)
        assert cluster["outages"] == sum(row["outages"] for row in own)


def test_a_utc_day_cut_out_of_the_intervals_is_the_day_of_the_tables(
    spark: SparkSession, utc: Report, run_days: DayRunner
) -> None:
    cut = {key(row): row for row in collect(cut_times(Warehouse(spark, str(utc.warehouse)), utc.span))}
    for row in run_days.rows(utc.warehouse, "availability", SPRING, SPRING):
        shown = cut[key(row)]
        assert shown["cut_downs"] == row["outages"]
        for name in ("up_seconds", "down_seconds", "planned_seconds", "repaired", "longest_outage_seconds"):
            assert shown[name] == (row[name] if row[name] is None else pytest.approx(row[name], abs=1e-9)), name


def _by_hand(world: World, span: Span, broker: Key) -> dict[str, float]:
    start, end = (datetime.fromisoformat("1970-01-01T00:00Z") + timedelta(microseconds=us) for us in _ends(span))
    outages = world.of(broker)
    down = sum(outage.within(start, end) for outage in outages if not outage.planned)
    planned = sum(outage.within(start, end) for outage in outages if outage.planned)
    began = [outage for outage in outages if not outage.planned and start <= outage.start < end]
    instants = [start, *(outage.start for outage in began)]
    return {
        "up_seconds": (end - start).total_seconds() - down - planned,
        "down_seconds": down,
        "planned_seconds": planned,
        "down_count": len(began),
        "penalty_start": world.penalty(broker, start),
        "penalty_max": max(world.penalty(broker, at) for at in instants),
        "penalty_end": world.penalty(broker, end - timedelta(microseconds=1)),
    }


def _ends(span: Span) -> Iterator[int]:
    yield span.from_us
    yield span.to_us


@pytest.mark.parametrize(
    "zone",
    [
        "Europe/Berlin",
        pytest.param("America/New_York", marks=pytest.mark.slow),
        pytest.param("Asia/Kathmandu", marks=pytest.mark.slow),
    ],
)
def test_a_local_day_is_cut_to_its_own_midnights(
    spark: SparkSession, spring: tuple[World, Path], berlin: Report, zone: str
) -> None:
    report = berlin if zone == "Europe/Berlin" else make(spark, *spring, SPRING, zone)

    assert report.numbers["interval"]["hours"] == (23 if zone == "Europe/Berlin" else 24)
    assert report.numbers["headline"]["brokers_seen"] == len(report.world.brokers)
    for broker in report.numbers["brokers"]:
        by_hand = _by_hand(report.world, report.span, key(broker))
        assert {name: broker[name] for name in by_hand} == pytest.approx(by_hand, abs=1e-5), key(broker)
        for outage in broker["outages"]:
            assert outage["start_at"] < report.numbers["interval"]["to_at"]
            assert outage["end_at"] > report.numbers["interval"]["from_at"]


@pytest.fixture(scope="module")
def in_berlin(spark: SparkSession, autumn: tuple[World, Path]) -> Report:
    return make(spark, *autumn, AUTUMN, "Europe/Berlin")


def test_a_day_of_25_hours_counts_the_hour_that_comes_twice(in_berlin: Report) -> None:
    report = in_berlin
    brokers = {broker["broker_name"]: broker for broker in report.numbers["brokers"]}

    assert report.numbers["interval"]["hours"] == 25
    assert (report.numbers["interval"]["from_offset"], report.numbers["interval"]["to_offset"]) == ("+02:00", "+01:00")
    assert brokers["well"]["up_seconds"] == 25 * 3_600
    assert brokers["twice"]["down_seconds"] == 130 * 60
    assert "daylight saving time changed: these days have 25 hours" in report.numbers["headline"]["notices"]


def test_a_broker_that_flapped_before_or_after_the_local_day_did_not_flap_in_it(
    spark: SparkSession, autumn: tuple[World, Path], in_berlin: Report
) -> None:
    in_utc = make(spark, *autumn, AUTUMN)

    def classes(report: Report) -> dict[str, str]:
        return {broker["broker_name"]: broker["class"] for broker in report.numbers["brokers"]}

    assert classes(in_utc) == {"early": "healthy", "twice": "degraded", "late": "flapping", "well": "healthy"}
    assert classes(in_berlin) == {"early": "healthy", "twice": "degraded", "late": "healthy", "well": "healthy"}


def test_times_on_the_page_are_in_the_zone_and_in_the_json_in_utc(utc: Report, berlin: Report) -> None:
    incident = berlin.numbers["incidents"]["rows"][0]

    assert incident["from_at"] == "2026-03-29T15:12:00.000Z"
    for report, clock in ((utc, "15:12:00"), (berlin, "17:12:00")):
        (first, *_) = re.findall("<summary>.*?</summary>", report.files["report.html"], re.DOTALL)
        assert f'<span class="day">2026-03-29</span> {clock}</time>' in first
    assert "all times are Europe/Berlin (UTC+02:00 and UTC+01:00" in berlin.files["report.html"]
    assert "15:12 UTC" in utc.summary
    assert "17:12 Europe/Berlin" in berlin.summary


def test_tables_of_utc_days_are_marked_where_the_report_is_of_other_days(utc: Report, berlin: Report) -> None:
    assert "For the whole UTC day 2026-03-29." in berlin.files["report.html"]
    assert "For the whole UTC day" not in utc.files["report.html"]


def test_the_page_is_self_contained_and_small(utc: Report) -> None:
    page = utc.files["report.html"]

    assert "<script" not in page
    assert "://" not in page.replace("http://www.w3.org/", "")
    assert "url(" not in page.replace("url(#", "")
    assert page.count("<svg") == 7 + page.count('<div class="narrow">') + page.count('class="strip"')
    assert len(page.encode()) < 400_000
    assert "ledger<b>" not in page, "names are escaped"
    assert f"--warehouse={utc.warehouse} " in page


def test_every_finding_leads_to_a_section_that_is_there(utc: Report) -> None:
    page = utc.files["report.html"]

    assert utc.numbers["findings"]
    assert [finding["see"] for finding in utc.numbers["findings"] if f'id="{finding["see"]}"' not in page] == []


def _said(value: Any, time: LocalTime) -> Iterator[str]:
    """Every way in which the page may write a value of the JSON."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _said(inner, time)
    elif isinstance(value, list):
        yield str(len(value))
        for inner in value:
            yield from _said(inner, time)
    elif isinstance(value, str):
        yield value
        yield value.replace("_", " ")
        if re.fullmatch(r"\d{4}-\d\d-\d\dT.*Z", value):
            yield from (time.plain(value), " ".join(time.day_and_time(value, brief=True)))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        for digits in (0, 1):
            yield number(value, digits=digits)
        yield str(value)
        yield from (duration(value), milliseconds(value), percent(value), percent(value, digits=1))
        yield from (outage_duration(value), objective(value))


def _figures(text: str) -> list[str]:
    return [figure.rstrip(".,:-") for figure in re.findall(r"(?<![\w.:-])\d[\d,.:-]*%?", text)]


@pytest.mark.parametrize("which", ["utc", "berlin"])
def test_every_number_in_the_pages_tables_is_in_the_json(which: str, request: pytest.FixtureRequest) -> None:
    report: Report = request.getfixturevalue(which)
    numbers = json.loads(report.files["report.json"])
    known = {figure for said in _said(numbers, LocalTime(report.span.zone)) for figure in _figures(said)}
    # Derived from two figures that are both there: how soon an outage was noticed, how much of a budget was used.
    budgets = [(c["budget_seconds"], c["budget_left_seconds"]) for c in numbers["headline"]["clusters"]]
    derived = [outage_duration(4.0), *(duration(whole - left) for whole, left in budgets)]
    derived += [duration(-left) for _, left in budgets]
    known |= {figure for said in derived for figure in _figures(said)}
    cells = [(table.name, cell) for table in report.tables.values() for row in table.rows for cell in row]
    unknown = [(name, cell) for name, cell in cells if set(_figures(cell)) - known]
    assert len(cells) > 500
    assert unknown == []


def test_the_page_lists_what_the_json_lists_in_the_same_order(utc: Report) -> None:
    numbers, tables = utc.numbers, utc.tables

    def first(table: str, n: int = 0) -> list[str]:
        return [row[n] for row in tables[table].rows]

    brokers = [broker for broker in numbers["brokers"] if broker["class"] != "healthy"]
    assert first("Brokers by reliability") == [f"{b['broker_name']}/{b['broker_id']} | {b['cluster']}" for b in brokers]
    assert first("Brokers by reliability", 1) == [b["class"] for b in brokers]
    assert first("Brokers by reliability", 2) == [number(b["penalty_max"]) for b in brokers]
    assert [cell.split(" | ")[0] for cell in first("Brokers by reliability", 3)] == [
        number(b["down_count"]) for b in brokers
    ]
    assert first("Brokers by reliability", 7) == [percent(b["availability"]) for b in brokers]
    clusters = numbers["headline"]["clusters"]
    assert first("Clusters") == [cluster["cluster"] for cluster in clusters]
    assert first("Clusters", 2) == [percent(cluster["availability"]) for cluster in clusters]
    assert first("Clusters", 7) == [number(cluster["outages"]) for cluster in clusters]
    at_risk = numbers["topics_at_risk"]["rows"]
    assert first("Topics at risk") == [f"{row['topic']} | {row['cluster']}" for row in at_risk]
    assert first("Topics at risk", 2) == [duration(row["unwritable_seconds"]) for row in at_risk]
    beats = numbers["punctuality"]["rows"][:20]
    assert first("Heartbeat punctuality", 4) == [milliseconds(row["p99_ms"]) for row in beats]
    clocks = ["broker-01/0 | orders", "broker-01/0 | telemetry"]
    assert first("Agents with clock offsets") == clocks
    assert first("Agents with clock offsets", 1) == ["1 min 1 s ahead", "7.5 s behind"]
    assert first("Hot queues", 7) == [row["cure"] for row in numbers["queues"]["hot"]["rows"]]
    assert first("Name servers") == [row["node"] for row in numbers["name_servers"]["nodes"]["rows"]]
    computed = [number(row["days"]) for row in numbers["computed"]["by"]]
    assert first("Days by code version", 1) == computed == ["2"]
    trend = (numbers["trend"]["seven_days"], numbers["trend"]["thirty_days"])
    assert first("Trend", 2) == [percent(row["availability"]) for row in trend]


def test_a_day_of_the_trend_counts_what_the_report_of_that_day_lists(utc: Report, run_days: DayRunner) -> None:
    numbers, day = utc.numbers, utc.numbers["trend"]["days"][-1]

    assert day["date"] == str(SPRING)
    assert day["topics_at_risk"] == numbers["topics_at_risk"]["in_all"] > 0
    assert day["incidents"] == numbers["incidents"]["in_all"] > 0
    assert day["flapping"] == numbers["headline"]["flapping"]["now"] > 0
    for row in run_days.rows(utc.warehouse, "cluster_health", SPRING, SPRING):
        of_day = day["clusters"][row["cluster"]]
        assert (of_day["up_seconds"], of_day["down_seconds"]) == (row["up_seconds"], row["down_seconds"])


def test_maintenance_windows_are_those_that_overlap_the_day_joined_over_name_servers(
    spark: SparkSession, tmp_path: Path
) -> None:
    noon, next_day = midnight(SPRING) + timedelta(hours=12), SPRING + timedelta(days=1)
    known = {"dt": SPRING, "node": "n1", "cluster": "c", "broker_name": None, "until_at": None, "open": False}
    rows = [
        known | {"from_at": noon, "to_at": noon + timedelta(hours=1)},
        known | {"node": "n2", "from_at": noon + timedelta(seconds=1), "to_at": noon + timedelta(hours=2)},
        known | {"broker_name": "a", "from_at": noon, "to_at": midnight(next_day), "open": True},
        known | {"dt": next_day, "broker_name": "a", "from_at": noon, "to_at": noon + timedelta(days=1)},
        known | {"dt": next_day, "from_at": midnight(next_day), "to_at": noon + timedelta(days=1)},
    ]
    publish(spark, tmp_path, {"maintenance_windows": rows}, first_day=SPRING, last_day=next_day)

    found = maintenance_windows(Warehouse(spark, str(tmp_path)), Span(SPRING, SPRING))

    assert found.in_all == 2
    assert [(row.broker_name, row.seconds, row.open, row.nodes) for row in found.rows] == [
        (None, 7_200.0, False, ["n1", "n2"]),
        ("a", 43_200.0, True, ["n1"]),
    ]


def test_incidents_have_their_blast_radius_and_topics_their_minutes(utc: Report) -> None:
    largest = utc.numbers["incidents"]["rows"][0]

    assert (largest["brokers"], largest["topics_hit"], largest["topics_unwritable"]) == (8, 31, 4)
    assert utc.numbers["topics_at_risk"]["by_worst"] == {"no_master": 1, "one_broker": 1, "unwritable": 2}
    assert utc.numbers["topics_at_risk"]["unwritable"] == 3, "slaves were left of one of them"
    assert utc.numbers["topics_at_risk"]["rows"][0]["topic"] == "payments.settled"


def test_guards_of_several_name_servers_are_one_period_and_outages_have_their_cause(utc: Report) -> None:
    (period,) = utc.numbers["guard_periods"]["rows"]
    struck = [broker for broker in utc.numbers["brokers"] if broker["reasons"] == {"STREAM_BROKEN": 1}]

    assert (period["from_at"], period["to_at"]) == ("2026-03-29T15:12:01.000Z", "2026-03-29T15:13:02.000Z")
    assert (period["seconds"], period["kept"], period["lost"], period["nodes"]) == (
        61.0,
        2,
        9,
        ["ns1:9876", "ns2:9876"],
    )
    assert {outage["cause"] for broker in struck for outage in broker["outages"]} == {"network"}
    assert utc.numbers["rolling_restarts"]["unplanned"] == 3
    assert utc.tables["Rolling restarts"].rows[0][4] == "2.3.0 \N{RIGHTWARDS ARROW} 2.4.0"


def test_findings_come_worst_first_and_name_what_the_tables_show(utc: Report) -> None:
    kinds = [finding["kind"] for finding in utc.numbers["findings"]]

    assert kinds == [
        "incident",
        "guard",
        "rolling_restart",
        "topics_unwritable",
        "budget_spent",
        "flapping",
        "outlier",
        "clocks_apart",
        "name_server_vanished",
        "partial_views",
        "agent_clocks",
        "rows_lost",
        "quarantine",
        "falling_behind",
    ]


def test_distributions_count_every_outage_that_ended_with_both_ends_seen(utc: Report) -> None:
    start, end = midnight(SPRING), midnight(SPRING + timedelta(days=1))
    whole = [
        (outage.end - outage.start).total_seconds()
        for outage in utc.world.outages
        if not outage.planned and start <= outage.end < end
    ]
    shown = utc.numbers["outages"]["outage_seconds"]

    assert shown["count"] == sum(step["count"] for step in shown["steps"]) == len(whole)
    assert (shown["min"], shown["max"]) == pytest.approx((min(whole), max(whole)), abs=1e-5)
    for n, step in enumerate(shown["steps"]):
        below = sum(seconds <= step["up_to_seconds"] for seconds in whole)
        assert abs(below - sum(other["count"] for other in shown["steps"][: n + 1])) <= 1, "an edge is rounded"


def test_an_outage_whose_end_was_not_seen_is_counted_apart_and_its_detection_measured(
    spark: SparkSession, tmp_path: Path
) -> None:
    names: list[Key] = [("c", name, 0) for name in ("back", "away", "left")]
    world = World(SPRING, SPRING, names)
    noon = midnight(SPRING) + timedelta(hours=12)
    world.outages = [_minutes(names[0], noon, 5), _minutes(names[1], noon, 24 * 60)]
    world.outages.append(Outage(names[2], noon, noon + timedelta(hours=1), planned=True))
    publish(spark, tmp_path, world.tables(), first_day=SPRING, last_day=SPRING)

    shown = outage_lengths(Warehouse(spark, str(tmp_path)), Span(SPRING, SPRING))

    assert shown.censored_outages == 1
    assert (shown.outage_seconds.count, shown.outage_seconds.max) == (1, 300)
    delays = shown.detection_seconds
    assert (delays.count, delays.min, delays.max) == (2, 4, 4)
    assert delays.steps == [Step(up_to_seconds=5.01, count=2)]


def test_a_broker_first_seen_in_the_local_evening_is_in_that_evenings_report(
    spark: SparkSession, tmp_path: Path
) -> None:
    known, new, later = (("c", name, 0) for name in ("known", "new", "later"))
    next_day = SPRING + timedelta(days=1)
    world, evening = World(SPRING, next_day, [known]), World(next_day, next_day, [new, later])
    world.outages = [_minutes(known, midnight(SPRING) + timedelta(hours=12), 10)]
    evening.outages = [_minutes(new, midnight(next_day) + timedelta(hours=1), 10)]
    tables = world.tables()
    for name, rows in evening.tables().items():
        tables[name] += rows
    for row in tables["broker_intervals"]:
        if key(row) == later:
            row["start_at"] = midnight(next_day) + timedelta(hours=5)
    publish(spark, tmp_path, tables, first_day=SPRING, last_day=next_day)

    report = make(spark, world, tmp_path, SPRING, "America/New_York")

    downs = {broker["broker_name"]: broker["down_count"] for broker in report.numbers["brokers"]}
    assert downs == {"known": 1, "new": 1}
    assert report.numbers["headline"]["outages"] == 2


def test_of_very_many_charges_the_highest_of_each_pixel_is_drawn(spark: SparkSession, tmp_path: Path) -> None:
    broker: Key = ("c", "a", 0)
    world = World(SPRING, SPRING, [broker])
    world.outages = [_minutes(broker, midnight(SPRING) + timedelta(seconds=28 * n), 0.1) for n in range(3_000)]
    tables = world.tables()
    publish(spark, tmp_path, tables, first_day=SPRING, last_day=SPRING)

    worst = a_broker("a", penalty_max=9.0)
    charges = collect_drawn(Warehouse(spark, str(tmp_path)), Span(SPRING, SPRING), [worst]).charges

    pixel = timedelta(days=1) / 1_000
    highest: dict[int, float] = {}
    for charge in tables["flap_charges"]:
        slot = (charge["charged_at"] - midnight(SPRING)) // pixel
        highest[slot] = max(highest.get(slot, 0.0), charge["penalty"])
    assert len(charges) == len(highest) <= 1_000
    assert [charge.penalty for charge in charges] == [highest[slot] for slot in sorted(highest)]


def test_a_group_that_falls_behind_on_two_days_is_one_group_and_idle_members_are_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    next_day = SPRING + timedelta(days=1)
    shown = {"cluster": "c", "topic": "orders", "value": 9_000.0, "limit": 1_000.0, "says": "behind"}
    rows = [
        shown | {"dt": SPRING, "kind": "falling_behind", "consumer_group": "g", "broker_name": "a", "cure": "first"},
        shown | {"dt": next_day, "kind": "falling_behind", "consumer_group": "g", "broker_name": "b", "cure": "last"},
        shown | {"dt": next_day, "kind": "too_few_queues", "consumer_group": "full", "cure": "add queues"},
        shown | {"dt": next_day, "kind": "idle_members", "consumer_group": "idle", "cure": "stop members"},
    ]
    publish(spark, tmp_path, {"hot_queues": rows}, first_day=SPRING, last_day=next_day)

    behind = queues(Warehouse(spark, str(tmp_path)), Span(SPRING, next_day)).behind

    assert behind.in_all == 2
    assert [(row.consumer_group, row.cure) for row in behind.rows] == [("g", "last"), ("full", "add queues")]


def test_the_same_tables_give_the_same_bytes(spark: SparkSession, utc: Report) -> None:
    assert make(spark, utc.world, utc.warehouse, SPRING).files == utc.files


def test_a_large_fleet_has_a_small_report_that_states_what_it_left_out(spark: SparkSession, tmp_path: Path) -> None:
    chatty = [("c", f"broker-{n:05d}", 0) for n in range(1_300)]
    world = World(SPRING, SPRING, chatty)
    for n, broker in enumerate(chatty[:1_200]):
        world.outages.append(_minutes(broker, midnight(SPRING) + timedelta(seconds=n), 1))
    for n in range(700):
        world.outages.append(_minutes(chatty[1_299], midnight(SPRING) + timedelta(minutes=2 * n), 1))
    publish(spark, tmp_path, world.tables(), first_day=SPRING, last_day=SPRING)

    report = make(spark, world, tmp_path, SPRING)

    worst = report.numbers["brokers"][0]
    assert (worst["broker_name"], worst["down_count"]) == ("broker-01299", 700)
    assert (len(worst["outages"]), worst["outages_left_out"], worst["reasons"]) == (200, 500, {"SILENCE": 700})
    assert (len(report.numbers["brokers"]), report.numbers["brokers_left_out"]) == (1_000, 300)
    assert report.numbers["headline"]["brokers_seen"] == 1_300
    assert report.numbers["headline"]["outages"] == 1_900
    assert len(report.files["report.html"].encode()) < 1_000_000
    assert len(report.files["report.json"].encode()) < 4_000_000


def test_an_empty_warehouse_shows_no_data_instead_of_zeros(spark: SparkSession, tmp_path: Path) -> None:
    report = make(spark, World(SPRING, SPRING, []), tmp_path / "new", SPRING)

    assert report.numbers["headline"]["no_data"] is True
    assert report.numbers["findings"][0]["kind"] == "no_data"
    page = report.files["report.html"]
    assert 'class="verdict loud"' in page
    assert "Headline" not in page
    assert "None:" not in page, "nothing known is not nothing wrong"


@pytest.mark.parametrize(
    ("stopped", "alarms"),
    [(True, ["first"]), pytest.param(False, ["first", "second", "third"], marks=pytest.mark.slow)],
)
def test_a_polite_stop_of_all_is_an_alarm_on_the_first_day_only(
    spark: SparkSession, tmp_path: Path, stopped: bool, alarms: list[str]
) -> None:
    broker: Key = ("c", "a", 0)
    world = World(SPRING, SPRING, [broker])
    tables = world.tables()
    noon = midnight(SPRING) + timedelta(hours=12)
    life = {"dt": SPRING, "node": "n1", "boot_id": "b"}
    tables["observer_windows"] = [
        life | {"from_at": midnight(SPRING), "to_at": noon, "open": False, "rows": 9, "rows_missing": 0, "gaps": []}
    ]
    said = {"event": "NAMESRV_STOPPED" if stopped else "NAMESRV_ALIVE", "event_at": noon, "seq": 9}
    tables["registration_events"] = [life | said]
    known = tables["flapping"][0] | {"class": "unwatched"}
    tables["flapping"] += [known | {"dt": SPRING + timedelta(days=n)} for n in (1, 2, 3)]
    publish(spark, tmp_path, tables, first_day=SPRING, last_day=SPRING + timedelta(days=3))

    days = {name: SPRING + timedelta(days=n) for n, name in enumerate(("first", "second", "third"), 1)}
    reports = {name: make(spark, world, tmp_path, day).numbers for name, day in days.items()}

    assert [name for name, numbers in reports.items() if numbers["findings"]] == alarms
    for numbers in reports.values():
        loud = [*numbers["headline"]["findings"], *numbers["headline"]["notices"]]
        assert any(text.startswith("NO DATA") for text in loud), "it is never quiet"
