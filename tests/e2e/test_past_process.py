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
from tests.kit.agent.process import agent_process
from tests.kit.ctl.process import ctl_process
from tests.kit.faults.processes import Pace, config_of
from tests.kit.history.own_files import write_own_files
from tests.kit.name_server import wire
from tests.kit.name_server.peer import peer_of, register_at
from tests.kit.name_server.process import RealNameServer, real_name_server
from tests.kit.name_server.view import look, removals
from tests.kit.waiting import eventually, read_until
from tests.spark.histories import NameServer, broker

pytestmark = pytest.mark.e2e
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
    # An answer may lack the rows of the last second.
    await eventually(lambda: all(one.events("UNREGISTERED") for one in (first, second)))
    await eventually(lambda: len(third.events("REGISTERED")) == 2)
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


def three_hours(node: str, now: datetime) -> list[dict[str, Any]]:
    """Rows of a name server: broker-a was out from 70 to 50 minutes ago, and again since 20. That of node-3 was down
    from 100 to 40 minutes ago, and does not see the last outage.
    """

    def ago(minutes: float) -> datetime:
        return now - timedelta(minutes=minutes)

    def registered(server: NameServer, at: datetime) -> None:
        detail = {"part": 1, "parts": 1, "full": True, "topics": {"orders": [4, 8, 6, 0]}, "removed": []}
        server.say("REGISTERED", at, broker("broker-a"), data_version="0.0.1")
        server.say("TOPICS", at, broker("broker-a"), data_version="0.0.1", detail=detail)

    def alive(server: NameServer, began: int, ended: int) -> None:
        for minutes in range(began, ended, -1):
            server.say("NAMESRV_ALIVE", ago(minutes))

    first = NameServer(node=node).start(ago(180))
    registered(first, ago(180))
    if node == "node-3":
        alive(first, 179, 100)
        second = NameServer(node=node, boot_id="b2").start(ago(40))
        registered(second, ago(40))
        alive(second, 39, 1)
        return [*first.rows, *second.rows]
    alive(first, 179, 70)
    first.say("EXPIRED", ago(70), broker("broker-a"), reason="SILENCE")
    registered(first, ago(50))
    alive(first, 49, 20)
    first.say("EXPIRED", ago(20), broker("broker-a"), reason="SILENCE")
    alive(first, 19, 1)
    return first.rows


def without_restarts(node: Any) -> Any:
    """What `why` shows of a broker, without the restarts and what counts seconds until now."""
    events = [event for event in node["events"] if not event["event"].startswith("NAMESRV_")]
    fields = ("eventAt", "event", "reason", "seq", "state", "planned", "generation", "detail")
    return [[event[name] for name in fields] for event in events], node["brokers"], node["outages"]


async def test_in_an_outage_all_answers_are_the_same_after_a_kill_of_three_name_servers(tmp_path: Path) -> None:
    """Agents with heartbeats every second. The hour in which a name server was down is stated by its files."""
    now, pace = datetime.now(UTC), Pace(interval=1.0, expiry=3.0)
    settings = {"liveness.stream_grace_seconds": 1.0, "snapshot.interval_seconds": 0.1}
    async with AsyncExitStack() as stack:
        servers = []
        for number in (1, 2, 3):
            node, folder = f"node-{number}", tmp_path / f"n{number}"
            write_own_files(folder / "history", three_hours(node, now))
            own = settings | {"snapshot.directory": folder / "state"}
            servers.append(await stack.enter_async_context(real_name_server(folder, node=node, settings=own)))
        addrs = [server.addr for server in servers]
        views = [await stack.enter_async_context(look(addr)) for addr in addrs]
        await stack.enter_async_context(agent_process(tmp_path / "b", config_of("live-b", 2, addrs, pace)))
        async with agent_process(tmp_path / "a", config_of("live-a", 1, addrs, pace)) as agent:
            for view in views:
                await view.all_up(2, patience=60)
            both = await moment()
            await agent.kill()
        # By the end of its stream, or on a busy machine by silence.
        await eventually(lambda: all(removals(server, "live-a") for server in servers))
        one_left = await moment()
        hour, later = ((now - timedelta(minutes=minutes)).isoformat() for minutes in (60, 10))
        questions = [
            (*words, "--at", at)
            for name, moments in (("broker-a", (hour, later)), ("live-a", (both, one_left)))
            for at in moments
            for words in (("route", "orders"), ("why", name))
        ]

        async def all_read() -> list[Any]:
            def has_read(found: Any) -> bool:
                return all(node["earlierRuns"] == "READ" for node in found["nodes"])

            nodes: list[Any] = (await read_until(lambda: ask(servers, "why", "live-a"), has_read))["nodes"]
            return nodes

        before, why_before = [without_addresses(await ask(servers, *words)) for words in questions], await all_read()
        for server in servers:
            await server.kill()
            await server.start()
        why_after, after = await all_read(), [without_addresses(await ask(servers, *words)) for words in questions]

    assert after == before
    for was, is_now in zip(why_before, why_after, strict=True):
        assert without_restarts(is_now) == without_restarts(was)
        kinds = [[event["event"] for event in node["events"]] for node in (was, is_now)]
        assert kinds == [kinds[0], [*kinds[0], "NAMESRV_STARTED"]]
    route_hour, why_hour, route_later, why_later, route_both, why_both, route_left, why_left = before
    assert [node["node"] for node in route_hour["name_servers"]] == ["node-1", "node-2"]
    assert [node["nodeState"] for node in why_hour["nodes"]] == ["READY", "READY", ""]
    assert [len(node["outages"]) for node in why_hour["nodes"]] == [1, 1, 0]
    assert [node["node"] for node in route_later["name_servers"]] == ["node-1", "node-2", "node-3"]
    (later_broker,) = route_later["brokers"]
    assert not later_broker["agreed"]
    assert [view["nodes"] for view in later_broker["views"]] == [["node-1", "node-2"], ["node-3"]]
    assert [node["replicas"][0]["state"] for node in why_later["nodes"]] == ["GONE", "GONE", "UP"]
    for answer, routed in ((route_both, True), (route_left, False)):
        brokers = {broker["broker_name"]: broker for broker in answer["brokers"]}
        assert all(brokers[name]["agreed"] for name in ("live-a", "live-b"))
        (view,) = brokers["live-a"]["views"]
        assert [replica["routed"] for replica in view["replicas"]] == [routed]
    for answer, state in ((why_both, "UP"), (why_left, "GONE")):
        assert [node["replicas"][0]["state"] for node in answer["nodes"]] == [state] * 3


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
