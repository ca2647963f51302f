"""The keeper: one round per interval, a last one at the stop, and no effect on serving."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pointsman.manual_clock import ManualClock
from pointsman.storage.tables import DurableTables
from pointsman_namesrv.core.liveness import LivenessRules
from pointsman_namesrv.core.model import Registration
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.request_rules import IntervalBounds
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.snapshot import keeper as module
from pointsman_namesrv.snapshot.keeper import SnapshotKeeper
from pointsman_namesrv.snapshot.snapshot_store import FILE_NAME, Snapshot, SnapshotStore, StateDirectoryInUse
from tests.kit.name_server.held_brokers import brokers_in, held, store
from tests.kit.waiting import eventually

INTERVAL = 5.0
DEADLINE = 10.0


def new_core(clock: ManualClock) -> NameServer:
    return NameServer(rules=LivenessRules(), first_generation=500, started_at=clock.now)


def new_keeper(
    core: NameServer, clock: ManualClock, folder: Path, *, keeping: SnapshotStore | None = None
) -> SnapshotKeeper:
    return SnapshotKeeper(core, keeping or store(folder), interval=INTERVAL, clock=clock, metrics=Metrics())


@asynccontextmanager
async def kept(keeper: SnapshotKeeper) -> AsyncIterator[None]:
    """Run a keeper that has started for the length of the block; stop it at the end."""
    running = asyncio.create_task(keeper.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])
        await keeper.stop(within=DEADLINE)


def registration(number: int) -> Registration:
    return held(number)[0]


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def value(keeper: SnapshotKeeper, name: str) -> float | None:
    return keeper._metrics.registry.get_sample_value(name)


async def test_a_round_is_written_each_interval(clock: ManualClock, tmp_path: Path) -> None:
    core = new_core(clock)
    keeper = new_keeper(core, clock, tmp_path)
    keeper.warm_start()
    async with kept(keeper):
        core.register(registration(1), now=clock.now)
        await clock.advance(INTERVAL - 0.1)
        assert brokers_in(tmp_path) == []
        await clock.advance(0.1)
        await eventually(lambda: value(keeper, "pointsman_namesrv_snapshot_brokers") == 1)
        assert brokers_in(tmp_path) == ["b1"]
        assert value(keeper, "pointsman_namesrv_snapshot_bytes") == bytes_in(tmp_path)
        assert value(keeper, "pointsman_namesrv_snapshot_age_seconds") == 0.0
        await clock.advance(1.0)
        assert value(keeper, "pointsman_namesrv_snapshot_age_seconds") == 1.0


async def test_a_failing_disk_is_logged_once_until_it_works_again(
    clock: ManualClock, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    core = new_core(clock)
    keeper = new_keeper(core, clock, tmp_path)
    keeper.warm_start()
    monkeypatch.setattr(DurableTables, "write", _refuse)
    async with kept(keeper):
        core.register(registration(1), now=clock.now)
        for errors in (1.0, 2.0, 3.0):
            await clock.advance(INTERVAL)
            await eventually(partial(_has_failed, keeper, errors))
        assert keeper.problems() == [
            "the snapshot on disk is 15 s old, for it cannot be written: [Errno 28] No space left on device"
        ]
        assert value(keeper, "pointsman_namesrv_snapshot_age_seconds") == 15.0
        monkeypatch.undo()
        await clock.advance(INTERVAL)
        await eventually(lambda: not keeper.problems())
    logged = [(record.levelname, record.message) for record in caplog.records]
    assert logged == [
        ("INFO", "snapshot loaded"),
        ("ERROR", "snapshot cannot be written; a restart would start from an older one"),
        ("INFO", "snapshot is written again"),
    ]


def _refuse(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _has_failed(keeper: SnapshotKeeper, times: float) -> bool:
    return value(keeper, "pointsman_namesrv_snapshot_write_errors_total") == times


async def test_an_internal_error_in_a_round_is_logged_and_the_next_round_runs(
    clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    core = new_core(clock)
    keeping = store(tmp_path)
    keeper = new_keeper(core, clock, tmp_path, keeping=keeping)
    keeper.warm_start()
    async with kept(keeper):
        with monkeypatch.context() as faulty:
            faulty.setattr(keeping, "write", _fail)
            await clock.advance(INTERVAL)
            await eventually(keeper.problems)
        await clock.advance(INTERVAL)
        await eventually(lambda: not keeper.problems())
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.exc_info is not None


def _fail(*_: object, **__: object) -> None:
    raise ValueError("a fault of ours")


class HangingStore(SnapshotStore):
    """A disk that hangs until the test continues it."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.answers = threading.Event()
        self.asked = threading.Event()

    def write(self, snapshot: Snapshot, **more: Any) -> Any:
        self.asked.set()
        assert self.answers.wait(DEADLINE)
        return super().write(snapshot, **more)


async def test_a_hanging_disk_blocks_neither_the_loop_nor_the_stop(clock: ManualClock, tmp_path: Path) -> None:
    hanging = HangingStore(directory=tmp_path, bounds=IntervalBounds(), max_topics=10)
    keeper = new_keeper(new_core(clock), clock, tmp_path, keeping=hanging)
    keeper.warm_start()
    running = asyncio.create_task(keeper.run())
    await clock.advance(INTERVAL)
    await eventually(hanging.asked.is_set)
    await clock.advance(module.LATE_AFTER_SECONDS + 0.1)
    assert keeper.problems() == ["the snapshot on disk is 65 s old: the disk is hardly responding"]
    running.cancel()
    await asyncio.wait([running])
    assert not await keeper.stop(within=0.05)
    hanging.answers.set()
    await asyncio.to_thread(keeper._thread.join, DEADLINE)
    # It gave up where it was: what it had not begun is not written.
    assert not keeper._thread.is_alive()
    hanging.close()
    assert brokers_in(tmp_path) == []


async def test_a_start_that_failed_leaves_the_snapshot_as_it_was(clock: ManualClock, tmp_path: Path) -> None:
    first = new_core(clock)
    keeper = new_keeper(first, clock, tmp_path)
    keeper.warm_start()
    first.register(registration(1), now=clock.now)
    second = new_keeper(new_core(clock), clock, tmp_path)
    with pytest.raises(StateDirectoryInUse):
        second.warm_start()
    assert await second.stop(within=DEADLINE)
    assert await keeper.stop(within=DEADLINE)
    assert await keeper.stop(within=DEADLINE)
    third = new_keeper(new_core(clock), clock, tmp_path)
    assert len(third.warm_start().brokers) == 1
    # A start that failed after reading stops immediately.
    assert await third.stop(within=DEADLINE)
    assert brokers_in(tmp_path) == ["b1"]


async def test_stopping_releases_the_folder_immediately(clock: ManualClock, tmp_path: Path) -> None:
    for _ in range(3):
        keeper = new_keeper(new_core(clock), clock, tmp_path)
        keeper.warm_start()
        assert await keeper.stop(within=DEADLINE)
    assert os.listdir(tmp_path) == [FILE_NAME]
