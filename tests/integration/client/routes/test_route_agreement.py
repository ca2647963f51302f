"""A removal is accepted when two name servers confirm it, or no other responds; else the route stays, marked stale."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from pointsman.manual_clock import ManualClock
from pointsman.v1 import route_service_pb2
from pointsman_client import NameServerClient, NameServersUnavailableError, RouteChange, TopicNotFoundError
from pointsman_client.core.recheck_plan import MAX_RECHECKS
from tests.kit.name_server.scripted_routes import (
    ScriptedRouteServer,
    broker_data,
    scripted_route_server,
    topic_route,
    with_digest,
)
from tests.kit.waiting import eventually

A = broker_data("broker-a", {0: "10.0.0.1:1", 1: "10.0.0.2:1"})
B = broker_data("broker-b", {0: "10.0.0.3:1"})
REPLICA_LOST = broker_data("broker-a", {0: "10.0.0.1:1"})


def orders(*groups: object, boot: int, counter: int = 1) -> route_service_pb2.TopicRoute:
    return with_digest(topic_route(groups=list(groups)), boot=boot, counter=counter)  # type: ignore[arg-type]


@pytest.fixture
async def servers() -> AsyncIterator[list[ScriptedRouteServer]]:
    async with scripted_route_server() as first, scripted_route_server() as second:
        for boot, server in enumerate((first, second), 7):
            server.boot = boot
            server.routes["orders"] = orders(A, B, boot=boot)
        yield [first, second]


@pytest.fixture
async def client(servers: list[ScriptedRouteServer], clock: ManualClock) -> AsyncIterator[NameServerClient]:
    async with client_of(servers, clock=clock, watch_routes=False) as client:
        yield client


def client_of(servers: list[ScriptedRouteServer], *, clock: ManualClock, watch_routes: bool) -> NameServerClient:
    return NameServerClient(
        [server.addr for server in servers],
        shuffle_name_servers=False,
        poll_jitter=0.0,
        lookup_timeout_seconds=10.0,
        watch_routes=watch_routes,
        clock=clock,
    )


def lose(server: ScriptedRouteServer, *groups: object) -> None:
    """Let a server have only these groups of the topic from now on; none: not the topic."""
    if groups:
        server.routes["orders"] = orders(*groups, boot=server.boot, counter=2)
    else:
        server.routes.pop("orders", None)
    server.gone_counter = 2


LOSSES = pytest.mark.parametrize("left", [(), (A,), (REPLICA_LOST, B)], ids=["topic", "group", "replica"])


@LOSSES
async def test_a_removal_that_only_one_server_reports_leaves_the_route_stale(
    client: NameServerClient, servers: list[ScriptedRouteServer], left: tuple[object, ...]
) -> None:
    known = await client.topic_route("orders")
    lose(servers[0], *left)
    kept = await client.refresh("orders")

    assert kept.stale
    assert kept.broker_datas == known.broker_datas
    assert client.describe("orders")["stale"]
    assert len(await client.publish_queues("orders")) == 8


@LOSSES
async def test_a_removal_that_two_servers_report_is_accepted(
    client: NameServerClient, servers: list[ScriptedRouteServer], left: tuple[object, ...]
) -> None:
    known = await client.topic_route("orders")
    for server in servers:
        lose(server, *left)
    await believed(client, servers[0], left)
    assert known.broker_datas


@LOSSES
async def test_a_removal_is_accepted_when_no_other_server_responds(
    client: NameServerClient, servers: list[ScriptedRouteServer], left: tuple[object, ...]
) -> None:
    await client.topic_route("orders")
    lose(servers[0], *left)
    servers[1].fail_with(grpc.StatusCode.UNAVAILABLE)
    await believed(client, servers[0], left)


async def believed(client: NameServerClient, server: ScriptedRouteServer, left: tuple[object, ...]) -> None:
    """Look the topic up and compare the cached route with the server's."""
    if not left:
        with pytest.raises(TopicNotFoundError):
            await client.refresh("orders")
        assert client.route_age_seconds("orders") is None
        return
    route = await client.refresh("orders")
    assert not route.stale
    assert route.revision.digest == server.routes["orders"].revision.digest


async def test_servers_that_miss_different_brokers_leave_the_route_stale(
    client: NameServerClient, servers: list[ScriptedRouteServer]
) -> None:
    known = await client.topic_route("orders")
    lose(servers[0], A)
    lose(servers[1], B)
    kept = await client.refresh("orders")

    assert (kept.stale, kept.broker_datas) == (True, known.broker_datas)


