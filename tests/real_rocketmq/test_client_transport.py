"""The client's transport on unmodified RocketMQ brokers of three versions, with the tests that all transports share."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from deploy.rocketmq.processes import Broker, RocketMQ
from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman_client.core.message import Message, OutgoingMessage, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import (
    BrokerError,
    BrokerRefusedError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    InvalidMessageError,
)
from pointsman_client.ports.transport import PulledMessages, Reader, SendReceipt, Transport
from pointsman_client.rocketmq import AccessKey, RocketmqTransport
from pointsman_client.rocketmq.broker_link import Link
from pointsman_client.rocketmq.rocketmq_options import RocketmqOptions
from tests.integration.client.transports import test_transport_contract
from tests.kit.broker.under_test import BrokersUnderTest, shared_tests
from tests.kit.waiting import eventually, pause
from tests.real_rocketmq.conftest import VERSIONS, Jars

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]

WITHOUT = {
    # Fields and messages that differ from those of Redis: with tests below.
    "test_a_message_is_received_as_it_was_sent",
    "test_a_message_in_a_retry_queue_keeps_its_delay",
    "test_an_offset_beyond_the_end_is_an_error_that_names_the_end",
    "test_the_offset_of_a_time_is_that_of_the_first_message_born_then_or_later",
    # What a test cannot do to these brokers.
    "test_lost_messages_show_as_an_offset_beyond_the_end",
    "test_trimmed_messages_are_passed_over_and_counted",
    "test_a_queue_that_was_trimmed_empty_is_skipped_immediately",
    "test_a_queue_keeps_about_its_maximum_length",
    "test_a_replica_serves_reads_and_accepts_no_messages",
    "test_a_promoted_replica_continues_where_its_master_ended",
    "test_the_status_shows_whether_enough_replicas_have_the_message",
}
globals().update(shared_tests(test_transport_contract, without=WITHOUT))

PLAIN_ACL = """globalWhiteRemoteAddresses: []
accounts:
- accessKey: RocketMQ12
  secretKey: 12345678ab
  admin: true
