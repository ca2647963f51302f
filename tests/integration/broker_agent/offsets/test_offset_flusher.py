"""Flushing of offsets to their store: when, what a failure costs, and what is logged."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry

from pointsman.manual_clock import ManualClock
from pointsman_agent.core.offsets import OffsetKey, Offsets
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.offsets.flusher import ABSORB_BATCH, Flusher, OffsetMetrics
from tests.kit.agent.memory_store import MemoryStore

Q0, Q1 = QueueKey("orders", 0), QueueKey("orders", 1)
K0, K1 = OffsetKey("g", *Q0), OffsetKey("g", *Q1)


@dataclass
class Flushing:
    """A flusher with an interval of 5 s, with its offset table and its store."""

    offsets: Offsets
    store: MemoryStore
    flusher: Flusher
    registry: CollectorRegistry

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run for the length of the block."""
        running = asyncio.create_task(self.flusher.run())
        try:
            yield
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


@pytest.fixture
def flushing(clock: ManualClock) -> Flushing:
    registry, offsets, store = CollectorRegistry(), Offsets(), MemoryStore()
    flusher = Flusher(offsets, store, interval=5.0, clock=clock, metrics=OffsetMetrics(registry))
    return Flushing(offsets, store, flusher, registry)


async def test_the_content_of_the_store_is_loaded(flushing: Flushing, clock: ManualClock) -> None:
    flushing.store.table = {K0: 7}
    assert not flushing.flusher.is_loaded
    async with flushing.running():
        await clock.advance(0.0)
        assert flushing.flusher.is_loaded
        assert flushing.offsets.get("g", [Q0]) == {Q0: 7}
        assert flushing.metric("pointsman_agent_offsets") == 1.0


async def test_very_many_offsets_are_loaded_with_pauses_and_nothing_is_served_before_all_are(
    flushing: Flushing, clock: ManualClock
) -> None:
    flushing.store.table = {OffsetKey("g", "orders", n): n for n in range(2 * ABSORB_BATCH + 1)}
    reading = asyncio.create_task(flushing.flusher.refresh())
    await clock.advance(0.0)
    assert len(flushing.offsets) == ABSORB_BATCH
    assert not flushing.flusher.is_loaded
    await clock.advance(1.0)
    assert await reading
    assert flushing.flusher.is_loaded
    assert dict(flushing.offsets.page(limit=10**6)) == flushing.store.table


@pytest.mark.parametrize("committed_after", [0.0, 0.1, 3.9, 4.0, 4.1])
async def test_a_commit_is_in_the_store_within_the_interval(
    flushing: Flushing, clock: ManualClock, committed_after: float
) -> None:
    async with flushing.running():
        await clock.advance(20.0 + committed_after)
        flushing.offsets.commit("g", {Q0: 7})
        await clock.advance(4.999)
        assert flushing.store.table == {K0: 7}


async def test_nothing_is_written_while_nothing_is_committed(flushing: Flushing, clock: ManualClock) -> None:
    async with flushing.running():
        await clock.advance(600.0)
    assert flushing.store.writes == []
    assert flushing.store.loads <= 2


