"""Sends to topics that do not exist, on unmodified RocketMQ 5.5.0, 5.3.3 and 4.9.7, with either kind of name server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from deploy.rocketmq.processes import Broker, RocketMQ, free_port
from pointsman_client import ConsumeFrom, Message, Producer, PullConsumer, SendFailedError, TopicNotFoundError
from pointsman_client.rocketmq import RocketmqTransport
from tests.kit.waiting import until
from tests.real_rocketmq.conftest import VERSIONS, Jars
from tests.real_rocketmq.name_server import NameServer, Pointsman

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]

OLD = "orders"
DEFAULT = "TBW102"


@dataclass
class Servers:
    """Two name servers and a broker that creates no topics."""

    ours: Pointsman
    java: NameServer
    broker: Broker

    def restart(self, *, creates: bool) -> None:
        """Restart the broker, and wait until both name servers know it."""
        self.broker.end()
        until(lambda: not self.java.addrs("a"), seconds=60, what="the end of the broker")
        self.broker.start_again(autoCreateTopicEnable=str(creates).lower())
        for name_server in (self.java, self.ours):
            until(lambda: name_server.perms(DEFAULT), seconds=60, what=f"the broker at {name_server.addr}")  # noqa: B023


@pytest.fixture(params=VERSIONS)
def servers(request: pytest.FixtureRequest, jars: Jars, tmp_path: Path) -> Iterator[Servers]:
    with ExitStack() as stack:
        ours, java = Pointsman(tmp_path / "ns"), NameServer(f"127.0.0.1:{free_port()}")
        stack.callback(ours.stop)
        lib = jars.of(request.param)
        rocketmq = RocketMQ(lib, tmp_path, f"{ours.addr};{java.addr}")
        stack.callback(rocketmq.name_server(java.addr).end)
        until(java.is_there, what="RocketMQ's name server")
        rocketmq.topics_on_disk("a", 0, [OLD])
        broker = rocketmq.broker("a", autoCreateTopicEnable="false")
        stack.callback(broker.end)
        for name_server in (ours, java):
            until(lambda: name_server.perms(OLD), seconds=60, what="the broker")  # noqa: B023
        yield Servers(ours, java, broker)


async def test_topics_are_created_by_brokers_that_may_and_are_unknown_elsewhere(servers: Servers) -> None:
    of_java = partial(Producer, f"rocketmq://{servers.java.addr}")
    of_ours = partial(Producer, servers.ours.grpc_addr, transport=RocketmqTransport)
    for make in (of_java, of_ours):
        async with make() as producer:
            with pytest.raises(TopicNotFoundError, match="topic new-0 has no route"):
                await producer.send(Message("new-0", b"x"))

    await asyncio.to_thread(servers.restart, creates=True)
    for number, make in enumerate((of_java, of_ours), 1):
        topic = f"new-{number}"
        async with make() as producer:
            results = [await producer.send(Message(topic, b"%d" % count)) for count in range(8)]
            producer.send_oneway(Message(topic, b"one way"))
            assert {result.queue.queue_id for result in results} == {0, 1, 2, 3}
            await asyncio.to_thread(until, lambda: servers.java.perms(topic), what=topic)  # noqa: B023
            await producer.client.wait_until_ready([topic])
            assert len(await producer.client.publish_queues(topic)) == 4
            consumer = PullConsumer(
                f"rocketmq://{servers.java.addr}",
                group="billing",
                subscriptions={topic: "*"},
                consume_from=ConsumeFrom.FIRST_OFFSET,
            )
            async with consumer, asyncio.timeout(60.0):
                bodies: set[bytes] = set()
                while len(bodies) < 9:
                    bodies |= {message.body for message in await consumer.poll(timeout_seconds=1.0)}

    # The default topic stays in the broker's files.
    await asyncio.to_thread(servers.restart, creates=False)
    assert servers.java.perms(DEFAULT) == {"a": 7}
    for make in (of_java, of_ours):
        async with make() as producer:
            with pytest.raises(SendFailedError, match="create the topic, or set autoCreateTopicEnable"):
                await producer.send(Message("new-3", b"x"))
            isolations = producer.client.describe(OLD)["isolations"]
            assert [each for each in isolations if not each["available"]] == []
            assert (await producer.send(Message(OLD, b"x"))).tries == 1
