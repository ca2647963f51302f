"""A day known only from pointsman-observe and an imported log: its outages, and no false finding."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pointsman.manual_clock import ManualClock
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.model import Position
from pointsman_namesrv.history.history_files import HistoryFiles
from pointsman_namesrv.history.recorder import Recorder
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.observe.fleet_view import FleetView, Listed
from pointsman_namesrv.observe.polled_events import Watch
from pointsman_report.cli import main
from pointsman_report.io import Warehouse
from pointsman_report.report.sections.watch_gaps import planned_stops
from pointsman_report.report.span import Span
from pointsman_report.rocketmq_log.broker_ids import BrokerId
from pointsman_report.rocketmq_log.importing import HistoryFolder
from pointsman_report.rocketmq_log.lines import Kind, LogLine
from pointsman_report.rocketmq_log.log_rows import RowBuilder
from tests.spark.histories import MIDNIGHT, moment

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

FLEET = {name: Position("c1", name, 0) for name in "abcd"}
END = 86_399


class Polled:
    """A name server as its observer sees it: its list from each time on. None: it does not respond."""

    def __init__(self, folder: Path, node: str) -> None:
        self._folder, self._node = folder, node
        self._clock = ManualClock(now=0.0, utc=MIDNIGHT)
        self._runs = 0
        self._watch = Watch({}, poll_seconds=1e6)
        self._recorder: Recorder | None = None

    def lists(self, at: float, names: str | None) -> None:
        self._clock.now = at
        if names is None:
            events = self._watch.ended("closed")
            self._watch = Watch(self._watch.known, poll_seconds=1e6)
            self._write(events)
            self._close()
            return
        listed = {FLEET[name]: Listed(f"{name}:10911", "") for name in names}
        events = self._watch.answered(FleetView(listed), now=at)
        if self._watch.is_ready and self._recorder is None:
            self._begin()
        self._write(events)

    def end(self) -> None:
        self._clock.now = END
        self._write([Event(kind=EventKind.NAMESRV_ALIVE, detail={"source": "observe", "rows_dropped": 0})])
        self._close()

    def _begin(self) -> None:
        self._runs += 1
        files = HistoryFiles(self._folder, node=self._node, boot_id=f"run{self._runs}")
        self._recorder = Recorder(
            files, node=self._node, boot_id=f"run{self._runs}", clock=self._clock, metrics=Metrics(), queue_rows=1_000
        )
        self._recorder.start()
        self._write([Event(kind=EventKind.NAMESRV_STARTED, detail={"source": "observe"})])

    def _write(self, events: list[Event]) -> None:
        if self._recorder is not None:
            self._recorder.record(events)

    def _close(self) -> None:
        if self._recorder is not None:
            assert self._recorder.stop(timeout=60)
        self._recorder = None


def log_lines() -> Iterator[LogLine]:
    def line(at: float, kind: Kind, name: str = "") -> LogLine:
        return LogLine(moment(at).astimezone(UTC), kind, "c1" if name else None, f"{name}:10911" if name else None)

    yield line(0, Kind.BOOT)
    yield from (line(5, Kind.REGISTERED, name) for name in "abcd")
    yield from (line(1_000, Kind.DISCONNECTED), line(1_000, Kind.REMOVED, "a"), line(1_600, Kind.REGISTERED, "a"))
    yield from (line(5_000, Kind.STOPPING), line(5_000, Kind.DISCONNECTED), line(5_000, Kind.REMOVED, "b"))
    yield line(5_010, Kind.BOOT)
    yield from (line(5_030, Kind.REGISTERED, name) for name in "abcd")
    yield from (line(7_000, Kind.EXPIRED, "d"), line(7_000, Kind.REMOVED, "d"), line(9_000, Kind.REGISTERED, "d"))
    yield from (line(12_000, Kind.REMOVED, "c"), line(12_050, Kind.REGISTERED, "c"))
    yield from (line(at, Kind.OTHER) for at in range(12_600, 90_000, 600))


@dataclass(frozen=True)
class Report:
    """The result of computing the day."""

    warehouse: Path
    numbers: dict[str, Any]
    page: str


@pytest.fixture(scope="module")
def report(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The day, computed from what three nodes wrote."""
    assert spark.version
    folder = tmp_path_factory.mktemp("other-sources")
    history = folder / "history"
    one, two = Polled(history, "mq1:9876"), Polled(history, "mq2:9876")
    for server, steps in (
        # The name server restarts at 5,000 and begins with an empty table.
        (one, [(0, "abcd"), (1_001, "bcd"), (1_002, "bcd"), (1_600, "abcd"), (5_000, None), (5_010, ""), (5_020, "ab"),
               (5_030, "abcd"), (7_000, "abc"), (7_001, "abc"), (9_000, "abcd"),
               (12_000, "abd"), (12_001, "abd"), (12_050, "abcd")]),
        # This one does not respond when d goes down, and returns without it.
        (two, [(0, "abcd"), (1_000, "bcd"), (1_001, "bcd"), (1_600, "abcd"), (6_995, None), (7_090, "abc"),
               (7_200, "abc"), (9_001, "abcd"), (12_000, "abd"), (12_001, "abd"), (12_050, "abcd")]),
    ):  # fmt: skip
        for at, names in steps:
            server.lists(at, names)
        server.end()
    story = RowBuilder(node="mq3", ids={f"{name}:10911": BrokerId(*position) for name, position in FLEET.items()})
    written = HistoryFolder(history)
    for each in log_lines():
        for row in story.take(each):
            written.write(row)
    for row in story.end():
        written.write(row)
    written.close()
    day = MIDNIGHT.date()
    words = ["backfill", f"--history={history}", f"--from={day}", f"--to={day}", "--quiet", "--exit-zero"]
    assert main([*words, f"--warehouse={folder / 'w'}", f"--report={folder / 'report'}"]) == 0
    numbers = json.loads((folder / "report" / "report.json").read_text(encoding="utf-8"))
    return Report(folder / "w", numbers, (folder / "report" / "report.html").read_text(encoding="utf-8"))


