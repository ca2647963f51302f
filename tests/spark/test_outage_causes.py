"""The cause of each outage from its evidence, of hand-made rows: a case is a cluster, all are computed in one pass."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import unix_micros

from pointsman_report.parameters import IncidentParameters
from pointsman_report.schemas.flapping_tables import GUARD_PERIODS, OUTAGE_CAUSES
from pointsman_report.schemas.table_types import BOOL, DAY, INT, LONG, TEXT, TIME, struct
from pointsman_report.transforms.incidents import members, outages, rolling_outages, rolling_restarts
from pointsman_report.transforms.observer_periods import guard_periods
from pointsman_report.transforms.outage_causes import (
    downs,
    fact_rows,
    incident_causes,
    near_rows,
    outage_causes,
    outage_signals,
    outages_with_facts,
    recovery_facts,
)
from tests.spark.histories import MIDNIGHT, moment

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FIRST = MIDNIGHT.date()
GIVEN = IncidentParameters()
EVENTS = struct(
    schema_version=INT, cluster=TEXT, broker_name=TEXT, broker_id=LONG, seq=LONG, event_at=TIME, event=TEXT,
    reason=TEXT, incarnation=TEXT, broker_version=TEXT, host=TEXT, detail=TEXT, node=TEXT, boot_id=TEXT, dt=DAY,
)  # fmt: skip
INTERVALS = struct(
    dt=DAY, cluster=TEXT, broker_name=TEXT, broker_id=LONG, state=TEXT, planned=BOOL, continues=BOOL, open=BOOL,
    start_at=TIME, end_at=TIME, end_censored=BOOL, event=TEXT, last_sign_of_life_at=TIME,
)  # fmt: skip
PLACES = struct(dt=DAY, cluster=TEXT, broker_name=TEXT, broker_id=LONG, zone=TEXT, host=TEXT)
REFUSED = {"probe": "redis 10.0.0.1:6379: Connection refused.", "evidence": "STRONG"}


@dataclass
class History:
    """What name servers recorded, and the intervals that follow from it."""

    events: list[dict[str, Any]] = field(default_factory=list)
    intervals: list[dict[str, Any]] = field(default_factory=list)
    places: dict[tuple[str, str], str | None] = field(default_factory=dict)

    def row(self, cluster: str, name: str, at: float, event: str, reason: str | None = None, **facts: Any) -> None:
        self.places.setdefault((cluster, name), facts.get("host"))
        self.events.append(
            {"schema_version": 2, "cluster": cluster, "broker_name": name, "broker_id": 0, "event_at": moment(at)}
            | {"seq": len(self.events) + 1, "event": event, "reason": reason, "detail": facts.pop("detail", {})}
            | {"incarnation": "i1", "broker_version": "7.1", "host": None, "node": "n", "boot_id": "b"}
            | facts
        )

    def down(self, cluster: str, name: str, at: float, until: float | None, *, planned: bool = False) -> None:
        self.places.setdefault((cluster, name), None)
        known = {"cluster": cluster, "broker_name": name, "broker_id": 0, "state": "down", "planned": planned}
        known |= {"continues": False, "event": "EXPIRED", "start_at": moment(at), "last_sign_of_life_at": None}
        last = 0 if until is None else int(until // 86_400)
        for day in range(last + (until is None)):
            cut = moment(0, day=day + 1)
            self.intervals.append(
                known | {"end_at": cut, "end_censored": True, "open": True, "dt": (cut - timedelta(1)).date()}
            )
        if until is not None:
            end = {"end_at": moment(until), "end_censored": False, "open": False, "dt": moment(until).date()}
            self.intervals.append(known | end)

    def outage(self, cluster: str, name: str, at: float, until: float, went: str, **after: Any) -> None:
        """A broker goes down as in ``went`` and registers again; ``host`` and ``before`` are of both sides."""
        before = {"host": after.get("host"), "incarnation": after.pop("before", "i1")}
        if went == "refused":
            self.row(cluster, name, at, "PROBE_FAILED", "REFUSED", detail=REFUSED, **before)
        elif went == "probe":
            self.row(cluster, name, at, "PROBE_FAILED", "PROBE", detail={"probe": "timeout"}, **before)
        elif went == "broken":
            self.row(cluster, name, at - 11, "SUSPECTED", "STREAM_BROKEN", **before)
            self.row(cluster, name, at, "EXPIRED", "STREAM_BROKEN", **before)
        elif went == "silent":
            self.row(cluster, name, at, "EXPIRED", "SILENCE", **before)
        elif went == "hung":
            self.row(cluster, name, at, "EXPIRED", "SILENCE", detail={"stream": "open"}, **before)
        else:
            self.row(cluster, name, at, "UNREGISTERED", "SHUTDOWN", **before)
        self.row(cluster, name, until, "REREGISTERED" if went in {"refused", "probe"} else "REGISTERED", **after)
        self.down(cluster, name, at, until, planned=went == "left")


def event_rows(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    dated = [row | {"detail": json.dumps(row["detail"]), "dt": row["event_at"].date()} for row in rows]
    return spark.createDataFrame([tuple(row[name] for name in EVENTS.fieldNames()) for row in dated], EVENTS)


def computed(spark: SparkSession, history: History, *, days: int = 1, yesterday: DataFrame | None = None) -> Found:
    events = event_rows(spark, history.events)
    intervals = spark.createDataFrame(
        [tuple(row[name] for name in INTERVALS.fieldNames()) for row in history.intervals], INTERVALS
    )
    dates = [FIRST + timedelta(days=n) for n in range(days)]
    places = spark.createDataFrame(
        [(day, cluster, name, 0, None, host) for (cluster, name), host in history.places.items() for day in dates],
        PLACES,
    )
    near = near_rows(fact_rows(events), downs(intervals))
    found = members(outages(intervals), places, parameters=GIVEN)
    before = yesterday if yesterday is not None else spark.createDataFrame([], OUTAGE_CAUSES.schema)
    rows = outages_with_facts(intervals, outage_signals(near), recovery_facts(near), found, before, first_day=FIRST)
    rows = rows.localCheckpoint()
    rolling = rolling_outages(rows, parameters=GIVEN).localCheckpoint()
    causes = outage_causes(rows, rolling).localCheckpoint()
    return Found(
        [row.asDict() for row in causes.orderBy("dt", "cluster", "start_at", "broker_name").collect()],
        [row.asDict() for row in incident_causes(causes).collect()],
        [row.asDict(recursive=True) for row in rolling_restarts(rolling).orderBy("from_at").collect()],
    )


@dataclass(frozen=True)
class Found:
    causes: list[dict[str, Any]]
    incidents: list[dict[str, Any]]
    rolling: list[dict[str, Any]]

    def of(self, cluster: str) -> list[str]:
        return [row["cause"] for row in self.causes if row["cluster"] == cluster]

    def evidence(self, cluster: str) -> list[str]:
        return [row["evidence"] for row in self.causes if row["cluster"] == cluster]


CASES: dict[str, tuple[Callable[[History, str], None], list[str]]] = {}


def case(*causes: str) -> Callable[[Callable[[History, str], None]], None]:
    def keep(add: Callable[[History, str], None]) -> None:
        CASES[add.__name__] = (add, list(causes))

    return keep


@case("process_died")
def a_refused_probe_and_a_new_process_afterwards(h: History, c: str) -> None:
    h.outage(c, "a", 1_000, 1_010, "refused", incarnation="i2")


@case("process_died")
def a_new_process_that_registers_a_little_after_the_probe_passes(h: History, c: str) -> None:
    h.row(c, "a", 1_000, "PROBE_FAILED", "REFUSED", detail=REFUSED)
    h.row(c, "a", 1_010, "RECOVERED", "PROBE")
    h.row(c, "a", 1_012, "RESTARTED", incarnation="i2")
    h.down(c, "a", 1_000, 1_010)


@case("unknown")
def a_refused_probe_and_the_same_process_afterwards(h: History, c: str) -> None:
    h.outage(c, "a", 1_000, 1_010, "refused")


@case("unknown")
def a_refused_probe_without_an_incarnation_afterwards(h: History, c: str) -> None:
    h.outage(c, "a", 1_000, 1_010, "refused", incarnation="")


@case("unknown")
def a_refused_probe_without_an_incarnation_before(h: History, c: str) -> None:
    h.outage(c, "a", 1_000, 1_010, "refused", before="", incarnation="i2")


@case("unknown")
def a_probe_that_timed_out_before_a_new_process(h: History, c: str) -> None:
    h.outage(c, "a", 1_000, 1_010, "probe", incarnation="i2")


@case("agent_lost")
def a_broken_stream_and_the_same_process(h: History, c: str) -> None:
    h.outage(c, "a", 1_000, 1_010, "broken")


@case("unknown")
def a_broken_stream_and_a_new_process_alone(h: History, c: str) -> None:
    h.outage(c, "a", 1_000, 1_010, "broken", incarnation="i2")


@case("unknown")
def silence_without_a_broken_stream(h: History, c: str) -> None:
    h.outage(c, "a", 1_000, 1_010, "silent")


@case("agent_hung")
def silence_on_an_open_stream_and_the_same_process(h: History, c: str) -> None:
    h.outage(c, "a", 1_000, 1_010, "hung")


@case("unknown")
def silence_on_an_open_stream_and_a_new_process(h: History, c: str) -> None:
    h.outage(c, "a", 1_000, 1_010, "hung", incarnation="i2")


@case("network", "network", "network")
def several_silent_on_open_streams_together(h: History, c: str) -> None:
    for name in ("a", "b"):
        h.outage(c, name, 1_000, 1_010, "hung", host=f"h-{name}")
    h.outage(c, "c", 1_000, 1_010, "silent", host="h-c")


@case("unknown")
def a_rocketmq_broker_that_hangs(h: History, c: str) -> None:
    h.row(c, "a", 1_000, "EXPIRED", "SILENCE", detail={"connection": "open"}, incarnation="")
    h.row(c, "a", 1_010, "REGISTERED", incarnation="")
    h.down(c, "a", 1_000, 1_010)


@case("unknown")
def a_broken_stream_of_a_broker_whose_probe_had_failed(h: History, c: str) -> None:
    h.row(c, "a", 990, "PROBE_FAILED", "PROBE", detail={"probe": "timeout"})
    h.row(c, "a", 1_000, "EXPIRED", "STREAM_BROKEN")
    h.row(c, "a", 1_010, "REGISTERED")
    h.down(c, "a", 990, 1_010)


@case("deploy")
def another_version_afterwards(h: History, c: str) -> None:
    h.outage(c, "a", 1_000, 1_010, "broken", incarnation="i2", broker_version="7.2")


@case("planned")
def a_planned_shutdown_even_for_another_version(h: History, c: str) -> None:
    h.outage(c, "a", 1_000, 1_010, "left", incarnation="i2", broker_version="7.2")


@case("network", "network", "network", "network")
def several_silent_together_with_the_same_processes(h: History, c: str) -> None:
    for n, name in enumerate("abcd"):
        h.outage(c, name, 1_000 + n, 1_060, "broken" if n % 2 else "silent", host=f"h{n // 2}")


@case("network", "network", "network")
def a_host_that_loses_its_network_is_not_lost(h: History, c: str) -> None:
    for name in "abc":
        h.outage(c, name, 1_000, 1_060, "broken", host="h1")


@case("host_lost", "host_lost", "host_lost")
def several_silent_together_on_one_host_with_new_processes(h: History, c: str) -> None:
    for name in "abc":
        h.outage(c, name, 1_000, 1_060, "broken", host="h1", incarnation="i2")


@case("host_lost", "unknown", "host_lost")
def of_several_silent_together_the_one_alone_on_its_host_is_not_known(h: History, c: str) -> None:
    for n, name in enumerate("abc"):
        h.outage(c, name, 1_000, 1_060, "broken", host=f"h{n % 2}", incarnation="i2")


@case("network", "network", "network", "unknown")
def a_broker_that_is_restarted_while_its_host_is_cut_off(h: History, c: str) -> None:
    for name in "abcd":
        h.outage(c, name, 1_000, 1_060, "broken", host="h1", incarnation="i2" if name == "d" else "i1")


@case("rolling_restart", "unknown", "rolling_restart", "rolling_restart")
def a_rolling_restart_in_which_another_broker_goes(h: History, c: str) -> None:
    h.outage(c, "a", 1_000, 1_020, "refused", incarnation="i2")
    h.outage(c, "other", 1_010, 1_200, "probe", incarnation="i2")
    h.outage(c, "b", 1_030, 1_050, "refused", incarnation="i2")
    h.outage(c, "c", 1_060, 1_080, "refused", incarnation="i2")


@case("unknown", "unknown", "unknown")
def several_silent_together_without_host_labels(h: History, c: str) -> None:
    for name in "abc":
        h.outage(c, name, 1_000, 1_060, "broken", incarnation="i2")


@case("unknown", "unknown", "unknown")
def an_empty_incarnation_proves_nothing(h: History, c: str) -> None:
    for name in "abc":
        h.outage(c, name, 1_000, 1_060, "broken", host="h1", before="", incarnation="")


@case("process_died", "process_died", "process_died")
def several_processes_that_die_at_the_same_moment(h: History, c: str) -> None:
    for name in "abc":
        h.outage(c, name, 1_000, 1_060, "refused", host="h1", incarnation="i2")


@case("rolling_restart", "rolling_restart", "rolling_restart")
def kills_one_after_another(h: History, c: str) -> None:
    for n, name in enumerate("abc"):
        h.outage(c, name, 1_000 + 20 * n, 1_015 + 20 * n, "refused", incarnation="i2")


@case("deploy", "deploy", "deploy", "planned")
def a_deploy_broker_by_broker(h: History, c: str) -> None:
    for n, name in enumerate("abcd"):
        went = "left" if name == "d" else "broken"
        h.outage(c, name, 1_000 + 60 * n, 1_030 + 60 * n, went, incarnation="i2", broker_version="7.2")


@case("process_died", "process_died", "process_died")
def three_crashes_far_apart(h: History, c: str) -> None:
    for n, name in enumerate("abc"):
        h.outage(c, name, 1_000 + 600 * n, 1_015 + 600 * n, "refused", incarnation="i2")


@case("process_died", "agent_lost", *["process_died"] * 5)
def the_demo(h: History, c: str) -> None:
    h.outage(c, "a", 1_000, 1_001.5, "refused", incarnation="i2")
    h.outage(c, "b", 1_004, 1_004.6, "broken")
    for n in range(5):
        h.outage(c, "c", 1_006 + 4 * n, 1_007.5 + 4 * n, "refused", before=f"i{n}", incarnation=f"i{n + 1}")


@case("network", "network", "network", "network", "network", "network")
def an_outage_that_was_cut_and_continued_has_one_cause(h: History, c: str) -> None:
    for name in "abc":
        h.row(c, name, 1_000, "EXPIRED", "SILENCE")
        h.row(c, name, 1_100, "REGISTERED")
        h.down(c, name, 1_000, 1_050)
        h.down(c, name, 1_060, 1_100)
        h.intervals[-1]["continues"] = True


@case(*["deploy"] * 3, *["rolling_restart"] * 3)
def a_deploy_beside_a_rolling_restart(h: History, c: str) -> None:
    for n, name in enumerate("abc"):
        h.outage(c, name, 1_000 + 60 * n, 1_040 + 60 * n, "broken", incarnation="i2", broker_version="7.2")
    for n, name in enumerate("xyz"):
        h.outage(c, name, 1_020 + 60 * n, 1_055 + 60 * n, "refused", incarnation="i2")


@case("process_died", "process_died")
def the_next_outage_begins_before_the_last_has_settled(h: History, c: str) -> None:
    h.outage(c, "a", 1_000, 1_001, "refused", incarnation="i2")
    h.outage(c, "a", 1_003, 1_004, "refused", before="i2", incarnation="i3")


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> Found:
    history = History()
    for name, (add, _) in CASES.items():
        add(history, name)
    return computed(spark, history)


@pytest.mark.parametrize("name", CASES)
def test_the_cause_follows_from_the_evidence(found: Found, name: str) -> None:
    assert sorted(found.of(name)) == sorted(CASES[name][1])


def test_the_evidence_is_shown_with_the_cause(found: Found) -> None:
    assert found.evidence("a_refused_probe_and_a_new_process_afterwards") == [
        "probe refused (redis 10.0.0.1:6379: Connection refused.), new process afterwards"
    ]
    assert found.evidence("a_broken_stream_and_the_same_process") == [
        "stream broken, no failed probe, same process afterwards"
    ]
    (hung,) = found.evidence("silence_on_an_open_stream_and_the_same_process")
    assert hung.startswith("no heartbeats although its stream was open: its agent hung, or its machine was frozen or")
    assert hung.endswith("cut off, same process afterwards")
    (hung,) = found.evidence("a_rocketmq_broker_that_hangs")
    assert hung.startswith("no heartbeats although its connection was open: its process hung, or its machine was")
    assert hung.endswith("frozen or cut off, process afterwards unknown")
    assert set(found.evidence("several_silent_together_on_one_host_with_new_processes")) == {
        "stream broken, no failed probe, 3 brokers silent together on host h1, new process afterwards"
    }
    assert found.evidence("another_version_afterwards") == [
        "stream broken, no failed probe, version 7.1 to 7.2, new process afterwards"
    ]
    assert found.evidence("a_refused_probe_without_an_incarnation_afterwards") == [
        "probe refused (redis 10.0.0.1:6379: Connection refused.), process afterwards unknown"
    ]
    assert found.evidence("kills_one_after_another")[0].endswith(", part of a rolling restart")


def test_an_incident_has_the_cause_of_most_of_its_outages(found: Found) -> None:
    causes = {row["incident_id"].split("/")[0]: row["cause"] for row in found.incidents}

    assert causes == {
        "several_silent_together_with_the_same_processes": "network",
        "an_outage_that_was_cut_and_continued_has_one_cause": "network",
        "a_host_that_loses_its_network_is_not_lost": "network",
        "several_silent_on_open_streams_together": "network",
        "several_silent_together_on_one_host_with_new_processes": "host_lost",
        "of_several_silent_together_the_one_alone_on_its_host_is_not_known": "host_lost",
        "a_broker_that_is_restarted_while_its_host_is_cut_off": "network",
        "several_silent_together_without_host_labels": "unknown",
        "an_empty_incarnation_proves_nothing": "unknown",
        "several_processes_that_die_at_the_same_moment": "process_died",
    }


def test_rolling_restarts_are_named_with_what_counts_against_their_brokers(found: Found) -> None:
    by_cluster = {row["cluster"]: row for row in found.rolling}

    assert [row["cluster"] for row in found.rolling].count("a_deploy_beside_a_rolling_restart") == 2
    assert set(by_cluster) == {
        "a_deploy_beside_a_rolling_restart",
        "kills_one_after_another",
        "a_deploy_broker_by_broker",
        "a_rolling_restart_in_which_another_broker_goes",
    }
    kills, deploy = by_cluster["kills_one_after_another"], by_cluster["a_deploy_broker_by_broker"]
    assert (kills["brokers"], kills["unplanned"], kills["version_after"], kills["down_seconds"]) == (3, 3, None, 45.0)
    assert (deploy["brokers"], deploy["unplanned"], deploy["down_seconds"]) == (4, 3, 90.0)
    assert (deploy["version_before"], deploy["version_after"]) == ("7.1", "7.2")
    assert [member["broker_name"] for member in deploy["members"]] == list("abcd")


@pytest.mark.slow
def test_an_outage_over_midnight_has_its_cause_on_the_day_it_ends_also_night_by_night(spark: SparkSession) -> None:
    history = History()
    for name in "abc":
        history.outage("c", name, 86_300, 86_460, "broken")
    history.outage("alone", "x", 86_300, 90_000, "refused", incarnation="i2")
    both = computed(spark, history, days=2)

    first = History(history.events, [row for row in history.intervals if row["dt"] == FIRST], history.places)
    first.events = [row for row in history.events if row["event_at"] < moment(86_400)]
    evening = computed(spark, first)
    second = History(history.events, [row for row in history.intervals if row["dt"] > FIRST], history.places)
    yesterday = spark.createDataFrame(
        [tuple(row[name] for name in OUTAGE_CAUSES.columns) for row in evening.causes], OUTAGE_CAUSES.schema
    )
    morning = computed_from_second_day(spark, second, yesterday)

    assert [row["cause"] for row in both.causes] == ["unknown"] * 4 + ["process_died", *["network"] * 3]
    assert evening.causes == [row for row in both.causes if row["dt"] == FIRST]
    assert morning.causes == [row for row in both.causes if row["dt"] > FIRST]
    assert "not recovered by the end of the day" in evening.causes[0]["evidence"]


def computed_from_second_day(spark: SparkSession, history: History, yesterday: DataFrame) -> Found:
    late = [row for row in history.events if row["event_at"] >= moment(86_400 - 300)]
    events = event_rows(spark, late)
    intervals = spark.createDataFrame(
        [tuple(row[name] for name in INTERVALS.fieldNames()) for row in history.intervals], INTERVALS
    )
    places = spark.createDataFrame([], PLACES)
    near = near_rows(fact_rows(events), downs(intervals))
    none = members(outages(intervals), places, parameters=GIVEN)
    rows = outages_with_facts(
        intervals, outage_signals(near), recovery_facts(near), none, yesterday, first_day=FIRST + timedelta(days=1)
    ).localCheckpoint()
    causes = outage_causes(rows, rolling_outages(rows, parameters=GIVEN))
    return Found([row.asDict() for row in causes.orderBy("dt", "cluster", "start_at", "broker_name").collect()], [], [])


def test_a_guards_period_is_one_row_per_day_with_what_it_counted_and_kept(spark: SparkSession) -> None:
    history = History()
    on = {"mode": "AUTO", "lost": 3, "baseline": 4, "up": 1}
    for at, event, reason, detail in (
        (1_000, "GUARD_ON", "SHARE", on),
        (1_700, "GUARD_ON", "LIMIT", on | {"lost": 4, "active_seconds": 700}),
        (1_800, "GUARD_OFF", "SHARE", on | {"lost": 0, "active_seconds": 800}),
        (86_300, "GUARD_ON", "SHARE", {"mode": "AUTO", "lost": 5, "lived": 9}),
        (86_500, "GUARD_OFF", "SHARE", {"mode": "AUTO", "lost": 0}),
    ):
        history.row("c", "", at, event, reason, detail=detail, broker_name=None, broker_id=None)
    for at, name in ((1_000, "a"), (1_002, "b"), (1_500, "b"), (1_900, "x"), (86_420, "d")):
        history.row("c", name, at, "PROTECTED", "SILENCE")
    events = event_rows(spark, history.events)
    window = struct(node=TEXT, boot_id=TEXT, open=BOOL, to_at=TIME)
    windows = spark.createDataFrame([("n", "b", True, moment(2 * 86_400))], window)
    none = spark.createDataFrame([], GUARD_PERIODS.schema)
    span = {"first_day": FIRST, "last_day": FIRST + timedelta(days=1)}
    rows = guard_periods(events, windows, none, **span).orderBy("dt", "from_at")
    micros = rows.withColumns({name: unix_micros(name) for name in ("from_at", "to_at")})
    found = [row.asDict() for row in micros.collect()]

    def us(seconds: float) -> int:
        return round(moment(seconds).timestamp() * 1e6)

    names = ("from_at", "to_at", "open", "lost", "baseline", "up", "kept", "over_limit")
    assert [tuple(row[name] for name in names) for row in found] == [
        (us(1_000), us(1_800), False, 3, 4, 1, 2, True),
        (us(86_300), us(86_400), True, 5, 9, None, 0, False),
        (us(86_300), us(86_500), False, 5, 9, None, 1, False),
    ]
