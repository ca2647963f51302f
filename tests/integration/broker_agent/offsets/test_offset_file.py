"""Offsets in a file: after disk errors and a SIGKILL, the content is read again or rejected with a reason."""

from __future__ import annotations

import errno
import itertools
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from pointsman.clock import SystemClock
from pointsman.manual_clock import ManualClock
from pointsman.storage.tables import DurableTables, Row, Table
from pointsman_agent.core.offset_epoch import with_epoch
from pointsman_agent.core.offsets import BEGIN_ID, MAX_OFFSET, SEEN_ID, OffsetChange, OffsetKey
from pointsman_agent.offsets.file_store import APPLICATION_ID, BACK_UP_SECONDS, FileStore
from pointsman_agent.offsets.stored_offsets import StoreFailed
from tests.integration.broker_agent.offsets.offset_writer import KEYS

ROOT = Path(__file__).parents[4]
K0, K1 = OffsetKey("g", "orders", 0), OffsetKey("h|2", "%RETRY%g", 12)
RESTORED = "offset file rejected, moved to damaged/; older offsets of its backup are used"
LOST = "offset file rejected, moved to damaged/; its offsets are lost"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """In a folder that is not there yet."""
    return tmp_path / "state" / "offsets.db"


def store_at(file: Path) -> FileStore:
    return FileStore(file, clock=SystemClock())


def put(file: Path, content: bytes) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)


def changes(table: Mapping[OffsetKey, int]) -> list[OffsetChange]:
    return [OffsetChange(key, offset) for key, offset in table.items()]


async def written(file: Path, *tables: Mapping[OffsetKey, int]) -> None:
    """Write one after the other with one store, and close it."""
    store = store_at(file)
    await store.load()
    for table in tables:
        await store.write(changes(table))
    await store.close()


async def loaded(file: Path) -> dict[OffsetKey, int]:
    """What a new agent finds."""
    store = store_at(file)
    try:
        return dict(await store.load())
    finally:
        await store.close()