async def test_an_outdated_response_does_not_confirm_a_removal_nor_let_one_server_decide_alone(
    client: NameServerClient, servers: list[ScriptedRouteServer]
) -> None:
    for server, counter in ((servers[0], 2), (servers[1], 9)):
        server.routes["orders"] = orders(A, B, broker_data("broker-c"), boot=server.boot, counter=counter)
    servers[0].fail_with(grpc.StatusCode.UNAVAILABLE)
    await client.topic_route("orders")
    servers[0].recover()
    servers[1].fail_with(grpc.StatusCode.UNAVAILABLE)
    known = await client.refresh("orders")
    servers[1].recover()
    lose(servers[0])
    lose(servers[1], A)

    assert (await client.refresh("orders")).broker_datas == known.broker_datas


async def test_a_second_server_that_refuses_does_not_confirm_and_is_not_an_error(
    client: NameServerClient, servers: list[ScriptedRouteServer]
) -> None:
    await client.topic_route("orders")
    lose(servers[0])
    servers[1].fail_with(grpc.StatusCode.PERMISSION_DENIED)

    with pytest.raises(TopicNotFoundError):
        await client.refresh("orders")


async def test_a_new_topic_that_only_the_second_server_knows_is_found(
    client: NameServerClient, servers: list[ScriptedRouteServer]
) -> None:
    servers[1].routes["new"] = topic_route("new")

    assert (await client.topic_route("new")).stale


async def test_a_dispute_ends_by_itself_when_the_servers_agree_again(
    client: NameServerClient, servers: list[ScriptedRouteServer], clock: ManualClock
) -> None:
    notified: list[RouteChange] = []
    await client.topic_route("orders")
    client.on_route_change(notified.append)
    kept = servers[0].routes["orders"]
    lose(servers[0])
    assert (await client.refresh("orders")).stale
    servers[0].routes["orders"] = with_digest(kept, boot=7, counter=3)
    before = clock.now
    await eventually(lambda: len(notified) == 2, clock=clock)

    assert not (await client.topic_route("orders")).stale
    assert clock.now - before < 30.0


async def test_a_dispute_ends_when_the_second_server_loses_sight_of_the_broker_too(
    client: NameServerClient, servers: list[ScriptedRouteServer], clock: ManualClock
) -> None:
    notified: list[RouteChange] = []
    await client.topic_route("orders")
    client.on_route_change(notified.append)
    lose(servers[0], A)
    assert (await client.refresh("orders")).stale
    lose(servers[1], A)
    await eventually(lambda: len(notified) == 2, clock=clock)

    route = await client.topic_route("orders")
    assert ([data.broker_name for data in route.broker_datas], route.stale) == (["broker-a"], False)


async def test_rechecks_of_a_lasting_dispute_are_bounded_and_the_poll_continues(
    client: NameServerClient, servers: list[ScriptedRouteServer], clock: ManualClock
) -> None:
    await client.topic_route("orders")
    lose(servers[0])
    await client.refresh("orders")
    calls = servers[0].calls
    await eventually(lambda: calls["GetTopicRoute"] == 2 + MAX_RECHECKS, clock=clock, step=0.5)
    before_poll = clock.now
    await eventually(lambda: calls["GetTopicRoute"] == 3 + MAX_RECHECKS, clock=clock, step=0.5)
    polled = clock.now
    await eventually(lambda: calls["GetTopicRoute"] == 8 + MAX_RECHECKS, clock=clock, step=0.5)

    assert polled > before_poll
    # Polls every 30 s. The clock runs on while a call is on its way: the first of the six may have been counted late.
    assert clock.now - polled >= 5 * 28.0


async def test_a_disputed_topic_that_was_evicted_is_no_longer_queried(
    servers: list[ScriptedRouteServer], clock: ManualClock
) -> None:
    addrs = [server.addr for server in servers]
    async with NameServerClient(
        addrs, shuffle_name_servers=False, watch_routes=False, max_topics=1, clock=clock
    ) as client:
        await client.topic_route("orders")
        lose(servers[0])
        assert (await client.refresh("orders")).stale
        servers[0].routes["bills"] = topic_route("bills")
        await client.topic_route("bills")
        calls = servers[0].calls["GetTopicRoute"]
        await clock.advance(20.0)
        for _ in range(3):
            await client.refresh("bills")

        assert servers[0].calls["GetTopicRoute"] == calls + 3


