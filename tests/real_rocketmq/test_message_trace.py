"""Message trace at real brokers, 5.5.0, 5.3.3 and 4.9.7, as mqadmin shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from deploy.rocketmq.processes import RocketMQ
from pointsman_client import (
    ConsumeFrom,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    TransactionProducer,
    TransactionState,
    sync,
)
from pointsman_client.message_trace import TRACE_TOPIC, MessageTrace
from tests.kit.waiting import eventually, until
from tests.real_rocketmq.conftest import VERSIONS, Jars
from tests.real_rocketmq.name_server import Pointsman

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(400)]


@dataclass
class Brokers:
    """A name server and one broker that has the trace topic."""

    addr: str
    mq: RocketMQ
    broker_addr: str
    name_server: Pointsman

    async def make_topic(self, topic: str) -> None:
        command = ("updateTopic", "-b", self.broker_addr, "-t", topic, "-r", "1", "-w", "1")
        assert "success" in await asyncio.to_thread(self.mq.admin, *command)
        await eventually(lambda: self.name_server.perms(topic) and self.name_server.perms(TRACE_TOPIC), what="topics")

    def shown(self, message_id: str, *, lines: int) -> list[str]:
        """The lines of the trace of a message, when they are as many."""
        found: list[str] = []

        def is_shown() -> bool:
            said = self.mq.admin("queryMsgTraceById", "-i", message_id).splitlines()
            found[:] = [line for line in said if line.startswith(("Pub", "Sub"))]
            return len(found) >= lines

        until(is_shown, what=f"the trace of {message_id}")
        return found


@pytest.fixture(params=VERSIONS)
def brokers(request: pytest.FixtureRequest, jars: Jars, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    lib = jars.of(request.param)
    folder = tmp_path_factory.mktemp("trace")
    with ExitStack() as stack:
        name_server = Pointsman(folder / "ns")
        stack.callback(name_server.stop)
        mq = RocketMQ(lib, folder / lib.name, name_server.addr)
        broker = mq.broker("a", traceTopicEnable="true")
        stack.callback(broker.end)
        until(lambda: name_server.addrs("a"), seconds=180.0, what="the broker")
        yield Brokers(f"rocketmq://{name_server.addr}", mq, broker.addr, name_server)


async def test_mqadmin_shows_who_sent_a_message_and_who_consumed_it(brokers: Brokers) -> None:
    await brokers.make_topic("Traced")
    seen: list[ReceivedMessage] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message)

    async with Producer(brokers.addr) as records:
        trace = MessageTrace(records, producer_group="GShop")
        async with (
            Producer(brokers.addr, tracing_hook=trace) as producer,
            PushConsumer(
                brokers.addr,
                group="GTraced",
                subscriptions=["Traced"],
                listener=listener,
                consume_from=ConsumeFrom.FIRST_OFFSET,
                tracing_hook=trace,
            ),
        ):
            result = await producer.send(Message("Traced", b"4711 paid", tags="paid", keys=("4711",)))
            await eventually(lambda: seen, what="the message")
        lines = await asyncio.to_thread(brokers.shown, result.message_id, lines=2)
    assert trace.dropped == 0
    (sent,) = [line for line in lines if line.startswith("Pub")]
    (consumed,) = [line for line in lines if line.startswith("Sub")]
    assert "GShop" in sent
    assert sent.rstrip().endswith("success")
    assert "GTraced" in consumed
    assert consumed.rstrip().endswith("success")


async def test_mqadmin_shows_who_pulled_the_message_of_a_transaction(brokers: Brokers) -> None:
    await brokers.make_topic("TracedEnd")
    async with Producer(brokers.addr) as records:
        trace = MessageTrace(records)
        async with (
            TransactionProducer(
                brokers.addr,
                producer_group="GShop",
                topics=["TracedEnd"],
                check=lambda _: TransactionState.UNKNOWN,
                tracing_hook=trace,
            ) as producer,
            PullConsumer(
                brokers.addr,
                group="GPulled",
                subscriptions="TracedEnd",
                consume_from=ConsumeFrom.FIRST_OFFSET,
                tracing_hook=trace,
            ) as consumer,
        ):
            async with producer.transaction(Message("TracedEnd", b"4711 paid", keys=("4711",))) as transaction:
                pass
            message = await anext(consumer)
        message_id = transaction.result.message_id
        # It shows no ends of transactions.
        lines = await asyncio.to_thread(brokers.shown, message_id, lines=2)
    assert message.message_id == message_id
    (consumed,) = [line for line in lines if line.startswith("Sub")]
    assert "GPulled" in consumed
    assert consumed.rstrip().endswith("success")


def test_sends_of_the_blocking_producer_are_traced(brokers: Brokers) -> None:
    asyncio.run(brokers.make_topic("TracedToo"))
    with sync.Producer(brokers.addr) as records:
        trace = MessageTrace(records.inner, producer_group="GShop")
        with sync.Producer(brokers.addr, tracing_hook=trace) as producer:
            result = producer.send(Message("TracedToo", b"4711 paid"))
        (sent,) = brokers.shown(result.message_id, lines=1)
    assert "GShop" in sent
