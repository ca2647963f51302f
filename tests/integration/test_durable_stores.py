"""What every store on DurableTables must do: what was written outlives kills, damage and failing disks."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from pointsman.storage.tables import OnRefusal
from tests.kit.faults.mounted_disk import fill, make_read_only, mounted
from tests.kit.history.durable_stores import STORES, DurableStore

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=STORES)
def kind(request: pytest.FixtureRequest) -> type[DurableStore]:
    return STORES[request.param]


@pytest.fixture
async def store(kind: type[DurableStore], tmp_path: Path) -> AsyncIterator[DurableStore]:
    """In a folder that does not exist yet, opened."""
    store = kind(tmp_path / "state")
    await store.open()
    yield store
    await store.close()


async def content(kind: type[DurableStore], folder: Path) -> dict[int, int]:
    """What the next process finds."""
    async with AsyncExitStack() as opened:
        store = kind(folder)
        opened.push_async_callback(store.close)
        return await store.open()


async def copied(store: DurableStore, to: Path) -> Path:
    """A copy of the folder as a kill at this moment leaves it."""
    return Path(shutil.copytree(store.folder, to))


async def fails(store: DurableStore, match: str) -> None:
    """Open it, or else write to it, which fails."""
    with pytest.raises(store.errors, match=match):  # noqa: PT012  # stores differ in which of the two fails
        await store.open()
        await store.put({9: 1})


# --- restarts and kills ---------------------------------------------------------------------------------------


async def test_what_was_written_is_there_after_a_restart_and_nothing_is_logged(
    store: DurableStore, caplog: pytest.LogCaptureFixture
) -> None:
    await store.put({0: 1, 1: 1})
    await store.put({0: 2})
    await store.close()
    assert await content(type(store), store.folder) == {0: 2, 1: 1}
    backup = [f"{store.file_name}.bak"] if store.policy is OnRefusal.BACKUP else []
    assert sorted(path.name for path in store.folder.iterdir()) == [store.file_name, *backup]
    assert caplog.messages == []


async def test_after_a_kill_a_log_cut_off_anywhere_gives_the_content_of_one_moment(
    store: DurableStore, tmp_path: Path, full: bool
) -> None:
    """Each is a state that a kill, or a power loss before the sync, can leave."""
    for n in range(1, 6):
        await store.put({0: n, 1: n})
    killed, chance = await copied(store, tmp_path / "killed"), random.Random(8)
    log = killed / f"{store.file_name}-wal"
    size = log.stat().st_size
    assert size > 0
    for n in range(100 if full else 15):
        left = Path(shutil.copytree(killed, tmp_path / f"left-{n}"))
        os.truncate(left / log.name, chance.randrange(size))
        assert await content(type(store), left) in [{}, *({0: m, 1: m} for m in range(1, 6))]
    assert await content(type(store), killed) == {0: 5, 1: 5}


@pytest.mark.parametrize("name", STORES)
async def test_after_a_sigkill_at_any_moment_all_is_there_that_was_reported(
    name: str, tmp_path: Path, full: bool
) -> None:
    chance, first = random.Random(4), 1
    for _ in range(10 if full else 2):
        command = [sys.executable, "-m", "tests.kit.history.durable_stores", name, str(tmp_path / "state"), str(first)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:  # noqa: ASYNC220  # alone
            assert process.stdout is not None
            printed = [int(process.stdout.readline()) for _ in range(chance.randint(1, 20))]
            process.send_signal(signal.SIGKILL)
            # Values printed before the signal arrived were written, too.
            printed += [int(line) for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        assert process.returncode == -signal.SIGKILL
        found = await content(STORES[name], tmp_path / "state")
        assert found in ({0: printed[-1], 1: printed[-1]}, {0: printed[-1] + 1, 1: printed[-1] + 1})
        first = found[0] + 1


# --- damage ---------------------------------------------------------------------------------------------------


async def test_a_file_cut_off_anywhere_or_with_a_flipped_bit_is_read_completely_or_replaced(
    store: DurableStore, tmp_path: Path, full: bool
) -> None:
    whole = dict.fromkeys(range(60), 1)
    await store.put(whole)
    await store.close()
    data, chance = store.file.read_bytes(), random.Random(7)
    for n in range(400 if full else 30):
        at = chance.randrange(1, len(data))
        flipped = data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        broken = tmp_path / f"broken-{n}"
        broken.mkdir()
        (broken / store.file_name).write_bytes(data[:at] if n % 2 else flipped)
        try:
            found = await content(type(store), broken)
        except store.errors as error:
            assert "use another file, or move this one" in str(error)  # noqa: PT017  # either is right
            assert store.policy is OnRefusal.SALVAGE
            assert not (broken / "damaged").exists()
        else:
            is_replaced = (broken / "damaged" / store.file_name).exists()
            assert is_replaced is (found != whole) or store.policy is OnRefusal.SALVAGE
            assert found.items() <= whole.items()
            assert found in ({}, whole) or (is_replaced and store.policy is OnRefusal.SALVAGE)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("garbage", "file is not a database"),
        ("empty", "is damaged: it is empty"),
        ("foreign", "belongs to another application: its id is 0x7"),
        ("newer", "has format version 9, this version reads 1"),
        ("row", "does not fit"),
    ],
)
async def test_a_damaged_or_foreign_file_is_moved_with_an_error_in_the_log_or_refused_and_stays(
    store: DurableStore, damage: str, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    await store.put({0: 1, 1: 1})
    await store.put({0: 2})
    await store.close()
    broken = damaged(store.file, damage)
    if store.policy is OnRefusal.SALVAGE and damage != "row":
        with pytest.raises(store.errors, match=f"{problem}.*: use another file, or move this one"):
            await store.open()
        assert store.file.read_bytes() == broken
        assert [path.name for path in store.folder.iterdir()] == [store.file_name]
        return
    found = await store.open()
    left = {OnRefusal.EMPTY: {}, OnRefusal.BACKUP: {0: 1, 1: 1}, OnRefusal.SALVAGE: {0: 2}}
    assert found == left[store.policy]
    assert (store.folder / "damaged" / store.file_name).read_bytes() == broken
    (record,) = caplog.records
    assert (record.levelname, record.exc_info) == ("ERROR", None)
    logged = f"{record.getMessage()} {vars(record).get('facts')}"
    assert str(store.file) in logged
    assert problem in logged
    await store.put({0: 3})
    await store.close()
    assert await content(type(store), store.folder) == {**found, 0: 3}
    assert len(caplog.records) == 1


def damaged(file: Path, damage: str) -> bytes:
    """Damage a file; return its bytes."""
    if damage == "garbage":
        file.write_bytes(b"not a database" * 500)
    elif damage == "empty":
        file.write_bytes(b"")
    else:
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            if damage == "row":
                other.execute(_spoiling_the_first_row(other))
            else:
                other.execute("PRAGMA application_id = 7" if damage == "foreign" else "PRAGMA user_version = 9")
    return file.read_bytes()


def _spoiling_the_first_row(connection: sqlite3.Connection) -> str:
    """The statement that changes the digest of the first row."""
    for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
        key = ", ".join(name for _, name, _, _, _, position in columns if position)
        if connection.execute(f"SELECT 1 FROM {table}").fetchone():
            return f"UPDATE {table} SET digest = x'00' WHERE ({key}) = (SELECT {key} FROM {table} LIMIT 1)"
    raise AssertionError("no rows")


async def test_a_damaged_file_that_cannot_be_moved_stays_with_a_warning_and_nothing_is_written(
    store: DurableStore, caplog: pytest.LogCaptureFixture
) -> None:
    await store.put({0: 1, 1: 1})
    await store.close()
    broken = damaged(store.file, "row")
    (store.folder / "damaged").touch()
    await fails(store, "is damaged")
    assert "damaged file could not be moved and stays where it is" in caplog.messages
    assert store.file.read_bytes() == broken


async def test_a_file_without_read_permission_is_not_damage(
    store: DurableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put({0: 1})
    await store.close()
    allowed = os.access
    with monkeypatch.context() as forbidden:
        forbidden.setattr(os, "access", lambda path, mode: Path(path) != store.file and allowed(path, mode))
        with pytest.raises(
            store.errors, match=f"{store.file}.*[Pp]ermission denied|[Pp]ermission denied.*{store.file}"
        ):
            await store.open()
    assert await content(type(store), store.folder) == {0: 1}


# --- other processes, operators and disks ---------------------------------------------------------------------


async def test_a_second_owner_writes_only_when_the_first_has_closed_the_file(store: DurableStore) -> None:
    await store.put({0: 1})
    second = type(store)(store.folder)
    await fails(second, r"another process uses it|is used by another|give each process its own")
    if store.reads_in_use:
        assert await content(type(store), store.folder) == {0: 1}
    await store.put({0: 2})
    await store.close()
    assert await second.open() in ({0: 2}, {0: 2, 9: 1})
    await second.put({0: 3})
    await second.close()
    assert (await content(type(store), store.folder))[0] == 3


async def test_a_folder_that_an_operator_removed_is_made_and_filled_again(store: DurableStore) -> None:
    await store.put({0: 1, 1: 1})
    shutil.rmtree(store.folder)
    if not store.reopens:
        with pytest.raises(store.errors, match="was removed"):
            await store.put({0: 2})
        await store.open()
    await store.put({0: 2})
    await store.close()
    lost = {0: 2} if store.policy is OnRefusal.SALVAGE else {0: 2, 1: 1}
    assert await content(type(store), store.folder) == lost


async def test_a_full_disk_fails_a_write_and_loses_nothing(kind: type[DurableStore], tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "-o", "size=512k") as disk:
        store = kind(disk)
        await store.open()
        await store.put({0: 1})
        fill(disk)
        with pytest.raises(store.errors, match="No space left on device"):
            await store.put(dict.fromkeys(range(1, 3_000), 1))
        (disk / "ballast").unlink()
        await store.put({0: 2})
        await store.close()
        assert await content(kind, disk) == {0: 2}


async def test_a_read_only_disk_is_read_and_written_once_it_can_be(kind: type[DurableStore], tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "-o", "size=512k") as disk:
        store = kind(disk)
        await store.open()
        await store.put({0: 1})
        await store.close()
        make_read_only(disk)
        again = kind(disk)
        if store.policy is not OnRefusal.SALVAGE:
            assert await content(kind, disk) == {0: 1}
        await fails(again, "the disk or the file is read-only")
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)  # noqa: ASYNC221  # alone
        if not store.reopens:
            await again.open()
        await again.put({0: 2})
        await again.close()
        assert await content(kind, disk) == {0: 2}
