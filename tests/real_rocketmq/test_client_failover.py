"""This client with two masters and a slave of 5.3.3: the master that has the slave is killed, and comes back."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.rocketmq.processes import Broker, RocketMQ
from pointsman_client import ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage, SendError
from tests.kit.waiting import eventually, until
from tests.real_rocketmq.conftest import Jars
from tests.real_rocketmq.name_server import Pointsman

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]

TOPIC = "orders"


@dataclass
class Cluster:
    name_server: Pointsman
    master: Broker
    slave: Broker


@pytest.fixture
def cluster(jars: Jars, tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        name_server = Pointsman(tmp_path / "ns")
        stack.callback(name_server.stop)
        mq = RocketMQ(jars.v5, tmp_path / "5.3.3", name_server.addr)
        for name, broker_id in (("a", 0), ("a", 1), ("b", 0)):
            mq.topics_on_disk(name, broker_id, [TOPIC])
        brokers = [mq.broker("a", slaveReadEnable="true"), mq.broker("a", 1, slaveReadEnable="true"), mq.broker("b")]
        for broker in brokers:
            stack.callback(broker.end)
        until(lambda: name_server.addrs("a").keys() == {"0", "1"}, seconds=120, what="master and slave")
        until(lambda: name_server.addrs("b"), seconds=120, what="the second master")
        yield Cluster(name_server, *brokers[:2])


async def test_a_killed_master_stops_neither_sends_nor_reads(cluster: Cluster) -> None:
    addr = f"rocketmq://{cluster.name_server.addr}"
    sent: dict[str, str] = {}
    failed: list[str] = []
    seen: Counter[str] = Counter()

    async def listener(message: ReceivedMessage) -> None:
        seen[message.body.decode()] += 1

    async with (
        Producer(addr) as producer,
        PushConsumer(
            addr,
            group="billing",
            subscriptions=TOPIC,
            listener=listener,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            rebalance_interval_seconds=2.0,
        ),
    ):
        stop = asyncio.Event()

        async def produce() -> None:
            while not stop.is_set():
                name = f"m{len(sent) + len(failed)}"
                try:
                    sent[name] = (await producer.send(Message(TOPIC, name.encode()))).queue.broker_name
                except SendError:
                    failed.append(name)
                await asyncio.sleep(0.02)

        sending = asyncio.create_task(produce())
        await eventually(lambda: set(sent.values()) == {"a", "b"} and len(sent) > 100)
        await asyncio.to_thread(cluster.master.end, signal.SIGKILL)
        at_kill = len(sent)
        # Three attempts within a send find the other master, before the route shows that this one is gone.
        await eventually(lambda: len(sent) > at_kill + 200)
        assert failed == []
        assert set([*sent.values()][at_kill + 20 :]) == {"b"}
        # What the slave has copied is read there: an asynchronous master may die with its last messages uncopied.
        await eventually(lambda: sum(name in seen for name in sent) > len(sent) - 20)

        cluster.master.start_again()
        before = len(sent)
        await eventually(lambda: "a" in [*sent.values()][before:], seconds=120.0)
        stop.set()
        await sending
        await eventually(lambda: sent.keys() <= seen.keys())
    assert failed == []
