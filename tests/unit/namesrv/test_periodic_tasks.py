"""A pause of this process is credited once, whichever task measures it first."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_namesrv.core.events import Event
from pointsman_namesrv.core.lifecycle import NodeLifecycle
from pointsman_namesrv.core.liveness import LivenessRules
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.history.recorder import Recorder
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.own_pauses import CREDITED_SECONDS, OwnPauses
from pointsman_namesrv.periodic_tasks import STEP_SECONDS, PeriodicTasks

SWEEP_SECONDS = 5.0
PAUSE_SECONDS = 3.0


class StallingNameServer(NameServer):
    """Pauses in the middle of each sweep, like a process stopped there."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(rules=LivenessRules(), first_generation=1, started_at=clock.monotonic())
        self.clock = clock
        self.stalls = 0

    def sweep(self, *, now: float) -> tuple[Event, ...]:
        events = super().sweep(now=now)
        self.stalls += 1
        self.clock.now += PAUSE_SECONDS
        return events


async def nothing_lags() -> bool:
    return False


async def nothing_is_read() -> None: ...


@contextlib.asynccontextmanager
async def running(periodic: PeriodicTasks) -> AsyncIterator[None]:
    task = asyncio.create_task(periodic.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("beats", [False, True], ids=["no heartbeat", "a heartbeat during the sweep's pause"])
async def test_a_pause_in_the_middle_of_a_sweep_is_credited_once(beats: bool) -> None:
    clock, metrics = ManualClock(), Metrics()
    core = StallingNameServer(clock)
    pauses = OwnPauses(core, clock=clock, metrics=metrics, record=lambda _: None)
    periodic = PeriodicTasks(
        core,
        Recorder(None, node="n:1", boot_id="b", clock=clock, metrics=metrics, queue_rows=9),
        record=lambda _: None,
        pauses=pauses,
        lifecycle=NodeLifecycle(started_at=clock.monotonic(), warm_up_seconds=0.0),
        clock=clock,
        metrics=metrics,
        settle=nothing_lags,
        until_read=nothing_is_read,
    )

    async def beat() -> None:
        while True:
            pauses.catch_up(clock.monotonic())
            await asyncio.sleep(0)

    async with running(periodic):
        beating = asyncio.create_task(beat()) if beats else None
        await clock.advance(SWEEP_SECONDS + STEP_SECONDS)
        if beating is not None:
            beating.cancel()
    paused = metrics.registry.get_sample_value("pointsman_namesrv_paused_seconds_total") or 0.0
    assert core.stalls == 1
    assert paused == pytest.approx(PAUSE_SECONDS, abs=STEP_SECONDS + CREDITED_SECONDS)
