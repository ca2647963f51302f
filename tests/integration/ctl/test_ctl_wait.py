"""``pointsmanctl wait``: what it waits for, what it shows while it waits, and its exit codes."""

from __future__ import annotations

import asyncio
import json

import pytest

from pointsman.v1.broker_pb2 import PROBE_EVIDENCE_STRONG, PROBE_STATUS_FAILING, BrokerHealth
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import RemotingConfig
from tests.kit.ctl.command import ctl, running_ctl
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import register_at
from tests.kit.name_server.scripted_routes import refused_addr

REFUSING = BrokerHealth(status=PROBE_STATUS_FAILING, evidence=PROBE_EVIDENCE_STRONG)


async def register(app: NameServerApp, *, health: BrokerHealth | None = None) -> None:
    await register_at(app.addr, "orders", agent_addr="a:9880", health=health)


async def test_it_waits_for_the_route_and_shows_what_is_missing() -> None:
    async with running_name_server() as app:
        async with running_ctl("--namesrv", app.addr, "wait", "--route", "orders") as waiting:
            missing = await waiting.err.line()
            await register(app)
            ended = await waiting.ended()
        printed = await ctl("--namesrv", app.addr, "-o", "json", "wait", "--route", "orders", "--timeout", "1m")

    assert missing == (
        f"pointsmanctl: waiting up to 30s for a route of topic orders: at {app.addr} no broker has registered orders\n"
    )
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("a route of topic orders: 1 broker up, after ")
    assert printed.code == 0
    assert printed.document | {"elapsedSeconds": 0.0} == {
        "condition": "a route of topic orders",
        "isMet": True,
        "elapsedSeconds": 0.0,
        "nodes": [{"addr": app.addr, "isMet": True, "seen": "1 broker up"}],
    }


async def test_every_name_server_must_have_it() -> None:
    async with running_name_server() as one, running_name_server() as two:
        await register(one)
        both = f"{one.addr},{two.addr}"
        async with running_ctl("--namesrv", both, "wait", "--broker", "c1/a/0") as waiting:
            missing = await waiting.err.line()
            await register(two)
            ended = await waiting.ended()

    assert missing.endswith(f"state UP of broker c1/a/0: at {two.addr} c1/a/0 is not registered\n")
    assert ended.code == 0


@pytest.mark.parametrize("name", ["a", "c1/a", "c1/a/0"])
async def test_it_waits_for_the_state_of_a_broker(name: str) -> None:
    async with running_name_server() as app:
        gone = await ctl("--namesrv", app.addr, "wait", "--broker", name, "--state", "GONE")
        await register(app)
        late = await ctl("--namesrv", app.addr, "wait", "--broker", name, "--state", "OUT", "--timeout", "1s")
        await register(app, health=REFUSING)
        out = await ctl("--namesrv", app.addr, "wait", "--broker", name, "--state", "out")
        down = await ctl("--namesrv", app.addr, "-o", "json", "wait", "--route", "orders", "--timeout", "1s")
        other = await ctl("--namesrv", app.addr, "wait", "--broker", "c1/a/7", "--timeout", "1s")

    assert (gone.code, out.code) == (0, 0)
    assert late.code == 3
    assert late.err.splitlines()[-1] == (
        f"pointsmanctl: timed out after 1s, waiting for state OUT of broker {name}: at {app.addr} c1/a/0 is UP; "
        "see `pointsmanctl why a`"
    )
    assert (down.code, down.document["isMet"]) == (3, False)
    error = json.loads(down.err.splitlines()[-1])["error"]
    assert error["code"] == "WAIT_TIMED_OUT"
    assert f"at {app.addr} no broker of orders is up: a OUT" in error["message"]
    assert (other.code, "c1/a/7 is not registered" in other.err) == (3, True)


async def test_it_waits_until_the_name_servers_are_ready() -> None:
    async with running_name_server() as ready, running_name_server(warm_up_seconds=600.0) as warming:
        now = await ctl("--namesrv", ready.addr, "wait", "--ready")
        late = await ctl("--namesrv", warming.addr, "wait", "--ready", "--timeout", "1s")

    assert (now.code, late.code) == (0, 3)
    assert f"at {warming.addr} WARMING; see `pointsmanctl health`" in late.err


async def test_without_any_response_it_says_what_to_check_and_exits_with_1() -> None:
    async with refused_addr() as closed:
        made = await ctl("--namesrv", closed, "wait", "--ready", "--timeout", "1s")

    assert made.code == 1
    first, last = made.err.splitlines()
    refused = f"waiting for state READY of the name servers: {closed} is not responding (connection refused)"
    assert first == f"pointsmanctl: {refused.replace('waiting for', 'waiting up to 1s for')}"
    assert last == (
        f"pointsmanctl: timed out after 1s, {refused}; no name server is listening there: check that it runs, its log, "
        "and --namesrv or POINTSMAN_NAMESRV"
    )


async def test_another_program_at_the_port_is_named() -> None:
    async def close(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.0 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        made = await ctl("--namesrv", f"{host}:{port}", "wait", "--route", "orders", "--timeout", "1s")

    assert made.code == 1
    assert f"{host}:{port} is not responding" in made.err


async def test_with_rocketmq_addresses_a_route_can_be_waited_for() -> None:
    async with running_name_server(remoting=RemotingConfig(listen="127.0.0.1:0")) as app:
        await register(app)
        addr = f"rocketmq://{app.remoting_addr}"
        route = await ctl("--namesrv", addr, "wait", "--route", "orders")
        others = [await ctl("--namesrv", addr, "wait", *condition) for condition in (("--ready",), ("--broker", "a"))]

    assert route.code == 0
    assert [(made.code, "requires a name server of Pointsman" in made.err) for made in others] == [(2, True)] * 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "give one of --route TOPIC, --broker BROKER and --ready"),
        (("--ready", "--route", "orders"), "give one of --route TOPIC, --broker BROKER and --ready"),
        (("--ready", "--state", "UP"), "--state needs --broker"),
        (("--broker", "a/b/c"), "broker must be BROKER, CLUSTER/BROKER or CLUSTER/BROKER/ID, got 'a/b/c'"),
        (("--broker", "a//0"), "must"),
        (("--broker", "a", "--state", "DOWN"), "'DOWN' is not one of"),
        (("--ready", "--timeout", "30"), "duration '30' has no unit: use 30s"),
    ],
)
async def test_wrong_usage_exits_with_2(arguments: tuple[str, ...], text: str) -> None:
    made = await ctl("wait", *arguments)
    assert (made.code, text in made.err) == (2, True), made.err
