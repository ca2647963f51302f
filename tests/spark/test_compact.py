"""Past months packed: the same rows in fewer bytes, and a day that can still be read as it was."""

from __future__ import annotations

import shutil
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from pointsman_report.io import History, Warehouse
from pointsman_report.jobs import pipeline
from pointsman_report.jobs.compact_warehouse import compact
from pointsman_report.jobs.history_reading import Work
from pointsman_report.jobs.ingest_history import ingest
from pointsman_report.jobs.pipeline import compute
from pointsman_report.parameters import Parameters
from pointsman_report.report_errors import ReportError
from tests.spark.histories import MIDNIGHT, NameServer, broker, moment, write_history
from tests.spark.tables import DayRunner

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

DAY = MIDNIGHT.date()
AFTER = date(2026, 4, 15)


@pytest.fixture(scope="module")
def made(run_days: DayRunner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days of March and one of April, with heartbeat rows; one day is in two files."""
    folder = tmp_path_factory.mktemp("compact")
    server = NameServer().start()
    for day in (0, 1, 31):
        for n in range(300):
            server.say("HEARTBEATS", moment(n, day=day), broker("a"), detail={"count": n})
        server.say("REGISTERED", moment(400, day=day), broker("a"))
    write_history(folder / "h", server.rows)
    ingest(run_days.spark, [str(folder / "h")], str(folder / "w"), log=lambda _: None)
    two_files = folder / "w" / "registration_events" / f"dt={DAY}"
    rows = run_days.spark.read.parquet(str(two_files))
    rows.repartition(2).write.mode("append").parquet(str(folder / "two"))
    for old in two_files.glob("*.parquet"):
        old.unlink()
    for part in (folder / "two").glob("*.parquet"):
        part.rename(two_files / part.name)
    return folder


@pytest.fixture
def warehouse(made: Path, tmp_path: Path) -> Path:
    """One to be changed."""
    return shutil.copytree(made / "w", tmp_path / "w")


def events(run_days: DayRunner, warehouse: Path) -> list[dict[str, Any]]:
    return run_days.rows(warehouse, "registration_events", DAY, AFTER)


def test_months_that_are_over_are_packed_once_and_hold_the_same_rows(warehouse: Path, run_days: DayRunner) -> None:
    before = events(run_days, warehouse)
    lines: list[str] = []

    done = compact(run_days.spark, str(warehouse), before=AFTER, log=lines.append)
    assert (done.days, done.files_before, done.files_after, done.rows_dropped) == (4, 5, 4, 0)
    assert 0 < done.bytes_after < done.bytes_before
    assert any(line.startswith("registration_events 2026-03: ") for line in lines)
    assert events(run_days, warehouse) == before
    assert compact(run_days.spark, str(warehouse), before=AFTER, log=lines.append).days == 0
    assert not list((warehouse / "_staging").iterdir())


@pytest.mark.slow
def test_heartbeats_are_dropped_only_on_request_and_such_a_day_is_not_recomputed_from_fewer_rows(
    made: Path, warehouse: Path, run_days: DayRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "STAGES", ())
    history, to = History(run_days.spark, [str(made / "h")]), Warehouse(run_days.spark, str(warehouse))
    work = Work(history, to, DAY, DAY, Parameters(), lambda _: None)
    compute(work)

    done = compact(run_days.spark, str(warehouse), before=AFTER, log=lambda _: None, keep_heartbeats_days=43)
    assert (done.rows_dropped, done.days) == (300, 6)
    left = [row["event"] for row in events(run_days, warehouse) if row["dt"] == DAY]
    assert left == ["NAMESRV_STARTED", "NAMESRV_READY", "REGISTERED"]
    with pytest.raises(ReportError, match="compact dropped heartbeats"):
        compute(work)
    compute(Work(history, to, DAY, DAY, Parameters(), lambda _: None, reread=True))
    assert len([row for row in events(run_days, warehouse) if row["dt"] == DAY]) == 303


def test_heartbeats_that_a_nightly_run_may_still_need_are_not_dropped(warehouse: Path, run_days: DayRunner) -> None:
    before = events(run_days, warehouse)
    with pytest.raises(ReportError, match="must be above 7"):
        compact(run_days.spark, str(warehouse), before=AFTER, log=lambda _: None, keep_heartbeats_days=7)
    assert events(run_days, warehouse) == before


def test_after_an_interrupt_the_logged_months_are_done_and_the_next_run_does_the_others(
    warehouse: Path, run_days: DayRunner
) -> None:
    before = events(run_days, warehouse)
    logged: list[str] = []

    def log_then_interrupt(line: str) -> None:
        logged.append(line)
        raise KeyboardInterrupt

    with pytest.raises(ReportError, match="interrupted; the months listed above are compacted, the others unchanged"):
        compact(run_days.spark, str(warehouse), before=AFTER, log=log_then_interrupt)
    assert len(logged) == 1
    assert events(run_days, warehouse) == before
    assert compact(run_days.spark, str(warehouse), before=AFTER, log=lambda _: None).days == 2
