"""Nagios' percentage against samples taken one by one, and known values of its weights."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import date, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit

from pointsman_report.parameters import RankingParameters
from pointsman_report.schemas.table_types import BOOL, DAY, LONG, TEXT, TIME, struct
from pointsman_report.transforms.broker_intervals import day_sums
from pointsman_report.transforms.flap_ranking import state_changes
from tests.spark.histories import MIDNIGHT, moment

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

INTERVALS = struct(
    dt=DAY, cluster=TEXT, broker_name=TEXT, broker_id=LONG, state=TEXT, planned=BOOL, start_at=TIME, end_at=TIME,
    open=BOOL,
)  # fmt: skip
FIRST, LAST = MIDNIGHT.date(), MIDNIGHT.date() + timedelta(days=1)
Stretch = tuple[str, float, float]
"""State (up, down, left, or none: no monitoring), from and to in seconds from the first day's midnight."""


def rows_of(name: str, stretches: list[Stretch]) -> list[tuple[Any, ...]]:
    """As the table has them: under the day that they ended on, and cut under each that they outlasted."""
    rows = []
    for state, begin, end in stretches:
        if state == "none":
            continue
        kind = ("down", True) if state == "left" else (state, False)
        for day in range(int(begin // 86_400), int(end // 86_400) + 1):
            is_open = end >= 86_400 * (day + 1)
            until = min(end, 86_400 * (day + 1))
            rows.append((FIRST + timedelta(days=day), "c", name, 0, *kind, moment(begin), moment(until), is_open))
    return rows


def naive(stretches: list[Stretch], day: int, grid: int) -> float:
    """Take the samples of the day and the twenty before it, and weigh each window of 21."""
    at_first = 86_400 * day - 20 * grid
    samples = []
    for at in range(at_first, 86_400 * (day + 1), grid):
        # A state that ended before the first of these samples is unknown.
        before = [state for state, begin, end in stretches if begin <= at and end >= at_first and state != "none"]
        samples.append(bool(before) and before[-1] == "down")
    highest = 0.0
    for newest in range(20, len(samples)):
        window = samples[newest - 20 : newest + 1]
        changed = [step for step in range(1, 21) if window[step] != window[step - 1]]
        highest = max(highest, sum(0.75 + (step - 1) * 0.5 / 19 for step in changed) / 20 * 100)
    return highest


def measured(
    spark: SparkSession, recorded: dict[str, list[Stretch]], *, grid: int = 300
) -> dict[tuple[date, str], float]:
    rows = [row for name, stretches in recorded.items() for row in rows_of(name, stretches)]
    found = state_changes(
        spark.createDataFrame(rows, INTERVALS),
        first_day=FIRST,
        last_day=LAST,
        parameters=RankingParameters(grid_seconds=grid),
    )
    return {(row.dt, row.broker_name): row.percent_state_change for row in found.collect()}


def random_story(rng: random.Random) -> list[Stretch]:
    stretches, at, last = [], -86_400.0, ""
    while at < 2 * 86_400:
        state = rng.choice([state for state in ("up", "down", "down", "left", "none") if state != last])
        end = at + rng.choice((1, 60, 300, 600, 900, 1_500, 40_000)) * rng.choice((1, 1, 1.5))
        stretches.append((state, at, end))
        at, last = end, state
    return [(state, begin, min(end, 2 * 86_400.0)) for state, begin, end in stretches]


@pytest.mark.parametrize("grid", [300, 1_000])
def test_percentages_of_random_days_are_those_of_samples_taken_one_by_one(spark: SparkSession, grid: int) -> None:
    rng = random.Random(grid)
    recorded = {f"b{n}": random_story(rng) for n in range(40)}
    found: dict[tuple[date, str], float] = defaultdict(float, measured(spark, recorded, grid=grid))

    for name, stretches in recorded.items():
        for day in (0, 1):
            expected = pytest.approx(naive(stretches, day, grid), abs=1e-9)
            assert found[FIRST + timedelta(days=day), name] == expected, (name, day)


def test_four_changes_just_before_are_over_twenty_percent_and_hidden_outages_are_none(spark: SparkSession) -> None:
    flaps = [("up", -86_400.0, 43_000.0), ("down", 43_000.0, 43_300.0), ("up", 43_300.0, 43_600.0)]
    flaps += [("down", 43_600.0, 43_900.0), ("up", 43_900.0, 172_800.0)]
    hidden = [("up", -86_400.0, 43_210.0), ("down", 43_210.0, 43_450.0), ("up", 43_450.0, 172_800.0)]
    found = measured(spark, {"flaps": flaps, "hidden": hidden})

    assert found == {(FIRST, "flaps"): pytest.approx(24.2, abs=0.05)}


def test_the_longest_stable_time_is_the_days_part_of_the_longest_interval(spark: SparkSession) -> None:
    recorded = rows_of("b", [("up", -5_000.0, 10_000.0), ("down", 10_000.0, 22_000.0), ("up", 22_000.0, 32_000.0)])
    intervals = spark.createDataFrame(recorded, INTERVALS).withColumn("continues", lit(False))  # a column
    found = day_sums(intervals).filter(f"dt = '{FIRST}'").collect()

    assert [row.longest_stable_seconds for row in found] == [12_000.0]
    assert [(row.watched_seconds, row.down_seconds, row.outages) for row in found] == [(32_000.0, 12_000.0, 1)]
