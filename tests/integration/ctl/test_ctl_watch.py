"""``pointsmanctl watch``: each change when it happens, with servers that stop, restart and respond late."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc.aio
import pytest

from pointsman.v1 import broker_pb2
from pointsman.v1 import route_service_pb2 as route
from pointsman_namesrv.app import NameServerApp
from tests.kit.broker.redis.process import free_port
from tests.kit.ctl.command import Command, ctl, running_ctl
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import register_at
from tests.kit.name_server.scripted_admin import Refusal, ScriptedAdminServer, scripted_admin_server
from tests.kit.name_server.scripted_routes import (
    broker_data,
    refused_addr,
    silent_listener,
    topic_route,
    with_digest,
)


def orders(queues: int = 4, *, boot: int = 7, counter: int = 1) -> route.TopicRoute:
    return with_digest(topic_route(groups=[broker_data()], read=queues), boot=boot, counter=counter)


def update(queues: int, *, boot: int = 7, counter: int) -> route.WatchTopicRoutesResponse:
    return route.WatchTopicRoutesResponse(route=orders(queues, boot=boot, counter=counter))


class Watch:
    """A ``pointsmanctl watch`` that runs."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self.line = command.out.line
        self.remark = command.err.line

    async def change(self) -> tuple[str, int | None]:
        """The server of the next change, and its read queues; None: the topic was deleted."""
        found: dict[str, Any] = json.loads(await self.line())
        shown = found["route"]
        return found["addr"], shown["queueDatas"][0]["readQueueNums"] if shown else None


@pytest.fixture
async def server() -> AsyncIterator[ScriptedAdminServer]:
    async with scripted_admin_server() as server:
        server.routes["orders"] = orders()
        yield server


@asynccontextmanager
async def watching(*servers: str, output: str = "json", seconds: str = "30") -> AsyncIterator[Watch]:
    arguments = ("--namesrv", ",".join(servers), "--timeout", seconds, "-o", output, "watch", "orders")
    async with running_ctl(*arguments) as command:
        yield Watch(command)


async def hold(app: NameServerApp, queues: int, *more: str) -> None:
    """Register a broker with ``queues`` queues of orders; 0: it no longer has the topic."""
    await register_at(app.addr, *([wire.topic("orders", queues)] if queues else []), *more)


@pytest.fixture
async def app() -> AsyncIterator[NameServerApp]:
    async with running_name_server() as app:
        await hold(app, 4)
        yield app


async def test_each_change_is_one_object_per_line_until_ctrl_c(app: NameServerApp) -> None:
    async with watching(app.addr) as watch:
        assert await watch.change() == (app.addr, 4)
        await hold(app, 8)
        assert await watch.change() == (app.addr, 8)
        await hold(app, 0, "payments")
        assert await watch.change() == (app.addr, None)
        made = await watch.command.interrupted()

    assert (made.code, made.out, made.err.strip()) == (130, "", "")


async def test_as_a_table_the_first_state_is_complete_and_a_change_shows_the_difference(app: NameServerApp) -> None:
    async with watching(app.addr, output="table") as watch:
        whole = [await watch.line() for _ in range(7)]
        await hold(app, 8)
        heading, change = await watch.line(), await watch.line()

    assert f"  orders  at {app.addr}, revision " in whole[0]
    assert whole[2].split() == ["c1", "a", "4", "4", "rw"]
    assert f"  orders  at {app.addr}, revision " in heading
    assert change == "~ queues of c1/a: read queues 4 -> 8, write queues 4 -> 8\n"


async def test_an_older_revision_and_an_equal_route_are_not_shown(server: ScriptedAdminServer) -> None:
    async with watching(server.addr) as watch:
        await watch.change()
        server.push(update(8, counter=5))
        assert await watch.change() == (server.addr, 8)
        server.push(update(6, counter=4))
        server.push(update(8, counter=6))
        server.push(update(9, counter=7))
        assert await watch.change() == (server.addr, 9)


async def test_a_server_that_is_killed_is_left_for_the_next_and_only_what_differs_is_shown(
    server: ScriptedAdminServer,
) -> None:
    async with AsyncExitStack() as stack:
        async with scripted_admin_server() as first:
            first.routes["orders"] = orders(boot=1, counter=90)
            watch = await stack.enter_async_context(watching(first.addr, server.addr))
            assert await watch.change() == (first.addr, 4)
        assert json.loads(await watch.remark())["warning"]["code"] == "WATCH_ENDED"
        assert json.loads(await watch.remark())["warning"]["message"] == f"watching at {server.addr}"
        # The same route at the next server does not count as a change; the next one does.
        server.push(update(8, counter=2))
        assert await watch.change() == (server.addr, 8)
        known = server.received(route.WatchTopicRoutesRequest)[0].topics[0]
        assert (known.revision.boot, known.revision.counter) == (1, 90)


