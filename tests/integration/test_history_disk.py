"""A disk that is full or read-only: serving continues, memory stays bounded, and all lost rows are reported."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_namesrv.history import recorder as recording
from pointsman_namesrv.history.history_files import HistoryFiles
from pointsman_namesrv.history.recorder import Recorder
from pointsman_namesrv.node_metrics import Metrics
from tests.kit.faults.mounted_disk import mounted
from tests.kit.history.rows import rows_in
from tests.kit.name_server.events import broker_event
from tests.kit.waiting import until

DISK_BYTES = 1024 * 1024
LONG = {"text": "x" * 1_000}


def remount(disk: Path, *options: str) -> bool:
    """Remount a disk; False while a file that is open for writing prevents a read-only mount."""
    done = subprocess.run(["mount", "-o", ",".join(["remount", *options]), disk], capture_output=True, check=False)
    return done.returncode == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", "-o", f"size={DISK_BYTES}") as disk:
        yield disk


@pytest.fixture
def writing(disk: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    monkeypatch.setattr(recording, "SYNC_SECONDS", 0.01)
    files = HistoryFiles(disk, node="n", boot_id="b")
    writing = Recorder(files, node="n", boot_id="b", clock=clock, metrics=Metrics(), queue_rows=500)
    writing.start()
    yield writing
    assert writing.stop(timeout=60)


def written(recorder: Recorder) -> float:
    return recorder._metrics.registry.get_sample_value("pointsman_namesrv_history_rows_total") or 0


def write_until_it_refuses(recorder: Recorder) -> int:
    """Fill the disk; how many rows were recorded."""
    for recorded in itertools.count(20, 20):
        recorder.record([broker_event(detail=LONG)] * 20)
        until(partial(is_settled, recorder, recorded))
        if recorder.problems():
            return recorded
    raise AssertionError


def is_settled(recorder: Recorder, recorded: int) -> bool:
    return written(recorder) == recorded or bool(recorder.problems())


def test_on_a_full_disk_rows_are_queued_or_dropped_and_writing_recovers_with_free_space(
    disk: Path, writing: Recorder
) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(b"x" * (DISK_BYTES - 128 * 1024))
    recorded = write_until_it_refuses(writing)
    assert "No space left" in writing.problems()[0]
    on_disk = written(writing)
    writing.record([broker_event(detail=LONG)] * 1_000)
    recorded += 1_000

    assert writing._waiting.rows == 500
    assert writing.dropped == recorded - on_disk - 500
    ballast.unlink()
    until(lambda: not writing._waiting.rows)
    writing.record([broker_event(), broker_event()])
    recorded += 2
    until(lambda: written(writing) + writing.dropped == recorded)

    seqs = [row["seq"] for row in rows_in(disk)]
    assert seqs == [*range(1, int(on_disk) + 501), recorded - 1, recorded]
    assert [complaint.split()[-1] for complaint in writing.problems()] == ["start"]


def test_a_disk_that_turns_read_only_costs_no_row_when_it_turns_back(disk: Path, writing: Recorder) -> None:
    writing.record([broker_event()])
    until(lambda: written(writing) == 1)
    # An open file keeps a disk writable; the next hour closes it, and packing it is the last write that succeeds.
    files = writing._files
    assert files is not None
    files.close()
    until(lambda: remount(disk, "ro"))
    writing.record([broker_event()] * 2)
    until(writing.problems)
    assert "Read-only file system" in writing.problems()[0]
    assert remount(disk, "rw")
    until(lambda: not writing.problems())

    assert [row["seq"] for row in rows_in(disk)] == [1, 2, 3]
    assert writing.dropped == 0
