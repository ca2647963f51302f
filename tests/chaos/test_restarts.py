"""Name servers that are restarted or stopped in order, as at an upgrade, below clients and agents."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pointsman.config import to_toml
from pointsman_agent.config import AgentConfig, TopicRow, TopicsSection
from tests.bench.worker import worker
from tests.chaos.conftest import Report
from tests.chaos.product_clients import clients
from tests.chaos.test_watch_scale import free_port, wait_for_watchers
from tests.kit.agent.process import agent_process
from tests.kit.faults.processes import Pace, agents, config_of
from tests.kit.name_server.process import RealNameServer, real_name_server

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

TOPIC = "orders"
PACE = Pace(interval=5.0, expiry=20.0)
BETWEEN_SECONDS = 20.0
CHANGE_SECONDS = 2.0
GAP_SECONDS = 5.0
"""From a change of a broker's topics to the last client, including the agent's poll of its file every 0.2 s."""

GRACE_SECONDS = 5.0
PROCESSES, CLIENTS_EACH, QUERY_SECONDS = 4, 250, 4.0


def growing(config: AgentConfig, queues: int) -> AgentConfig:
    """The agent of a broker whose topic has that number of queues."""
    row = TopicRow(name=TOPIC, read_queues=queues, write_queues=queues)
    return replace(config, topics=TopicsSection(check_interval_seconds=0.2, topic=(row,)))


@asynccontextmanager
async def servers(folder: Path, count: int) -> AsyncIterator[list[RealNameServer]]:
    """Name servers on ports that they keep, each with a snapshot."""
    async with AsyncExitStack() as stack:
        running = []
        for number in range(count):
            settings: dict[str, object] = {
                "server.listen": f"127.0.0.1:{free_port()}",
                "server.warm_up_seconds": 45.0,
                "server.stop_grace_seconds": GRACE_SECONDS,
                "snapshot.directory": folder / f"n{number}" / "state",
            }
            server = real_name_server(folder / f"n{number}", node=f"node-{number}", settings=settings)
            running.append(await stack.enter_async_context(server))
        yield running


async def test_a_rolling_restart_of_three_loses_no_response_and_no_change(tmp_path: Path, report: Report) -> None:
    async with servers(tmp_path, 3) as nodes, AsyncExitStack() as stack:
        addrs = [node.addr for node in nodes]
        first = growing(config_of("b0", 0, addrs, PACE), 1)
        await stack.enter_async_context(agent_process(tmp_path / "agent", first))
        await stack.enter_async_context(agents(config_of(f"b{number}", number, addrs, PACE) for number in range(1, 10)))
        users = await stack.enter_async_context(worker(clients, addrs, 30, TOPIC, 0.25))
        await users.ask("begin")
        stop, gaps = asyncio.Event(), list[float]()

        async def change() -> None:
            queues = 8
            while not stop.is_set():
                queues += 1
                changed_at = time.monotonic()
                fresh = tmp_path / "agent" / "agent.toml"
                fresh.with_suffix(".new").write_text(to_toml(growing(first, queues)), encoding="utf-8")
                fresh.with_suffix(".new").replace(fresh)
                gaps.append(await users.ask("known", queues) - changed_at)
                await asyncio.sleep(CHANGE_SECONDS)

        changing = asyncio.create_task(change())
        for node in nodes:
            await asyncio.sleep(BETWEEN_SECONDS)
            await node.stop()
            await node.start()
        await asyncio.sleep(BETWEEN_SECONDS)
        stop.set()
        await changing
        answers, errors, _ = await users.ask("end")
        removed = [event for node in nodes for event in node.events("EXPIRED", "UNREGISTERED")]
    report(f"{answers} responses, {len(errors)} errors, {len(gaps)} changes seen after at most {max(gaps):.1f} s")
    assert errors == []
    assert removed == []
    assert max(gaps) < GAP_SECONDS


async def test_a_stopped_name_server_with_1_000_watchers_exits_in_time_and_they_move(
    tmp_path: Path, report: Report
) -> None:
    async with servers(tmp_path, 2) as (stopped, other), AsyncExitStack() as stack:
        addrs = [stopped.addr, other.addr]
        await stack.enter_async_context(agents([config_of("b0", 0, addrs, PACE)]))
        users = [
            await stack.enter_async_context(worker(clients, addrs, CLIENTS_EACH, TOPIC, QUERY_SECONDS))
            for _ in range(PROCESSES)
        ]
        for each in users:
            await each.ask("begin")
        await wait_for_watchers(stopped, PROCESSES * CLIENTS_EACH, seconds=60)
        stopped_at = time.monotonic()
        code = await stopped.stop()
        left_after = time.monotonic() - stopped_at
        await wait_for_watchers(other, PROCESSES * CLIENTS_EACH, seconds=60)
        moved_at = time.monotonic()
        await asyncio.sleep(2 * QUERY_SECONDS)
        ends = await asyncio.gather(*(each.ask("end") for each in users))
    answers, errors = sum(end[0] for end in ends), [error for end in ends for error in end[1]]
    report(
        f"exited after {left_after:.1f} s, all moved after {moved_at - stopped_at:.1f} s: "
        f"{answers} responses, {len(errors)} errors"
    )
    assert code == 0
    assert left_after < GRACE_SECONDS + 2.0
    # Lookups may run out of time while 1,000 clients connect together on a few cores, but no longer once they have.
    assert [error for _, error in errors if "DEADLINE_EXCEEDED" not in error] == []
    assert [error for began_at, error in errors if began_at > moved_at] == []
    assert {addr for end in ends for addr in end[2]} == {other.addr}
