"""SIGKILL at any moment of writing, closing and packing: every row that was on the disk is read again (P7, F4)."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from pointsman_namesrv.history.history_files import HistoryFiles
from pointsman_report.cli import main
from tests.kit.history.rows import files_in, rows_in

ROOT = Path(__file__).parents[2]


def killed_writer(folder: Path, boot_id: str, *, syncs: int) -> int:
    """Let a process record and kill it after ``syncs`` syncs; return how many rows it reported as written."""
    command = [sys.executable, "-m", "tests.integration.history_writer", str(folder), boot_id]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = "".join(process.stdout.readline() for _ in range(syncs))
        process.kill()
        rest = process.stdout.read()
    # The kill may fall into a line that it was saying.
    whole = (lines + rest).rpartition("\n")[0].splitlines()
    return int(whole[-1])


def test_every_row_that_reached_the_disk_is_read_again_after_a_kill_and_nothing_else_is_there(
    tmp_path: Path, full: bool
) -> None:
    moments = random.Random(4)
    on_disk = {}
    for boot in (f"b{n}" for n in range(8 if full else 2)):
        on_disk[boot] = killed_writer(tmp_path, boot, syncs=moments.randrange(1, 60))
        found = [row["seq"] for row in rows_in(tmp_path) if row["boot_id"] == boot]
        assert len(found) >= on_disk[boot]
        assert found == list(range(1, len(found) + 1)), "only the end may be missing"
    before = rows_in(tmp_path)
    HistoryFiles(tmp_path, node="n:1", boot_id="next").adopt()

    assert rows_in(tmp_path) == before
    files = files_in(tmp_path)
    assert {Path(name).suffix for name in files} == {".gz"}
    assert main(["validate", *(str(tmp_path / "raw" / name) for name in files)]) == 0