"""
AUTHENTICATION = {
    "authenticationEnabled": "true",
    "authenticationProvider": "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": (
        "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
    ),
    "initAuthenticationUser": '{"username":"RocketMQ12","password":"12345678ab"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"RocketMQ12","secretKey":"12345678ab"}',
}
SECONDS = 10.0
QUEUES = 64
READER = Reader("billing")
_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=VERSIONS)
def broker(request: pytest.FixtureRequest, jars: Jars, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    lib = jars.of(request.param)
    mq = RocketMQ(lib, tmp_path_factory.mktemp(request.param), "127.0.0.1:1")
    running = mq.broker("a", recallMessageEnable="true")
    asyncio.run(until_serving(running))
    yield running
    running.end()


@pytest.fixture
async def transport() -> AsyncIterator[RocketmqTransport]:
    transport = RocketmqTransport()
    yield transport
    await transport.close()


@pytest.fixture
async def topic(broker: Broker) -> str:
    return await new_topic(broker, "orders")


@pytest.fixture
async def queue(topic: str) -> MessageQueue:
    return MessageQueue(topic, "C", "a", 3)


@pytest.fixture
async def brokers(broker: Broker) -> AsyncIterator[BrokersUnderTest]:
    found = RealBrokers(broker, await new_topic(broker, "orders"))
    yield found
    await found.close()


async def request(broker: Broker, code: int, **ext: str) -> Any:
    link = Link(broker.addr, RocketmqOptions())
    try:
        return await link.request(code, ext, timeout_seconds=SECONDS)
    finally:
        await link.close()


async def until_serving(broker: Broker) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await request(broker, Request.GET_MAX_OFFSET, topic="none", queueId="0")
            except (BrokerUnreachableError, BrokerTimeoutError):
                await asyncio.sleep(0.1)
            else:
                return


async def new_topic(broker: Broker, prefix: str) -> str:
    """Create a topic of many queues, for one test."""
    topic = f"{prefix}-{next(_numbers)}"
    response = await request(
        broker,
        Request.UPDATE_AND_CREATE_TOPIC,
        topic=topic,
        defaultTopic="TBW102",
        readQueueNums=str(QUEUES),
        writeQueueNums=str(QUEUES),
        perm="6",
        topicFilterType="SINGLE_TAG",
        topicSysFlag="0",
        order="false",
    )
    assert response.command.code == 0
    return topic


class SettledTransport(RocketmqTransport):
    """For the shared tests: topics with unique names, and what was sent can be read when ``send`` returns.

    Brokers show a message some milliseconds after their response, and return at most 32 at a time.
    """

    def __init__(self, topic: str) -> None:
        super().__init__()
        self._suffix = topic.removeprefix("orders")

    async def send(
        self, addr: str, queue: MessageQueue, messages: Sequence[OutgoingMessage], *, timeout_seconds: float
    ) -> SendReceipt:
        renamed = [each._replace(message=self._renamed(each.message, self._suffix)) for each in messages]
        there = self._there(queue)
        receipt = await super().send(addr, there, renamed, timeout_seconds=timeout_seconds)
        last = receipt.queue_offsets[-1]
        async with asyncio.timeout(SECONDS):
            while last is not None and await super().max_offset(addr, there, timeout_seconds=SECONDS) <= last:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        return receipt

    async def pull(self, addr: str, queue: MessageQueue, offset: int, **how: Any) -> PulledMessages:
        messages: list[ReceivedMessage] = []
        most: int = how.pop("max_messages")
        while True:
            left = most - len(messages)
            pulled = await super().pull(addr, self._there(queue), offset, max_messages=left, **how)
            messages += pulled.messages
            offset = pulled.next_offset
            if not pulled.messages or len(messages) == most:
                back = [each._replace(queue=queue, message=self._renamed(each.message, "")) for each in messages]
                return replace(pulled, messages=tuple(back))
            how["wait_seconds"] = 0.0

    async def min_offset(self, addr: str, queue: MessageQueue, *, timeout_seconds: float) -> int:
        return await super().min_offset(addr, self._there(queue), timeout_seconds=timeout_seconds)

    async def max_offset(self, addr: str, queue: MessageQueue, *, timeout_seconds: float) -> int:
        return await super().max_offset(addr, self._there(queue), timeout_seconds=timeout_seconds)

    async def offset_at(self, addr: str, queue: MessageQueue, at: datetime, *, timeout_seconds: float) -> int:
        return await super().offset_at(addr, self._there(queue), at, timeout_seconds=timeout_seconds)

    def _there(self, queue: MessageQueue) -> MessageQueue:
        return replace(queue, topic=queue.topic + self._suffix) if self._suffix not in queue.topic else queue

    def _renamed(self, message: Message, suffix: str) -> Message:
        topic = message.topic.removesuffix(self._suffix) + suffix
        return Message.unchecked(topic, message.body, message.tags, message.keys, message.properties)


class RealBrokers:
    """Implements :class:`BrokersUnderTest` for one broker, which tests share."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._broker = broker
        self._topic = topic
        self.transport: Transport = SettledTransport(topic)

    def open(self, **_: Any) -> Transport:
        return self.transport

    async def add(self) -> str:
        return self._broker.addr

    async def take_down(self, _: str) -> None:
        self._broker.end(signal.SIGKILL)

    async def hang(self, _: str) -> None:
        pause(self._broker.pid)

    async def bring_up(self, _: str) -> None:
        if self._broker.is_alive:
            self._broker.send(signal.SIGCONT)
        else:
            self._broker.start_again()
        await until_serving(self._broker)

    async def lose_messages(self, addr: str) -> None:
        raise NotImplementedError

    async def replicate(self, master: str, slave: str) -> None:
        raise NotImplementedError

    async def promote(self, addr: str) -> None:
        raise NotImplementedError

    async def trim(self, addr: str, queue: MessageQueue, first: int) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        await self.transport.close()
        if not self._broker.is_alive:
            self._broker.start_again()
        self._broker.send(signal.SIGCONT)
        await until_serving(self._broker)


