"""Maintenance of closed files: at the start, at each closed file and each hour, as the settings require."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_namesrv.config import HistoryConfig
from pointsman_namesrv.history import recorder as recording
from pointsman_namesrv.history import recorder_assembly
from pointsman_namesrv.history.closed_files import ClosedFilesTask
from pointsman_namesrv.history.history_files import HistoryFiles
from pointsman_namesrv.history.recorder import Recorder
from pointsman_namesrv.history.retention import Retention
from pointsman_namesrv.node_metrics import Metrics
from tests.kit.history.rows import files_in
from tests.kit.name_server.events import broker_event
from tests.kit.waiting import until


def lay(folder: Path, day: str, name: str = "n-a-1.jsonl.gz") -> Path:
    path = folder / "raw" / f"dt={day}" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"{}\n")
    return path


@pytest.fixture
def files(tmp_path: Path) -> Iterator[HistoryFiles]:
    files = HistoryFiles(tmp_path, node="n", boot_id="b")
    files.prepare()
    yield files
    files.release()


@pytest.fixture
def closed_files(files: HistoryFiles, clock: ManualClock) -> ClosedFilesTask:
    retention = Retention(files.raw, days=30, max_bytes=0, metrics=Metrics())
    return ClosedFilesTask(files, retention=retention, shipper=None, clock=clock)


def test_maintenance_runs_at_the_start_at_each_closed_file_and_each_hour(
    closed_files: ClosedFilesTask, files: HistoryFiles, clock: ManualClock, tmp_path: Path
) -> None:
    def tended() -> bool:
        old = lay(tmp_path, "2025-01-01")
        closed_files.run_due()
        return not old.exists()

    assert tended()
    assert not tended()
    files.append(b"{}\n", event_at=clock.utc_now())
    files.close()
    assert tended()
    clock.now += 3_599
    assert not tended()
    clock.now += 1
    assert tended()


def test_a_wall_clock_that_jumps_years_ahead_removes_nothing(
    closed_files: ClosedFilesTask, clock: ManualClock, tmp_path: Path
) -> None:
    today = lay(tmp_path, "2026-01-01")
    clock.jump_wall_clock(timedelta(days=4_000))
    closed_files.run_due()
    assert today.exists()

    clock.now += 86_400 * 32
    closed_files.run_due()
    assert not today.exists()


def test_a_folder_that_cannot_be_read_does_not_stop_the_writing(
    closed_files: ClosedFilesTask, files: HistoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    files.raw.rmdir()
    closed_files.run_due()

    assert "cannot be listed" in caplog.text
    assert closed_files.problems() == []


def recorder(clock: ManualClock, **settings: object) -> Recorder:
    config = HistoryConfig(**settings)  # type: ignore[arg-type]  # the test's own settings
    return recorder_assembly.recorder(config, node="n", boot_id="b", clock=clock, metrics=Metrics())


def test_a_history_of_its_settings_packs_removes_and_ships(
    clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "SYNC_SECONDS", 0.01)
    store = tmp_path / "store"
    store.mkdir()
    lay(tmp_path, "2024-01-01", "other-a-1.jsonl.gz")
    lay(tmp_path, "2025-12-31", "n-a-1.jsonl")
    copy = "import shutil, sys; shutil.copy(sys.argv[2], sys.argv[1])"
    writing = recorder(clock, directory=str(tmp_path), ship=(sys.executable, "-S", "-c", copy, str(store)))
    writing.start()
    writing.record([broker_event()])
    until(lambda: [path.name for path in store.iterdir()] == ["n-a-1.jsonl.gz"])
    assert writing.stop(timeout=20)

    assert files_in(tmp_path) == ["dt=2025-12-31/n-a-1.jsonl.gz", "dt=2026-01-01/n-b-1.jsonl.gz"]
    assert sorted(path.name for path in store.iterdir()) == ["n-a-1.jsonl.gz", "n-b-1.jsonl.gz"]
    assert writing.problems() == []


def test_a_hanging_command_delays_no_row_and_is_reported_once_it_fails(
    clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "SYNC_SECONDS", 0.01)
    lay(tmp_path, "2025-12-31")
    marks = f"import time; open({str(tmp_path / 'began')!r}, 'w'); time.sleep(600)"
    command = (sys.executable, "-S", "-c", marks)
    writing = recorder(clock, directory=str(tmp_path), ship=command, ship_timeout_seconds=300.0)
    writing.start()
    until((tmp_path / "began").exists)
    writing.record([broker_event()])
    until(lambda: [path for path in tmp_path.rglob("*.jsonl") if path.stat().st_size])
    assert writing.stop(timeout=1)
    (complaint,) = writing.problems()

    assert complaint.startswith("a history file cannot be shipped: n-a-1.jsonl.gz")


def test_a_history_that_is_off_opens_nothing(clock: ManualClock, tmp_path: Path) -> None:
    silent = recorder(clock, enabled=False, directory=str(tmp_path / "history"), ship=("false",))
    silent.start()
    silent.record([broker_event()])

    assert silent.stop(timeout=1)
    assert not (tmp_path / "history").exists()
