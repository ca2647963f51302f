"""The loop's lateness: what counts as late, and that no pause is missed between two measurements."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pointsman.clock import SystemClock
from pointsman.manual_clock import ManualClock
from pointsman_namesrv.lateness import LoopLateness


async def measured(clock: ManualClock, passes: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    """Lateness of a sleep of 5 s, and when it ended."""
    lateness = LoopLateness(clock)
    sleeping = asyncio.create_task(lateness.sleep(5))
    await passes()
    return await sleeping, lateness.woken_at


async def test_a_loop_that_is_woken_in_time_is_not_late(clock: ManualClock) -> None:
    assert await measured(clock, lambda: clock.advance(60)) == (0.0, 1_005.0)


async def test_a_pause_is_measured_from_the_moment_the_loop_was_due(clock: ManualClock) -> None:
    async def passes() -> None:
        await clock.advance(2)
        await clock.pause(130)

    assert await measured(clock, passes) == (127.0, 1_132.0)


async def test_a_pause_that_ends_before_the_loop_is_due_makes_nothing_late(clock: ManualClock) -> None:
    async def passes() -> None:
        await clock.pause(4)
        await clock.advance(1)

    assert await measured(clock, passes) == (0.0, 1_005.0)


async def test_a_pause_between_two_sleeps_is_in_the_next_measure(clock: ManualClock) -> None:
    lateness = LoopLateness(clock)
    sleeping = asyncio.create_task(lateness.sleep(5))
    await clock.advance(5)
    assert await sleeping == 0.0

    await clock.pause(100)

    assert lateness.woken_at == 1_005.0
    assert await lateness.sleep(5) == 95.0
    assert lateness.woken_at == 1_105.0


async def test_a_loop_that_is_behind_still_yields() -> None:
    order: list[str] = []

    async def other() -> None:
        order.append("other")

    lateness = LoopLateness(SystemClock())
    task = asyncio.create_task(other())
    late = await lateness.sleep(-1)
    order.append("sleeper")
    await task

    assert late >= 0.0
    assert order == ["other", "sleeper"]


@pytest.mark.parametrize("seconds", [0.0, 130.0])
async def test_paused_sleepers_wake_in_their_order_at_the_end_of_the_pause(clock: ManualClock, seconds: float) -> None:
    wakened: list[tuple[str, float]] = []

    async def sleeper(name: str, after: float) -> None:
        await clock.sleep(after)
        wakened.append((name, clock.monotonic()))

    tasks = [asyncio.create_task(sleeper(name, after)) for name, after in (("b", 20), ("a", 10), ("c", 500))]
    await clock.pause(seconds)
    late = [("a", 1_130.0), ("b", 1_130.0)] if seconds else []
    assert wakened == late

    await clock.advance(600)
    await asyncio.gather(*tasks)
    assert wakened[-1] == ("c", 1_500.0)
