"""Requests and replies at real brokers, 5.5.0, 5.3.3 and 4.9.7, also with Java at the other end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from deploy.rocketmq.processes import RocketMQ, Running, got
from pointsman_client import (
    ConsumeFrom,
    Message,
    NoReplyError,
    Producer,
    PushConsumer,
    ReceivedMessage,
    RequesterGoneError,
    SendFailedError,
)
from tests.kit.waiting import eventually, until
from tests.real_rocketmq.conftest import VERSIONS, Jars
from tests.real_rocketmq.name_server import Pointsman

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(400)]


@dataclass
class Brokers:
    """A name server and two brokers: a reply may go to the other one than the request."""

    addr: str
    mq: RocketMQ
    broker_addrs: list[str]
    name_server: Pointsman
    clients: ExitStack = field(default_factory=ExitStack)

    async def make_topic(self, topic: str) -> None:
        for addr in self.broker_addrs:
            command = ("updateTopic", "-b", addr, "-t", topic, "-r", "1", "-w", "1")
            assert "success" in await asyncio.to_thread(self.mq.admin, *command)
        await eventually(lambda: len(self.name_server.perms(topic)) == 2, what="the topic")

    def running(self, client: Running) -> Running:
        self.clients.callback(client.end)
        return client

    def answering(self, topic: str, producer: Producer, seen: list[ReceivedMessage]) -> PushConsumer:
        async def listener(message: ReceivedMessage) -> None:
            seen.append(message)
            if message.reply_address is not None and message.body != b"no":
                await producer.reply(message, b"re " + message.body)

        first = ConsumeFrom.FIRST_OFFSET
        return PushConsumer(self.addr, group=f"G{topic}", subscriptions=[topic], listener=listener, consume_from=first)


@pytest.fixture(scope="module", params=VERSIONS)
def processes(
    request: pytest.FixtureRequest, jars: Jars, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Brokers]:
    lib = jars.of(request.param)
    folder = tmp_path_factory.mktemp("requests")
    with ExitStack() as stack:
        name_server = Pointsman(folder / "ns")
        stack.callback(name_server.stop)
        mq = RocketMQ(lib, folder / lib.name, name_server.addr)
        made = [mq.broker("a"), mq.broker("b")]
        for broker in made:
            stack.callback(broker.end)
        until(lambda: name_server.addrs("a") and name_server.addrs("b"), seconds=180.0, what="the brokers")
        yield Brokers(f"rocketmq://{name_server.addr}", mq, [broker.addr for broker in made], name_server)


@pytest.fixture
def brokers(processes: Brokers) -> Iterator[Brokers]:
    with processes.clients:
        yield processes


async def test_requests_get_their_replies_and_one_without_a_reply_ends_at_its_timeout(brokers: Brokers) -> None:
    await brokers.make_topic("Asked")
    seen: list[ReceivedMessage] = []
    async with (
        Producer(brokers.addr) as asking,
        Producer(brokers.addr) as answering,
        brokers.answering("Asked", answering, seen),
    ):
        names = [f"q{number}".encode() for number in range(50)]
        requests = [asking.request(Message("Asked", name), timeout_seconds=20.0) for name in names]
        replies = await asyncio.gather(*requests)
        assert [reply.body for reply in replies] == [b"re " + name for name in names]
        large = await asking.request(Message("Asked", b"x" * 10_000), timeout_seconds=20.0)
        assert large.body == b"re " + b"x" * 10_000
        with pytest.raises(NoReplyError, match=r"no reply to message \w+ of Asked within 1 s"):
            await asking.request(Message("Asked", b"no"), timeout_seconds=1.0)
    (unanswered,) = [message for message in seen if message.body == b"no"]
    async with Producer(brokers.addr) as answering:
        with pytest.raises(SendFailedError) as caught:
            await answering.reply(unanswered, b"late")
        assert {type(each.error) for each in caught.value.tries} == {RequesterGoneError}
        # The brokers are not left out for it.
        isolations = answering.client.describe("C_REPLY_TOPIC")["isolations"]
        assert [each for each in isolations if not each["available"]] == []


async def test_java_answers_requests(brokers: Brokers) -> None:
    await brokers.make_topic("ToJava")
    java = brokers.running(brokers.mq.answerer("ToJava"))
    async with Producer(brokers.addr) as asking:
        await eventually(lambda: "started" in java.said(), what="the Java consumer")
        for number in range(4):
            reply = await asking.request(Message("ToJava", f"q{number}".encode()), timeout_seconds=30.0)
            assert reply.body == f"re q{number}".encode()
    assert len(got(java)) == 4


async def test_requests_of_java_are_answered(brokers: Brokers, request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params["processes"] == "5.3.3":
        pytest.skip("request() of the Java client 5.3.3 ends when the message is stored, whatever its timeout")
    await brokers.make_topic("OfJava")
    seen: list[ReceivedMessage] = []
    async with Producer(brokers.addr) as answering, brokers.answering("OfJava", answering, seen):
        java = brokers.running(brokers.mq.requester("OfJava", 4))
        await eventually(lambda: not java.is_alive, what="the end of the Java producer")
    assert [line for line in java.said() if line.startswith("reply")] == [f"reply re q{n}" for n in range(4)]
