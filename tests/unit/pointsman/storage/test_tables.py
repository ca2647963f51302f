"""Tables in a file: writes survive a kill, damaged and foreign files are refused."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pointsman.storage.tables import DurableTables, OnRefusal, Row, Table, TablesRefused

SIZES = Table("sizes", ("room", "thing"), ("text", "number"))
NAMES = Table("names", ("id",), ("name",))
ROWS: list[Row] = [("hall", "lamp", "brass", 2.5), ("hall", "mat", "", None)]


def table_file(folder: Path, *, application_id: int = 0x1234) -> DurableTables:
    return DurableTables(folder / "things.db", (SIZES, NAMES), application_id=application_id)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[DurableTables]:
    file = table_file(tmp_path)
    file.open()
    yield file
    file.close()


def put(file: DurableTables, *rows: Row) -> None:
    file.write(("sizes", row[:2], row[2:]) for row in rows)


def left_by_a_kill(file: DurableTables, folder: Path) -> DurableTables:
    """The file as a kill at this moment leaves it: nothing is closed."""
    folder.mkdir()
    for path in file.files:
        if path.exists():
            shutil.copy(path, folder)
    return table_file(folder)


def test_each_write_survives_a_kill(file: DurableTables, tmp_path: Path) -> None:
    put(file, *ROWS)
    file.write([("names", ("1",), ("one",)), ("sizes", ("hall", "lamp"), None)])
    left = left_by_a_kill(file, tmp_path / "left")
    assert left.open().rows == {"sizes": [ROWS[1]], "names": [("1", "one")]}
    left.close()


def test_a_row_is_replaced_by_its_key(file: DurableTables) -> None:
    put(file, *ROWS)
    put(file, ("hall", "lamp", "steel", 3.0))
    assert file.open().rows["sizes"] == [("hall", "lamp", "steel", 3.0), ROWS[1]]


def test_each_commit_is_synced(file: DurableTables) -> None:
    connection = file._connection
    assert connection is not None
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_failed_write_changes_nothing(file: DurableTables) -> None:
    put(file, ROWS[0])
    with pytest.raises(KeyError):
        file.write([("sizes", ("hall", "mat"), ("", None)), ("unknown", ("x",), ("y",))])
    put(file, ("attic", "box", "", 1.0))
    assert file.open().rows["sizes"] == [("attic", "box", "", 1.0), ROWS[0]]


def test_a_file_that_an_operator_removed_is_not_current(file: DurableTables) -> None:
    assert file.is_current()
    file.path.unlink()
    assert not file.is_current()
    assert file.open().rows["sizes"] == []
    assert file.is_current()


OPENED_ELSEWHERE = """
import sys
from pathlib import Path
from pointsman.storage.tables import DurableTables
DurableTables(Path(sys.argv[1]), [], application_id=0x1234).open()
"""


def test_an_attempt_to_open_it_again_in_its_own_process_does_not_end_the_lock(
    file: DurableTables, tmp_path: Path
) -> None:
    with pytest.raises(OSError, match="another process uses it") as refused:
        table_file(tmp_path).open()
    assert refused.value.errno == errno.EBUSY
    elsewhere = subprocess.run(
        [sys.executable, "-c", OPENED_ELSEWHERE, file.path], capture_output=True, text=True, check=False
    )
    assert "another process uses it" in elsewhere.stderr


FORKED = """
import os, signal, sys
from pathlib import Path
from pointsman.storage.tables import DurableTables, Table
file = DurableTables(Path(sys.argv[1]), [Table("names", ("id",), ("name",))], application_id=1)
file.open()
file.write([("names", ("1",), ("before the fork",))])
if not (child := os.fork()):
    file.close()
    del file
    sys.exit(0)
os.waitpid(child, 0)
file.write([("names", ("2",), ("after the fork",))])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_forked_child_that_exits_leaves_its_parents_tables_intact(tmp_path: Path) -> None:
    path = tmp_path / "names.db"
    ended = subprocess.run([sys.executable, "-c", FORKED, path], check=False)
    assert ended.returncode == -signal.SIGKILL
    file = DurableTables(path, [NAMES], application_id=1)
    assert [name for _, name in file.open().rows["names"]] == ["before the fork", "after the fork"]
    file.close()


def test_bytes_are_read_as_they_were_written_and_a_changed_bit_is_found(file: DurableTables, tmp_path: Path) -> None:
    value = bytes(range(256)) * 100
    file.write([("names", (1,), (value,))])
    assert file.open().rows["names"] == [(1, value)]
    file.close()
    file.path.write_bytes(file.path.read_bytes().replace(value[:64], b"\1" + value[1:64], 1))
    with pytest.raises(TablesRefused, match="digest"):
        table_file(tmp_path).open()


def test_a_file_shrinks_when_rows_are_removed(file: DurableTables) -> None:
    file.write(("names", (n,), (b"x" * 4_096,)) for n in range(1_000))
    file.write(("names", (n,), None) for n in range(1_000))
    file.close()
    assert file.path.stat().st_size < 64 * 1024


def test_a_new_file_has_the_permissions_that_it_was_given(tmp_path: Path) -> None:
    file = DurableTables(tmp_path / "secret.db", [NAMES], application_id=1, mode=0o600)
    file.open()
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    file.close()


