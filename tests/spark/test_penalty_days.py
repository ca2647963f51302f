"""Penalty and flag from day to day, also over days without charges: against plain Python, and night by night."""

from __future__ import annotations

import random
from datetime import date, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import col, explode, struct

from pointsman_report.parameters import FlapParameters
from pointsman_report.schemas import INSTANCE
from pointsman_report.transforms import utc_days
from pointsman_report.transforms.flap_penalty import (
    carried_penalty,
    charged_days,
    flagged_before,
    flags_of_day,
    marks,
    penalties,
    penalties_of_day,
    penalty_before,
    running_sums,
)
from pointsman_report.transforms.known_days import spans

pytestmark = pytest.mark.spark

FIRST, DAYS, BROKERS = date(2026, 3, 1), 9, 12
DAY_US, EPOCH = 86_400_000_000, date(1970, 1, 1)
CEILING = 3_000.0
Charges = list[tuple[int, int, float]]
"""Of one broker: number of the day, microsecond of the day, points."""


def charged(seed: int) -> dict[str, Charges]:
    """Most brokers have few days with charges, some have none, one has many on each."""
    rng = random.Random(seed)
    counts = [0, 0, 40, *(rng.randrange(1, 6) for _ in range(BROKERS - 3))]
    return {
        f"broker-{number}": sorted(
            (rng.randrange(DAYS), rng.randrange(DAY_US), float(rng.choice((100, 500, 1_000)))) for _ in range(count)
        )
        for number, count in enumerate(counts)
    }


Day = tuple[float, float, bool, bool]
"""Penalty and flag, each at the start and at the end of a day."""


def plain(charges: Charges, parameters: FlapParameters, *, before: float, flag: bool) -> list[Day]:
    """Charge by charge."""
    half_life_us = parameters.half_life_minutes * 60e6
    penalty, found = before, []
    for number in range(DAYS):
        start, at, flag_at_start = penalty, 0, flag
        for _, charged_at, points in (charge for charge in charges if charge[0] == number):
            decayed = penalty * 0.5 ** ((charged_at - at) / half_life_us)
            penalty, at = min(CEILING, decayed + points), charged_at
            flag = penalty > parameters.suppress_above or (flag and decayed >= parameters.reuse_below)
        penalty *= 0.5 ** ((DAY_US - at) / half_life_us)
        flag = flag and penalty >= parameters.reuse_below
        found.append((start, penalty, flag_at_start, flag))
    return found


def day(number: int) -> date:
    return FIRST + timedelta(days=number)


def computed(
    spark: SparkSession,
    brokers: dict[str, Charges],
    before: dict[str, tuple[float, bool]],
    parameters: FlapParameters,
    *,
    first: int,
    last: int,
) -> list[Row]:
    def rows(values: list[tuple[Any, ...]], columns: str) -> DataFrame:
        return spark.createDataFrame(values, columns)

    instance = "cluster string, broker_name string, broker_id long"
    numbers = range(first, last + 1)
    charges = rows(
        [
            (day(number), "c", name, 0, (day(number) - EPOCH).days * DAY_US + at, "DOWN", points)
            for name, own in brokers.items()
            for number, at, points in own
            if number in numbers
        ],
        f"dt date, {instance}, at long, cause string, points double",
    )
    known = rows([(day(first), "c", name, 0) for name in brokers], f"dt date, {instance}")
    yesterday = rows(
        [("c", name, 0, *each) for name, each in before.items()], f"{instance}, penalty double, flagged boolean"
    )
    sums = running_sums(charges, parameters=parameters)
    known_from = known.withColumnRenamed("dt", "known_from")
    charged_on = charged_days(sums, known_from, yesterday, first_day=day(first), parameters=parameters)
    marked = marks(penalties(sums, charged_on), parameters=parameters)
    carried = yesterday.select(
        *INSTANCE, carried_penalty(parameters).alias("carried_penalty"), col("flagged").alias("carried_flagged")
    )
    held = known.join(carried, on=list(INSTANCE), how="left").select(
        "dt", *INSTANCE, struct("carried_penalty", "carried_flagged").alias("held")
    )
    of_spans = penalty_before(spans(held, charged_on, marked, last_day=day(last)), first_day=day(first))
    found = flagged_before(of_spans, parameters=parameters)
    assert found.count() <= BROKERS + 2 * charged_on.count()
    each_day = explode(utc_days.days_between(found["dt"], found["last_on"])).alias("day")
    days = found.select("*", each_day).withColumnRenamed("dt", "first_on").withColumnRenamed("day", "dt")
    return days.withColumns(penalties_of_day(parameters)).withColumns(flags_of_day(parameters)).collect()


@pytest.mark.parametrize("half_life_minutes", [15, 1_000, 20_000])
def test_a_penalty_decays_over_days_without_charges_in_one_pass_and_night_by_night(
    spark: SparkSession, half_life_minutes: int
) -> None:
    parameters = FlapParameters(
        half_life_minutes=half_life_minutes, ceiling=CEILING, suppress_above=900.0, reuse_below=300.0
    )
    brokers = charged(half_life_minutes)
    # The last one's is above today's ceiling: it is as if it had been so before.
    before = {"broker-1": (700.0, True), "broker-2": (2_000.0, False), "broker-3": (5_000.0, True)}

    def of_broker(name: str, charges: Charges) -> list[Day]:
        penalty, flag = before.get(name, (0.0, False))
        return plain(charges, parameters, before=min(CEILING, penalty), flag=flag)

    expected = {
        (name, day(number)): each
        for name, charges in brokers.items()
        for number, each in enumerate(of_broker(name, charges))
    }
    counts = {
        (name, day(number)): sum(charge[0] == number for charge in charges)
        for name, charges in brokers.items()
        for number in range(DAYS)
    }

    in_one_pass = computed(spark, brokers, before, parameters, first=0, last=DAYS - 1)

    nightly: list[Row] = []
    state = before
    for number in range(DAYS):
        night = computed(spark, brokers, state, parameters, first=number, last=number)
        nightly += night
        state = {row.broker_name: (row.penalty_end, row.flagged) for row in night}
    for rows in (in_one_pass, nightly):
        assert len(rows) == BROKERS * DAYS
        assert {(row.broker_name, row.dt): row.charge_count for row in rows} == counts
        for row in rows:
            *expected_penalties, at_start, at_end = expected[row.broker_name, row.dt]
            assert [row.penalty_start, row.penalty_end] == pytest.approx(expected_penalties, rel=1e-9, abs=1e-9), row
            assert (row.flagged_start, row.flagged) == (at_start, at_end), row
