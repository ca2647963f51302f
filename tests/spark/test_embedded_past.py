"""Without Java the same answers: random histories with lost and late rows, asked through both readers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pointsman.history.past_route import ROUTE
from pointsman_report.io import History, SparkPast, Warehouse
from pointsman_report.io.embedded_past import EmbeddedPast
from pointsman_report.io.past import Past
from pointsman_report.jobs import pipeline
from pointsman_report.jobs.history_reading import Work
from pointsman_report.parameters import Parameters
from pointsman_report.questions.explanation import explain
from pointsman_report.questions.topic_questions import route_at
from tests.spark.histories import MIDNIGHT, Row, moment, write_history
from tests.spark.recorded_core import TOPICS, RecordedCore

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3_600)]

SECOND = 86_400.0
LAST_DAY = moment(SECOND).date()
LOST = 0.02
LATE = 0.1
MILLISECOND = timedelta(milliseconds=1)


@dataclass
class World:
    """Two name servers over a midnight. The warehouse has read a part of the rows and computed a part of the days."""

    rng: random.Random
    history: Path
    warehouse: Path
    rows: list[Row]

    def pasts(self, spark: SparkSession) -> list[tuple[str, Past, Past]]:
        """What a question may read, with Spark and without it."""
        history, warehouse = History(spark, [str(self.history)]), Warehouse(spark, str(self.warehouse))
        return [
            ("tables", SparkPast(warehouse), EmbeddedPast(self.warehouse)),
            ("files", SparkPast(history=history), EmbeddedPast(histories=[self.history])),
            ("both", SparkPast(warehouse, history), EmbeddedPast(self.warehouse, [self.history])),
        ]

    def moments(self) -> Iterator[datetime]:
        """Where it hurts: at rows and beside them, at midnight, in holes, before and after everything."""
        while True:
            row = datetime.fromisoformat(self.rng.choice(self.rows)["event_at"])
            yield self.rng.choice((row, row - MILLISECOND, row + MILLISECOND))
            first, last = (datetime.fromisoformat(self.rows[place]["event_at"]) for place in (0, -1))
            yield first + self.rng.random() * (last - first)
            midnight = moment(SECOND)
            yield self.rng.choice((midnight, midnight - MILLISECOND, first - MILLISECOND, last + timedelta(hours=1)))


def rows_of(rng: random.Random) -> list[Row]:
    """The rows of two name servers, a few of them lost."""
    found: list[Row] = []
    for node in ("ns1:9876", "ns2:9876"):
        core = RecordedCore(
            random.Random(rng.random()), guard=rng.random() < 0.5, now=SECOND - rng.choice((300.0, 4_000.0))
        )
        core.live(150)
        found += [row | {"node": node} for row in core.rows if rng.random() > LOST]
    return sorted(found, key=lambda row: str(row["event_at"]))


def world(spark: SparkSession, folder: Path, seed: str) -> World:
    rng = random.Random(seed)
    rows = rows_of(rng)
    cut = rng.randrange(len(rows))
    early = [row for row in rows[:cut] if rng.random() > LATE]
    history, warehouse = folder / "history", folder / "warehouse"
    write_history(history, early or rows[:1])
    until = MIDNIGHT.date() if rng.random() < 0.5 else LAST_DAY
    work = Work(
        History(spark, [str(history)]),
        Warehouse(spark, str(warehouse)),
        MIDNIGHT.date(),
        until,
        Parameters(),
        lambda _: None,
    )
    pipeline.compute(work)
    # The file of the day has grown, and another one arrived.
    late = [row for row in rows if row not in early]
    write_history(history, rows if rng.random() < 0.5 else late, one_file_a_day=True, packed=rng.random() < 0.5)
    return World(rng, history, warehouse, rows)


def differences(one: Any, other: Any, where: str = "") -> Iterator[str]:
    """The paths at which two documents differ."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for key in one:
            yield from differences(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, f"{where}[{place}]")
    elif one != other:
        yield f"{where}: {one!r} and {other!r}"


def test_questions_have_the_same_answer_with_and_without_spark(
    spark: SparkSession, tmp_path: Path, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "STAGES", ())
    outcomes = set()
    worlds, questions = (8, 25) if full else (2, 8)
    for number in range(worlds):
        one = world(spark, tmp_path / str(number), f"past-{number}")
        moments = one.moments()
        for _ in range(questions):
            at, topic = next(moments), one.rng.choice((*TOPICS, "unknown"))
            cluster = one.rng.choice((None, None, "c1", "c2"))
            ask = explain if one.rng.random() < 0.2 else route_at
            name, with_spark, embedded = one.rng.choice(one.pasts(spark))
            expected = ask(with_spark, topic, at, cluster=cluster)
            found = ask(embedded, topic, at, cluster=cluster)
            asked = f"world {number}, {ask.__name__} {topic} at {at.isoformat()} of {name}, cluster {cluster}"
            assert not list(differences(expected.as_dict(), found.as_dict())), asked
            outcomes.add(found.as_dict().get("outcome", ROUTE))
    assert len(outcomes) > 1