def outgoing(topic: str, body: bytes, **more: Any) -> OutgoingMessage:
    message = Message(topic, body, more.pop("tags", ""), more.pop("keys", ()), more.pop("properties", {}))
    return OutgoingMessage(message, f"id-{next(_numbers)}", datetime.now(UTC), **more)


async def pull(
    transport: Transport,
    broker: Broker,
    queue: MessageQueue,
    offset: int,
    reader: Reader = READER,
    wait: float = 20.0,
) -> PulledMessages:
    return await transport.pull(
        broker.addr, queue, offset, max_messages=32, wait_seconds=wait, timeout_seconds=SECONDS, reader=reader
    )


async def pull_all(transport: Transport, broker: Broker, queue: MessageQueue, count: int) -> list[ReceivedMessage]:
    """Pull from the beginning until at least ``count`` messages came."""
    found: list[ReceivedMessage] = []
    offset = 0
    async with asyncio.timeout(60):
        while len(found) < count:
            pulled = await pull(transport, broker, queue, offset)
            found += pulled.messages
            offset = pulled.next_offset
    return found


async def test_messages_are_received_as_they_were_sent(
    broker: Broker, transport: RocketmqTransport, queue: MessageQueue
) -> None:
    everything = outgoing(
        queue.topic, b"\x00\xff", tags="paid", keys=("k1", "k2"), properties={"trace": "ü"}, reconsume_times=2
    )
    large = outgoing(queue.topic, b"large" * 200_000)
    noise = outgoing(queue.topic, os.urandom(6_000))
    batch = [outgoing(queue.topic, b"%d" % number, tags="t", keys=("k",), properties={"n": "1"}) for number in range(3)]
    for messages in ([everything], [large], [noise], batch):
        await transport.send(broker.addr, queue, messages, timeout_seconds=SECONDS)
    await transport.send_one_way(broker.addr, queue, [outgoing(queue.topic, b"one way")], timeout_seconds=SECONDS)
    received = await pull_all(transport, broker, queue, 7)
    sent = [everything, large, noise, *batch]
    assert [each.message for each in received[:-1]] == [each.message for each in sent]
    assert [each.message_id for each in received[:-1]] == [each.message_id for each in sent]
    first = received[0]
    assert first.born_at is not None
    assert abs(first.born_at - everything.born_at) < timedelta(milliseconds=1)
    assert (first.reconsume_times, first.queue, first.queue_offset) == (2, queue, 0)
    assert first.offset_message_id.startswith("7F000001")
    assert received[-1].body == b"one way"


async def test_the_broker_filters_by_the_hash_of_a_tag(
    broker: Broker, transport: RocketmqTransport, queue: MessageQueue
) -> None:
    for tag in ("paid", "Aa", "BB", "refunded", ""):
        await transport.send(broker.addr, queue, [outgoing(queue.topic, b"x", tags=tag)], timeout_seconds=SECONDS)
    await pull_all(transport, broker, queue, 5)
    for expression, tags, next_offset in (
        ("paid || refunded", ["paid", "refunded"], 5),
        ("Aa", ["Aa", "BB"], 5),
        ("none", [], 5),
        ("*", ["paid", "Aa", "BB", "refunded", ""], 5),
    ):
        found: list[str] = []
        offset = 0
        while offset < next_offset:
            pulled = await pull(transport, broker, queue, offset, reader=Reader("filtering", expression))
            found += [message.tags for message in pulled.messages]
            offset = pulled.next_offset
        assert (found, offset) == (tags, next_offset)


