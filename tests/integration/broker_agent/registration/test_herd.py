"""A thousand agents whose name server is killed and comes back (reliability test L4); 200 in a fast run."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from pointsman_agent.core.registration_session import RegistrationState
from pointsman_agent.registration.loop import Timeouts
from tests.kit.agent.registration_loops import PROFILE, RunningFleet, own_state, running_fleet
from tests.kit.broker.redis.process import free_port
from tests.kit.name_server.process import real_name_server

AWAY_SECONDS = 5.0
"""Longer than it takes every back-off, ours and gRPC's, to reach its cap."""
BACK_SECONDS = 50.0
"""Ten times what it takes."""
PATIENCE_SECONDS = 100.0


async def all_registered(fleets: list[RunningFleet], addr: str) -> list[float]:
    """Wait until each is; return when that was seen of each, seconds from now."""
    started_at, seen = time.monotonic(), list[float]()
    waiting = list(fleets)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while waiting:
            still = [each for each in waiting if each.registration_state(addr) is not RegistrationState.REGISTERED]
            seen += [time.monotonic() - started_at] * (len(waiting) - len(still))
            waiting = still
            await asyncio.sleep(0.05)
    return seen


@pytest.mark.e2e
@pytest.mark.timeout(240)
async def test_many_agents_are_back_in_seconds_after_their_name_server_was_spread_and_none_refused(
    tmp_path: Path, full: bool
) -> None:
    agents = 1_000 if full else 200
    addr = f"127.0.0.1:{free_port()}"
    settings = {
        "server.listen": addr,
        "server.warm_up_seconds": 45.0,
        "monitoring.listen": f"127.0.0.1:{free_port()}",
        "snapshot.enabled": "false",
    }
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(real_name_server(tmp_path, settings=settings))
        fleets = []
        for number in range(agents):
            profile = replace(PROFILE, broker_name=f"b{number}", addr=f"10.0.{number // 250}.{number % 250 + 1}:10911")
            fleet = running_fleet(
                [addr],
                own=own_state([f"t{number}"]),
                profile=profile,
                draw=random.uniform,
                # Many times a thousand processes' share of these cores is needed for all of them in one.
                timeouts=Timeouts(beat=10.0, register=30.0),
            )
            fleets.append(await stack.enter_async_context(fleet))
        await all_registered(fleets, addr)

        await server.kill()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while {each.registration_state(addr) for each in fleets} != {RegistrationState.UNREACHABLE}:  # noqa: ASYNC110  # of another process
                await asyncio.sleep(0.5)
        await asyncio.sleep(AWAY_SECONDS)
        await server.start()
        seen = await all_registered(fleets, addr)

        async with asyncio.timeout(PATIENCE_SECONDS):
            while await server.metric("pointsman_namesrv_brokers", state="UP") != agents:  # noqa: ASYNC110  # of another process
                await asyncio.sleep(0.5)
        results = {
            result: sum(each.registrations(addr, result) for each in fleets)
            for result in ("accepted", "refused", "temporary_error", "held_by_other")
        }
    assert results == {"accepted": 2 * agents, "refused": 0, "temporary_error": 0, "held_by_other": 0}
    print(f"seconds from the start: first {seen[0]:.1f}, median {seen[agents // 2]:.1f}, last {seen[-1]:.1f}")
    assert seen[-1] <= BACK_SECONDS
    # They do not all arrive at one instant: the middle four fifths take at least a second.
    assert seen[agents * 9 // 10] - seen[agents // 10] >= 0.8