async def test_a_server_that_restarts_is_watched_again() -> None:
    async with AsyncExitStack() as stack:
        async with scripted_admin_server(free_port()) as before:
            before.routes["orders"] = orders(boot=1, counter=90)
            watch = await stack.enter_async_context(watching(before.addr))
            assert await watch.change() == (before.addr, 4)
        assert "WATCH_ENDED" in await watch.remark()
        async with scripted_admin_server(int(before.addr.rpartition(":")[2])) as after:
            after.routes["orders"] = orders(6, boot=2, counter=1)
            assert await watch.change() == (after.addr, 6)


async def test_a_watch_that_ends_before_all_first_routes_were_sent_continues(server: ScriptedAdminServer) -> None:
    server.withholds_synced = True
    async with watching(server.addr) as watch:
        assert await watch.change() == (server.addr, 4)
        server.withholds_synced = False
        server.end_watches()
        assert "WATCH_ENDED" in await watch.remark()
        assert "WATCH_RESUMED" in await watch.remark()


async def test_a_server_that_drains_sends_its_watch_to_the_next(server: ScriptedAdminServer) -> None:
    async with scripted_admin_server() as draining:
        draining.routes["orders"] = orders()
        server.routes["orders"] = orders(6, boot=9)
        async with watching(draining.addr, server.addr, output="table") as watch:
            await watch.line()
            await draining.asked(route.WatchTopicRoutesRequest)
            draining.end_watches()
            remark = await watch.remark()
            await server.asked(route.WatchTopicRoutesRequest)

    assert remark == (f"pointsmanctl: the watch at {draining.addr} ended (this name server is DRAINING); continuing\n")


async def test_a_server_that_sends_nothing_is_left_after_the_timeout(server: ScriptedAdminServer) -> None:
    async with silent_listener() as silent, watching(silent, server.addr, seconds="1") as watch:
        assert await watch.change() == (server.addr, 4)
        assert "no response in time" in await watch.remark()


async def test_a_server_that_never_responded_had_no_watch_that_could_end(server: ScriptedAdminServer) -> None:
    async with refused_addr() as dead, watching(dead, server.addr, output="table") as watch:
        assert await watch.remark() == f"pointsmanctl: {dead} is not responding (connection refused); continuing\n"
        assert f"orders  at {server.addr}" in await watch.line()


async def test_when_no_server_responds_from_the_start_it_fails() -> None:
    async with refused_addr() as dead, refused_addr() as other:
        made = await ctl("--namesrv", f"{dead},{other}", "-o", "json", "watch", "orders")

    assert (made.code, made.out) == (1, "")
    error = json.loads(made.err.splitlines()[-1])["error"]
    assert (error["code"], len(error["servers"])) == ("NAME_SERVERS_UNAVAILABLE", 2)


async def test_a_watch_that_a_server_refuses_fails_with_its_message(server: ScriptedAdminServer) -> None:
    server.refusals["WatchTopicRoutes"] = Refusal(
        grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST", "too many topics"
    )
    made = await ctl("--namesrv", server.addr, "watch", "orders")

    assert (made.code, made.err) == (1, f"pointsmanctl: {server.addr} rejected the request: too many topics\n")


async def test_older_servers_are_reported_as_older(server: ScriptedAdminServer) -> None:
    server.refusals["WatchTopicRoutes"] = Refusal(grpc.StatusCode.UNIMPLEMENTED)
    made = await ctl("--namesrv", server.addr, "watch", "orders")

    assert made.code == 1
    assert "this call is not supported: the name server is older than this pointsmanctl" in made.err


async def test_it_ends_well_when_its_time_is_over(app: NameServerApp) -> None:
    made = await ctl("--namesrv", app.addr, "-o", "json", "watch", "orders", "payments", "--for", "1s")

    assert (made.code, made.err) == (0, "")
    shown = [json.loads(line) for line in made.out.splitlines()]
    assert sorted((each["topic"], each["route"] is None) for each in shown) == [("orders", False), ("payments", True)]


async def test_a_warming_server_that_does_not_know_a_topic_yet_is_waited_for(server: ScriptedAdminServer) -> None:
    server.state, server.routes = broker_pb2.NODE_STATE_WARMING, {}
    async with watching(server.addr, output="table") as watch:
        assert await watch.remark() == (
            f"pointsmanctl: {server.addr} is WARMING and does not know the route of orders yet; waiting\n"
        )
        server.push(update(4, counter=2))
        assert "revision 2" in await watch.line()
