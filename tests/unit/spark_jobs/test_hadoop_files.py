"""The history files that a run reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from pointsman_report.hadoop_files import RawFile, local_files
from pointsman_report.io import files_that_may_hold

DAY = date(2026, 3, 10)


@pytest.mark.parametrize(
    ("folder", "modified", "size", "is_read"),
    [
        pytest.param("dt=2026-03-10", "2026-03-10", 9, True, id="of-the-day"),
        pytest.param("dt=2026-03-01", "2026-03-01", 9, False, id="old"),
        pytest.param("dt=2026-03-01", "2026-03-10", 9, True, id="old-folder-written-lately"),
        pytest.param("dt=2026-03-10", "2020-01-01", 9, True, id="copied-with-an-old-time"),
        pytest.param("dt=2026-03-09", "2026-03-09", 9, True, id="the-day-before"),
        pytest.param("dt=2026-04-10", "2020-01-01", 9, True, id="later"),
        pytest.param("loose", "2020-01-01", 9, True, id="no-day-in-the-path"),
        pytest.param("dt=2026-03-10", "2026-03-10", 0, False, id="empty"),
    ],
)
def test_a_file_is_left_out_only_if_its_folder_and_its_time_are_old(
    folder: str, modified: str, size: int, is_read: bool
) -> None:
    file = RawFile(f"/h/raw/{folder}/n-b-1.jsonl", datetime.fromisoformat(modified).replace(tzinfo=UTC), size)

    assert bool(files_that_may_hold([file], first_day=DAY)) is is_read


def test_a_folder_without_permission_is_an_error_and_not_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "dt=2026-03-10"
    closed.mkdir()
    listed = os.scandir

    def scandir(path: Any) -> Iterator[os.DirEntry[str]]:
        if Path(path) == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    # root may list every folder.
    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(PermissionError, match="dt=2026-03-10"):
        list(local_files(tmp_path))
    closed.rmdir()
    assert list(local_files(tmp_path)) == []
