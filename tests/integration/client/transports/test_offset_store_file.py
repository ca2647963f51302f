"""A broadcasting consumer's offsets in a file: what was committed is read again, or rejected with a reason."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pointsman.manual_clock import ManualClock
from pointsman.storage.tables import DurableTables, Row
from pointsman_client.consumer.file_offset_store import (
    CLOSE_SECONDS,
    DISK_SECONDS,
    EPOCH,
    FileOffsetStore,
    offset_file_path,
)
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import OffsetFileError
from pointsman_client.ports.coordination import LoadedOffsets, OffsetStore
from tests.kit.agent.consumer_agents import queues_of
from tests.kit.waiting import eventually

A0, A1, A2 = queues_of("a", 0, 1, 2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "client" / "g.db"


@asynccontextmanager
async def opened(path: Path, clock: ManualClock, *, max_offsets: int = 100) -> AsyncIterator[FileOffsetStore]:
    store = FileOffsetStore(path, clock=clock, max_offsets=max_offsets)
    try:
        yield store
    finally:
        await store.close()


async def stored(path: Path, clock: ManualClock, queues: Collection[MessageQueue]) -> Mapping[MessageQueue, int]:
    """The offsets that the next consumer loads."""
    async with opened(path, clock) as store:
        loaded = await store.load(queues)
    assert not loaded.unknown
    return loaded.offsets


def test_each_group_and_client_has_its_own_file_with_a_portable_name() -> None:
    folder = Path("/offsets")
    ids = ["10.0.0.1@DEFAULT", "../../etc@1", "a/b@1", "a%2Fb@1", "x" * 250 + "@1", "x" * 250 + "@2", "ä@1"]
    paths = {offset_file_path(folder, group=group, client_id=each) for each in ids for group in ("g", "%RETRY%g")}
    assert len(paths) == 2 * len(ids)
    for path in paths:
        assert path.parent.parent == folder
        assert path.resolve() == path
        assert all(len(part.encode()) <= 255 for part in path.parts)
    assert offset_file_path(folder, group="g", client_id="10.0.0.1@DEFAULT") == folder / "10.0.0.1@DEFAULT" / "g.db"


async def test_offsets_and_begins_are_there_after_a_restart(path: Path, clock: ManualClock) -> None:
    async with opened(path, clock) as first:
        store: OffsetStore = first
        assert await store.load([A0]) == LoadedOffsets({}, {})
        await store.begin({"orders": clock.utc_now()})
        assert await store.commit({A0: 3, A1: 2**64 - 1}) == {}
    async with opened(path, clock) as store:
        assert await store.load([A0, A1, A2]) == LoadedOffsets({A0: 3, A1: 2**64 - 1}, {})
        began = (await store.begin({"orders": EPOCH.replace(year=2100)})).moments["orders"]
    assert abs((began - clock.utc_now()).total_seconds()) < 0.002
    assert [each.name for each in path.parent.iterdir()] == ["g.db"]


async def test_an_offset_goes_backwards_only_by_a_reset(path: Path, clock: ManualClock) -> None:
    async with opened(path, clock) as store:
        await store.commit({A0: 3})
        assert await store.commit({A0: 2}) == {}
        assert (await store.load([A0])).offsets == {A0: 3}
        await store.commit({A0: 2}, reset=True)
    assert await stored(path, clock, [A0]) == {A0: 2}


async def test_only_what_changed_is_written(path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[str, Row]] = []
    write = DurableTables.write

    def record(tables: DurableTables, rows: Iterable[tuple[str, Row, Row | None]]) -> None:
        rows = list(rows)
        written.extend((name, key) for name, key, _ in rows)
        write(tables, rows)

    monkeypatch.setattr(DurableTables, "write", record)
    async with opened(path, clock) as store:
        await store.commit({A0: 3, A1: 3})
        assert len(written) == 3
        await store.commit({A0: 3, A1: 2})
        assert len(written) == 3
        await store.commit({A0: 4, A1: 3})
        assert [name for name, _ in written] == ["offsets", "offsets", "begins", "offsets"]


async def test_a_file_that_cannot_be_read_or_written_is_an_error_of_each_queue(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where a folder should be")
    async with opened(blocked / "g.db", clock) as store:
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
    async with opened(path, clock, max_offsets=2) as store:
        failed = await store.commit({A0: 1, A1: 1, A2: 1})
        assert failed.keys() == {A2}
        assert "2 offsets" in str(failed[A2])
        assert await store.commit({A0: 2}) == {}
    assert await stored(path, clock, [A0, A1, A2]) == {A0: 2, A1: 1}


async def test_a_disk_that_hangs_blocks_no_commit_indefinitely(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, write = threading.Event(), DurableTables.write

    def slow(tables: DurableTables, rows: Iterable[tuple[str, Row, Row | None]]) -> None:
        go_on.wait(20)
        write(tables, rows)

    async with opened(path, clock) as store:
        await store.load([])
        monkeypatch.setattr(DurableTables, "write", slow)
        for _ in range(2):
            committing = asyncio.create_task(store.commit({A0: 1}))
            await asyncio.sleep(0.05)
            assert not committing.done()
            await clock.advance(DISK_SECONDS)
            failed = await committing
            assert "did not respond" in str(failed[A0])
        go_on.set()
        assert await store.commit({A0: 2}) == {}
    assert await stored(path, clock, [A0]) == {A0: 2}


async def test_a_close_waits_for_a_disk_that_hangs_a_bounded_time_and_the_file_is_closed_after_that(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go_on, write = threading.Event(), DurableTables.write

    def slow(tables: DurableTables, rows: Iterable[tuple[str, Row, Row | None]]) -> None:
        go_on.wait(20)
        write(tables, rows)

    store = FileOffsetStore(path, clock=clock)
    await store.load([])
    monkeypatch.setattr(DurableTables, "write", slow)
    committing = asyncio.create_task(store.commit({A0: 1}))
    await asyncio.sleep(0.05)
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0.05)
    await clock.advance(CLOSE_SECONDS)
    await closing
    assert "is not closed yet" in caplog.text
    go_on.set()
    assert await committing == {}
    await eventually(lambda: not store._tables.is_current(), seconds=10)
    assert await stored(path, clock, [A0]) == {A0: 1}


async def test_commits_at_the_same_time_lose_nothing(path: Path, clock: ManualClock) -> None:
    queues = queues_of("a", *range(20))
    async with opened(path, clock) as store:
        await asyncio.gather(*(store.commit({queue: 1}) for queue in queues))
    assert len(await stored(path, clock, queues)) == 20
