"""Offsets in a file: whole or the one before, whatever the disk and a SIGKILL do."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import logging
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.service.clock import SystemClock
from pointsman_agent.core.offsets import BEGIN_ID, MAX_OFFSET, SEEN_ID, OffsetChange, OffsetKey
from pointsman_agent.offsets import file_format
from pointsman_agent.offsets.file_format import Damaged
from pointsman_agent.offsets.file_store import FileStore
from pointsman_agent.offsets.store import StoreFailed
from tests.fakes.offset_writer import KEYS

ROOT = Path(__file__).parents[3]
K0, K1 = OffsetKey("g", "orders", 0), OffsetKey("h|2", "%RETRY%g", 12)

NAMES = st.text("ab%|-_0", min_size=1, max_size=5)
TABLES = st.dictionaries(st.builds(OffsetKey, NAMES, NAMES, st.integers(0, 65_534)), st.integers(0, MAX_OFFSET))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """In a folder that is not there yet."""
    return tmp_path / "state" / "offsets.json"


def store_at(file: Path) -> FileStore:
    return FileStore(file, clock=SystemClock())


def put(file: Path, content: bytes) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)


def remove(path: Path) -> None:
    path.unlink()


def beside(file: Path, suffix: str) -> bytes:
    return file.with_name(file.name + suffix).read_bytes()


def changes(table: Mapping[OffsetKey, int]) -> list[OffsetChange]:
    return [OffsetChange(key, offset) for key, offset in table.items()]


async def written(file: Path, *tables: Mapping[OffsetKey, int]) -> None:
    """Write one after the other with one store, and let go."""
    store = store_at(file)
    await store.load()
    for table in tables:
        await store.write(changes(table))
    await store.close()


async def loaded(file: Path) -> dict[OffsetKey, int]:
    """What a new agent finds."""
    store = store_at(file)
    table = dict(await store.load())
    await store.close()
    return table


def refused(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Why files were refused."""
    return [
        str(vars(record)["facts"]["problem"])
        for record in caplog.records
        if record.message == "a file of offsets is refused"
    ]


# --- the form -------------------------------------------------------------------------------------------------


@given(TABLES)
def test_a_table_is_read_as_it_was_written_and_is_json(table: dict[OffsetKey, int]) -> None:
    data = b"".join(file_format.encode(table))
    assert file_format.decode(data) == table
    assert json.loads(data)["format"] == "pointsman-offsets"


def test_the_layout_is_what_the_page_says() -> None:
    begin, seen = OffsetKey("g", "orders", BEGIN_ID), OffsetKey("g", "", SEEN_ID)
    table = {K0: 12, OffsetKey("g", "orders", 1): 7, K1: 1, begin: 1_795_348_800_000, seen: 1_795_694_400_000}
    lines = b"".join(file_format.encode(table)).decode().splitlines()
    assert lines[:8] == [
        '{"format": "pointsman-offsets", "version": 1, "offset_table": {',
        '"orders@g": {"0": 12, "1": 7},',
        '"%RETRY%g@h|2": {"12": 1}',
        '}, "moments": {',
        '"orders@g": {"begin": 1795348800000},',
        '"@g": {"seen": 1795694400000}',
        "},",
        lines[7],
    ]
    assert lines[7].startswith('"sha256": "')


def test_a_file_cut_off_anywhere_or_changed_in_one_byte_is_refused() -> None:
    data = b"".join(file_format.encode({K0: 12, K1: 345}))
    for size in range(len(data)):
        with pytest.raises(Damaged):
            file_format.decode(data[:size])
    for place in range(len(data)):
        with pytest.raises(Damaged):
            file_format.decode(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    with pytest.raises(Damaged):
        file_format.decode(data + b"\n")


def sealed(text: str) -> bytes:
    """A content of somebody else's with a checksum that fits."""
    return f'{text}"sha256": "{hashlib.sha256(text.encode()).hexdigest()}"}}\n'.encode()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"format": "pointsman-offsets", "version": 2, "offset_table": {},\n', "this agent reads 1"),
        ('{"format": "other", "version": 1, "offset_table": {},\n', "'other'"),
        ('{"offsetTable": {},\n', "a layout of its own: KeyError"),
        ('{"format": "pointsman-offsets", "version": 1, "offset_table": [],\n', "a layout of its own"),
        ("nonsense,\n", "a layout of its own"),
        ('{"format": "pointsman-offsets", "version": 1, "offset_table": {"t@g": {"0": -1}},\n', "'t@g', queue '0': -1"),
        (
            '{"format": "pointsman-offsets", "version": 1, "offset_table": {"t@g": {"0": 18446744073709551616}},\n',
            "18446744073709551616",
        ),
        ('{"format": "pointsman-offsets", "version": 1, "offset_table": {"t@g": {"0": "5"}},\n', "'5'"),
        ('{"format": "pointsman-offsets", "version": 1, "offset_table": {"t@g": {"0": true}},\n', "True"),
        ('{"format": "pointsman-offsets", "version": 1, "offset_table": {"t@g": {"65535": 1}},\n', "'65535'"),
        ('{"format": "pointsman-offsets", "version": 1, "offset_table": {"t": {"0": 1}},\n', "'t'"),
        ('{"format": "pointsman-offsets", "version": 1, "offset_table": {"t t@g": {"0": 1}},\n', "'t t@g'"),
    ],
)
def test_what_no_agent_of_this_version_wrote_is_refused_and_named(text: str, said: str) -> None:
    with pytest.raises(Damaged, match=re.escape(said)):
        file_format.decode(sealed(text))


