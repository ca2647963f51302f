"""A deadline by the injected clock."""

from __future__ import annotations

import asyncio

import pytest

from pointsman.deadline import within
from pointsman.manual_clock import ManualClock


async def test_work_that_ends_in_time_gives_its_result(clock: ManualClock) -> None:
    async def work() -> int:
        await clock.sleep(2.9)
        return 7

    waiting = asyncio.create_task(within(clock, 3.0, work()))
    await clock.advance(2.9)

    assert await waiting == 7


async def test_work_that_takes_too_long_is_cancelled(clock: ManualClock) -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = asyncio.create_task(within(clock, 3.0, work()))
    await clock.advance(3.0)

    with pytest.raises(TimeoutError):
        await waiting
    assert ended.is_set()


async def test_a_failure_of_the_work_is_passed_on(clock: ManualClock) -> None:
    async def work() -> None:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        await within(clock, 3.0, work())


async def test_cancelling_the_wait_cancels_the_work(clock: ManualClock) -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = asyncio.create_task(within(clock, 3.0, work()))
    await clock.advance(1.0)
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended.is_set()
