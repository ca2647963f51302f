"""Waits that end by a call or by time."""

from __future__ import annotations

import asyncio

from pointsman.manual_clock import ManualClock
from pointsman_client.aio import Wakeup, done_within


async def test_a_call_ends_the_wait_and_time_does_too(clock: ManualClock) -> None:
    wakeup = Wakeup(clock)
    woken, late = asyncio.ensure_future(wakeup.wait(10)), None
    await clock.advance(9)
    assert not woken.done()
    wakeup.wake()
    assert await woken is True
    late = asyncio.ensure_future(wakeup.wait(10))
    await clock.advance(10)
    assert await late is False


async def test_a_call_before_the_wait_is_not_lost_and_counts_once(clock: ManualClock) -> None:
    wakeup = Wakeup(clock)
    wakeup.wake()
    wakeup.wake()
    assert await wakeup.wait(10) is True
    again = asyncio.ensure_future(wakeup.wait(1))
    await clock.advance(0)
    assert not again.done()
    await clock.advance(1)
    assert await again is False


async def test_a_cancelled_wait_leaves_nothing_behind(clock: ManualClock) -> None:
    before = asyncio.all_tasks()
    waiting = asyncio.ensure_future(Wakeup(clock).wait(10))
    await clock.advance(0)
    waiting.cancel()
    await clock.advance(0)
    assert asyncio.all_tasks() == before


async def test_work_done_in_time_is_reported_and_late_work_continues(clock: ManualClock) -> None:
    work = asyncio.ensure_future(clock.sleep(5))
    late = asyncio.ensure_future(done_within(work, 4, clock=clock))
    await clock.advance(4)
    assert await late is False

    in_time = asyncio.ensure_future(done_within(work, 4, clock=clock))
    await clock.advance(1)
    assert await in_time is True
    assert not work.cancelled()