async def test_an_exclusive_store_sets_no_timer_while_nothing_is_committed(
    flushing: Flushing, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with flushing.running():
        await clock.advance(600.0)
        sleeps: list[float] = []
        sleep = clock.sleep

        async def count(seconds: float) -> None:
            sleeps.append(seconds)
            await sleep(seconds)

        monkeypatch.setattr(clock, "sleep", count)
        await clock.advance(600.0)
        assert sleeps == []
        flushing.offsets.commit("g", {Q0: 7})
        await clock.advance(600.0)
        assert (sleeps, flushing.store.table) == ([4.0], {K0: 7})


async def test_the_age_of_a_commit_counts_from_that_commit_after_any_idle_time(
    flushing: Flushing, clock: ManualClock
) -> None:
    async with flushing.running():
        await clock.advance(3_600.0)
        flushing.offsets.commit("g", {Q0: 7})
        assert (flushing.metric("pointsman_agent_offsets_unwritten_age_seconds"), flushing.flusher.durable_within) == (
            0.0,
            5.0,
        )
        await clock.advance(3.0)
        flushing.offsets.commit("g", {Q1: 7})
        assert flushing.metric("pointsman_agent_offsets_unwritten_age_seconds") == 3.0


async def test_a_commit_during_a_write_is_written_by_the_next_round(flushing: Flushing, clock: ManualClock) -> None:
    async with flushing.running():
        await clock.advance(20.0)
        flushing.store.go_on.clear()
        flushing.offsets.commit("g", {Q0: 7})
        await clock.advance(4.0)
        flushing.offsets.commit("g", {Q0: 8})
        assert flushing.metric("pointsman_agent_offsets_unwritten_age_seconds") == 4.0
        flushing.store.go_on.set()
        await clock.advance(4.0)
        assert flushing.store.table == {K0: 8}


async def test_a_store_that_another_agent_may_take_over_is_checked_every_round(
    flushing: Flushing, clock: ManualClock
) -> None:
    flushing.store.may_be_taken = True
    async with flushing.running():
        await clock.advance(40.0)
        flushing.store.ours = False
        flushing.store.table[K0] = 3
        await clock.advance(4.0)
        assert flushing.offsets.get("g", [Q0]) == {Q0: 3}


async def test_a_store_that_cannot_be_read_at_the_start_is_retried_and_logged_once(
    flushing: Flushing, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    flushing.store.problem, flushing.store.table = "redis is away", {K0: 7}
    async with flushing.running():
        await clock.advance(10.0)
        assert not flushing.flusher.is_loaded
        assert flushing.flusher.problem == "redis is away"
        flushing.store.problem = ""
        await clock.advance(1.0)
        assert flushing.flusher.is_loaded
    assert [record.message for record in caplog.records] == [
        "offsets cannot be read from the store",
        "offsets are read again",
        "offsets loaded",
    ]
    assert flushing.metric("pointsman_agent_offset_store_operations_total", result="failed") == 11.0


async def test_while_the_store_fails_one_commit_per_queue_is_held_and_the_failure_is_logged_once(
    flushing: Flushing, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with flushing.running():
        await clock.advance(4.0)
        caplog.set_level(logging.INFO)
        caplog.clear()
        flushing.store.problem = "no space left on device"
        for offset in range(100):
            flushing.offsets.commit("g", {Q0: offset, Q1: offset})
            await clock.advance(1.0)
        assert flushing.metric("pointsman_agent_offsets_unwritten") == 2.0
        assert flushing.metric("pointsman_agent_offsets_unwritten_age_seconds") >= 96.0
        assert flushing.flusher.durable_within >= 96.0
        assert flushing.flusher.problem == "no space left on device"
        assert 20 <= flushing.metric("pointsman_agent_offset_store_operations_total", result="failed") <= 26
        assert flushing.store.table == {}

        flushing.store.problem = ""
        await clock.advance(4.0)
        assert flushing.store.table == {K0: 99, K1: 99}
        assert (flushing.metric("pointsman_agent_offsets_unwritten"), flushing.flusher.problem) == (0.0, "")
        assert flushing.flusher.durable_within == 5.0
    assert [record.message for record in caplog.records] == [
        "offsets cannot be written; they are in memory only",
        "offsets are written again",
    ]


async def test_a_clean_stop_writes_the_last_commits(flushing: Flushing, clock: ManualClock) -> None:
    async with flushing.running():
        await clock.advance(1.0)
    flushing.offsets.commit("g", {Q0: 7})
    assert await flushing.flusher.finish(2.0)
    assert flushing.store.table == {K0: 7}
    assert flushing.store.is_closed


async def test_a_stop_in_the_middle_of_a_write_writes_it_again(flushing: Flushing, clock: ManualClock) -> None:
    flushing.store.go_on.clear()
    async with flushing.running():
        await clock.advance(0.0)
        flushing.offsets.commit("g", {Q0: 7})
        await clock.advance(4.0)
        assert len(flushing.store.writes) == 1
        flushing.offsets.commit("g", {Q0: 8})
    flushing.store.go_on.set()
    assert await flushing.flusher.finish(2.0)
    assert flushing.store.table == {K0: 8}


async def test_a_stop_does_not_wait_for_a_store_that_hangs_and_logs_what_is_lost(
    flushing: Flushing, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await flushing.flusher.refresh()
    flushing.offsets.commit("g", {Q0: 7})
    flushing.store.go_on.clear()
    finishing = asyncio.create_task(flushing.flusher.finish(2.0))
    await clock.advance(1.9)
    assert not finishing.done()
    await clock.advance(0.2)
    assert await finishing is False
    assert "final offset flush failed; recent commits are lost" in caplog.messages
    assert flushing.store.is_closed


async def test_a_store_that_another_agent_writes_is_read_until_this_agent_owns_it(
    flushing: Flushing, clock: ManualClock
) -> None:
    flushing.store.ours = False
    async with flushing.running():
        await clock.advance(0.0)
        flushing.offsets.commit("g", {Q1: 5})
        flushing.store.table[K0] = 3
        await clock.advance(4.0)
        assert flushing.offsets.get("g", [Q0, Q1]) == {Q0: 3, Q1: 5}
        flushing.store.ours = True
        flushing.store.table[K0] = 4
        await clock.advance(4.0)
        assert flushing.offsets.get("g", [Q0]) == {Q0: 4}
        loads = flushing.store.loads
        await clock.advance(40.0)
        assert flushing.store.loads == loads


async def test_a_higher_offset_of_another_agent_is_not_overwritten_and_is_adopted(
    flushing: Flushing, clock: ManualClock
) -> None:
    async with flushing.running():
        await clock.advance(0.0)
        flushing.store.table[K0] = 10
        flushing.offsets.commit("g", {Q0: 5})
        await clock.advance(4.0)
        assert flushing.store.table == {K0: 10}
        assert flushing.offsets.get("g", [Q0]) == {Q0: 10}


async def test_a_read_of_the_store_during_a_write_reverts_no_commit(flushing: Flushing, clock: ManualClock) -> None:
    await flushing.flusher.refresh()
    flushing.offsets.commit("g", {Q0: 7})
    flushing.store.go_on.clear()
    writing = asyncio.create_task(flushing.flusher.flush())
    await clock.advance(0.0)
    flushing.offsets.commit("g", {Q0: 8})
    reading = asyncio.create_task(flushing.flusher.refresh())
    await clock.advance(0.0)
    flushing.store.go_on.set()
    assert await writing
    assert await reading
    assert flushing.offsets.get("g", [Q0]) == {Q0: 8}