def test_a_damaged_file_is_quarantined_with_its_companions(file: DurableTables, tmp_path: Path) -> None:
    put(file, *ROWS)
    left = left_by_a_kill(file, tmp_path / "left")
    left.path.write_bytes(b"")
    assert str(left.open(OnRefusal.EMPTY).refused) == "is damaged: it is empty"
    left.close()
    assert sorted(path.name for path in left.path.parent.iterdir()) == ["damaged", "things.db"]
    assert {path.name for path in (left.path.parent / "damaged").iterdir()} == {"things.db", "things.db-wal"}


def test_a_process_that_ends_during_a_repair_loses_nothing(file: DurableTables, tmp_path: Path) -> None:
    put(file, *ROWS)
    file.close()
    file.path.rename(tmp_path / "things.db.repaired")
    (tmp_path / "things.db-wal").write_bytes(b"of the damaged file")
    assert file.open().rows["sizes"] == ROWS
    assert (tmp_path / "damaged" / "things.db-wal").read_bytes() == b"of the damaged file"


def test_of_damaged_files_only_the_last_are_kept(tmp_path: Path) -> None:
    for n in range(20):
        damaged = DurableTables(tmp_path / f"{n}.db", [NAMES], application_id=1)
        damaged.path.write_bytes(b"damaged")
        damaged.open(OnRefusal.EMPTY)
        damaged.close()
    kept = {path.name for path in (tmp_path / "damaged").iterdir()}
    assert kept == {f"{n}.db" for n in range(4, 20)}


def test_a_backup_has_all_rows_and_replaces_the_previous_one(file: DurableTables, tmp_path: Path) -> None:
    for row in ROWS:
        put(file, row)
        file.back_up()
    put(file, ("hall", "door", "", 1.0))
    file.close()
    file.path.write_bytes(b"")
    opened = file.open(OnRefusal.BACKUP)
    assert (opened.rows["sizes"], str(opened.refused)) == (ROWS, "is damaged: it is empty")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "damaged",
        "things.db",
        "things.db-wal",
        "things.db.bak",
    ]


def test_no_copy_is_read_of_a_file_that_changes_all_the_time(
    file: DurableTables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, numbers = shutil.copyfile, itertools.count()

    def copy_late(source: Path, target: Path) -> None:
        copy(source, target)
        put(file, ("hall", f"lamp {next(numbers)}", "brass", 1.0))

    monkeypatch.setattr(shutil, "copyfile", copy_late)
    with pytest.raises(OSError, match="another process uses it"):
        table_file(tmp_path).open(OnRefusal.EMPTY, reads_in_use=True)


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("without its tables", "another application: its id is 0x0"),
        ("gone beside its log", "damaged: it is missing, but its things.db-wal is there"),
        ("changed value", "digest"),
        ("folder", "not a file"),
        ("link", "not a file"),
        ("pipe", "not a file"),
    ],
)
def test_damaged_and_foreign_files_are_refused(tmp_path: Path, kind: str, problem: str) -> None:
    file = table_file(tmp_path)
    file.open()
    put(file, *ROWS)
    file.close()
    match kind:
        case "without its tables":
            file.path.unlink()
            with sqlite3.connect(file.path) as other:
                other.execute("VACUUM")
            other.close()
        case "gone beside its log":
            file.path.rename(tmp_path / "things.db-wal")
        case "changed value":
            file.path.write_bytes(file.path.read_bytes().replace(b"brass", b"glass"))
        case _:
            file.path.unlink()
            if kind == "folder":
                file.path.mkdir()
            elif kind == "link":
                file.path.symlink_to("/etc/passwd")
            else:
                os.mkfifo(file.path)
    with pytest.raises(TablesRefused, match=problem):
        table_file(tmp_path).open()


@pytest.mark.parametrize("has_links", [True, False])
def test_a_new_file_has_its_name_only_when_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    link, sizes = os.link, list[int]()

    def note(source: Path, target: Path) -> None:
        assert not target.exists()
        sizes.append(source.stat().st_size)
        if not has_links:
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
        link(source, target)

    monkeypatch.setattr(os, "link", note)
    file = table_file(tmp_path)
    assert file.open().rows == {"sizes": [], "names": []}
    file.close()
    assert sizes == [file.path.stat().st_size]
    assert [path.name for path in tmp_path.iterdir()] == ["things.db"]


def test_a_folder_that_does_not_exist_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="its folder does not exist or cannot be written") as refused:
        DurableTables(tmp_path / "missing" / "things.db", [NAMES], application_id=1, creates_folder=False).open()
    assert (refused.value.errno, refused.value.filename) == (errno.ENOENT, str(tmp_path / "missing" / "things.db"))


def test_a_read_only_file_is_read_with_the_journal_that_a_kill_left(
    file: DurableTables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(file, *ROWS)
    left = left_by_a_kill(file, tmp_path / "left")
    left.path.chmod(0o444)
    # As for a user that is not root.
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK or bool(os.stat(path).st_mode & stat.S_IWUSR))
    for _ in range(2):
        opened = left.open(OnRefusal.EMPTY)
        assert opened.rows["sizes"] == ROWS
        assert opened.unwritable is not None
        assert opened.unwritable.errno == errno.EROFS
    with pytest.raises(OSError, match="read-only"):
        left.open()
