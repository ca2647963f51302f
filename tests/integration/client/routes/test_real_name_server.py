"""Client and command line against the real name server: registered brokers become routes, queues and output."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from pointsman.v1 import broker_pb2
from pointsman_client import ClientClosedError, NameServerClient, RouteChange, TopicNotFoundError
from tests.kit.ctl.command import ctl
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import peer_of, register_at
from tests.kit.name_server.wire import identity, unregistration
from tests.kit.waiting import eventually

W1_BROKERS = [
    ("broker-a", 0, "192.168.1.10:10911"),
    ("broker-a", 1, "192.168.1.11:10911"),
    ("broker-b", 0, "192.168.1.20:10911"),
    ("broker-b", 1, "192.168.1.21:10911"),
]


async def unregister(addr: str, who: broker_pb2.BrokerIdentity, generation: int) -> None:
    async with peer_of(addr) as peer:
        await peer.registration.UnregisterBroker(unregistration(who, generation))


@pytest.fixture
async def addr() -> AsyncIterator[str]:
    async with running_name_server() as server:
        for name, broker_id, broker_addr in W1_BROKERS:
            await register_at(server.addr, "TopicTest", who=identity(name, broker_id, broker_addr, "DefaultCluster"))
        yield server.addr


async def test_w1_the_route_is_printed_with_rocketmqs_keys(addr: str) -> None:
    ended = await ctl("--namesrv", addr, "--output", "json", "route", "TopicTest")

    assert (ended.code, ended.err) == (0, "")
    route = ended.document
    queue = {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicSysFlag": 0, "cluster": "DefaultCluster"}
    queue |= {"queueWeight": 1}
    assert route["queueDatas"] == [{"brokerName": "broker-a", **queue}, {"brokerName": "broker-b", **queue}]
    assert [data["brokerAddrs"] for data in route["brokerDatas"]] == [
        {"0": "192.168.1.10:10911", "1": "192.168.1.11:10911"},
        {"0": "192.168.1.20:10911", "1": "192.168.1.21:10911"},
    ]


async def test_routes_become_queues_and_an_unknown_topic_is_not_found(addr: str) -> None:
    async with NameServerClient([addr]) as client:
        assert len(await client.publish_queues("TopicTest")) == 8
        assert len(await client.subscribe_queues("TopicTest")) == 8
        assert await client.list_topics() == ("TopicTest",)
        assert [cluster.cluster for cluster in await client.list_clusters()] == ["DefaultCluster"]
        with pytest.raises(TopicNotFoundError):
            await client.topic_route("nowhere")


async def test_a_master_that_unregisters_is_reported_and_its_publish_queues_are_removed(addr: str) -> None:
    master = identity("broker-c", 0, "192.168.1.30:10911", "DefaultCluster")
    async with NameServerClient([addr], poll_name_server_interval_seconds=0.05) as client:
        changes = client.route_changes("TopicTest")
        assert (await anext(changes)).old is None

        generation = await register_at(addr, "TopicTest", who=master)
        joined: RouteChange = await anext(changes)
        assert joined.new is not None
        assert [data.broker_name for data in joined.new.broker_datas] == ["broker-a", "broker-b", "broker-c"]
        assert len(await client.publish_queues("TopicTest")) == 12

        await unregister(addr, master, generation)
        left = await anext(changes)
        assert left.old == joined.new
        assert len(await client.publish_queues("TopicTest")) == 8


async def test_the_watch_delivers_a_change_immediately(addr: str) -> None:
    master = identity("broker-c", 0, "192.168.1.30:10911", "DefaultCluster")
    arrivals: asyncio.Queue[float] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    async with NameServerClient([addr]) as client:
        await client.topic_route("TopicTest")
        await eventually(lambda: client.describe("TopicTest")["watched"])
        client.on_route_change(lambda _: arrivals.put_nowait(loop.time()))
        delays = []
        for _ in range(3):
            generation = await register_at(addr, "TopicTest", who=master)
            done_at = loop.time()
            delays.append(await asyncio.wait_for(arrivals.get(), 10.0) - done_at)
            await unregister(addr, master, generation)
            await asyncio.wait_for(arrivals.get(), 10.0)

    # The best of three: the machine may be busy with something else. A poll comes after 30 s.
    assert min(delays) < 1.0


async def test_when_a_name_server_drains_watch_and_lookups_continue_at_the_other_and_changes_arrive(addr: str) -> None:
    master = identity("broker-c", 0, "192.168.1.30:10911", "DefaultCluster")
    notified: list[RouteChange] = []
    async with AsyncExitStack() as drained:
        draining = await drained.enter_async_context(running_name_server())
        for name, broker_id, broker_addr in W1_BROKERS:
            await register_at(draining.addr, "TopicTest", who=identity(name, broker_id, broker_addr, "DefaultCluster"))
        servers = [draining.addr, addr]
        async with NameServerClient(servers, shuffle_name_servers=False) as client:
            client.on_route_change(notified.append)
            await client.topic_route("TopicTest")
            await eventually(lambda: client.describe("TopicTest")["watched"])
            await drained.aclose()
            await eventually(lambda: client.name_server_in_use == addr)
            await eventually(lambda: client.describe("TopicTest")["watched"])
            await register_at(addr, "TopicTest", who=master)
            await eventually(lambda: len(notified) == 2)

            assert len(await client.publish_queues("TopicTest")) == 12


async def test_a_broker_that_expired_at_one_name_server_stays_and_one_that_expired_at_both_is_removed(
    addr: str,
) -> None:
    master = identity("broker-c", 0, "192.168.1.30:10911", "DefaultCluster")
    async with running_name_server() as other:
        for name, broker_id, broker_addr in W1_BROKERS:
            await register_at(other.addr, "TopicTest", who=identity(name, broker_id, broker_addr, "DefaultCluster"))
        generations = [await register_at(at, "TopicTest", who=master) for at in (addr, other.addr)]
        async with NameServerClient([addr, other.addr], shuffle_name_servers=False) as client:
            assert len(await client.publish_queues("TopicTest")) == 12
            await eventually(lambda: client.describe("TopicTest")["watched"])
            await unregister(addr, master, generations[0])
            await eventually(lambda: client.describe("TopicTest")["stale"])
            assert len(await client.publish_queues("TopicTest")) == 12

            await unregister(other.addr, master, generations[1])
            await eventually(lambda: not client.describe("TopicTest")["stale"])
            assert len(await client.publish_queues("TopicTest")) == 8


async def test_a_clients_view_is_compared_with_each_server(addr: str, tmp_path: Path) -> None:
    async with running_name_server() as other, NameServerClient([addr]) as client:
        await client.topic_route("TopicTest")
        view = tmp_path / "view.json"
        view.write_text(json.dumps(client.describe("TopicTest")))
        equal = await ctl("--namesrv", addr, "diff", "--client", str(view))
        await register_at(addr, "TopicTest", who=identity("broker-c", 0, "192.168.1.30:10911", "DefaultCluster"))
        servers = ("--namesrv", f"{addr},{other.addr}")
        differs = await ctl(*servers, "diff", "--client", str(view))
        as_json = await ctl(*servers, "-o", "json", "diff", "--client", str(view))

    assert (equal.code, equal.err) == (0, "")
    assert equal.out.splitlines()[1:] == [f"node {addr}", "equal"]
    assert (differs.code, differs.err) == (1, "")
    assert "+ broker DefaultCluster/broker-c 0: addr 192.168.1.30:10911, state UP" in differs.out
    assert "- the node has no route" in differs.out
    found = as_json.document
    assert (as_json.code, found["equal"], found["topic"]) == (1, False, "TopicTest")
    assert [(node["addr"], node["equal"]) for node in found["nodes"]] == [(addr, False), (other.addr, False)]
    assert found["client"]["sourceNode"] == addr


async def test_the_same_route_from_two_name_servers_does_not_count_as_a_change(addr: str) -> None:
    async with running_name_server() as other:
        for name, broker_id, broker_addr in W1_BROKERS:
            await register_at(other.addr, "TopicTest", who=identity(name, broker_id, broker_addr, "DefaultCluster"))
        async with NameServerClient([addr]) as first, NameServerClient([other.addr]) as second:
            here, there = await first.topic_route("TopicTest"), await second.topic_route("TopicTest")

    assert here.revision.boot != there.revision.boot
    assert here.is_same_as(there)


async def test_why_and_brokers_show_every_node(addr: str) -> None:
    async with running_name_server() as other:
        servers = ("--namesrv", f"{addr},{other.addr}")
        why, brokers, table, clusters, unknown = await asyncio.gather(
            ctl(*servers, "--output", "json", "why", "broker-a"),
            ctl(*servers, "--output", "json", "brokers"),
            ctl(*servers, "brokers"),
            ctl(*servers, "clusters"),
            ctl(*servers, "why", "broker-z"),
        )

    nodes = why.document["nodes"]
    assert [[event["event"] for event in node["events"]] for node in nodes] == [["REGISTERED", "REGISTERED"], []]
    assert [len(node["brokers"]) for node in brokers.document["nodes"]] == [4, 0]
    assert "no broker is registered" in table.out
    assert "broker-b   1  192.168.1.21:10911  UP" in clusters.out
    assert [why.code, brokers.code, clusters.code, unknown.code] == [0, 0, 0, 1]


async def test_a_closed_client_that_is_still_referenced_has_no_connection() -> None:
    """Its ended tasks must not keep the watch's call, whose channel would stay open until the client is collected."""
    async with running_name_server() as server:
        client = NameServerClient([server.addr])
        async with client:
            with pytest.raises(TopicNotFoundError):
                await client.topic_route("orders")
            await eventually(lambda: client.describe("orders")["watched"])
            assert established(server.addr) == 1
        await eventually(lambda: established(server.addr) == 0)
        with pytest.raises(ClientClosedError):  # it is referenced until here
            await client.topic_route("orders")


def established(addr: str) -> int:
    """TCP connections to a local address, by the kernel's table."""
    port = f":{int(addr.rpartition(':')[2]):04X}"
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return sum(row[2].endswith(port) and row[3] == "01" for row in rows)
