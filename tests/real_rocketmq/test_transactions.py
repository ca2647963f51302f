"""Transactions of this client at real brokers, 5.5.0, 5.3.3 and 4.9.7, seen by a Java consumer."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from deploy.rocketmq.processes import RocketMQ, Running, got
from pointsman_client import Message, ReceivedMessage, TransactionProducer, TransactionState, sync
from pointsman_client.rocketmq import RocketmqTransport
from tests.kit.waiting import eventually, until
from tests.real_rocketmq.conftest import VERSIONS, Jars
from tests.real_rocketmq.name_server import Pointsman

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(400)]

CHECKS: dict[str, Any] = {
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "2000",
    "transactionOpBatchInterval": "100",
}
"""How old a transaction is that is asked about, and how often: 6 s and 30 s (4.9: 60 s) by default. Brokers of 5.x note
ends after 3 s by default: they would ask about transactions that have ended, and deliver what commits again twice."""


UNENDED = """
import sys, time
from pointsman_client import Message, TransactionState
from pointsman_client.sync import TransactionProducer

addr, topic, *bodies = sys.argv[1:]
with TransactionProducer(
    addr, producer_group="GShop", topics=[topic], check=lambda _: TransactionState.UNKNOWN
) as producer:
    for body in bodies:
        transaction = producer.transaction(Message(topic, body.encode(), tags="t", properties={"source": "gone"}))
        transaction.__enter__()
    print("sent", flush=True)
    time.sleep(600)
"""
"""A program that is killed between half messages and their ends."""


@dataclass
class Shop:
    """A name server, one broker and what uses them."""

    addr: str
    mq: RocketMQ
    broker_addr: str
    name_server: Pointsman
    clients: ExitStack = field(default_factory=ExitStack)

    async def make_topic(self, topic: str) -> None:
        command = ("updateTopic", "-b", self.broker_addr, "-t", topic, "-r", "2", "-w", "2")
        assert "success" in await asyncio.to_thread(self.mq.admin, *command)
        await eventually(lambda: self.name_server.perms(topic), what="the topic")

    def java_consumer(self, topic: str) -> Running:
        consumer = self.mq.consumer(topic)
        self.clients.callback(consumer.end)
        return consumer

    def unended(self, folder: Path, topic: str, *bodies: str) -> Running:
        running = Running([sys.executable, "-c", UNENDED, self.addr, topic, *bodies], folder)
        self.clients.callback(running.end)
        return running


@pytest.fixture(scope="module", params=VERSIONS)
def processes(request: pytest.FixtureRequest, jars: Jars, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    lib = jars.of(request.param)
    folder = tmp_path_factory.mktemp("transactions")
    with ExitStack() as stack:
        name_server = Pointsman(folder / "ns")
        stack.callback(name_server.stop)
        mq = RocketMQ(lib, folder / lib.name, name_server.addr)
        broker = mq.broker("a", **CHECKS)
        stack.callback(broker.end)
        until(lambda: name_server.addrs("a"), seconds=180.0, what="the broker")
        yield Shop(f"rocketmq://{name_server.addr}", mq, broker.addr, name_server)


@pytest.fixture
def shop(processes: Shop) -> Iterator[Shop]:
    with processes.clients:
        yield processes


async def test_transactions_of_a_killed_producer_are_ended_by_another_one(shop: Shop, tmp_path: Path) -> None:
    await shop.make_topic("Orphans")
    java = shop.java_consumer("Orphans")
    asked: list[ReceivedMessage] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message)
        if message.body == b"open" and len([each for each in asked if each.body == b"open"]) < 2:
            return TransactionState.UNKNOWN
        return TransactionState.ROLLBACK if message.body == b"cancelled" else TransactionState.COMMIT

    killed = shop.unended(tmp_path / "killed", "Orphans", "paid", "cancelled", "open", "x" * 10_000)
    await eventually(lambda: "sent" in killed.said(), what="the half messages")
    killed.end(signal.SIGKILL)
    assert got(java) == []
    async with TransactionProducer(shop.addr, producer_group="GShop", topics=["Orphans"], check=check) as producer:
        await eventually(lambda: {"paid", "open", "x" * 20} <= set(got(java)), what=f"messages: {java.said()}")
        await producer.send(Message("Orphans", b"last"))
        await eventually(lambda: "last" in got(java), what="the last message")
        bodies = [message.body for message in asked]
        await eventually(lambda: b"cancelled" in [message.body for message in asked], what="the check")
        # What has ended is not asked about again.
        await asyncio.sleep(5.0)
    assert sorted(got(java)) == sorted(["paid", "open", "x" * 20, "last"])
    assert [message.body for message in asked][: len(bodies)] == bodies
    assert sorted(message.body[:9] for message in asked) == [b"cancelled", b"open", b"open", b"paid", b"x" * 9]
    assert {(message.topic, message.tags, message.properties["source"]) for message in asked} == {
        ("Orphans", "t", "gone")
    }


async def test_a_block_that_ends_is_seen_by_java_and_one_that_rolls_back_is_not(shop: Shop) -> None:
    await shop.make_topic("Blocks")
    java = shop.java_consumer("Blocks")
    asked: list[ReceivedMessage] = []

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message)
        return TransactionState.ROLLBACK

    settings = {"producer_group": "GBlocks", "topics": ["Blocks"], "check": check}
    async with TransactionProducer(shop.addr, transport=RocketmqTransport, **settings) as producer:  # type: ignore[arg-type]
        async with producer.transaction(Message("Blocks", b"paid", tags="t")) as paid:
            await producer.send(Message("Blocks", b"plain"))
            await eventually(lambda: "plain" in got(java), what="the plain message")
            assert got(java) == ["plain"]
            # Longer than brokers wait: they ask, and the running block does not let the check answer.
            await asyncio.sleep(6.0)
        async with producer.transaction(Message("Blocks", b"cancelled")) as cancelled:
            cancelled.state = TransactionState.ROLLBACK
        await eventually(lambda: "paid" in got(java), what="the committed message")
        assert paid.is_confirmed
        assert cancelled.is_confirmed
        await asyncio.sleep(5.0)
    assert sorted(got(java)) == ["paid", "plain"]
    assert asked == []


def test_the_blocking_producer_commits(shop: Shop) -> None:
    asyncio.run(shop.make_topic("Blocking"))
    java = shop.java_consumer("Blocking")
    with sync.TransactionProducer(
        shop.addr, producer_group="GBlocking", topics=["Blocking"], check=lambda _: TransactionState.COMMIT
    ) as producer:
        with producer.transaction(Message("Blocking", b"paid")) as transaction:
            pass
        assert transaction.is_confirmed
        with pytest.raises(ConnectionError), producer.transaction(Message("Blocking", b"checked")):
            raise ConnectionError
        until(lambda: sorted(got(java)) == ["checked", "paid"], what="both messages")