async def test_a_delayed_message_comes_when_it_is_due(
    broker: Broker, transport: RocketmqTransport, queue: MessageQueue
) -> None:
    due_at = datetime.now(UTC) + timedelta(seconds=1)
    delayed = outgoing(queue.topic, b"x", due_at=due_at)
    receipt = await transport.send(broker.addr, queue, [delayed], timeout_seconds=SECONDS)
    assert receipt.queue_offsets == (None,)
    (received,) = await pull_all(transport, broker, queue, 1)
    assert datetime.now(UTC) >= due_at - timedelta(milliseconds=50)
    assert (received.body, dict(received.properties), received.topic) == (b"x", {}, queue.topic)


async def test_a_recalled_message_does_not_come(
    broker: Broker, transport: RocketmqTransport, queue: MessageQueue
) -> None:
    now = datetime.now(UTC)
    receipts = [
        await transport.send(
            broker.addr, queue, [outgoing(queue.topic, body, due_at=now + timedelta(seconds=after))], timeout_seconds=10
        )
        for body, after in ((b"recalled", 3.0), (b"kept", 3.5))
    ]
    handle = receipts[0].recall_handle
    if not handle:
        assert "4.9.7" in str(broker.folder)
        return
    assert transport.recall_place(handle) == (queue.topic, "a")
    await transport.recall(broker.addr, handle, timeout_seconds=SECONDS)
    (received,) = await pull_all(transport, broker, queue, 1)
    assert received.body == b"kept"
    with pytest.raises(BrokerRefusedError, match="recall failed, timestamp invalid"):
        await transport.recall(broker.addr, handle, timeout_seconds=SECONDS)


async def test_a_delay_that_is_too_long_for_the_broker_is_an_error_that_names_it(
    broker: Broker, transport: RocketmqTransport, queue: MessageQueue
) -> None:
    far = outgoing(queue.topic, b"x", due_at=datetime.now(UTC) + timedelta(days=4))
    with pytest.raises(InvalidMessageError, match=r"deliver_at '20.*\+00:00' is .*(259200000ms|2 h ahead)"):
        await transport.send(broker.addr, queue, [far], timeout_seconds=SECONDS)
    within = outgoing(queue.topic, b"x", due_at=datetime.now(UTC) + timedelta(hours=2))
    await transport.send(broker.addr, queue, [within], timeout_seconds=SECONDS)


async def test_a_message_that_is_sent_back_comes_again_and_at_last_is_a_dead_letter(
    broker: Broker, transport: RocketmqTransport, queue: MessageQueue
) -> None:
    group = f"group-{next(_numbers)}"
    message = outgoing(queue.topic, b"z" * 5_000, tags="paid", keys=("k",), properties={"trace": "x"})
    await transport.send(broker.addr, queue, [message], timeout_seconds=SECONDS)
    failed = (await pull_all(transport, broker, queue, 1))[0]

    async def send_back(each: ReceivedMessage) -> None:
        await transport.send_back(
            broker.addr, each, group=group, max_reconsume_times=1, delay_level=1, timeout_seconds=SECONDS
        )

    # The group is created by its first pull.
    await pull(transport, broker, queue, 0, reader=Reader(group))
    await send_back(failed)
    (again,) = await pull_all(transport, broker, replace(queue, topic=f"%RETRY%{group}", queue_id=0), 1)
    assert (again.message, again.message_id) == (message.message, message.message_id)
    assert (again.reconsume_times, again.origin) == (1, failed.offset_message_id)
    await send_back(again)
    (dead,) = await pull_all(transport, broker, replace(queue, topic=f"%DLQ%{group}", queue_id=0), 1)
    assert (dead.message, dead.message_id, dead.reconsume_times) == (message.message, message.message_id, 2)


async def test_a_message_that_is_sent_to_the_retry_topic_keeps_its_topic(
    broker: Broker, transport: RocketmqTransport, queue: MessageQueue
) -> None:
    retry = replace(queue, topic=f"%RETRY%group-{next(_numbers)}", queue_id=0)
    message = outgoing(queue.topic, b"x", origin="C/a/orders/3@5", reconsume_times=20)
    await transport.send(broker.addr, retry, [message], timeout_seconds=SECONDS)
    (received,) = await pull_all(transport, broker, retry, 1)
    assert (received.topic, received.origin, received.reconsume_times) == (queue.topic, "C/a/orders/3@5", 20)


