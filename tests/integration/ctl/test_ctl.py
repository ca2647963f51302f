"""Which servers ``pointsmanctl`` queries, what it prints when servers fail, and its exit codes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc.aio
import pytest

from pointsman_namesrv.app import NameServerApp
from tests.kit.ctl.command import Ended, ctl, running_ctl
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import register_at
from tests.kit.name_server.scripted_admin import Refusal, scripted_admin_server
from tests.kit.name_server.scripted_routes import refused_addr, scripted_route_server, silent_listener

RUNS = "check that it runs, and --namesrv or POINTSMAN_NAMESRV"
TOPIC_NOWHERE = "pointsmanctl: topic nowhere has no route; see `pointsmanctl topics`\n"


@asynccontextmanager
async def refusing_server() -> AsyncIterator[str]:
    async with scripted_admin_server() as server:
        for method in ("ListBrokers", "ListBrokerEvents"):
            server.refusals[method] = Refusal(grpc.StatusCode.PERMISSION_DENIED)
        yield server.addr


@pytest.fixture
async def name_server() -> AsyncIterator[NameServerApp]:
    async with running_name_server() as app:
        await register_at(app.addr, "orders", who=wire.identity("broker-a"))
        yield app


async def test_route_uses_the_first_server_that_responds(name_server: NameServerApp) -> None:
    async with refused_addr() as dead, silent_listener() as silent, scripted_route_server() as later:
        servers = f"{dead},{silent},{name_server.addr},{later.addr}"
        ended = await ctl("--namesrv", servers, "--timeout", "0.5", "--output", "json", "route", "orders")

        assert (ended.code, ended.err) == (0, "")
        assert json.loads(ended.out)["queueDatas"][0]["brokerName"] == "broker-a"
        assert later.calls.total() == 0


async def test_topics_prints_all_pages_with_one_name_per_line() -> None:
    async with scripted_route_server() as server:
        server.topic_names = [f"topic-{number}" for number in range(5)]
        ended = await ctl("topics", POINTSMAN_NAMESRV=server.addr)

    assert ended == Ended(0, "".join(f"{name}\n" for name in server.topic_names), "")
    assert server.calls["ListTopics"] == 3


async def test_topics_of_groups_are_listed_with_system_alone() -> None:
    async with scripted_route_server() as server:
        server.topic_names = ["%DLQ%g", "%RETRY%g", "orders"]
        plain, system = (
            await ctl("--namesrv", server.addr, "topics"),
            await ctl("--namesrv", server.addr, "topics", "--system"),
        )
        document = json.loads((await ctl("--namesrv", server.addr, "-o", "json", "topics")).out)

    assert (plain.out, system.out) == ("orders\n", "%DLQ%g\n%RETRY%g\norders\n")
    assert document["topics"] == ["orders"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["route", "nowhere"], TOPIC_NOWHERE),
        (["topics", "--cluster", "c9"], "pointsmanctl: cluster c9 is not known; see `pointsmanctl clusters`\n"),
        (["why", "gone"], "pointsmanctl: no name server has an event of broker gone; see `pointsmanctl brokers`\n"),
    ],
)
async def test_a_name_that_is_not_found_gives_one_line_with_the_command_to_try(
    name_server: NameServerApp, arguments: list[str], line: str
) -> None:
    assert await ctl("--namesrv", name_server.addr, *arguments) == Ended(1, "", line)


@pytest.mark.parametrize("command", [["route", "orders"], ["topics"], ["clusters"], ["brokers"], ["why", "broker-a"]])
async def test_when_no_server_responds_the_line_names_each_and_asks_whether_it_runs(command: list[str]) -> None:
    async with refused_addr() as dead, refused_addr() as other:
        servers = ("--namesrv", f"{dead},{other}")
        table, printed = await asyncio.gather(ctl(*servers, *command), ctl(*servers, "--output", "json", *command))

    where = f"{dead} (connection refused), {other} (connection refused)"
    assert table == Ended(
        1,
        "",
        f"pointsmanctl: no name server is responding: {where}; {RUNS}\n",
    )
    error = json.loads(printed.err)["error"]
    assert (printed.code, printed.out, error["code"]) == (1, "", "NAME_SERVERS_UNAVAILABLE")
    assert [entry["addr"] for entry in error["servers"]] == [dead, other]


async def test_a_server_that_is_silent_is_given_the_timeout_and_then_named() -> None:
    async with silent_listener() as silent:
        first, every = await asyncio.gather(
            *(ctl("--namesrv", silent, "--timeout", "0.2", *command) for command in (["route", "orders"], ["brokers"]))
        )

    assert first == every
    assert (first.code, first.out) == (1, "")
    assert f"no name server is responding: {silent} (no response in time)" in first.err


@pytest.mark.parametrize("command", [["brokers"], ["why", "broker-a"]])
async def test_every_server_is_queried_and_one_that_fails_hides_no_other(
    name_server: NameServerApp, command: list[str]
) -> None:
    async with refused_addr() as dead, refusing_server() as refusing:
        servers = ["--namesrv", f"{dead},{name_server.addr},{refusing}"]
        table, printed = await asyncio.gather(ctl(*servers, *command), ctl(*servers, "-ojson", *command))

    assert table.code == printed.code == 1
    assert f"node {name_server.addr}" in table.out
    assert "10.0.0.1:10911" in table.out
    assert f"{dead} is not responding (connection refused)" in table.out
    assert table.err.startswith(f"pointsmanctl: 2 of 3 name servers failed: {dead} (connection refused), {refusing}")
    nodes = json.loads(printed.out)["nodes"]
    assert ["error" in node for node in nodes] == [True, False, True]
    assert len(json.loads(printed.err)["error"]["servers"]) == 2


async def test_ctrl_c_ends_a_call_that_hangs_quietly() -> None:
    async with scripted_route_server() as server:
        server.hang()
        async with running_ctl("--namesrv", server.addr, "--timeout", "60", "route", "orders") as command:
            await server.called(1)
            ended = await command.interrupted()

    assert (ended.code, ended.out, ended.err.strip()) == (130, "", "")


async def test_a_port_that_does_not_speak_grpc_is_reported_as_such() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        host, port = listening.sockets[0].getsockname()
        ended = await ctl("--namesrv", f"{host}:{port}", "health")

    assert ended.code == 1
    assert f"{host}:{port} (not a gRPC port, maybe the metrics port" in ended.err


async def test_a_refusal_is_reported_as_one_even_when_another_server_is_down() -> None:
    async with refused_addr() as dead, refusing_server() as refusing:
        ended = await ctl("--namesrv", f"{dead},{refusing}", "why", "broker-a")

    refused = f"rejected by {refusing} (scripted PERMISSION_DENIED); not responding: {dead} (connection refused)"
    grant = "grant the role in [[access.grants]] of that server, or use other credentials"
    assert ended == Ended(1, "", f"pointsmanctl: {refused}; {RUNS}; {grant}\n")
