"""The client's routes from unmodified RocketMQ name servers, 5.3.3 and 4.9.7, beside Pointsman's own."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pytest

from deploy.rocketmq.processes import Broker, RocketMQ, Running, free_port
from pointsman_client import (
    ConsumeFrom,
    Message,
    NameServerClient,
    NameServersUnavailableError,
    Producer,
    PullConsumer,
    RouteChange,
    TopicNotFoundError,
)
from pointsman_client.core.route import TopicRoute
from tests.kit.waiting import eventually, until
from tests.real_rocketmq.conftest import Jars
from tests.real_rocketmq.name_server import NameServer, Pointsman

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]

TOPIC = "orders"


@dataclass
class NameServers:
    """Name servers of three kinds, and broker ``a`` of 5.3.3 with a slave, registered with all of them."""

    ours: Pointsman
    v5: Running
    v5_addr: str
    v4_addr: str
    master: Broker
    slave: Broker


@pytest.fixture(scope="module")
def fleet(jars: Jars, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServers]:
    folder = tmp_path_factory.mktemp("routes")
    with ExitStack() as stack:
        ours = Pointsman(folder / "ns")
        stack.callback(ours.stop)
        java = [NameServer(f"127.0.0.1:{free_port()}") for _ in range(2)]
        namesrv = ";".join([ours.addr, *(each.addr for each in java)])
        v5, v4 = (RocketMQ(lib, folder / lib.name, namesrv) for lib in (jars.v5, jars.v4))
        running = v5.name_server(java[0].addr)
        stack.callback(running.end)
        stack.callback(v4.name_server(java[1].addr).end)
        for each in java:
            until(each.is_there, what="RocketMQ's name servers")
        for broker_id in (0, 1):
            v5.topics_on_disk("a", broker_id, [TOPIC])
        brokers = [v5.broker("a", broker_id) for broker_id in (0, 1)]
        for broker in brokers:
            stack.callback(broker.end)
        for each in (ours, *java):
            until(lambda: each.addrs("a").keys() == {"0", "1"}, seconds=120, what=f"both brokers at {each.addr}")  # noqa: B023
            until(lambda: each.perms(TOPIC), what=f"the topic at {each.addr}")  # noqa: B023
        yield NameServers(ours, running, java[0].addr, java[1].addr, *brokers)


def comparable(route: TopicRoute) -> TopicRoute:
    groups = tuple(
        replace(group, replicas=tuple(replace(each, ha_addr="") for each in group.replicas))
        for group in route.broker_datas
    )
    return replace(route, revision=replace(route.revision, boot=0, counter=0, digest=b""), broker_datas=groups)


async def test_all_name_servers_give_the_same_routes_topics_and_clusters(fleet: NameServers) -> None:
    async with (
        NameServerClient(fleet.ours.grpc_addr) as grpc,
        NameServerClient(f"rocketmq://{fleet.ours.addr}") as ours,
        NameServerClient(f"rocketmq://{fleet.v5_addr}") as v5,
        NameServerClient(f"rocketmq://{fleet.v4_addr}") as v4,
    ):
        expected = await grpc.topic_route(TOPIC)
        assert [replica.addr for replica in expected.broker_datas[0].replicas] == [fleet.master.addr, fleet.slave.addr]
        for client in (ours, v5, v4):
            await client.wait_until_ready([TOPIC])
            await client.wait_until_ready()
            assert comparable(await client.topic_route(TOPIC)) == comparable(expected)
            assert await client.publish_queues(TOPIC) == await grpc.publish_queues(TOPIC)
            assert [cluster.cluster for cluster in await client.list_clusters()] == ["C"]
            assert {TOPIC, "TBW102"} <= set(await client.list_topics())
            assert TOPIC in await client.list_topics("C")
            with pytest.raises(TopicNotFoundError):
                await client.topic_route("nowhere")
        assert (await v5.topic_route(TOPIC)).is_same_as(await ours.topic_route(TOPIC))


async def test_messages_pass_with_nothing_but_rocketmq_processes(fleet: NameServers) -> None:
    addrs = [f"rocketmq://{fleet.v5_addr}", f"rocketmq://{fleet.v4_addr}"]
    async with Producer(addrs) as producer:
        results = [await producer.send(Message(TOPIC, b"%d" % number)) for number in range(8)]
    assert {result.queue.broker_name for result in results} == {"a"}
    async with PullConsumer(
        addrs, group="billing", subscriptions={TOPIC: "*"}, consume_from=ConsumeFrom.FIRST_OFFSET
    ) as consumer:
        bodies: set[bytes] = set()
        async with asyncio.timeout(60.0):
            while len(bodies) < len(results):
                bodies |= {message.body for message in await consumer.poll(timeout_seconds=1.0)}
    assert bodies == {b"%d" % number for number in range(8)}


async def test_brokers_and_name_servers_that_stop_and_start(fleet: NameServers) -> None:
    addrs = [f"rocketmq://{fleet.v5_addr}", f"rocketmq://{fleet.v4_addr}"]
    async with NameServerClient(addrs, poll_name_server_interval_seconds=0.5, shuffle_name_servers=False) as client:
        changes: list[RouteChange] = []
        client.on_route_change(changes.append)
        await client.topic_route(TOPIC)

        fleet.slave.end(signal.SIGKILL)
        await eventually(lambda: [ids(change) for change in changes][-1:] == [[0]])
        fleet.slave.start_again()
        await eventually(lambda: [ids(change) for change in changes][-1:] == [[0, 1]])

        fleet.v5.end()
        await client.refresh(TOPIC)
        assert client.name_server_in_use == addrs[1]
    async with NameServerClient(addrs[0]) as client:
        with pytest.raises(NameServersUnavailableError, match="cannot connect"):
            await client.topic_route(TOPIC)


def ids(change: RouteChange) -> list[int]:
    return [] if change.new is None else [replica.broker_id for replica in change.new.broker_datas[0].replicas]