async def test_a_search_by_time_finds_the_first_message_stored_then_or_later(
    broker: Broker, transport: RocketmqTransport, queue: MessageQueue
) -> None:
    moments = []
    for number in range(5):
        moments.append(datetime.now(UTC))
        await asyncio.sleep(0.02)
        body = b"%d" % number
        await transport.send(broker.addr, queue, [outgoing(queue.topic, body)] * 3, timeout_seconds=SECONDS)
        await asyncio.sleep(0.02)
    await pull_all(transport, broker, queue, 15)
    found = [await transport.offset_at(broker.addr, queue, at, timeout_seconds=SECONDS) for at in moments]
    assert found == [0, 3, 6, 9, 12]
    now = datetime.now(UTC)
    assert await transport.offset_at(broker.addr, queue, now, timeout_seconds=SECONDS) == 15
    day_ago = now - timedelta(days=1)
    assert await transport.offset_at(broker.addr, queue, day_ago, timeout_seconds=SECONDS) == 0


async def test_a_wait_ends_within_its_time_however_the_broker_counts(
    broker: Broker, transport: RocketmqTransport, queue: MessageQueue
) -> None:
    loop = asyncio.get_running_loop()
    for wait in (0.3, 6.0):
        began = loop.time()
        assert await pull(transport, broker, queue, 0, wait=wait) == PulledMessages((), 0)
        assert min(wait, 0.9) <= loop.time() - began < wait + 2


async def test_a_pull_that_waits_gets_a_message_within_the_second(
    broker: Broker, transport: RocketmqTransport, queue: MessageQueue
) -> None:
    waiting = asyncio.create_task(pull(transport, broker, queue, 0, wait=60))
    await asyncio.sleep(0.5)
    await transport.send(broker.addr, queue, [outgoing(queue.topic, b"x")], timeout_seconds=SECONDS)
    async with asyncio.timeout(2):
        assert len((await waiting).messages) == 1


async def test_refusals_say_what_was_wrong(broker: Broker, transport: RocketmqTransport, queue: MessageQueue) -> None:
    message = [outgoing(queue.topic, b"x")]
    with pytest.raises(BrokerRefusedError, match="queueId"):
        await transport.send(broker.addr, replace(queue, queue_id=99), message, timeout_seconds=SECONDS)
    unknown = replace(queue, topic="nowhere")
    with pytest.raises(BrokerRefusedError, match="TOPIC_NOT_EXIST 17"):
        await pull(transport, broker, unknown, 0)
    with pytest.raises(BrokerRefusedError, match="MESSAGE_ILLEGAL 13"):
        await transport.send(
            broker.addr, queue, [outgoing(queue.topic, os.urandom(5_000_000))], timeout_seconds=SECONDS
        )
    received = await sent_and_received(broker, transport, queue)
    failed = received._replace(offset_message_id=received.offset_message_id[:16] + "0000000FFFFFFFF0")
    with pytest.raises(BrokerRefusedError, match="SYSTEM_ERROR 1"):
        await transport.send_back(broker.addr, failed, group="billing", max_reconsume_times=1, timeout_seconds=SECONDS)


async def sent_and_received(broker: Broker, transport: RocketmqTransport, queue: MessageQueue) -> ReceivedMessage:
    await transport.send(broker.addr, queue, [outgoing(queue.topic, b"x")], timeout_seconds=SECONDS)
    return (await pull_all(transport, broker, queue, 1))[0]


