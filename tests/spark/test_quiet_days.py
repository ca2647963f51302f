"""Days that one interval covers are not grouped, and opinions are joined only where they turn: against plain Python."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, explode, lit, sequence, struct

from pointsman_report.schemas.table_types import BOOL, DAY, LONG, TEXT, TIME
from pointsman_report.schemas.table_types import struct as shape
from pointsman_report.transforms.broker_intervals import availability, day_sums
from pointsman_report.transforms.known_days import with_opinions, with_whole_days
from pointsman_report.transforms.opinions import turns_at_day_end
from tests.spark.histories import MIDNIGHT, moment

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FIRST, DAYS = MIDNIGHT.date(), 75
"""More than two of the months by which opinions are joined."""
LAST = FIRST + timedelta(days=DAYS - 1)
DAY_S, DAY_US = 86_400, 86_400_000_000
INTERVALS = shape(
    dt=DAY, cluster=TEXT, broker_name=TEXT, broker_id=LONG, state=TEXT, planned=BOOL, start_at=TIME, end_at=TIME,
    start_censored=BOOL, end_censored=BOOL, continues=BOOL, open=BOOL,
)  # fmt: skip
OPINIONS = shape(
    cluster=TEXT, broker_name=TEXT, broker_id=LONG, node=TEXT, boot_id=TEXT, seq=LONG, at=LONG, event=TEXT,
    reason=TEXT, sign_us=LONG, opinion=TEXT, planned=BOOL, next_at=LONG, watch_to=LONG,
)  # fmt: skip
Stretch = tuple[str, bool, int, int]
"""State, planned, and from and to in seconds from the first midnight."""


def stretches(rng: random.Random) -> list[Stretch]:
    """From before the first day to its end, often cut at a midnight; some follow time without monitoring."""
    found: list[Stretch] = []
    at, end = -rng.choice((1, DAY_S, 5 * DAY_S)), DAYS * DAY_S
    while at < end:
        length = rng.choice((1, 600, 40_000, DAY_S, 3 * DAY_S, 20 * DAY_S))
        until = at + length
        if rng.random() < 0.3:
            until = max(at + 1, until // DAY_S * DAY_S)
        until = min(until, end + DAY_S)
        state, planned = rng.choice((("up", False), ("down", False), ("down", True)))
        if rng.random() < 0.85:
            found.append((state, planned, at, until))
        at = until
    return found


def days_of(stretch: Stretch) -> Iterator[tuple[int, int, bool]]:
    """Each day of a stretch as the table has it: its number, the end in seconds, and whether it is still open."""
    *_, begin, end = stretch
    for day in range(max(begin // DAY_S, 0), min(end // DAY_S, DAYS - 1) + 1):
        is_open = end >= DAY_S * (day + 1)
        yield day, DAY_S * (day + 1) if is_open else end, is_open


def plain_sums(all_of: list[Stretch]) -> dict[int, list[tuple[str, bool, int, int, bool]]]:
    found = defaultdict(list)
    for state, planned, begin, end in all_of:
        for day, until, is_open in days_of((state, planned, begin, end)):
            found[day].append((state, planned, begin, until, is_open))
    return found


def test_sums_of_whole_days_are_those_of_all_intervals(spark: SparkSession) -> None:
    rng = random.Random(4)
    brokers = {f"b{number}": stretches(rng) for number in range(25)}
    rows, current = [], []
    for name, all_of in brokers.items():
        for day, parts in plain_sums(all_of).items():
            dt = FIRST + timedelta(days=day)
            for state, planned, begin, until, is_open in parts:
                fixed = (dt, "c", name, 0, state, planned, moment(begin), moment(until))
                rows.append((*fixed, False, is_open, False, is_open))
                if is_open:
                    current.append((dt, "c", name, 0, state, planned, moment(begin)))
    intervals = spark.createDataFrame(rows, INTERVALS)
    at_end = spark.createDataFrame(current, shape(**{f.name: f.dataType for f in INTERVALS.fields[:7]}))
    known = at_end.select(
        "dt", "cluster", "broker_name", "broker_id", struct("state", "planned", "start_at").alias("current")
    )
    keys = ["dt", "cluster", "broker_name", "broker_id"]
    days_of_brokers = known.join(day_sums(intervals), on=keys, how="full")
    filled = with_whole_days(days_of_brokers.withColumn("last_on", col("dt")))
    sums = {(row.dt, row.broker_name): row for row in filled.collect()}
    days = {(row.dt, row.broker_name): row for row in availability(intervals).collect()}

    expected = {
        (FIRST + timedelta(days=day), name): parts
        for name, all_of in brokers.items()
        for day, parts in plain_sums(all_of).items()
    }
    assert days.keys() == sums.keys() == expected.keys()
    for (dt, name), parts in expected.items():
        midnight = (dt - FIRST).days * DAY_S
        lengths = {part: part[3] - max(part[2], midnight) for part in parts}
        up = sum(length for part, length in lengths.items() if part[0] == "up")
        outages = [part for part in parts if part[0] == "down" and not part[1]]
        down = sum(lengths[part] for part in outages)
        began = sum(part[2] >= midnight for part in outages)
        ended = [part[3] - part[2] for part in outages if not part[4]]
        row, rated = sums[dt, name], days[dt, name]
        assert (row.seen_on, row.outages, row.down_seconds, row.watched_seconds, row.longest_stable_seconds) == (
            dt, began, down, sum(lengths.values()), max(lengths.values()),
        ), (dt, name, parts)  # fmt: skip
        assert (rated.up_seconds, rated.down_seconds, rated.outages, rated.repaired, rated.repair_seconds) == (
            up, down, began, len(ended), sum(ended),
        ), (dt, name, parts)  # fmt: skip
        assert rated.planned_seconds == sum(length for part, length in lengths.items() if part[1])
        assert rated.longest_outage_seconds == max((part[3] - part[2] for part in outages), default=None)
        assert rated.availability == (up / (up + down) if up + down else None)
        assert rated.mtbf_seconds == (up / began if began else None)


def opinions(rng: random.Random, name: str) -> list[tuple[Any, ...]]:
    """Of three observers: each opinion lasts until its next one, or until the observer's window ends."""
    found = []
    for node in ("n1", "n2", "n3"):
        at, seq = -rng.randrange(3 * DAY_US), 0
        watch_to = rng.choice((None, rng.randrange(DAYS * DAY_US)))
        while at < DAYS * DAY_US:
            after = at + rng.choice((60_000_000, DAY_US // 2, DAY_US, 4 * DAY_US, 40 * DAY_US))
            if rng.random() < 0.2:
                after = max(at + 1, after // DAY_US * DAY_US)
            next_at = after if after < DAYS * DAY_US else None
            of_row = ("E", None, None, rng.choice(("up", "down", "none")), None)
            start = to_us(0)
            found.append(
                ("c", name, 0, node, "1", seq, start + at, *of_row,
                 None if next_at is None else start + next_at, None if watch_to is None else start + watch_to)
            )  # fmt: skip
            at, seq = after, seq + 1
    return found


def to_us(seconds: int) -> int:
    return round(moment(seconds).timestamp()) * 1_000_000


def held_at_end(row: tuple[Any, ...], day: int) -> bool:
    end = to_us(DAYS * DAY_S)
    until = min(end if row[-2] is None else row[-2], end if row[-1] is None else row[-1])
    return bool(row[6] < to_us((day + 1) * DAY_S) <= until)


def test_opinions_at_each_days_end_are_those_that_last_until_then(spark: SparkSession) -> None:
    rng = random.Random(5)
    brokers = {f"b{number}": opinions(rng, f"b{number}") for number in range(12)}
    held = spark.createDataFrame([row for rows in brokers.values() for row in rows], OPINIONS)
    turns = turns_at_day_end(held, first_day=FIRST, last_day=LAST)
    names = spark.createDataFrame([(name,) for name in brokers], shape(broker_name=TEXT))
    days = names.select(lit("c").alias("cluster"), "broker_name", lit(0).cast("long").alias("broker_id")).withColumn(
        "dt", explode(sequence(lit(FIRST), lit(LAST)))
    )
    found = with_opinions(days.join(turns, on=["dt", "cluster", "broker_name", "broker_id"], how="left"))
    numbers: dict[tuple[date, str], list[tuple[str, int]]] = {
        (row.dt, row.broker_name): [(each.node, each.seq) for each in row.opinions] for row in found.collect()
    }

    assert turns.count() < len(brokers) * DAYS / 2
    for name, rows in brokers.items():
        for day in range(DAYS):
            expected = sorted((row[3], row[5]) for row in rows if held_at_end(row, day))
            assert numbers[FIRST + timedelta(days=day), name] == expected, (name, day)
