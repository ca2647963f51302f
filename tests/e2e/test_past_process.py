"""The past at name servers as processes: the same answers before and after a SIGKILL, and beside one that was down."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pointsman.v1.admin_service_pb2 import EvictBrokerRequest
from tests.kit.ctl.process import ctl_process
from tests.kit.history.own_files import write_own_files
from tests.kit.name_server import wire
from tests.kit.name_server.peer import peer_of, register_at
from tests.kit.name_server.process import RealNameServer, real_name_server
from tests.kit.waiting import eventually
from tests.spark.histories import NameServer, broker

pytestmark = pytest.mark.e2e
ROUTE = ("route", "orders", "--at")
BROKERS = {"broker-a": "10.0.0.1:10921", "broker-b": "10.0.0.2:10921"}


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[list[RealNameServer]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(real_name_server(tmp_path / f"n{number}", node=f"node-{number}"))
            for number in (1, 2, 3)
        ]


async def register(servers: list[RealNameServer], name: str) -> None:
    for server in servers:
        await register_at(server.addr, "orders", who=wire.identity(name, addr=BROKERS[name]))


async def evict(server: RealNameServer, name: str) -> None:
    async with peer_of(server.addr) as peer:
        await peer.admin.EvictBroker(EvictBrokerRequest(cluster="c1", broker_name=name, by="ann"))


async def moment() -> str:
    await asyncio.sleep(0.01)
    at = datetime.now(UTC).isoformat()
    await asyncio.sleep(0.01)
    return at


async def ask(servers: list[RealNameServer], *words: str) -> Any:
    ended = await ctl_process("--output", "json", "--namesrv", ",".join(one.addr for one in servers), *words)
    assert ended.code in (0, 1), ended.err
    return json.loads(ended.out)


def without_addresses(document: Any) -> Any:
    """A restarted server has another port, and its later rows come after the answers' last row."""
    for node in document["nodes"]:
        node.pop("addr")
    document.pop("last_row_at", None)
    return document


async def test_the_past_is_the_same_before_and_after_a_kill_and_beside_one_that_was_down(
    servers: list[RealNameServer],
) -> None:
    first, second, third = servers
    await register(servers, "broker-a")
    await register(servers, "broker-b")
    both = await moment()
    await evict(first, "broker-a")
    await evict(second, "broker-a")
    await eventually(lambda: all(one.events("UNREGISTERED") for one in (first, second)))
    one_left = await moment()
    asked = (("route", "orders"), ("why", "broker-a"))
    questions = [(*words, "--at", at) for at in (both, one_left) for words in asked]

    before = [without_addresses(await ask(servers, *words)) for words in questions]
    third.send_signal(signal.SIGKILL)
    await third.ended()
    await third.start()
    await eventually(lambda: len(third.events("NAMESRV_READY")) == 2)
    after = [without_addresses(await ask(servers, *words)) for words in questions]

    assert after == before
    route_both, why_both, route_left, why_left = before
    assert [broker["agreed"] for broker in route_both["brokers"]] == [True, True]
    assert [broker["agreed"] for broker in route_left["brokers"]] == [False, True]
    assert (why_both["agreed"], why_left["agreed"]) == (True, False)
    assert [node["replicas"][0]["state"] for node in why_left["nodes"]] == ["GONE", "GONE", "UP"]


async def test_one_that_was_down_for_an_hour_does_not_count_for_that_hour(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    async with AsyncExitStack() as stack:
        servers = []
        for number in (1, 2, 3):
            node, folder = f"node-{number}", tmp_path / f"n{number}"
            earlier = NameServer(node=node).start(now - timedelta(hours=3))
            earlier.say("REGISTERED", now - timedelta(hours=3), broker("broker-a"), data_version="0.0.1")
            detail = {"part": 1, "parts": 1, "full": True, "topics": {"orders": [4, 8, 6, 0]}, "removed": []}
            earlier.say("TOPICS", now - timedelta(hours=3), broker("broker-a"), data_version="0.0.1", detail=detail)
            for minutes in range(179, 90 if number == 3 else 0, -1):
                earlier.say("NAMESRV_ALIVE", now - timedelta(minutes=minutes))
            write_own_files(folder / "history", earlier.rows)
            servers.append(await stack.enter_async_context(real_name_server(folder, node=node)))
        while_up, while_down = await ask(servers, *ROUTE, "100m"), await ask(servers, *ROUTE, "45m")
        why = await ask(servers, "why", "broker-a", "--at", "45m")

    assert [node["node"] for node in while_up["name_servers"]] == ["node-1", "node-2", "node-3"]
    assert [node["node"] for node in while_down["name_servers"]] == ["node-1", "node-2"]
    assert [broker["agreed"] for broker in while_down["brokers"]] == [True]
    assert [node["nodeState"] for node in why["nodes"]] == ["READY", "READY", ""]
    assert why["agreed"]


async def test_the_worker_ends_with_its_name_server_however_that_ends(tmp_path: Path) -> None:
    async with real_name_server(tmp_path) as server:
        for ending in (signal.SIGKILL, signal.SIGTERM):
            await ask([server], "events")
            (worker,) = children_of(server.pid)
            server.send_signal(ending)
            await server.ended()
            await eventually(lambda worker=worker: not is_running(worker))  # type: ignore[misc]
            await server.start()


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(child) for child in text.split()]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="ascii")