async def test_an_operators_reset_reaches_the_next_pull(
    broker: Broker, transport: RocketmqTransport, queue: MessageQueue
) -> None:
    """5.3.3 alone: 4.9.7 sends code 220 to the members."""
    messages = [outgoing(queue.topic, b"x") for _ in range(5)]
    await transport.send(broker.addr, queue, messages, timeout_seconds=SECONDS)
    await pull_all(transport, broker, queue, 5)
    if transport._link(broker.addr).version < 413:
        pytest.skip("4.9.7 sends resets to the members")
    group = f"group-{next(_numbers)}"
    await pull(transport, broker, queue, 0, reader=Reader(group))
    await request(
        broker, Request.INVOKE_BROKER_TO_RESET_OFFSET, topic=queue.topic, group=group, timestamp="0", isForce="true"
    )
    assert await pull(transport, broker, queue, 5, reader=Reader(group)) == PulledMessages((), 0, is_reset=True)
    assert len((await pull(transport, broker, queue, 0, reader=Reader(group))).messages) == 5


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_broker_that_checks_signatures_serves_its_accounts_alone(
    version: str, jars: Jars, tmp_path: Path
) -> None:
    if version == "4.9.7":
        settings = {"aclEnable": "true"}
        conf = tmp_path / "acl-0" / "conf"
        conf.mkdir(parents=True)
        (conf / "plain_acl.yml").write_text(PLAIN_ACL)
    else:
        settings = AUTHENTICATION
    checking = RocketMQ(jars.of(version), tmp_path, "127.0.0.1:1").broker("acl", 0, **settings)
    try:
        account = AccessKey("RocketMQ12", "12345678ab")
        await until_serving(checking)
        queue = MessageQueue("signed", "C", "acl", 0)
        transport = RocketmqTransport(access_key=account)
        for count in (1, 2):
            messages = [outgoing("signed", "ü".encode(), properties={"n": "ü"}) for _ in range(count)]
            await transport.send(checking.addr, queue, messages, timeout_seconds=SECONDS)
        assert len(await pull_all(transport, checking, queue, 3)) == 3
        await transport.close()
        for wrong in (AccessKey("RocketMQ12", "no-such-secret"), None):
            transport = RocketmqTransport(access_key=wrong)
            with pytest.raises(BrokerRefusedError, match=r"(signature|accessKey|username).*check access_key"):
                await transport.send(checking.addr, queue, messages, timeout_seconds=SECONDS)
            await transport.close()
    finally:
        checking.end()


async def test_what_was_acknowledged_outlives_a_kill_under_load(
    broker: Broker, transport: RocketmqTransport, topic: str
) -> None:
    acknowledged: dict[MessageQueue, list[str]] = {MessageQueue(topic, "C", "a", number): [] for number in range(4)}
    is_over = False

    async def produce(queue: MessageQueue) -> None:
        while not is_over:
            message = outgoing(topic, b"x")
            try:
                await transport.send(broker.addr, queue, [message], timeout_seconds=1.0)
            except BrokerError:
                await asyncio.sleep(0.05)
            else:
                acknowledged[queue].append(message.message_id)

    def counts(least: int) -> Callable[[], bool]:
        return lambda: all(len(ids) >= least for ids in acknowledged.values())

    producing = [asyncio.create_task(produce(queue)) for queue in acknowledged for _ in range(2)]
    await eventually(counts(200))
    broker.end(signal.SIGKILL)
    with pytest.raises(BrokerUnreachableError):
        await transport.max_offset(broker.addr, MessageQueue(topic, "C", "a", 0), timeout_seconds=1.0)
    broker.start_again()
    await until_serving(broker)
    at_restart = max(len(ids) for ids in acknowledged.values())
    await eventually(counts(at_restart + 100))
    is_over = True
    await asyncio.gather(*producing)
    await asyncio.sleep(0.1)  # until the last ones can be read
    for queue, ids in acknowledged.items():
        # Some that were not acknowledged are there too, so the number of messages is not known.
        stored = await transport.max_offset(broker.addr, queue, timeout_seconds=SECONDS)
        received = await pull_all(transport, broker, queue, stored)
        assert set(ids) <= {each.message_id for each in received}
        assert [each.queue_offset for each in received] == list(range(len(received)))
