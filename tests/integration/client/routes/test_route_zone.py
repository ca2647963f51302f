"""Routes of one zone: looked up, watched, polled, and what producers and consumers make of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pointsman_client import (
    InvalidOptionError,
    Message,
    NameServerClient,
    NoWritableQueueError,
    Producer,
    PullConsumer,
    PushConsumer,
    TopicNotFoundError,
)
from pointsman_client.memory import MemoryTransport
from tests.kit.ctl.command import ctl
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import peer_of, register_at
from tests.kit.name_server.wire import identity, unregistration
from tests.kit.waiting import eventually


async def register(server: str, name: str, zone: str, broker_id: int = 0) -> int:
    who = identity(name, broker_id, f"{name}-{broker_id}.test:10911")
    return await register_at(server, "orders", who=who, zone=zone)


async def unregister(server: str, name: str, generation: int) -> None:
    async with peer_of(server) as peer:
        await peer.registration.UnregisterBroker(unregistration(identity(name, 0, f"{name}-0.test:10911"), generation))


@pytest.fixture
async def server() -> AsyncIterator[str]:
    """Brokers a and b are in east, c in west."""
    async with running_name_server() as running:
        for name, zone in (("a", "east"), ("b", "east"), ("c", "west")):
            await register(running.addr, name, zone)
        yield running.addr


def routed(client: NameServerClient) -> list[str]:
    route: Any = client.describe("orders")["route"]
    return [data["brokerName"] for data in route["brokerDatas"]]


async def names(client: NameServerClient) -> list[str]:
    return [data.broker_name for data in (await client.topic_route("orders")).broker_datas]


async def test_a_client_of_a_zone_has_its_brokers_alone_and_each_client_has_its_own(server: str) -> None:
    async with (
        NameServerClient(server, zone="east") as east,
        NameServerClient(server, zone="WEST") as west,
        NameServerClient(server) as everywhere,
    ):
        assert await names(east) == ["a", "b"]
        assert await names(west) == ["c"]
        assert await names(everywhere) == ["a", "b", "c"]
        assert {queue.broker_name for queue in await west.publish_queues("orders")} == {"c"}
        assert (await east.refresh("orders")).broker_datas == (await east.topic_route("orders")).broker_datas
        # A query that bypasses the cache gives its own zone.
        assert len((await east.fetch_route("orders")).broker_datas) == 3
        assert east.describe("orders")["zone"] == east.zone == "east"
        with pytest.raises(TopicNotFoundError):
            await east.topic_route("nowhere")


@pytest.mark.parametrize("watch_routes", [True, False])
async def test_the_watch_and_the_poll_keep_to_the_zone(server: str, watch_routes: bool) -> None:
    async with NameServerClient(
        server, zone="east", watch_routes=watch_routes, poll_name_server_interval_seconds=30.0 if watch_routes else 0.05
    ) as east:
        changes = east.route_changes("orders")
        await anext(changes)
        if watch_routes:
            await eventually(lambda: east.describe("orders")["watched"])
        await register(server, "d", "west")
        await register(server, "e", "east")
        change = await anext(changes)
        assert change.new is not None
        assert [data.broker_name for data in change.new.broker_datas] == ["a", "b", "e"]


async def test_a_group_without_its_master_is_in_the_routes_of_every_zone_until_it_is_back(server: str) -> None:
    await register(server, "c", "west", broker_id=1)
    async with NameServerClient(server, zone="east") as east:
        await names(east)
        await eventually(lambda: east.describe("orders")["watched"])
        generation = await register(server, "c", "west")
        await unregister(server, "c", generation)
        await eventually(lambda: routed(east) == ["a", "b", "c"])
        await register(server, "c", "west")
        await eventually(lambda: routed(east) == ["a", "b"])


async def test_a_zone_without_a_broker_has_an_empty_route_and_gets_one_with_its_first(server: str) -> None:
    async with Producer(server, transport=MemoryTransport, zone="north") as producer:
        assert await producer.client.publish_queues("orders") == ()
        with pytest.raises(NoWritableQueueError, match="no broker of zone north has the topic") as refused:
            await producer.send(Message("orders", b"1"))
        assert refused.value.retriable
        await register(server, "n", "north")
        await eventually(lambda: routed(producer.client) == ["n"])
        assert (await producer.send(Message("orders", b"1"))).queue.broker_name == "n"


async def test_a_producer_sends_within_its_zone_alone(server: str) -> None:
    async with Producer(server, transport=MemoryTransport, zone="east") as producer:
        sent = [(await producer.send(Message("orders", b"1"))).queue.broker_name for _ in range(16)]
    assert set(sent) == {"a", "b"}


async def test_consumers_see_the_queues_of_their_route_zone_and_all_with_a_zone_alone(server: str) -> None:
    async def listener(_: object) -> None: ...

    async with (
        PushConsumer(
            server, group="g1", subscriptions="orders", listener=listener, transport=MemoryTransport, route_zone="west"
        ) as push,
        PullConsumer(server, group="g2", subscriptions=["orders"], transport=MemoryTransport, zone="west") as pull,
    ):
        assert {queue.broker_name for queue in await push.client.subscribe_queues("orders")} == {"c"}
        assert {queue.broker_name for queue in await pull.client.subscribe_queues("orders")} == {"a", "b", "c"}


async def test_a_client_that_is_passed_in_keeps_its_zone_and_another_is_refused(server: str) -> None:
    async with NameServerClient(server, zone="east") as client:
        for zone in ("", "east", "EAST"):
            async with Producer(client, transport=MemoryTransport, zone=zone) as producer:
                assert producer.client is client
        with pytest.raises(
            InvalidOptionError, match=r"zone = 'west' differs from the zone of the client passed in, 'east'"
        ):
            Producer(client, transport=MemoryTransport, zone="west")
        with pytest.raises(InvalidOptionError, match=r"^route_zone = 'west' differs"):
            PullConsumer(client, group="g", transport=MemoryTransport, route_zone="west")


@pytest.mark.parametrize(("zone", "problem"), [("z" * 1_025, "1025 characters"), ("a\n", "control"), (5, "str")])
def test_an_invalid_zone_is_refused_by_name(zone: object, problem: str) -> None:
    with pytest.raises(InvalidOptionError, match=rf"^zone = .*{problem}"):
        NameServerClient("ns:9876", zone=zone)  # type: ignore[arg-type]


async def test_pointsmanctl_compares_a_client_of_a_zone_with_the_routes_of_that_zone(
    server: str, tmp_path: Path
) -> None:
    file = tmp_path / "orders.json"
    async with NameServerClient(server, zone="east") as east:
        await names(east)
        file.write_text(json.dumps(east.describe("orders")))
    ended = await ctl("--namesrv", server, "diff", "--client", str(file))
    assert (ended.code, ended.err) == (0, "")