# --- the file -------------------------------------------------------------------------------------------------


async def test_without_a_file_there_are_no_offsets_and_nothing_is_said(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert await loaded(file) == {}
    assert caplog.messages == []


async def test_what_was_written_is_read_by_the_next_agent(file: Path) -> None:
    await written(file, {K0: 5}, {K1: MAX_OFFSET}, {K0: 6})
    assert await loaded(file) == {K0: 6, K1: MAX_OFFSET}
    assert {path.name for path in file.parent.iterdir()} == {"offsets.json", "offsets.json.bak", "offsets.json.lock"}


async def test_a_reset_is_written_and_a_lower_offset_is_not(file: Path) -> None:
    store = store_at(file)
    await store.load()
    assert await store.write([OffsetChange(K0, 9), OffsetChange(K1, 9)]) == {}
    assert await store.write([OffsetChange(K0, 4), OffsetChange(K1, 4, reset=True)]) == {K0: 9}
    await store.close()
    assert await loaded(file) == {K0: 9, K1: 4}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (b"\0" * 300, "has no checksum at the end of its 300 bytes"),
        (b'{"offsetTable":{"T@G":{0:12}}}', "has no checksum"),
    ],
)
async def test_a_damaged_file_is_refused_its_backup_read_and_it_is_kept_for_whoever_wants_to_look(
    file: Path, caplog: pytest.LogCaptureFixture, content: bytes, why: str
) -> None:
    await written(file, {K0: 5}, {K0: 6})
    put(file, content)
    assert await loaded(file) == {K0: 5}
    assert [why in problem for problem in refused(caplog)] == [True]
    assert "offsets are read from the backup, which may lack the last ones" in caplog.messages

    await written(file, {K0: 7})
    assert await loaded(file) == {K0: 7}
    assert beside(file, ".damaged") == content
    assert file_format.decode(beside(file, ".bak")) == {K0: 5}


async def test_a_missing_file_is_read_from_its_backup(file: Path) -> None:
    await written(file, {K0: 5}, {K0: 6})
    remove(file)
    assert await loaded(file) == {K0: 5}


