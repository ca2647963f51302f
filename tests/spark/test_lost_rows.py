"""Lost rows make results incomplete, but never wrong."""

from __future__ import annotations

import gzip
import json
import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit, unix_micros, when
from pyspark.sql.types import ArrayType

from pointsman_report.schemas.liveness_tables import BLIND_PERIODS, BROKER_STATE, OBSERVER_WINDOWS, OPINION
from pointsman_report.schemas.table_types import struct
from pointsman_report.transforms.broker_intervals import broker_intervals
from pointsman_report.transforms.observer_periods import blind_periods
from pointsman_report.transforms.observer_windows import observer_windows
from pointsman_report.transforms.opinions import any_missing, opinions, rare_events, stated, with_losses
from pointsman_report.transforms.vote_sweep import sweep, votes
from tests.bench.histories import Fleet, write
from tests.spark import plain
from tests.spark.histories import MIDNIGHT, Row
from tests.spark.tables import aware, with_times_as_text
from tests.spark.typed import registration_events
from tests.spark.worlds import DAYS, OWN_RUN, worlds

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

Broker = tuple[str, str, int]
Spans = list[tuple[int, int, str]]


@dataclass(frozen=True)
class Compared:
    """Results of a history with and without some of its rows."""

    wrong: list[tuple[Broker, int, str, str]]
    known: int
    """Microseconds of brokers known from the complete history."""
    forgotten: int
    """Those of them that are unknown without the rows."""
    dropped: int


def spans(spark: SparkSession, rows: list[Row], first_day: date, last_day: date) -> dict[Broker, Spans]:
    """Each broker's times as up, down or left (down by plan); what is unknown is not among them."""
    return _spans(computed(spark, rows, first_day, last_day), last_day)


def intervals_of(
    spark: SparkSession, rows: list[Row], first_day: date, last_day: date
) -> Iterable[tuple[Broker, plain.Interval]]:
    """The intervals of each broker; one that lasted over midnight is one."""
    found = computed(spark, rows, first_day, last_day)
    names = ("state", "start_at", "end_at", "start_censored", "end_censored", "planned", "continues", "reason")
    whole = with_times_as_text(found.filter(~col("open") | (col("dt") == lit(last_day))))
    for row in whole.collect():
        values = aware(row.asDict())
        broker = values["cluster"], values["broker_name"], values["broker_id"]
        yield broker, plain.Interval(**{name: values[name] for name in names})


def computed(spark: SparkSession, rows: list[Row], first_day: date, last_day: date) -> DataFrame:
    """The intervals of these days, in one pass."""
    days = {"first_day": first_day, "last_day": last_day}
    events = registration_events(spark, rows).localCheckpoint()
    tables = (OBSERVER_WINDOWS, BLIND_PERIODS, BROKER_STATE)
    empty = {table: spark.createDataFrame([], table.schema) for table in tables}
    windows = observer_windows(events, events, empty[OBSERVER_WINDOWS], **days).localCheckpoint()
    rare = rare_events(events).localCheckpoint()
    blind = blind_periods(rare, windows, empty[BLIND_PERIODS], **days).localCheckpoint()
    stated_rows = stated(rare, events, windows, empty[BROKER_STATE]).localCheckpoint()
    statements = opinions(with_losses(stated_rows, rare, windows), windows).localCheckpoint()
    steps = sweep(votes(statements, blind).localCheckpoint(), empty[BROKER_STATE], first_day=first_day)
    return broker_intervals(steps, **days)


def _spans(intervals: DataFrame, last_day: date) -> dict[Broker, Spans]:
    label = when(col("planned"), "left").otherwise(col("state"))
    whole = intervals.filter(~col("open") | (col("dt") == lit(last_day)))
    found: dict[Broker, Spans] = defaultdict(list)
    columns = ("cluster", "broker_name", "broker_id", unix_micros("start_at"), unix_micros("end_at"), label)
    for cluster, name, number, begin, end, what in whole.select(*columns).collect():
        found[cluster, name, number].append((begin, end, what))
    return {broker: sorted(own) for broker, own in found.items()}


