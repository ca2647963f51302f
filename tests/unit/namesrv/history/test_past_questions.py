"""Questions about the past: the report's answers on the same files, and events and changes in pages."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pointsman_namesrv.history import folder
from pointsman_namesrv.history.past_files import PastFiles
from pointsman_namesrv.history.past_questions import Answer, answer
from pointsman_report.io.embedded_past import EmbeddedPast
from pointsman_report.questions.topic_questions import route_at
from tests.kit.history.own_files import write_own_files
from tests.spark.histories import Row, moment
from tests.spark.recorded_core import TOPICS, RecordedCore

SECOND_DAY = 86_400.0
LOST, TWICE = 0.02, 0.02
NODE = "ns1:9876"
MILLISECOND = timedelta(milliseconds=1)


def ask(files: PastFiles, **question: Any) -> Answer:
    """The answer as it arrives from the worker."""
    found: Answer = json.loads(json.dumps(answer(files, json.loads(json.dumps(question)))))
    return found


def moments(rng: random.Random, rows: list[Row]) -> Iterator[datetime]:
    """At rows and beside them, at midnight, and anywhere."""
    first, last = (datetime.fromisoformat(rows[place]["event_at"]) for place in (0, -1))
    while True:
        row = datetime.fromisoformat(rng.choice(rows)["event_at"])
        yield rng.choice((row, row - MILLISECOND, row + MILLISECOND))
        yield first + rng.random() * (last - first)
        yield rng.choice((moment(SECOND_DAY), first - MILLISECOND, last + timedelta(hours=1)))


def test_route_at_has_the_answers_of_the_report_on_the_same_files(
    tmp_path: Path, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "MEMBER_BYTES", 4_000)
    outcomes = set()
    worlds, questions = (20, 25) if full else (4, 20)
    for number in range(worlds):
        rng = random.Random(f"past-{number}")
        core = RecordedCore(
            random.Random(rng.random()), guard=rng.random() < 0.5, now=SECOND_DAY - rng.choice((300.0, 4_000.0))
        )
        core.live(150)
        rows = [row for row in core.rows if rng.random() > LOST]
        twice = [row for row in rows if rng.random() < TWICE] if rng.random() < 0.5 else []
        history = write_own_files(tmp_path / str(number), [*rows, *twice], rows_in_file=rng.choice((40, 10**9)))
        files, report = PastFiles(history, NODE), EmbeddedPast(histories=[history])
        if rng.random() < 0.3:
            while files.index_next():
                pass
        chosen = moments(rng, rows)
        for _ in range(questions):
            at, topic = next(chosen), rng.choice((*TOPICS, "unknown"))
            cluster = rng.choice((None, None, "c1", "c2"))
            expected = route_at(report, topic, at, cluster=cluster).as_dict()
            found = ask(files, kind="route", topic=topic, at=at.isoformat(), cluster=cluster)
            assert found == json.loads(json.dumps(expected)), f"world {number}, {topic} at {at}, cluster {cluster}"
            outcomes.add(found["outcome"])
    assert len(outcomes) > 1