async def test_where_both_are_damaged_that_is_said_and_the_agent_goes_on(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await written(file, {K0: 5}, {K0: 6})
    put(file, b"x")
    put(file.with_name("offsets.json.bak"), b"")
    assert await loaded(file) == {}
    assert refused(caplog) == ["has no checksum at the end of its 1 bytes", "is empty"]
    assert "there are no offsets: neither the file nor its backup can be read" in caplog.messages
    await written(file, {K0: 7})
    assert await loaded(file) == {K0: 7}


async def test_a_file_of_a_later_version_is_not_overwritten_unkept(file: Path) -> None:
    later = sealed('{"format": "pointsman-offsets", "version": 2, "offset_table": {},\n')
    put(file, later)
    await written(file, {K0: 1})
    assert beside(file, ".damaged") == later


async def test_what_a_crash_left_unfinished_is_no_hindrance(file: Path) -> None:
    await written(file, {K0: 5})
    file.with_name("offsets.json.tmp").write_bytes(b"half of")
    os.link(file, file.with_name("offsets.json.bak.tmp"))
    os.link(file, file.with_name("offsets.json.bak"))
    await written(file, {K0: 6}, {K0: 7})
    assert await loaded(file) == {K0: 7}
    assert file_format.decode(beside(file, ".bak")) == {K0: 6}
    assert not file.with_name("offsets.json.bak.tmp").exists()


async def test_on_a_file_system_without_links_there_is_a_backup_all_the_same(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    await written(file, {K0: 5}, {K0: 6})
    assert await loaded(file) == {K0: 6}
    remove(file)
    assert await loaded(file) == {K0: 5}


async def test_a_full_disk_is_a_failure_that_says_so_leaves_the_file_and_no_half_one(file: Path) -> None:
    store = store_at(file)
    await store.load()
    await store.write(changes({K0: 5}))
    unfinished = file.with_name("offsets.json.tmp")
    unfinished.symlink_to("/dev/full")
    with pytest.raises(StoreFailed, match="No space left on device"):
        await store.write(changes({K0: 6}))
    assert file_format.decode(beside(file, "")) == {K0: 5}
    assert not unfinished.is_symlink()
    # The disk has room again.
    assert await store.write(changes({K0: 6, K1: 1})) == {}
    await store.close()
    assert await loaded(file) == {K0: 6, K1: 1}


async def test_a_folder_that_cannot_be_had_is_a_failure_until_it_can(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no folder")
    file = tmp_path / "state" / "offsets.json"
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


async def test_a_folder_that_is_removed_is_made_again_with_everything(file: Path) -> None:
    store = store_at(file)
    await store.load()
    await store.write(changes({K0: 5, K1: 6}))
    for path in file.parent.iterdir():
        path.unlink()
    file.parent.rmdir()
    with pytest.raises(StoreFailed, match="was removed"):
        await store.write(changes({K0: 7}))
    assert not store.is_ours()
    assert await store.load() == {}
    await store.write(changes({K0: 7}))
    await store.close()
    assert await loaded(file) == {K0: 7, K1: 6}


async def test_of_two_agents_the_second_reads_and_writes_only_when_the_first_is_gone(file: Path) -> None:
    first, second = store_at(file), store_at(file)
    await first.load()
    await first.write(changes({K0: 5}))
    assert await second.load() == {K0: 5}
    assert (first.is_ours(), second.is_ours()) == (True, False)
    with pytest.raises(StoreFailed, match="another agent writes it"):
        await second.write(changes({K1: 1}))
    await first.write(changes({K0: 9}))
    await first.close()

    assert await second.load() == {K0: 9}
    assert second.is_ours()
    assert await second.write([OffsetChange(K0, 6), OffsetChange(K1, 1)]) == {K0: 9}
    await second.close()
    assert await loaded(file) == {K0: 9, K1: 1}


async def test_a_store_that_was_never_loaded_writes_nothing_over_what_is_there(file: Path) -> None:
    await written(file, {K0: 5})
    with pytest.raises(StoreFailed, match="it was not loaded"):
        await store_at(file).write(changes({K0: 6}))
    assert await loaded(file) == {K0: 5}


async def test_a_disk_that_hangs_fails_in_time_and_holds_one_thread_only(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(file, clock=SystemClock())
    await store.load()
    store._timeout = 0.05
    answers, fsync = threading.Event(), os.fsync

    def hang(descriptor: int) -> None:
        answers.wait(20.0)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", hang)
    for _ in range(3):
        with pytest.raises(StoreFailed, match=r"the disk did not answer in 0\.05 s"):
            await store.write(changes({K0: 5}))
    assert [thread.name for thread in threading.enumerate()].count("offsets") == 1
    answers.set()
    store._timeout = 20.0
    await store.write(changes({K1: 1}))
    await store.close()
    assert await loaded(file) == {K0: 5, K1: 1}


async def test_a_file_larger_than_any_of_offsets_is_not_read(
    file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pointsman_agent.offsets.file_store.MAX_FILE_BYTES", 100)
    caplog.set_level(logging.ERROR)
    put(file, b"x" * 101)
    assert await loaded(file) == {}
    assert refused(caplog) == ["has 101 bytes, at most 100 are read"]


# --- a kill ---------------------------------------------------------------------------------------------------

INTERVAL = 0.1
SLACK = 3.0
"""What a busy machine may add to an interval."""


async def test_after_a_sigkill_at_any_moment_offsets_are_whole_not_backwards_and_at_most_an_interval_old(
    file: Path, caplog: pytest.LogCaptureFixture, full: bool
) -> None:
    chance = random.Random(4)
    before, rounds = 0, 12 if full else 3
    for _ in range(rounds):
        said, killed_at = _commit_and_kill(file, seconds=chance.uniform(0.0, 4 * INTERVAL))
        table = await loaded(file)
        # Every commit was the same number for all queues: a table that is torn would hold two.
        numbers = set(table.values())
        assert len(numbers) == 1
        assert table.keys() == KEYS
        number = numbers.pop()
        assert before <= number
        assert all(committed <= number for committed, at in said if at < killed_at - INTERVAL - SLACK)
        before = number
    assert before > rounds
    assert refused(caplog) == []


def _commit_and_kill(file: Path, *, seconds: float) -> tuple[list[tuple[int, float]], float]:
    """Let a process commit until something is on the disk, and ``seconds`` more; what it said, and when it died."""
    known = file.stat().st_mtime_ns if file.exists() else 0
    command = [sys.executable, "-m", "tests.fakes.offset_writer", str(file), str(INTERVAL)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines: list[str] = []
        reading = threading.Thread(target=lambda: lines.extend(process.stdout or ()))
        reading.start()
        ends_at = time.monotonic() + 60.0
        while not (file.exists() and file.stat().st_mtime_ns != known):
            assert time.monotonic() < ends_at
            time.sleep(0.001)
        time.sleep(seconds)
        killed_at = time.monotonic()
        process.send_signal(signal.SIGKILL)
        reading.join()
    assert process.returncode == -signal.SIGKILL
    whole = (line.split() for line in lines if line.endswith("\n"))
    said = [(int(number), float(at)) for number, at in whole]
    assert all(later == earlier + 1 for (earlier, _), (later, _) in itertools.pairwise(said))
    return said, killed_at
