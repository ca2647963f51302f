"""Messages that brokers select by tag and by SQL92, 5.5.0, 5.3.3 and 4.9.7: the same as for a Java consumer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from deploy.rocketmq.processes import RocketMQ, Running, got
from pointsman_client import (
    ConsumeFrom,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    SimpleConsumer,
    SqlFilter,
)
from pointsman_client.core.subscription import expression_type
from tests.kit.waiting import eventually, until
from tests.real_rocketmq.conftest import VERSIONS, Jars
from tests.real_rocketmq.name_server import Pointsman

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(400)]

MESSAGES = 1_000
EXPRESSIONS = (
    SqlFilter("amount > 500 AND region = 'EU'"),
    SqlFilter("region IS NULL OR amount BETWEEN 10 AND 20"),
    SqlFilter("region IN ('EU', 'US') AND NOT (amount < 900)"),
    SqlFilter("TAGS = 'paid' AND amount <= 300.5"),
    "paid || refunded",
    "Aa",
)
"""``Aa`` and ``BB`` have the same hash, by which brokers select."""
BY_SQL_ALONE = EXPRESSIONS[0]


@dataclass
class Brokers:
    """A name server, and one broker that filters by properties."""

    addr: str
    mq: RocketMQ
    broker_addr: str
    name_server: Pointsman
    clients: ExitStack = field(default_factory=ExitStack)

    async def make_topic(self, topic: str) -> None:
        command = ("updateTopic", "-b", self.broker_addr, "-t", topic, "-r", "4", "-w", "4")
        assert "success" in await asyncio.to_thread(self.mq.admin, *command)
        await eventually(lambda: self.name_server.perms(topic), what="the topic")

    def java_consumer(self, topic: str, expression: str) -> Running:
        consumer = self.mq.consumer(topic, selector=[expression_type(expression), expression])
        self.clients.callback(consumer.end)
        return consumer

    def consumer(self, topic: str, expression: str, group: str, seen: list[str]) -> PushConsumer:
        def listener(message: ReceivedMessage) -> None:
            seen.append(message.body.decode())

        first = ConsumeFrom.FIRST_OFFSET
        return PushConsumer(
            self.addr,
            group=group,
            subscriptions={topic: expression},
            listener=listener,
            consume_from=first,
            pull_wait_seconds=0.5,
        )


def started(jars: Jars, version: str, folder_of: pytest.TempPathFactory, **settings: Any) -> Iterator[Brokers]:
    folder = folder_of.mktemp("filters")
    with ExitStack() as stack:
        name_server = Pointsman(folder / "ns")
        stack.callback(name_server.stop)
        mq = RocketMQ(jars.of(version), folder / version, name_server.addr)
        broker = mq.broker("a", **settings)
        stack.callback(broker.end)
        until(lambda: name_server.addrs("a"), seconds=180.0, what="the broker")
        brokers = Brokers(f"rocketmq://{name_server.addr}", mq, broker.addr, name_server)
        with brokers.clients:
            yield brokers


@pytest.fixture(scope="module", params=VERSIONS)
def brokers(request: pytest.FixtureRequest, jars: Jars, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    yield from started(jars, request.param, tmp_path_factory, enablePropertyFilter="true")


@pytest.fixture(scope="module", params=VERSIONS)
def unfiltering(
    request: pytest.FixtureRequest, jars: Jars, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Brokers]:
    yield from started(jars, request.param, tmp_path_factory)


def messages(topic: str) -> list[Message]:
    rng = random.Random(92)
    made = []
    for number in range(MESSAGES):
        properties = {"amount": str(rng.randrange(1_000))}
        if rng.random() < 0.8:
            properties["region"] = rng.choice(["EU", "US", "APAC"])
        tag = rng.choice(["paid", "refunded", "Aa", "BB", ""])
        made.append(Message(topic, f"m{number}".encode(), tags=tag, properties=properties))
    return made


async def send_all(producer: Producer, sent: list[Message]) -> None:
    for start in range(0, len(sent), 100):
        await asyncio.gather(*(producer.send(each, timeout_seconds=30.0) for each in sent[start : start + 100]))


async def test_a_selection_is_that_of_java(brokers: Brokers) -> None:
    await brokers.make_topic("Filtered")
    async with Producer(brokers.addr) as producer:
        await send_all(producer, messages("Filtered"))
    for number, expression in enumerate(EXPRESSIONS):
        wanted, seen = selected_by_hand(messages("Filtered"), expression), list[str]()
        java = brokers.java_consumer("Filtered", expression)
        async with brokers.consumer("Filtered", expression, f"GFilter{number}", seen) as consumer:
            await eventually(partial(has_read_all, consumer, wanted, seen), what=f"{expression}")
        assert sorted(seen) == sorted(wanted)
        await eventually(lambda: len(got(java)) >= len(wanted), what=f"{expression} in Java")  # noqa: B023
        assert sorted(got(java)) == sorted(wanted)
        java.end()


def has_read_all(consumer: PushConsumer, wanted: set[str], seen: list[str]) -> bool:
    """Whether each queue is read to its end."""
    queues = [each for each in consumer.describe()["queues"] if each["topic"] == "Filtered"]
    return len(seen) >= len(wanted) and len(queues) == 4 and all(each.get("lag") == 0 for each in queues)


def selected_by_hand(sent: list[Message], expression: str) -> set[str]:
    def is_selected(message: Message) -> bool:
        amount, region, tag = int(message.properties["amount"]), message.properties.get("region"), message.tags
        return {
            EXPRESSIONS[0]: amount > 500 and region == "EU",
            EXPRESSIONS[1]: region is None or 10 <= amount <= 20,
            EXPRESSIONS[2]: region in {"EU", "US"} and not amount < 900,
            EXPRESSIONS[3]: tag == "paid" and amount <= 300.5,
            EXPRESSIONS[4]: tag in {"paid", "refunded"},
            EXPRESSIONS[5]: tag == "Aa",
        }[expression]

    return {message.body.decode() for message in sent if is_selected(message)}


async def test_a_pull_consumer_selects_too(brokers: Brokers) -> None:
    await brokers.make_topic("Pulled")
    first = ConsumeFrom.FIRST_OFFSET
    async with Producer(brokers.addr) as producer:
        await send_all(producer, messages("Pulled"))
        async with PullConsumer(
            brokers.addr, group="GPull", subscriptions={"Pulled": BY_SQL_ALONE}, consume_from=first
        ) as consumer:
            wanted, bodies = selected_by_hand(messages("Pulled"), BY_SQL_ALONE), list[str]()
            while len(bodies) < len(wanted):
                bodies += [message.body.decode() for message in await consumer.poll(timeout_seconds=10.0)]
    assert sorted(bodies) == sorted(wanted)


async def test_a_simple_consumer_selects_too(brokers: Brokers) -> None:
    if brokers.mq.is_4:
        pytest.skip("4.9 has no POP")
    await brokers.make_topic("Leased")
    first = ConsumeFrom.FIRST_OFFSET
    async with Producer(brokers.addr) as producer:
        await asyncio.gather(*map(producer.send, messages("Leased")))
    async with SimpleConsumer(
        brokers.addr, group="GLease", subscriptions={"Leased": BY_SQL_ALONE}, consume_from=first
    ) as consumer:
        wanted, bodies = selected_by_hand(messages("Leased"), BY_SQL_ALONE), list[str]()
        while len(bodies) < len(wanted):
            for message in await consumer.receive(32, invisible_seconds=60.0, timeout_seconds=10.0):
                bodies.append(message.body.decode())
                await consumer.ack(message)
    assert sorted(bodies) == sorted(wanted)


async def test_a_broker_that_does_not_filter_by_properties_is_reported(
    unfiltering: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    await unfiltering.make_topic("Unfiltered")
    seen: list[str] = []
    async with unfiltering.consumer("Unfiltered", BY_SQL_ALONE, "GUnfiltered", seen) as consumer:
        await eventually(lambda: "set enablePropertyFilter" in " ".join(consumer.health().problems), what="the problem")
    assert "set enablePropertyFilter" in caplog.text
