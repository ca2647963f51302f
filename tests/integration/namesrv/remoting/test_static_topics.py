"""Static topics over RocketMQ's wire: what recorded brokers of 5.5.0 register is in the route, as RocketMQ has it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from pointsman.manual_clock import ManualClock
from pointsman.v1 import admin_service_pb2, route_service_pb2
from pointsman.v1.admin_service_pb2_grpc import AdminServiceStub
from pointsman.v1.route_service_pb2_grpc import RouteServiceStub
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import RemotingConfig
from tests.kit.broker.rocketmq import frames as recorded
from tests.kit.broker.rocketmq.frames import broker_ext, mapping_info, register, register_body, topic_config
from tests.kit.broker.rocketmq.peer import RemotingPeer, remoting_peer
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.watching import watching

BROKERS = ("a", "b")


def recorded_route(name: str) -> Any:
    (frame,) = recorded.frames(recorded.static_frame(name))
    return recorded.read_upstream(frame.body)


async def send(peer: RemotingPeer, *names: str) -> None:
    for name in names:
        peer.send(recorded.static_frame(name))
        assert (await peer.answer()).code == 0


async def route(peer: RemotingPeer, topic: str = "Static") -> Any:
    return (await peer.ask(105, {"topic": topic, "acceptStandardJsonOnly": "true"})).json()


@asynccontextmanager
async def brokers(server: NameServerApp) -> AsyncIterator[dict[str, RemotingPeer]]:
    """The connections of two brokers, which have registered before the topic was made."""
    async with remoting_peer(server.remoting_addr) as a, remoting_peer(server.remoting_addr) as b:
        for name, peer in zip(BROKERS, (a, b), strict=True):
            await send(peer, f"{name}_before")
        yield {"a": a, "b": b}


async def test_routes_are_rocketmqs_after_the_topic_is_made_and_moved(
    rocketmq: RemotingPeer, server: NameServerApp
) -> None:
    async with brokers(server) as peers:
        for step in ("made", "moved"):
            for name, peer in peers.items():
                await send(peer, f"{name}_{step}_part")
            assert await route(rocketmq) == recorded_route(f"route_{step}")
            for name, peer in peers.items():
                await send(peer, f"{name}_{step}")
            assert await route(rocketmq) == recorded_route(f"route_{step}")


async def test_complete_tables_alone_have_the_mapping_too(rocketmq: RemotingPeer, server: NameServerApp) -> None:
    async with brokers(server) as peers:
        for step in ("made", "moved"):
            for name, peer in peers.items():
                await send(peer, f"{name}_{step}")
            assert await route(rocketmq) == recorded_route(f"route_{step}")


async def test_an_unchanged_registration_is_a_heartbeat_and_one_with_another_mapping_is_not(
    rocketmq: RemotingPeer, server: NameServerApp
) -> None:
    table = {"S": topic_config("S"), "T": topic_config("T")} | {f"t{i}": topic_config(f"t{i}") for i in range(20)}

    def body(queue_ids: dict[int, int], *, epoch: int, sent_at: int) -> bytes:
        mappings = {"S": mapping_info("broker-a", queue_ids, epoch=epoch)}
        return register_body(table, sent_at=sent_at, topicQueueMappingInfoMap=mappings)

    async def registered(content: bytes) -> Any:
        rocketmq.send(register(body=content))
        assert (await rocketmq.answer()).code == 0
        return (await route(rocketmq, "S"))["topicQueueMappingByBroker"]["broker-a"]["currIdMap"]

    assert await registered(body({0: 0}, epoch=1, sent_at=1)) == {"0": 0}
    before = server.core.routes.change
    assert await registered(body({0: 0}, epoch=1, sent_at=2)) == {"0": 0}
    assert server.core.routes.change == before
    # The version of the table and all topics are equal.
    assert await registered(body({0: 0, 1: 3}, epoch=2, sent_at=3)) == {"0": 0, "1": 3}
    assert "topicQueueMappingByBroker" not in await route(rocketmq, "T")


async def test_an_invalid_mapping_leaves_its_topic_out(rocketmq: RemotingPeer) -> None:
    table = {topic: topic_config(topic) for topic in ("S", "T", "U")}
    mappings = {"S": mapping_info("broker-a", {0: -1}), "T": mapping_info("broker-a", {}, epoch="x")}
    rocketmq.send(register(body=register_body(table, topicQueueMappingInfoMap=mappings)))
    assert (await rocketmq.answer()).code == 0
    assert [(await rocketmq.ask(105, {"topic": topic})).code for topic in table] == [17, 17, 0]
    mappings |= {"T": mapping_info("broker-a", {0: 0})}
    rocketmq.send(register(body=register_body(table, counter=2, topicQueueMappingInfoMap=mappings)))
    assert (await rocketmq.answer()).code == 0
    assert [(await rocketmq.ask(105, {"topic": topic})).code for topic in table] == [17, 0, 0]


async def test_more_logical_queues_than_the_bound_are_refused_with_the_number(rocketmq: RemotingPeer) -> None:
    many = mapping_info("broker-a", {queue: queue for queue in range(25_001)})
    table = {topic: topic_config(topic) for topic in ("S", "T")}
    rocketmq.send(register(body=register_body(table, topicQueueMappingInfoMap={"S": many, "T": many})))
    refused = await rocketmq.answer()
    assert refused.code == 1
    assert "static_topic_queues_per_broker" in (refused.command.remark or "")
    assert (await rocketmq.ask(105, {"topic": "S"})).code == 17


async def test_a_brokers_own_mapping_precedes_one_that_another_registered_under_its_name(
    rocketmq: RemotingPeer,
) -> None:
    for name, addr, said in (("broker-a", "10.0.0.1:1", "broker-b"), ("broker-b", "10.0.0.2:1", "broker-b")):
        mappings = {"S": mapping_info(said, {0: 0 if name == said else 9})}
        content = register_body({"S": topic_config("S"), "T": topic_config("T")}, topicQueueMappingInfoMap=mappings)
        rocketmq.send(register(broker_ext(name, addr=addr), content))
        assert (await rocketmq.answer()).code == 0
    table = (await route(rocketmq, "S"))["topicQueueMappingByBroker"]
    assert {name: each["currIdMap"] for name, each in table.items()} == {"broker-b": {"0": 0}}


async def test_grpc_routes_say_it_and_the_digest_covers_it(server: NameServerApp) -> None:
    async with brokers(server) as peers, grpc.aio.insecure_channel(server.addr) as channel:
        seen = []
        for step in ("made", "moved"):
            for name, peer in peers.items():
                await send(peer, f"{name}_{step}")
            request = route_service_pb2.GetTopicRouteRequest(topic="Static")
            found = (await RouteServiceStub(channel).GetTopicRoute(request)).route
            digests = await AdminServiceStub(channel).ListRouteDigests(admin_service_pb2.ListRouteDigestsRequest())
            (digest,) = (each.digest for each in digests.digests if each.topic == "Static")
            assert digest == found.revision.digest
            mappings = {each.broker_name: each for each in found.static_topic_mappings}
            assert {each.cluster for each in mappings.values()} == {"C"}
            seen.append((digest, mappings))
        (made, _), (moved, last) = seen
        assert made != moved
        assert list(last["b"].logical_queue_ids) == [0, 1, 2, 3]
        assert list(last["b"].physical_queue_ids) == [0, 2, 3, 1]
        assert (last["b"].scope, last["b"].total_queues) == ("__global__", 4)


async def test_two_name_servers_that_heard_the_same_have_equal_digests(
    clock: ManualClock, server: NameServerApp
) -> None:
    remoting = RemotingConfig(listen="127.0.0.1:0")
    async with running_name_server(clock=clock, remoting=remoting) as other:
        digests = []
        for each, order in ((server, ("a", "b")), (other, ("b", "a"))):
            async with brokers(each) as peers, grpc.aio.insecure_channel(each.addr) as channel:
                for name in order:
                    await send(peers[name], f"{name}_made_part", f"{name}_moved")
                request = route_service_pb2.GetTopicRouteRequest(topic="Static")
                digests.append((await RouteServiceStub(channel).GetTopicRoute(request)).route.revision.digest)
        assert digests[0] == digests[1]


async def test_a_warm_restart_has_the_mapping(clock: ManualClock, tmp_path: Path) -> None:
    remoting = RemotingConfig(listen="127.0.0.1:0")
    async with running_name_server(clock=clock, remoting=remoting, snapshot=tmp_path) as first, brokers(first) as peers:
        for name, peer in peers.items():
            await send(peer, f"{name}_made")
    async with (
        running_name_server(clock=clock, remoting=remoting, snapshot=tmp_path) as second,
        remoting_peer(second.remoting_addr) as client,
    ):
        assert await route(client) == recorded_route("route_made")
        await send(client, "a_moved")
        assert (await route(client))["topicQueueMappingByBroker"]["a"]["currIdMap"] == {}


async def test_a_watcher_learns_of_a_moved_queue(server: NameServerApp, clock: ManualClock) -> None:
    async with brokers(server) as peers, grpc.aio.insecure_channel(server.addr) as channel:
        for name, peer in peers.items():
            await send(peer, f"{name}_made")
        async with watching(channel, "Static") as watch:
            assert len((await watch.route()).static_topic_mappings) == 2
            await watch.synced()
            made = recorded.frames(recorded.static_frame("a_made"))[0]
            mappings = {"Static": mapping_info("a", {2: 1}, epoch=2**40)}
            table = {topic: topic_config(topic, writeQueueNums=2, readQueueNums=2) for topic in ("Static", "Other")}
            ext = {"clusterName": "C", "brokerName": "a", "brokerAddr": _addr_of(made.header), "brokerId": "0"}
            peers["a"].send(register(ext, register_body(table, topicQueueMappingInfoMap=mappings)))
            assert (await peers["a"].answer()).code == 0
            await clock.advance(1.0)
            news = (await watch.route()).static_topic_mappings
            assert {each.broker_name: list(each.logical_queue_ids) for each in news} == {"a": [2], "b": [0, 3]}


def _addr_of(header: bytes) -> str:
    return str(json.loads(header)["extFields"]["brokerAddr"])
