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


def test_each_holder_reads_the_note_of_the_one_before(tmp_path: Path) -> None:
    for note, before in (("b1", ""), ("b2", "b1"), ("b2", "b2")):
        lock = FolderLock(tmp_path / "lock")
        lock.hold()
        assert lock.exchange_note(note) == before
        lock.release()
    assert FolderLock(tmp_path / "missing").exchange_note("b3") == ""