def test_the_day_has_its_outages_and_no_others(report: Report) -> None:
    numbers = report.numbers
    outages = {
        row["broker_name"]: [(each["start_at"][11:19], each["end_at"][11:19], each["cause"]) for each in row["outages"]]
        for row in numbers["brokers"]
    }
    assert outages == {
        "a": [("00:16:42", "00:26:40", "unknown")],
        # The name server restarted and closed the connection of b, which stayed up.
        "b": [],
        # Only the log has the plan, not the two that polled; the last one to see it decides.
        "c": [("03:20:01", "03:20:50", "unknown")],
        "d": [("01:56:41", "02:30:00", "unknown")],
    }
    assert all(row["reason"] == "EXPIRED" for broker in numbers["brokers"] for row in broker["outages"])


def test_nothing_is_found_but_the_budget_that_they_spent(report: Report) -> None:
    numbers = report.numbers
    assert [finding["kind"] for finding in numbers["findings"]] == ["budget_spent"]
    assert numbers["punctuality"]["rows"] == []
    assert numbers["coverage"]["seconds"] == pytest.approx(86_400, abs=5)


def test_the_report_states_what_its_sources_cannot_know(report: Report) -> None:
    numbers = report.numbers
    assert numbers["completeness"]["sources"] == {"observe": ["mq1:9876", "mq2:9876"], "rocketmq-log": ["mq3"]}
    assert "so most causes are unknown" in report.page


def test_an_observer_that_lost_its_name_server_did_not_stop_as_planned(spark: SparkSession, report: Report) -> None:
    day = MIDNIGHT.date()
    stopped = planned_stops(Warehouse(spark, str(report.warehouse)), Span(day, day))
    assert {node for node, _ in stopped} == {"mq3"}
