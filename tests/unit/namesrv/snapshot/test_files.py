"""The folder of segments: one owner, nothing half-written, and no stranger trusted."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pointsman_namesrv.snapshot import files as module
from pointsman_namesrv.snapshot.files import SegmentFiles, StateDirectoryInUse
from pointsman_namesrv.snapshot.segment import SegmentRefused, seal

NAME = f"{'0123456789abcdef' * 2}.segment"
OTHER = f"{'f' * 32}.segment"


@pytest.fixture
def files(tmp_path: Path) -> Iterator[SegmentFiles]:
    files = SegmentFiles(tmp_path / "state")
    files.hold()
    yield files
    files.release()


def test_what_was_written_is_read_again_and_leaves_nothing_else(files: SegmentFiles) -> None:
    size = files.write(NAME, b"first")
    assert size == (files.directory / NAME).stat().st_size
    files.write(NAME, b"second")
    files.write(OTHER, b"other")
    files.sync()
    assert files.read(NAME) == b"second"
    assert sorted(os.listdir(files.directory)) == [NAME, OTHER, "lock"]
    assert files.names() == [NAME, OTHER]
    files.remove(NAME)
    files.remove(NAME)
    assert files.names() == [OTHER]


def test_a_second_owner_is_refused_until_the_first_has_let_go(files: SegmentFiles) -> None:
    second = SegmentFiles(files.directory)
    with pytest.raises(StateDirectoryInUse) as refused:
        second.hold()
    assert str(refused.value) == f"the state directory {files.directory} is used by another pointsman-namesrv"
    files.release()
    second.hold()
    assert second.is_held()
    second.release()


def test_what_a_crash_left_unfinished_is_removed_and_strangers_are_left_alone(tmp_path: Path) -> None:
    for name in (f"{NAME}.tmp", f"{OTHER}.tmp", "notes.txt", "notes.segment.tmp"):
        (tmp_path / name).write_bytes(b"half")
    files = SegmentFiles(tmp_path)
    files.hold()
    assert sorted(os.listdir(tmp_path)) == ["lock", "notes.segment.tmp", "notes.txt"]
    assert files.names() == []
    files.release()


@pytest.mark.parametrize("failing", ["open", "write", "fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_segment_and_no_rest(
    files: SegmentFiles, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write(NAME, b"old")
    unfinished = files.directory / f"{NAME}.tmp"
    with monkeypatch.context() as broken:
        match failing:
            case "open":
                unfinished.mkdir()
            case "write":
                unfinished.symlink_to("/dev/full")
            case "fsync":
                broken.setattr(os, "fsync", _refuse)
            case "replace":
                broken.setattr(Path, "replace", _refuse)
        with pytest.raises(OSError, match=r"."):
            files.write(NAME, b"new")
    if failing != "open":
        assert unfinished.name not in os.listdir(files.directory)
    assert files.read(NAME) == b"old"


def _refuse(*_: object) -> None:
    raise OSError(errno.EIO, "Input/output error")


def test_a_folder_that_was_removed_is_no_longer_held(files: SegmentFiles) -> None:
    assert files.is_held()
    (files.directory / "lock").unlink()
    assert not files.is_held()


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        pytest.param("missing", "cannot be read: No such file", id="missing"),
        pytest.param("folder", "cannot be read: Is a directory", id="folder"),
        pytest.param("link", "cannot be read: Too many levels of symbolic links", id="link"),
        pytest.param("pipe", "is empty", id="pipe"),
        pytest.param("longer", r"has \d+ bytes, its header says", id="longer-than-it-says"),
        pytest.param("huge", r"has \d+ bytes, its header says", id="a-hole-of-a-terabyte"),
    ],
)
def test_what_is_no_whole_file_is_refused_without_waiting_or_reading_elsewhere(
    files: SegmentFiles, kind: str, problem: str
) -> None:
    path = files.directory / NAME
    match kind:
        case "folder":
            path.mkdir()
        case "link":
            (files.directory / "elsewhere").write_bytes(seal(b"other"))
            path.symlink_to("elsewhere")
        case "pipe":
            os.mkfifo(path)
        case "longer":
            path.write_bytes(seal(b"x") + b"y")
        case "huge":
            path.write_bytes(seal(b"x"))
            os.truncate(path, 2**40)
    with pytest.raises(SegmentRefused, match=problem):
        files.read(NAME)


def test_of_refused_segments_only_the_last_are_kept(files: SegmentFiles) -> None:
    names = [f"{i:032x}.segment" for i in range(module.MOST_DAMAGED + 5)]
    for name in names:
        (files.directory / name).write_bytes(b"damaged")
        files.put_aside(name)
    kept = os.listdir(files.directory / "damaged")
    assert len(kept) == module.MOST_DAMAGED
    assert names[-1] in kept
    assert files.names() == []


def test_a_refused_segment_that_cannot_be_moved_stays_and_that_is_said(
    files: SegmentFiles, caplog: pytest.LogCaptureFixture
) -> None:
    (files.directory / "damaged").write_bytes(b"a file where the folder should be")
    (files.directory / NAME).write_bytes(b"damaged")
    files.put_aside(NAME)
    assert files.names() == [NAME]
    assert [record.message for record in caplog.records] == ["a damaged file could not be moved and stays where it is"]
