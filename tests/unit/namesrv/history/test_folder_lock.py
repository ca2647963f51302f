"""A lock file is held by one process at a time, and released when it exits."""

from __future__ import annotations

from pathlib import Path

import pytest

from pointsman_namesrv.history.folder_lock import FolderLock, InUse


def test_a_second_one_is_refused_until_the_first_is_released(tmp_path: Path) -> None:
    first, second = FolderLock(tmp_path / "lock"), FolderLock(tmp_path / "lock")
    first.hold()
    first.hold()
    with pytest.raises(InUse, match="lock is held by another process"):
        second.hold()
    first.release()
    second.hold()
    with pytest.raises(InUse):
        first.hold()
    second.release()


def test_without_a_folder_there_is_no_lock(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FolderLock(tmp_path / "missing" / "lock").hold()