def _up_or_down(own: Spans) -> Spans:
    return [(begin, end, "up" if what == "up" else "down") for begin, end, what in own]


def compared(
    spark: SparkSession, rows: list[Row], share: float, days: tuple[date, date], *, planned: bool = True
) -> Compared:
    """Drop rows at random places, but none that shows when an observer was running, such as the last that it wrote."""
    rng = random.Random(7)
    last = {(row["node"], row["boot_id"]): row["seq"] for row in sorted(rows, key=lambda row: row["seq"])}
    kept = (row["event"] in OWN_RUN or last[row["node"], row["boot_id"]] == row["seq"] for row in rows)
    left = [row for row, stays in zip(rows, kept, strict=True) if stays or rng.random() >= share]
    whole, less = spans(spark, rows, *days), spans(spark, left, *days)
    if not planned:
        whole, less = ({broker: _up_or_down(own) for broker, own in found.items()} for found in (whole, less))
    wrong = [(broker, *one) for broker, own in less.items() for one in _wrong(whole.get(broker, []), own)]
    known, still = _sum(whole.values()), _sum(less.values())
    return Compared(wrong, known, known - still, len(rows) - len(left))


def _wrong(whole: Spans, less: Spans) -> Iterable[tuple[int, str, str]]:
    """Times that have a wrong state without the rows."""
    for begin, end, what in less:
        covered = sum(min(end, to) - max(begin, at) for at, to, was in whole if was == what and at < end and begin < to)
        if covered != end - begin:
            others = [was for at, to, was in whole if was != what and at < end and begin < to]
            yield begin, what, ", ".join(others) or "unknown"


def _sum(brokers: Iterable[Spans]) -> int:
    return sum(end - begin for own in brokers for begin, end, _ in own)


def rows_of(histories: Iterable[Path]) -> list[Row]:
    files = (file for history in histories for file in sorted((history / "raw").rglob("*.jsonl*")))
    texts = (gzip.decompress(f.read_bytes()) if f.suffix == ".gz" else f.read_bytes() for f in files)
    return [json.loads(line) for text in texts for line in text.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 3])
def test_of_a_fleet_that_loses_one_row_in_a_thousand_nearly_all_is_known_and_nothing_is_wrong(
    spark: SparkSession, tmp_path: Path, nodes: int
) -> None:
    fleet = Fleet(brokers=60, nodes=nodes, flapping_share=0.1, seed=11)
    rows = rows_of(write(fleet, tmp_path / "history").histories)

    found = compared(spark, rows, 0.001, (fleet.first_day, fleet.last_day))

    assert found.dropped > 2 * nodes
    assert found.wrong == []
    assert found.forgotten <= found.known / 100


def test_a_loss_of_the_day_before_is_one_of_today(spark: SparkSession) -> None:
    windows, state = (spark.createDataFrame([], table.schema) for table in (OBSERVER_WINDOWS, BROKER_STATE))
    held = dict.fromkeys(OPINION.fieldNames())
    carried = [
        spark.createDataFrame([({"opinions": [held | {"opinion": opinion}]})], struct(opinions=ArrayType(OPINION)))
        for opinion in ("up", "lost")
    ]

    assert [any_missing(windows, rows) for rows in (state, *carried)] == [False, False, True]


@pytest.mark.slow
def test_of_small_worlds_that_lose_one_row_in_twenty_nothing_is_wrong(spark: SparkSession) -> None:
    rows = worlds(80, seed=5, losses=False)
    days = MIDNIGHT.date(), MIDNIGHT.date() + timedelta(days=DAYS - 1)

    # There name servers differ in what was planned, and the last removal decides.
    found = compared(spark, rows, 0.05, days, planned=False)

    assert found.dropped > 100
    assert found.wrong == []
    assert 0 < found.forgotten < found.known / 2
