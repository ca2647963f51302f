"""The system clock, and a manual clock with the same guarantees."""

from __future__ import annotations

import asyncio
from datetime import UTC, timedelta

import pytest

from pointsman.clock import Clock, SystemClock
from pointsman.manual_clock import ManualClock


@pytest.mark.parametrize("made", [SystemClock(), ManualClock()], ids=["system", "manual"])
async def test_utc_is_utc_and_a_sleep_of_zero_yields_once(made: Clock) -> None:
    order: list[str] = []

    async def other() -> None:
        order.append("other")

    task = asyncio.create_task(other())
    await made.sleep(-1)
    order.append("sleeper")
    await task

    assert made.utc_now().tzinfo is UTC
    assert order == ["other", "sleeper"]


async def test_the_manual_clock_wakes_each_sleeper_at_its_own_moment(clock: ManualClock) -> None:
    wakened: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        wakened.append((name, clock.monotonic()))

    tasks = [asyncio.create_task(sleeper(name, seconds)) for name, seconds in (("b", 2), ("a", 1), ("c", 9))]
    await clock.advance(5)
    assert wakened == [("a", 1_001.0), ("b", 1_002.0)]

    await clock.advance(4)
    await asyncio.gather(*tasks)
    assert wakened[-1] == ("c", 1_009.0)


async def test_a_jump_of_the_wall_clock_does_not_affect_the_monotonic_one(clock: ManualClock) -> None:
    before = clock.utc_now()

    clock.jump_wall_clock(timedelta(hours=-3))

    assert clock.monotonic() == 1_000.0
    assert before - clock.utc_now() == timedelta(hours=3)
