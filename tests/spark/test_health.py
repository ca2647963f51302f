"""Advice about queues, and clusters against their objective."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from datetime import date, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from pointsman_report.parameters import HealthParameters
from pointsman_report.schemas.liveness_tables import AVAILABILITY
from pointsman_report.schemas.topic_tables import TOPIC_INTERVALS
from pointsman_report.transforms import poisson
from pointsman_report.transforms.cluster_health import cluster_health
from pointsman_report.transforms.hot_queues import hot_groups, key_skew, too_many_queues
from pointsman_report.transforms.queue_reports import group_lag, queue_reports, topic_load
from tests.spark.histories import MIDNIGHT, NameServer, Row, broker, moment
from tests.spark.test_queues import absurd_reports, of_group, of_topic, report
from tests.spark.typed import registration_events, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

DAY = MIDNIGHT.date()
OF_GROUPS = ("top_groups", "top_lags")


def puts(topic: str, queue_id: int, rate: float) -> Row:
    return {"topic": topic, "queue_id": queue_id, "put_rate": rate, "depth": 0}


def lags(group: str, topic: str, queue_id: int, lag: int) -> Row:
    return {"group": group, "topic": topic, "queue_id": queue_id, "lag": lag, "put_rate": 0.0}


def lagging(*, lag: int, highest: int, members: int, queues: int = 4, topic: str = "orders") -> Row:
    """A report of one group, whose worst queue is 2."""
    return report(
        top_groups=[of_group("billing", topic, queues=queues, lag=lag, highest=highest, members=members)],
        top_lags=[lags("billing", topic, 2, highest), lags("billing", topic, 0, lag - highest)] if lag else [],
    )


def filled(*, rate: float, highest: float, queues: int = 8, idle: int = 0, topic: str = "orders") -> Row:
    """A report of one topic, whose fullest queue is 3."""
    return report(
        top_topics=[of_topic(topic, queues=queues, rate=rate, highest=highest, idle=idle)],
        top_put_rates=[puts(topic, 3, highest), puts(topic, 0, (rate - highest) / 7)],
    )


DAYS: dict[str, list[Row]] = {
    "one_large_key": [filled(rate=20.0, highest=12.5)] * 3,
    "even": [filled(rate=20.0, highest=3.0)] * 3,
    "uneven_but_slow": [filled(rate=0.9, highest=0.8)] * 3,
    "delays_of_a_retry_topic": [filled(rate=20.0, highest=18.0, topic="%RETRY%billing")] * 3,
    "hardly_used": [filled(rate=0.01, highest=0.01, queues=64, idle=62)] * 3,
    "used_by_day": [filled(rate=0.01, highest=0.01, queues=64, idle=n) for n in (64, 20, 62)],
    "unused": [filled(rate=0.0, highest=0.0, queues=64, idle=64)] * 3,
    "too_slow": [lagging(lag=lag, highest=lag // 4, members=2) for lag in (0, 4_000, 8_000)],
    "too_few": [lagging(lag=lag, highest=lag // 4, members=4) for lag in (0, 4_000, 8_000)],
    "stuck": [lagging(lag=lag, highest=lag - 100 * bool(lag), members=4) for lag in (0, 4_000, 8_000)],
    "no_members": [lagging(lag=lag, highest=lag // 4, members=0) for lag in (0, 4_000, 8_000)],
    "behind_a_large_key": [
        filled(rate=20.0, highest=12.5) | {name: lagging(lag=lag, highest=lag, members=4)[name] for name in OF_GROUPS}
        for lag in (0, 4_000, 8_000)
    ],
    "catches_up": [lagging(lag=lag, highest=lag // 4, members=4) for lag in (0, 90_000, 8_000)],
    "was_behind_before": [lagging(lag=lag, highest=lag // 4, members=4) for lag in (8_000, 8_100, 8_900)],
    "behind_a_little": [lagging(lag=lag, highest=lag // 4, members=4) for lag in (0, 400, 900)],
    "retries_wait": [lagging(lag=lag, highest=lag, members=4, topic="%RETRY%billing") for lag in (0, 4_000, 8_000)],
    "idle_members": [lagging(lag=0, highest=0, members=12, queues=8)] * 3,
    "idle_in_one_topic": [
        report(
            top_groups=[
                of_group("billing", "orders", queues=4, lag=0, highest=0, members=8),
                of_group("billing", "bills", queues=8, lag=0, highest=0, members=8),
            ]
        )
    ],
    "queues_elsewhere": [lagging(lag=0, highest=0, members=12, queues=8)] * 3,
    "rolled_out": [lagging(lag=0, highest=0, members=members, queues=8) for members in (8, 16, 8)],
}  # fmt: skip
"""Each is a separate cluster, with the reports of its broker a."""


@pytest.fixture(scope="module")
def advice(spark: SparkSession) -> dict[str, list[Row]]:
    server = NameServer()
    for cluster, details in DAYS.items():
        for n, detail in enumerate(details):
            server.say("QUEUE_STATS", moment(600 * n), broker("a", cluster=cluster), detail=detail)
    registered = [(DAY, "queues_elsewhere", name, 0, "orders", 8, 8, 6, None, None, True) for name in ("a", "b")]
    events = registration_events(spark, server.rows + absurd_reports())
    return _advice(events, spark.createDataFrame(registered, TOPIC_INTERVALS.schema))


def _advice(events: DataFrame, intervals: DataFrame) -> dict[str, list[Row]]:
    reports, parameters = queue_reports(events).cache(), HealthParameters()
    topics, groups = topic_load(reports).cache(), group_lag(reports).cache()
    tables = (
        key_skew(topics, parameters=parameters),
        too_many_queues(topics, parameters=parameters),
        hot_groups(groups, topics, intervals, parameters=parameters),
    )
    found: dict[str, list[Row]] = defaultdict(list)
    for table in tables:
        for row in rows_of(table):
            found[row["cluster"]].append(row)
    return found


def test_only_problems_that_can_be_fixed_are_findings(advice: dict[str, list[Row]]) -> None:
    assert {cluster: [row["kind"] for row in rows] for cluster, rows in advice.items()} == {
        "one_large_key": ["key_skew"],
        "hardly_used": ["too_many_queues"],
        "too_slow": ["falling_behind"],
        "too_few": ["too_few_queues"],
        "stuck": ["falling_behind"],
        "no_members": ["falling_behind"],
        "behind_a_large_key": ["key_skew", "falling_behind"],
        "idle_members": ["idle_members"],
    }


def test_a_hot_queue_is_named_with_the_sub_shards_that_cure_it(advice: dict[str, list[Row]]) -> None:
    (row,) = advice["one_large_key"]

    assert (row["topic"], row["broker_name"], row["queue_id"], row["value"]) == ("orders", "a", 3, 5.0)
    assert row["says"] == (
        "queue 3 of topic orders on a gets 12.5 of 20.0 messages per second, 5.0 times the mean of the 8 queues"
    )
    assert "SubShards({key: 5})" in row["cure"]


def test_queues_that_never_get_anything_are_counted(advice: dict[str, list[Row]]) -> None:
    (row,) = advice["hardly_used"]

    assert row["says"].startswith("62 of 64 queues of topic orders got no message all day")
    assert "write_queues" in row["cure"]


@pytest.mark.parametrize(
    ("story", "cure", "queue_id"),
    [
        ("too_slow", "start more members (up to 4", None),
        ("too_few", "add queues first, then members", None),
        ("stuck", "max_reconsume_times", 2),
        ("no_members", "has no members: start its consumers", None),
    ],
)
def test_a_group_that_falls_behind_gets_advice(
    advice: dict[str, list[Row]], story: str, cure: str, queue_id: int | None
) -> None:
    (row,) = advice[story]

    assert row["says"].startswith("group billing lags by 8000 messages in topic orders (0 in the day's first reports)")
    assert cure in row["cure"]
    assert row["queue_id"] == queue_id


def test_the_advice_for_lag_in_the_queue_of_a_hot_key_names_the_key(advice: dict[str, list[Row]]) -> None:
    behind = advice["behind_a_large_key"][1]

    assert behind["says"].endswith("8000 of them in queue 2 on a")
    assert "SubShards" in behind["cure"]


def test_members_without_a_queue_are_counted(advice: dict[str, list[Row]]) -> None:
    (row,) = advice["idle_members"]

    assert row["says"] == "4 of 12 members of group billing have no queue of topic orders (8 queues)"
    assert (row["value"], row["limit"]) == (12.0, 8.0)


def exact_limits(events: int) -> tuple[float, float]:
    """The 95 % interval of a Poisson count, by bisection of its sum."""

    def at_most(count: int, mean: float) -> float:
        return math.fsum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count + 1))

    def solve(wanted: float, count: int) -> float:
        low, high = 1e-9, 10.0 * count + 20.0
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if at_most(count, middle) > wanted else (low, middle)
        return low

    if not events:
        return 0.0, solve(0.05, 0)
    return solve(0.975, events - 1), solve(0.025, events)


def test_limits_of_a_rate_are_exact_to_one_in_two_hundred(spark: SparkSession) -> None:
    counts = [*range(40), 60, 100, 400]
    table = spark.createDataFrame([(count,) for count in counts], "events bigint")
    measured = rows_of(
        table.select("events", poisson.low(col("events")).alias("low"), poisson.high(col("events")).alias("high"))
    )

    for row in measured:
        assert (row["low"], row["high"]) == pytest.approx(exact_limits(row["events"]), rel=0.005)


def availability(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    return spark.createDataFrame([tuple(row.get(f) for f in AVAILABILITY.columns) for row in rows], AVAILABILITY.schema)


def random_availability(seed: int, days: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    rows = []
    for n in range(days):
        for cluster in ("c1", "c2"):
            if rng.random() < 0.2:
                continue
            for name in range(rng.randint(1, 5)):
                down, repaired = rng.choice((0.0, 0.0, rng.uniform(0, 9_000))), rng.randint(0, 2)
                row = {"dt": DAY + timedelta(days=n), "cluster": cluster, "broker_name": f"b{name}", "broker_id": 0}
                rows.append(
                    row
                    | {"up_seconds": 86_400 - down, "down_seconds": down, "planned_seconds": rng.choice((0.0, 60.5))}
                    | {"outages": rng.randint(0, 3), "repaired": repaired, "repair_seconds": repaired * 12.25}
                )
    return rows


def test_a_clusters_day_and_budget_are_those_of_a_plain_calculation(spark: SparkSession) -> None:
    rows, first = random_availability(5, 12), DAY + timedelta(days=6)
    parameters = HealthParameters(slo_days=5, slo_by_cluster={"c2": 0.9})
    table = cluster_health(availability(spark, rows), first_day=first, parameters=parameters)
    measured = {(row["dt"], row["cluster"]): row for row in rows_of(table)}
    wanted = {(row["dt"], row["cluster"]) for row in rows if row["dt"] >= first}

    assert set(measured) == wanted
    for (day, cluster), row in measured.items():
        own = [each for each in rows if each["dt"] == day and each["cluster"] == cluster]
        window = [r for r in rows if r["cluster"] == cluster and day - timedelta(days=4) <= r["dt"] <= day]
        up, down, outages = (sum(r[name] for r in own) for name in ("up_seconds", "down_seconds", "outages"))
        slo_up, slo_down = (sum(r[name] for r in window) for name in ("up_seconds", "down_seconds"))
        slo, broker_days = 0.9 if cluster == "c2" else 0.999, (up + down) / 86_400
        repaired, repair = (sum(r[name] for r in own) for name in ("repaired", "repair_seconds"))
        low, high = exact_limits(outages)
        assert row["brokers"] == len(own)
        assert row["slo_days"] == len({r["dt"] for r in window})
        assert (row["outages"], row["repaired"], row["slo"]) == (outages, repaired, slo)
        expected = {
            "availability": up / (up + down),
            "mttr_seconds": repair / repaired if repaired else None,
            "mtbf_seconds": up / outages if outages else None,
            "outages_per_broker_day": outages / broker_days,
            "slo_up_seconds": slo_up,
            "budget_seconds": (1 - slo) * (slo_up + slo_down),
            "budget_left_seconds": (1 - slo) * (slo_up + slo_down) - slo_down,
        }
        assert {name: row[name] for name in expected} == pytest.approx(expected, rel=1e-6, abs=1e-3)
        limits = (row["outages_per_broker_day_low"] * broker_days, row["outages_per_broker_day_high"] * broker_days)
        assert limits == pytest.approx((low, high), rel=0.005)


def test_a_cluster_without_monitoring_has_no_availability(spark: SparkSession) -> None:
    row = {"dt": DAY, "cluster": "c", "broker_name": "b", "broker_id": 0, "outages": 0, "repaired": 0}
    seconds = dict.fromkeys(("up_seconds", "down_seconds", "planned_seconds", "repair_seconds"), 0.0)
    table = cluster_health(availability(spark, [row | seconds]), first_day=DAY, parameters=HealthParameters())
    (health,) = rows_of(table)

    assert (health["availability"], health["mtbf_seconds"], health["outages_per_broker_day_high"]) == (None, None, None)
    assert (health["budget_seconds"], health["budget_left_seconds"]) == (0.0, 0.0)


def test_days_before_the_window_of_the_objective_do_not_count(spark: SparkSession) -> None:
    rows = [
        {"dt": date(2026, 1, n), "cluster": "c", "broker_name": "b", "broker_id": 0, "up_seconds": 80_000.0 + n}
        | {"down_seconds": float(n), "planned_seconds": 0.0, "outages": 0, "repaired": 0, "repair_seconds": 0.0}
        for n in (1, 2, 4)
    ]
    table = cluster_health(
        availability(spark, rows), first_day=date(2026, 1, 4), parameters=HealthParameters(slo_days=3)
    )
    (health,) = rows_of(table)

    assert (health["slo_days"], health["slo_down_seconds"]) == (2, 6.0)
