"""Client and command line against the real name server: registered brokers become routes, queues and answers."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator

import grpc.aio
import pytest

from pointsman.v1 import broker_pb2, registration_service_pb2, registration_service_pb2_grpc
from pointsman_client import NameServerClient, RouteChange, TopicNotFoundError
from tests.fakes.name_server import running_name_server
from tests.fakes.wire import identity, registration, topic

W1_BROKERS = [
    ("broker-a", 0, "192.168.1.10:10911"),
    ("broker-a", 1, "192.168.1.11:10911"),
    ("broker-b", 0, "192.168.1.20:10911"),
    ("broker-b", 1, "192.168.1.21:10911"),
]


async def register(addr: str, who: broker_pb2.BrokerIdentity, *topics: broker_pb2.TopicConfig) -> int:
    async with grpc.aio.insecure_channel(addr) as channel:
        stub = registration_service_pb2_grpc.RegistrationServiceStub(channel)
        response = await stub.RegisterBroker(iter(registration(*topics, who=who)))
        return response.generation


async def unregister(addr: str, who: broker_pb2.BrokerIdentity, generation: int) -> None:
    async with grpc.aio.insecure_channel(addr) as channel:
        stub = registration_service_pb2_grpc.RegistrationServiceStub(channel)
        await stub.UnregisterBroker(
            registration_service_pb2.UnregisterBrokerRequest(
                identity=who,
                generation=generation,
                reason=registration_service_pb2.UNREGISTER_REASON_SHUTDOWN,
            )
        )


@pytest.fixture
async def addr() -> AsyncIterator[str]:
    async with running_name_server() as server:
        for name, broker_id, broker_addr in W1_BROKERS:
            await register(server.addr, identity(name, broker_id, broker_addr, "DefaultCluster"), topic("TopicTest"))
        yield server.addr


async def ctl(*arguments: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pointsman_client.ctl", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_w1_the_route_is_printed_with_rocketmqs_keys(addr: str) -> None:
    code, out, err = await ctl("--namesrv", addr, "--output", "json", "route", "TopicTest")

    assert (code, err) == (0, "")
    route = json.loads(out)
    queue = {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicSysFlag": 0, "cluster": "DefaultCluster"}
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


async def test_a_master_that_leaves_is_heard_of_and_takes_its_publish_queues_along(addr: str) -> None:
    master = identity("broker-c", 0, "192.168.1.30:10911", "DefaultCluster")
    async with NameServerClient([addr], poll_name_server_interval_seconds=0.05) as client:
        changes = client.route_changes("TopicTest")
        assert (await anext(changes)).old is None

        generation = await register(addr, master, topic("TopicTest"))
        joined: RouteChange = await anext(changes)
        assert [data.broker_name for data in joined.new.broker_datas] == ["broker-a", "broker-b", "broker-c"]
        assert len(await client.publish_queues("TopicTest")) == 12

        await unregister(addr, master, generation)
        left = await anext(changes)
        assert left.old == joined.new
        assert len(await client.publish_queues("TopicTest")) == 8


async def test_the_same_route_from_two_name_servers_is_no_change(addr: str) -> None:
    async with running_name_server() as other:
        for name, broker_id, broker_addr in W1_BROKERS:
            await register(other.addr, identity(name, broker_id, broker_addr, "DefaultCluster"), topic("TopicTest"))
        async with NameServerClient([addr]) as first, NameServerClient([other.addr]) as second:
            here, there = await first.topic_route("TopicTest"), await second.topic_route("TopicTest")

    assert here.revision.boot != there.revision.boot
    assert here.is_same_as(there)


async def test_why_and_brokers_answer_for_every_node(addr: str) -> None:
    async with running_name_server() as other:
        servers = ("--namesrv", f"{addr},{other.addr}")
        why, brokers, clusters, unknown = await asyncio.gather(
            ctl(*servers, "--output", "json", "why", "broker-a"),
            ctl(*servers, "--output", "json", "brokers"),
            ctl(*servers, "clusters"),
            ctl(*servers, "why", "broker-z"),
        )

    nodes = json.loads(why[1])["nodes"]
    assert [[event["event"] for event in node["events"]] for node in nodes] == [["REGISTERED", "REGISTERED"], []]
    assert [len(node["brokers"]) for node in json.loads(brokers[1])["nodes"]] == [4, 0]
    assert "broker-b   1  192.168.1.21:10911  UP" in clusters[1]
    assert [why[0], brokers[0], clusters[0], unknown[0]] == [0, 0, 0, 1]
