"""A broadcasting consumer's offsets in a file."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from pointsman_client.consumer import file_offset_store
from pointsman_client.consumer.coordination import LoadedOffsets, OffsetStore
from pointsman_client.consumer.file_offset_store import DISK_SECONDS, FileOffsetStore
from pointsman_client.consumer.offset_file import FileContent, read_file, write_file
from pointsman_client.errors import OffsetFileError
from tests.fakes.consumer_agents import queues_of
from tests.fakes.manual_clock import ManualClock

A0, A1, A2 = queues_of("a", 0, 1, 2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "client" / "g.json"


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(data)


async def test_offsets_are_there_after_a_restart(path: Path, clock: ManualClock) -> None:
    store: OffsetStore = FileOffsetStore(path, clock=clock)
    assert await store.load([A0]) == LoadedOffsets({}, {})
    assert await store.commit({A0: 3, A1: 2**64 - 1}) == {}
    assert await FileOffsetStore(path, clock=clock).load([A0, A1, A2]) == LoadedOffsets({A0: 3, A1: 2**64 - 1}, {})
    assert [each.name for each in path.parent.iterdir()] == ["g.json"]


async def test_an_offset_goes_backwards_only_by_a_reset(path: Path, clock: ManualClock) -> None:
    store = FileOffsetStore(path, clock=clock)
    await store.commit({A0: 3})
    assert await store.commit({A0: 2}) == {}
    assert (await store.load([A0])).offsets == {A0: 3}
    await store.commit({A0: 2}, reset=True)
    assert (await FileOffsetStore(path, clock=clock).load([A0])).offsets == {A0: 2}


async def test_what_is_in_the_file_is_not_written_again(path: Path, clock: ManualClock) -> None:
    store = FileOffsetStore(path, clock=clock)
    await store.commit({A0: 3})
    write_file(path, FileContent({A1: 9}, {}))
    await store.commit({A0: 3})
    assert read_file(path).offsets == {A1: 9}
    await store.commit({A0: 4})
    assert read_file(path).offsets == {A0: 4}


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"format": "x", "version": 1, "offsets": []}', b"\xff" * 20])
async def test_a_damaged_file_is_set_aside_and_said(
    path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    put(path, data)
    store = FileOffsetStore(path, clock=clock)
    assert await store.load([A0]) == LoadedOffsets({}, {})
    assert path.with_name("g.json.damaged").read_bytes() == data
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert str(path) in caplog.text
    assert await store.commit({A0: 1}) == {}
    assert (await FileOffsetStore(path, clock=clock).load([A0])).offsets == {A0: 1}


async def test_a_file_that_cannot_be_read_or_written_is_an_error_of_each_queue(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where a folder should be")
    store = FileOffsetStore(blocked / "g.json", clock=clock)
    for _ in range(3):
        loaded = await store.load([A0])
        assert isinstance(loaded.unknown[A0], OffsetFileError)
        failed = await store.commit({A0: 1})
        assert "blocked" in str(failed[A0])
    assert len(caplog.records) == 1
    blocked.unlink()
    assert await store.commit({A0: 1}) == {}
    assert len(caplog.records) == 2


async def test_queues_beyond_the_bound_fail_alone(path: Path, clock: ManualClock) -> None:
    store = FileOffsetStore(path, clock=clock, max_offsets=2)
    failed = await store.commit({A0: 1, A1: 1, A2: 1})
    assert failed.keys() == {A2}
    assert "2 offsets" in str(failed[A2])
    assert await store.commit({A0: 2}) == {}
    assert (await FileOffsetStore(path, clock=clock).load([A0, A1, A2])).offsets == {A0: 2, A1: 1}


async def test_a_disk_that_hangs_holds_nobody_up_for_ever(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    def slow(to: Path, content: FileContent) -> None:
        go_on.wait(20)
        write_file(to, content)

    store = FileOffsetStore(path, clock=clock)
    await store.load([])
    monkeypatch.setattr(file_offset_store, "write_file", slow)
    for _ in range(2):
        committing = asyncio.create_task(store.commit({A0: 1}))
        await asyncio.sleep(0.05)
        assert not committing.done()
        await clock.advance(DISK_SECONDS)
        failed = await committing
        assert "did not answer" in str(failed[A0])
    go_on.set()
    assert await store.commit({A0: 2}) == {}
    assert (await FileOffsetStore(path, clock=clock).load([A0])).offsets == {A0: 2}


async def test_commits_at_the_same_time_lose_nothing(path: Path, clock: ManualClock) -> None:
    store = FileOffsetStore(path, clock=clock)
    await asyncio.gather(*(store.commit({queue: 1}) for queue in queues_of("a", *range(20))))
    assert len((await FileOffsetStore(path, clock=clock).load(queues_of("a", *range(20)))).offsets) == 20
