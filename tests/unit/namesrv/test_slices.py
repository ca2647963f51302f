"""Work in slices: a pause after each, which does not count as work."""

from __future__ import annotations

import asyncio

from pointsman.manual_clock import ManualClock
from pointsman_namesrv.slices import SLICE_SECONDS, Slices


async def test_work_pauses_only_when_its_slice_is_over() -> None:
    clock = ManualClock()
    slices = Slices(clock, pause=1.0)
    clock.now += SLICE_SECONDS / 2
    assert not slices.is_over()
    await slices.pause()

    clock.now += SLICE_SECONDS
    pausing = asyncio.create_task(slices.pause())
    await clock.advance(0.9)
    assert not pausing.done()
    await clock.advance(0.1)
    await pausing
    assert not slices.is_over()
    assert round(slices.worked() / SLICE_SECONDS, 6) == 1.5
