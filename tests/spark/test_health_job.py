"""The stages of health alone: nights and one pass give the same tables, and so do rows in another order."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from pointsman_report.io import History, Warehouse
from pointsman_report.jobs.history_reading import Work
from pointsman_report.jobs.pipeline import run_stages
from pointsman_report.jobs.stages import HEALTH
from pointsman_report.parameters import HealthParameters, Parameters
from pointsman_report.schemas.health_tables import TABLES
from pointsman_report.schemas.liveness_tables import OBSERVER_CLOCKS
from pointsman_report.schemas.table_types import Table
from pointsman_report.schemas.topic_tables import TOPIC_INTERVALS
from tests.spark.histories import MIDNIGHT, NameServer, Row, broker, moment
from tests.spark.storybook import Stories, book
from tests.spark.tables import DayRunner
from tests.spark.test_health import availability, random_availability
from tests.spark.test_queues import of_group, random_report, report
from tests.spark.typed import registration_events, shuffled

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

DAYS = 3
FIRST = MIDNIGHT.date()
LAST = FIRST + timedelta(days=DAYS - 1)
CLUSTERS = ("health-1", "health-2", "health-3")


def world(seed: int) -> list[Row]:
    """Three days of three name servers, with rows that only health reads, many of them around midnight."""
    rng = random.Random(seed)
    servers = [NameServer(node=f"health-ns{n}:9876") for n in range(3)]
    for day in range(DAYS):
        for name in ("a", "b", "c"):
            about = broker(name, cluster=rng.choice(CLUSTERS[:2]), broker_id=rng.choice((0, 0, 1)))
            for at in sorted(rng.choice((1, 30_000, 86_399.5)) + 0.1 * n for n in range(rng.randint(1, 8))):
                detail = random_report(rng) | {"top_put_rates": [], "lag": rng.randint(0, 10**6)}
                buckets = {rng.choice(("22627", "32000", "45255", "inf")): rng.randint(1, 20) for _ in range(3)}
                beaten = {
                    "count": 3,
                    "min_ms": rng.randint(1, 9),
                    "max_ms": 10**6,
                    "buckets": buckets,
                    "clock_ahead_ms": rng.randint(-9, 9),
                }
                for server in rng.sample(servers, rng.randint(1, 3)):
                    when = moment(min(at + rng.random() / 10, 86_399.999), day=day)
                    server.say("QUEUE_STATS", when, about, detail=detail)
                    server.say("HEARTBEATS", when, about, detail=beaten)
                    server.say("LATE_HEARTBEAT", when, about, interval_ms=46_000)
                    server.say(
                        "CHECKPOINT", when, about, detail={"heartbeat_interval_ms": rng.choice((10, 30)) * 1_000}
                    )
        for n in (0, 1):
            group = of_group("g", "t", queues=2, lag=9_000 * n, highest=5_000 * n, members=1)
            reported_at = moment(40_000 + n, day=day)
            servers[0].say(
                "QUEUE_STATS", reported_at, broker("f", cluster=CLUSTERS[2]), detail=report(top_groups=[group])
            )
    return [row for server in servers for row in server.rows]


book.add_rows("health", lambda: world(1))


@dataclass(frozen=True)
class Given:
    """The staged output of the earlier stages."""

    events: DataFrame
    available: DataFrame
    registered: DataFrame
    clocks: DataFrame


@pytest.fixture(scope="module")
def given(spark: SparkSession) -> Given:
    rows = random_availability(3, DAYS)
    days = [FIRST + timedelta(days=n) for n in range(DAYS)]
    topics = [(day, "c1", "a", 0, "orders", 4, 4, 6, None, None, True) for day in days]
    events = registration_events(spark, world(1))
    clocks = [(day, "ns1:9876", -0.5, 9, 0.0) for day in days]
    return Given(
        events,
        availability(spark, rows),
        spark.createDataFrame(topics, TOPIC_INTERVALS.schema),
        spark.createDataFrame(clocks, OBSERVER_CLOCKS.schema),
    )


def compute(spark: SparkSession, path: Path, given: Given, first_day: date, last_day: date) -> None:
    warehouse = Warehouse(spark, str(path))
    for table, rows in (
        ("registration_events", given.events),
        ("availability", given.available),
        ("topic_intervals", given.registered),
        ("observer_clocks", given.clocks),
    ):
        warehouse.stage(table, rows.filter(rows.dt.between(first_day, last_day)))
    parameters = Parameters(health=HealthParameters(slo_days=2))
    work = Work(History(spark, []), warehouse, first_day, last_day, parameters, lambda _: None)
    run_stages((HEALTH,), work)
    warehouse.publish(first_day=first_day, last_day=last_day)


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_every_day_of_the_shared_history_has_its_rows_once(stories: Stories, table: Table) -> None:
    rows = stories.tables[table]
    keys = [(row["dt"], *(row[key] for key in table.keys)) for row in rows]

    assert {row["dt"] for row in rows} == {FIRST + timedelta(days=n) for n in range(DAYS)}
    assert len(keys) == len(set(keys))


@pytest.mark.slow
def test_nights_and_one_pass_and_other_orders_give_the_same_tables(
    spark: SparkSession, run_days: DayRunner, given: Given, tmp_path: Path
) -> None:
    compute(spark, tmp_path / "one_pass", given, FIRST, LAST)
    for n in range(DAYS):
        day = FIRST + timedelta(days=n)
        compute(spark, tmp_path / "nights", given, day, day)
    other = Given(shuffled(given.events, seed=1), shuffled(given.available, seed=2), given.registered, given.clocks)
    compute(spark, tmp_path / "reordered", other, FIRST, LAST)

    for table in TABLES:
        rows = run_days.rows(tmp_path / "one_pass", table, FIRST, LAST)
        assert rows, table
        assert {row["dt"] for row in rows} == {FIRST + timedelta(days=n) for n in range(DAYS)}, table
        keys = [(row["dt"], *(row[key] for key in table.keys)) for row in rows]
        assert len(keys) == len(set(keys)), table
        assert run_days.rows(tmp_path / "nights", table, FIRST, LAST) == rows, table
        assert run_days.rows(tmp_path / "reordered", table, FIRST, LAST) == rows, table


def test_a_day_without_anything_has_no_rows_and_fails_nothing(
    spark: SparkSession, run_days: DayRunner, given: Given, tmp_path: Path
) -> None:
    nothing = Given(*(table.limit(0) for table in (given.events, given.available, given.registered, given.clocks)))
    compute(spark, tmp_path / "nothing", nothing, FIRST, FIRST)

    for table in TABLES:
        assert run_days.rows(tmp_path / "nothing", table, FIRST, FIRST) == []