def refused(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Why files were refused."""
    return [str(vars(record)["facts"]["problem"]) for record in caplog.records if record.message == LOST]


# --- the file -------------------------------------------------------------------------------------------------


async def test_what_was_written_is_read_by_the_next_agent(file: Path) -> None:
    moments = {OffsetKey("g", "orders", BEGIN_ID): 1_795_348_800_000, OffsetKey("g", "", SEEN_ID): 1_795_694_400_000}
    await written(file, {K0: 5}, {K1: MAX_OFFSET, **moments}, {K0: 6})
    assert await loaded(file) == {K0: 6, K1: MAX_OFFSET, **moments}
    assert sorted(path.name for path in file.parent.iterdir()) == ["offsets.db", "offsets.db.bak"]


async def test_a_reset_is_written_and_a_lower_offset_is_not(file: Path) -> None:
    store = store_at(file)
    await store.load()
    assert await store.write([OffsetChange(K0, 9), OffsetChange(K1, 9)]) == {}
    assert await store.write([OffsetChange(K0, 4), OffsetChange(K1, 4, reset=True)]) == {K0: 9}
    await store.close()
    assert await loaded(file) == {K0: 9, K1: 4}


async def test_an_epoch_is_written_with_its_offset_and_holds_against_a_higher_one(file: Path) -> None:
    store = store_at(file)
    await store.load()
    await store.write([OffsetChange(K0, 9), OffsetChange(K1, 9)])
    await store.write([OffsetChange(K0, with_epoch(4, 7_000), reset=True)])
    assert await store.write([OffsetChange(K0, 10, reset=True)]) == {K0: with_epoch(4, 7_000)}
    await store.close()
    assert await loaded(file) == {K0: with_epoch(4, 7_000), K1: 9}
    store = store_at(file)
    await store.load()
    await store.write([OffsetChange(K0, with_epoch(4, 7_000), removed=True)])
    await store.close()
    assert await loaded(file) == {K1: 9}


async def test_a_file_of_version_0_1_0_gets_the_table_of_epochs_and_one_of_ours_is_read_there(file: Path) -> None:
    offsets = Table("offsets", ("consumer_group", "topic", "queue"), ("value",))

    def released() -> DurableTables:
        return DurableTables(file, [offsets], application_id=APPLICATION_ID)

    old = released()
    old.open()
    old.write([("offsets", ("g", "orders", "0"), ("9",))])
    old.close()
    await written(file, {K1: with_epoch(3, 7_000)})
    again = released()
    rows = again.open().rows["offsets"]
    assert rows == [("g", "orders", "0", "9"), (K1.group, K1.topic, str(K1.queue_id), "3")]
    again.write([("offsets", (K1.group, K1.topic, str(K1.queue_id)), ("4",))])
    again.close()
    assert await loaded(file) == {K0: 9, K1: with_epoch(4, 7_000)}


async def test_an_expired_offset_is_removed_from_the_file(file: Path) -> None:
    store = store_at(file)
    await store.load()
    await store.write(changes({K0: 9, K1: 9}))
    await store.write([OffsetChange(K0, 9, removed=True)])
    await store.close()
    assert await loaded(file) == {K1: 9}


async def test_the_copy_made_every_minute_replaces_a_damaged_file(
    file: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = FileStore(file, clock=clock)
    await store.load()
    for offset in (5, 7):  # the copy has only the first
        await store.write(changes({K0: offset, K1: offset}))
    await clock.advance(BACK_UP_SECONDS)
    await store.write(changes({K0: 9}))
    await store.write(changes({K0: 10, K1: 10}))
    await store.close()
    put(file, b"\0" * 300)
    assert await loaded(file) == {K0: 9, K1: 7}
    assert [record.message for record in caplog.records] == [RESTORED]
    assert await loaded(file) == {K0: 9, K1: 7}


async def test_a_copy_that_is_damaged_as_well_gives_nothing(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    await written(file, {K0: 7})
    for each in (file, file.with_name("offsets.db.bak")):
        put(each, b"\0" * 300)
    assert await loaded(file) == {}
    assert ["not a database" in problem for problem in refused(caplog)] == [True]


async def test_a_folder_that_cannot_be_had_is_a_failure_until_it_can(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no folder")
    file = tmp_path / "state" / "offsets.db"
    store = store_at(file)
    assert await store.load() == {}
    for _ in range(3):
        with pytest.raises(StoreFailed, match=r"cannot be written: (File exists|Not a directory)"):
            await store.write(changes({K0: 5}))
        assert not store.is_ours()
    (tmp_path / "state").unlink()
    assert await store.load() == {}
    assert store.is_ours()
    await store.write(changes({K0: 5}))
    await store.close()
    assert await loaded(file) == {K0: 5}


async def test_offsets_in_a_folder_that_cannot_be_written_are_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await written(file, {K0: 5})
    store = store_at(file)

    def cannot_open() -> dict[str, list[Row]]:
        raise OSError(errno.ENOENT, "its folder does not exist or cannot be written (SQLITE_CANTOPEN)", str(file))

    monkeypatch.setattr(store._tables, "_open", cannot_open)
    assert await store.load() == {K0: 5}
    with pytest.raises(StoreFailed, match="its folder does not exist or cannot be written"):
        await store.write(changes({K0: 6}))
    await store.close()


async def test_a_store_that_was_never_loaded_writes_nothing_over_what_is_there(file: Path) -> None:
    await written(file, {K0: 5})
    store = store_at(file)
    with pytest.raises(StoreFailed, match="it was not loaded"):
        await store.write(changes({K0: 6}))
    await store.close()
    assert await loaded(file) == {K0: 5}


async def test_a_disk_that_hangs_fails_in_time_and_holds_one_thread_only(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_at(file)
    await store.load()
    store._timeout = 0.05
    answers, write = threading.Event(), DurableTables.write

    def hang(tables: DurableTables, rows: Iterable[tuple[str, Row, Row | None]]) -> None:
        answers.wait(20.0)
        write(tables, rows)

    monkeypatch.setattr(DurableTables, "write", hang)
    for _ in range(3):
        with pytest.raises(StoreFailed, match=r"the disk did not respond in 0\.05 s"):
            await store.write(changes({K0: 5}))
    assert [thread.name for thread in threading.enumerate()].count("offsets") == 1
    answers.set()
    store._timeout = 20.0
    await store.write(changes({K1: 1}))
    await store.close()
    assert await loaded(file) == {K0: 5, K1: 1}


# --- a kill ---------------------------------------------------------------------------------------------------

INTERVAL = 0.1
ONE_ROUND_BYTES = 30_000
"""Less than the log has after one round of all offsets, and more than before it."""
SLACK = 3.0
"""What a busy machine may add to an interval."""


async def test_after_a_sigkill_at_any_moment_offsets_are_complete_not_backwards_and_at_most_an_interval_old(
    file: Path, caplog: pytest.LogCaptureFixture, full: bool
) -> None:
    chance = random.Random(4)
    before, rounds = 0, 12 if full else 3
    for _ in range(rounds):
        reported, killed_at = _commit_and_kill(file, seconds=chance.uniform(0.0, 4 * INTERVAL))
        table = await loaded(file)
        # Every commit was the same number for all queues: a torn table would have two.
        numbers = set(table.values())
        assert len(numbers) == 1
        assert table.keys() == KEYS
        number = numbers.pop()
        assert before <= number
        assert all(committed <= number for committed, at in reported if at < killed_at - INTERVAL - SLACK)
        before = number
    assert before > rounds
    assert refused(caplog) == []


def _commit_and_kill(file: Path, *, seconds: float) -> tuple[list[tuple[int, float]], float]:
    """Let a process commit until something is on the disk, and ``seconds`` more; what it said, and when it died."""
    log = file.with_name(f"{file.name}-wal")
    command = [sys.executable, "-m", "tests.integration.broker_agent.offsets.offset_writer", str(file), str(INTERVAL)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines: list[str] = []
        reading = threading.Thread(target=lambda: lines.extend(process.stdout or ()))
        reading.start()
        ends_at = time.monotonic() + 60.0
        while not (log.exists() and log.stat().st_size > ONE_ROUND_BYTES):
            assert time.monotonic() < ends_at
            time.sleep(0.001)
        time.sleep(seconds)
        killed_at = time.monotonic()
        process.send_signal(signal.SIGKILL)
        reading.join()
    assert process.returncode == -signal.SIGKILL
    whole = (line.split() for line in lines if line.endswith("\n"))
    reported = [(int(number), float(at)) for number, at in whole]
    assert all(later == earlier + 1 for (earlier, _), (later, _) in itertools.pairwise(reported))
    return reported, killed_at