async def test_a_removal_reported_by_a_watch_follows_the_same_rule(
    servers: list[ScriptedRouteServer], clock: ManualClock
) -> None:
    async with client_of(servers, clock=clock, watch_routes=True) as client:
        notified: list[RouteChange] = []
        await client.topic_route("orders")
        client.on_route_change(notified.append)
        await eventually(lambda: client.describe("orders")["watched"], clock=clock)
        lose(servers[0])
        servers[0].push("orders")
        await eventually(lambda: len(notified) == 1)
        assert notified[0].new is not None
        assert notified[0].new.stale

        lose(servers[1])
        await eventually(lambda: len(notified) == 2, clock=clock)
        assert notified[1].new is None


async def test_with_one_name_server_its_watch_is_accepted_immediately(
    servers: list[ScriptedRouteServer], clock: ManualClock
) -> None:
    async with client_of(servers[:1], clock=clock, watch_routes=True) as client:
        notified: list[RouteChange] = []
        await client.topic_route("orders")
        client.on_route_change(notified.append)
        await eventually(lambda: client.describe("orders")["watched"], clock=clock)
        lose(servers[0], A)
        servers[0].push("orders")
        await eventually(lambda: len(notified) == 1)

        assert notified[0].new is not None
        assert [data.broker_name for data in notified[0].new.broker_datas] == ["broker-a"]
        assert servers[0].calls["GetTopicRoute"] == 1


async def test_a_server_that_restarts_with_fewer_brokers_does_not_override_the_other(
    servers: list[ScriptedRouteServer], clock: ManualClock
) -> None:
    async with client_of(servers, clock=clock, watch_routes=True) as client:
        known = await client.topic_route("orders")
        await eventually(lambda: client.describe("orders")["watched"], clock=clock)
        servers[1].routes["orders"] = orders(B, boot=99)
        servers[0].end_watches(grpc.StatusCode.UNAVAILABLE)
        await eventually(lambda: servers[1].open_watches == [{"orders"}], clock=clock)
        await eventually(lambda: client.describe("orders")["stale"], clock=clock)

        assert (await client.topic_route("orders")).broker_datas == known.broker_datas


async def test_w11_with_all_name_servers_down_known_routes_go_on_watched_or_not(
    servers: list[ScriptedRouteServer], clock: ManualClock
) -> None:
    async with client_of(servers, clock=clock, watch_routes=True) as client:
        notified: list[RouteChange] = []
        known = await client.topic_route("orders")
        client.on_route_change(notified.append)
        await eventually(lambda: client.describe("orders")["watched"], clock=clock)
        confirmed = clock.now - (client.route_age_seconds("orders") or 0.0)
        for server in servers:
            server.fail_with(grpc.StatusCode.UNAVAILABLE)
            server.end_watches(grpc.StatusCode.UNAVAILABLE)
        await eventually(lambda: clock.now - confirmed > 120.0, clock=clock, step=1.0)

        assert not client.describe("orders")["watched"]
        assert await client.topic_route("orders") is known
        assert len(await client.publish_queues("orders")) == 8
        assert (client.route_age_seconds("orders") or 0.0) > 120.0
        with pytest.raises(NameServersUnavailableError):
            await client.refresh("orders")
        assert notified == []

        lose(servers[1], A, B, broker_data("broker-c"))
        for server in servers:
            server.recover()
        servers[0].routes = servers[1].routes
        await eventually(lambda: notified, clock=clock, step=1.0)
        assert len(await client.publish_queues("orders")) == 12


async def test_close_while_a_dispute_and_a_watch_are_open_leaves_no_task(
    servers: list[ScriptedRouteServer], clock: ManualClock
) -> None:
    before = asyncio.all_tasks()
    async with client_of(servers, clock=clock, watch_routes=True) as client:
        await client.topic_route("orders")
        await eventually(lambda: client.describe("orders")["watched"], clock=clock)
        lose(servers[0])
        await client.refresh("orders")
        for server in servers:
            server.hang()
        looking = asyncio.create_task(client.refresh("orders"))
        await servers[0].called(3)
        started = asyncio.get_running_loop().time()
        await client.close()
        assert asyncio.get_running_loop().time() - started < 2.0
    with pytest.raises(Exception, match="closed"):
        await looking
    for server in servers:
        server.recover()
    await eventually(lambda: own_tasks() <= before)


def own_tasks() -> set[asyncio.Task[object]]:
    return {task for task in asyncio.all_tasks() if task.get_name().startswith("pointsman-")}
