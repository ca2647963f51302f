"""How a client describes itself, where it may be used, and what remains after it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest

from pointsman.manual_clock import ManualClock
from pointsman.wire.channel_opener import ChannelOpener
from pointsman_client import NameServerClient
from pointsman_client.errors import ForkedError, InvalidOptionError
from pointsman_client.pointsman_grpc.codec import from_topic_route
from pointsman_client.pointsman_grpc.links import open_channel
from pointsman_ctl.commands.diff_command import read_description
from tests.kit.name_server.scripted_routes import (
    ScriptedRouteServer,
    broker_data,
    refused_addr,
    scripted_route_server,
    topic_route,
)
from tests.kit.waiting import eventually


@pytest.fixture
async def server() -> AsyncIterator[ScriptedRouteServer]:
    async with scripted_route_server() as server:
        group = broker_data("broker-a", {0: "10.0.0.1:1", 1: "10.0.0.2:1"}, zone="z1")
        server.routes["orders"] = topic_route(groups=[group], order_topic_conf="broker-a:4")
        yield server


async def test_a_description_is_json_with_all_that_is_known(server: ScriptedRouteServer, clock: ManualClock) -> None:
    async with NameServerClient([server.addr], watch_routes=False, clock=clock) as client:
        route = await client.topic_route("orders")
        await clock.advance(12.5)
        description = json.loads(json.dumps(client.describe("orders")))
        read = read_description(json.dumps(description), source="it")

    assert description["route"]["brokerDatas"][0]["brokerAddrs"] == {"0": "10.0.0.1:1", "1": "10.0.0.2:1"}
    assert description["revision"] == description["route"]["revision"]
    del description["route"], description["revision"]
    assert description == {
        "topic": "orders",
        "zone": "",
        "ageSeconds": 12.5,
        "sourceNode": server.addr,
        "stale": False,
        "watched": False,
        "nameServers": [server.addr],
        "nameServerInUse": server.addr,
    }
    assert (read.topic, read.route, read.age_seconds) == ("orders", from_topic_route(route), 12.5)


async def test_a_topic_without_a_route_is_described_too(server: ScriptedRouteServer) -> None:
    client = NameServerClient([server.addr])
    description = client.describe("nowhere")

    assert (description["route"], description["ageSeconds"], description["sourceNode"], description["stale"]) == (
        None,
        None,
        None,
        False,
    )
    assert read_description(json.dumps(description), source="it").route is None


async def test_an_attached_part_is_listed_in_the_description_until_it_is_removed(server: ScriptedRouteServer) -> None:
    client = NameServerClient([server.addr])
    remove = client.attach_description("isolations", lambda topic: [f"none of {topic}"])
    assert client.describe("orders")["isolations"] == ["none of orders"]
    with pytest.raises(InvalidOptionError, match="route"):
        client.attach_description("route", lambda _: None)

    remove()
    assert "isolations" not in client.describe("orders")


async def test_after_a_fork_every_use_names_the_remedy(
    server: ScriptedRouteServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with NameServerClient([server.addr]) as client:
        await client.topic_route("orders")
        own_pid = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: own_pid + 1)
        for use in (client.topic_route, client.refresh, client.publish_queues, client.fetch_route):
            with pytest.raises(ForkedError, match="make a new client in the child"):
                await use("orders")
        for ask in (client.start, client.close, client.list_topics, client.list_clusters):
            with pytest.raises(ForkedError):
                await ask()
        with pytest.raises(ForkedError):
            client.route_changes("orders")
        monkeypatch.undo()
        assert (await client.topic_route("orders")).topic == "orders"


async def test_channels_are_opened_by_the_function_given(server: ScriptedRouteServer) -> None:
    opened: list[str] = []

    def opening(addr: str, opener: ChannelOpener) -> grpc.aio.Channel:
        opened.append(addr)
        return open_channel(addr, opener)

    async with NameServerClient([server.addr], open_channel=opening) as client:
        await client.topic_route("orders")
    assert opened == [server.addr]


async def test_a_client_without_any_name_server_up_closes_and_leaves_no_task() -> None:
    async with refused_addr() as dead:
        before = asyncio.all_tasks()
        async with NameServerClient([dead], lookup_timeout_seconds=1.0) as client:
            reading = asyncio.create_task(anext(client.route_changes("orders")))
            await eventually(lambda: len(asyncio.all_tasks() - before) >= 5)
        with pytest.raises(StopAsyncIteration):
            await reading
        # What was cancelled needs a turn of the loop or two to end.
        await eventually(lambda: asyncio.all_tasks() == before, seconds=2.0)
