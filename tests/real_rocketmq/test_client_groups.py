"""Consumer groups of this client at real brokers, 5.5.0, 5.3.3 and 4.9.7, alone and together with Java members."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from deploy.rocketmq.processes import Broker, RocketMQ, Running, free_port, got
from pointsman_client import (
    ConsumeFrom,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    Reject,
    SendError,
)
from pointsman_client.rocketmq import RocketmqTransport
from tests.kit.waiting import eventually, read_until, until
from tests.real_rocketmq.conftest import VERSIONS, Jars
from tests.real_rocketmq.name_server import Pointsman

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]

QUEUES = 4
PATIENCE_SECONDS = 90.0


@dataclass
class Brokers:
    """A name server and one broker."""

    name_server: Pointsman
    addr: str
    """Of the name server for this client: gRPC, or RocketMQ's protocol."""
    mq: RocketMQ
    broker: Broker
    clients: ExitStack = field(default_factory=ExitStack)

    def producer(self, **more: Any) -> Producer:
        return Producer(self.addr, transport=RocketmqTransport, **more)

    def consumer(
        self, group: str, topic: str | list[str], listener: Callable[[ReceivedMessage], Any], **more: Any
    ) -> PushConsumer:
        settings: dict[str, Any] = {"consume_from": ConsumeFrom.FIRST_OFFSET, "rebalance_interval_seconds": 2.0} | more
        return PushConsumer(
            self.addr,
            group=group,
            subscriptions=topic,
            listener=listener,
            transport=RocketmqTransport,
            **settings,
        )

    def java_consumer(self, group: str, topic: str) -> Running:
        consumer = self.mq.consumer(topic, group=group)
        self.clients.callback(consumer.end)
        return consumer

    async def admin(self, *command: str) -> str:
        return await asyncio.to_thread(self.mq.admin, *command)

    async def make_topic(self, topic: str, queues: int = QUEUES) -> None:
        text = str(queues)
        done = await self.admin("updateTopic", "-b", self.broker.addr, "-t", topic, "-r", text, "-w", text)
        assert "success" in done
        await eventually(lambda: self.name_server.perms(topic), what="the topic")


@pytest.fixture(scope="module", params=VERSIONS)
def processes(
    request: pytest.FixtureRequest, jars: Jars, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Brokers]:
    lib = jars.of(request.param)
    folder = tmp_path_factory.mktemp("groups")
    addr = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        name_server = Pointsman(folder / "ns", settings={"server.listen": addr})
        stack.callback(name_server.stop)
        mq = RocketMQ(lib, folder / lib.name, name_server.addr)
        broker = mq.broker("a")
        stack.callback(broker.end)
        until(lambda: name_server.addrs("a"), what="the broker")
        yield Brokers(name_server, f"rocketmq://{name_server.addr}" if mq.is_4 else addr, mq, broker)


@pytest.fixture
def brokers(processes: Brokers) -> Iterator[Brokers]:
    with processes.clients:
        yield processes


def held(consumer: PushConsumer, topic: str) -> set[int]:
    return {each["queueId"] for each in consumer.describe()["queues"] if each["topic"] == topic}


def committed(consumer: PushConsumer, topic: str) -> int:
    return sum(each["committed"] or 0 for each in consumer.describe()["queues"] if each["topic"] == topic)


async def send(producer: Producer, topic: str, *bodies: str) -> None:
    await asyncio.gather(*(producer.send(Message(topic, body.encode())) for body in bodies))


async def test_a_failed_message_comes_again_and_ends_in_the_dead_letters_and_a_rejected_one_does_immediately(
    brokers: Brokers,
) -> None:
    attempts: list[tuple[float, int]] = []
    rejected: list[bytes] = []
    dead_letters: list[tuple[bytes, str]] = []

    def listener(message: ReceivedMessage) -> None:
        if message.body == b"never":
            rejected.append(message.body)
            raise Reject("no such order")
        if message.body == b"bad":
            attempts.append((time.monotonic(), message.reconsume_times))
            raise ValueError("not today")

    await brokers.make_topic("Failing")
    consumer = brokers.consumer(
        "GFail",
        "Failing",
        listener,
        max_reconsume_times=1,
        on_dead_letter=lambda message, error: dead_letters.append((message.body, error)),
    )
    async with brokers.producer() as producer, consumer:
        await producer.send(Message("Failing", b"never"))
        await producer.send(Message("Failing", b"bad", tags="T", keys=("4711",), properties={"source": "web"}))
        await eventually(lambda: len(attempts) == 2, what="the retry")
        (first, _), (second, times) = attempts
        assert times == 1
        assert second - first > 9.0
        dead = MessageQueue("%DLQ%GFail", "C", "a", 0)
        async with PullConsumer(brokers.addr, group="GDead", transport=RocketmqTransport) as reader:
            messages: list[ReceivedMessage] = []

            async def read() -> bool:
                messages.extend(await reader.poll(timeout_seconds=1.0))
                return len(messages) == 2

            await eventually(lambda: brokers.name_server.perms(dead.topic), what="the topic of dead letters")
            await reader.assign([dead])
            reader.seek(dead, 0)
            await read_until(read, seconds=PATIENCE_SECONDS)
    first_letter, letter = messages
    assert (first_letter.body, rejected) == (b"never", [b"never"])
    assert dead_letters == [(b"never", "no such order"), (b"bad", "ValueError: not today")]
    assert (letter.body, letter.tags, letter.keys) == (b"bad", "T", ("4711",))
    assert letter.properties["source"] == "web"
    assert letter.topic == "Failing"


async def test_a_group_of_python_and_java_members_loses_nothing_through_joins_and_leaves(brokers: Brokers) -> None:
    messages = 10_000
    await brokers.make_topic("Mixed", 8)
    seen: Counter[str] = Counter()
    slow = 0.002

    async def listener(message: ReceivedMessage) -> None:
        await asyncio.sleep(slow)
        seen[message.body.decode()] += 1

    def java_seen() -> Counter[str]:
        return Counter(body for consumer in java for body in got(consumer))

    java = [brokers.java_consumer("GMixed", "Mixed")]
    async with brokers.producer() as producer:

        async def produce() -> None:
            for start in range(0, messages, 100):
                await send(producer, "Mixed", *(f"m{number}" for number in range(start, start + 100)))
                await asyncio.sleep(0.15)

        sending = asyncio.create_task(produce())
        async with brokers.consumer("GMixed", "Mixed", listener) as staying:
            await eventually(lambda: 0 < len(held(staying, "Mixed")) < 8, what="a share beside the Java member")
            java.append(brokers.java_consumer("GMixed", "Mixed"))
            async with brokers.consumer("GMixed", "Mixed", listener) as leaving:
                await eventually(
                    lambda: len(held(staying, "Mixed")) == len(held(leaving, "Mixed")) == 2, what="shares of four"
                )
                await one_of_each_queue_is_read_once(producer, "Mixed", 8, lambda: seen + java_seen(), mark="four")
            java[0].end(signal.SIGTERM)
            await eventually(lambda: len(held(staying, "Mixed")) == 4, what="shares of two")
            await one_of_each_queue_is_read_once(producer, "Mixed", 8, lambda: seen + java_seen(), mark="two")
            await sending
            expected = {f"m{number}" for number in range(messages)}
            await eventually(lambda: expected <= (seen + java_seen()).keys(), what="all messages")
    total = seen + java_seen()
    duplicates = sum(times - 1 for body, times in total.items() if body.startswith("m"))
    # At least once: each move of a queue may repeat what its old owner had not committed.
    assert duplicates < messages / 5, f"{duplicates} duplicates"


async def test_members_of_a_namespace_share_its_group_with_java(brokers: Brokers) -> None:
    if brokers.mq.version != "5.3.3":
        pytest.skip("the names of each version are compared in tests/unit/client/core/test_namespace.py")
    await brokers.make_topic("SHOP%Named")
    seen: Counter[str] = Counter()

    async def listener(message: ReceivedMessage) -> None:
        assert message.topic == message.queue.topic == "Named"
        seen[message.body.decode()] += 1

    shop = brokers.mq.in_namespace("SHOP")
    java = shop.consumer("Named", group="GNamed")
    brokers.clients.callback(java.end)
    in_shop: dict[str, Any] = {"namespace": "SHOP"}
    async with (
        brokers.producer(**in_shop) as producer,
        brokers.consumer("GNamed", "Named", listener, **in_shop) as consumer,
    ):
        await eventually(lambda: len(held(consumer, "SHOP%Named")) == 2, what="a share beside the Java member")
        brokers.clients.callback(shop.producer("Named", 20, millis=10).end)
        await send(producer, "Named", *(f"p{number}" for number in range(20)))
        expected = {f"{kind}{number}" for kind in "mp" for number in range(20)}
        await eventually(lambda: seen.keys() | set(got(java)) == expected, what="the messages of both")
    assert {body[0] for body in seen} == {body[0] for body in got(java)} == {"m", "p"}


async def one_of_each_queue_is_read_once(
    producer: Producer, topic: str, queues: int, seen: Callable[[], Counter[str]], *, mark: str
) -> None:
    """Shows that each queue has one owner: with two, a message comes twice; with none, not at all."""
    await asyncio.sleep(3.0)  # the last owner's commits, and a rebalance of every member
    names = [f"{mark}-{number}" for number in range(queues)]
    for number, name in enumerate(names):
        await producer.send_to(MessageQueue(topic, "C", "a", number), Message(topic, name.encode()))
    await eventually(lambda: all(name in seen() for name in names), what=f"one message of each queue ({mark})")
    await asyncio.sleep(1.0)
    assert {name: seen()[name] for name in names} == dict.fromkeys(names, 1)


async def test_tags_keys_properties_compression_and_batches_pass_from_java_to_python(brokers: Brokers) -> None:
    await brokers.make_topic("OfJava")
    seen: dict[bytes, ReceivedMessage] = {}

    async def listener(message: ReceivedMessage) -> None:
        seen[message.body] = message

    async with brokers.consumer("GOfJava", "OfJava", listener):
        brokers.clients.callback(brokers.mq.kinds("OfJava").end)
        await eventually(lambda: len(seen) == 5, what="the messages of each kind")
    tagged = seen[b"tagged"]
    assert (tagged.tags, tagged.keys, tagged.properties["source"]) == ("paid", ("4711", "4712"), "java")
    assert b"x" * 10_000 in seen
    batch = [seen[f"b{number}".encode()] for number in range(3)]
    assert [(each.tags, each.keys) for each in batch] == [("in", (f"b{number}",)) for number in range(3)]
    assert len({each.queue for each in batch}) == 1
    # Java's client of 5.x gives all messages of a batch one id; queue and offset distinguish them.
    assert len({each.queue_offset for each in batch}) == 3


async def test_tags_keys_properties_compression_and_batches_pass_from_python_to_java(brokers: Brokers) -> None:
    await brokers.make_topic("OfPython")
    java = brokers.java_consumer("GOfPython", "OfPython")
    async with brokers.producer() as producer:
        await producer.send(
            Message("OfPython", b"tagged", tags="paid", keys=("4711", "4712"), properties={"source": "python"})
        )
        await producer.send(Message("OfPython", b"x" * 10_000))
        await producer.send_batch([Message("OfPython", f"b{i}".encode(), tags="in", keys=(f"b{i}",)) for i in range(3)])
        await eventually(lambda: len(got(java)) >= 5, what="the messages of each kind")
    lines = {line.split()[1]: line for line in java.said() if line.startswith("got ")}
    assert lines["tagged"].endswith("tags=paid keys=4711 4712 source=python size=6")
    assert lines["x" * 20].endswith("size=10000")
    assert all(f"b{i} tags=in keys=b{i}" in lines[f"b{i}"] for i in range(3))


async def test_a_listener_of_batches_gets_several_messages_and_all_again_after_a_failure(brokers: Brokers) -> None:
    await brokers.make_topic("Batches", 1)
    batches: list[list[tuple[str, int]]] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        batches.append([(message.body.decode(), message.reconsume_times) for message in messages])
        if not messages[0].reconsume_times:
            raise ValueError("not yet")

    names = [f"b{number}" for number in range(20)]
    async with brokers.producer() as producer:
        await producer.send_batch([Message("Batches", name.encode()) for name in names])
        async with PushConsumer(
            brokers.addr,
            group="GBatches",
            subscriptions=["Batches"],
            batch_listener=listener,
            consume_message_batch_max_size=10,
            transport=RocketmqTransport,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ):
            await eventually(lambda: sum(map(len, batches)) == 40, what="all messages twice")
    first, second = batches[:2]
    assert [*first, *second] == [(name, 0) for name in names]
    assert sorted(each for batch in batches[2:] for each in batch) == sorted((name, 1) for name in names)


async def test_ordered_members_hand_queues_over_in_order(brokers: Brokers) -> None:
    await brokers.make_topic("Ordered")
    read: list[tuple[str, int]] = []
    running: Counter[str] = Counter()

    async def listener(message: ReceivedMessage) -> None:
        key, number = message.body.decode().split()
        running[key] += 1
        assert running[key] == 1, f"two messages of {key} at the same time"
        await asyncio.sleep(0.002)
        running[key] -= 1
        read.append((key, int(number)))

    keys = [f"key{number}" for number in range(8)]
    async with brokers.producer() as producer:

        async def produce(key: str) -> None:
            for number in range(100):
                await producer.send_by_key(Message("Ordered", f"{key} {number}".encode()), key)
                await asyncio.sleep(0.02)

        sending = asyncio.gather(*(produce(key) for key in keys))
        async with brokers.consumer("GOrdered", "Ordered", listener, ordered=True) as first:
            await eventually(lambda: len(held(first, "Ordered")) == QUEUES, what="all queues")
            async with brokers.consumer("GOrdered", "Ordered", listener, ordered=True) as second:
                await eventually(lambda: len(held(second, "Ordered")) == QUEUES // 2, what="half of the queues")
                await sending
            await eventually(lambda: len(set(read)) == 800, what="all messages")
    for key in keys:
        numbers = [number for each, number in read if each == key]
        # A message may come again, but none comes before its predecessor.
        assert list(dict.fromkeys(numbers)) == sorted(set(numbers))


async def test_a_reset_by_mqadmin_moves_a_running_group(brokers: Brokers) -> None:
    await brokers.make_topic("Reset")
    seen: Counter[str] = Counter()

    async def listener(message: ReceivedMessage) -> None:
        seen[message.body.decode()] += 1

    names = [f"r{number}" for number in range(20)]
    async with brokers.producer() as producer, brokers.consumer("GReset", "Reset", listener) as consumer:
        before = int(time.time() * 1000) - 3_600_000
        await send(producer, "Reset", *names)
        await eventually(lambda: seen.keys() == set(names), what="the messages")
        # The broker resets only offsets that it has and that are higher.
        await eventually(lambda: committed(consumer, "Reset") == len(names), what="the commits")
        done = await brokers.admin("resetOffsetByTime", "-g", "GReset", "-t", "Reset", "-s", str(before))
        await eventually(lambda: all(seen[name] >= 2 for name in names), what=f"the messages again after: {done}")
        status = await brokers.admin("consumerStatus", "-g", "GReset", "-i", consumer.client_id)
        assert "Reset" in status
        assert "PROP_CONSUME_TYPE" in status


async def test_mqadmin_has_one_member_consume_one_message(brokers: Brokers) -> None:
    await brokers.make_topic("Direct")
    seen: list[str] = []
    ids: list[str] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.body.decode())
        ids.append(message.offset_message_id)

    async with brokers.producer() as producer, brokers.consumer("GDirect", "Direct", listener) as consumer:
        await send(producer, "Direct", "once")
        await eventually(lambda: seen == ["once"], what="the message")
        topic = () if brokers.mq.is_4 else ("-t", "Direct")
        who = ("-g", "GDirect", "-d", consumer.client_id)
        result = await brokers.admin("queryMsgById", "-i", ids[0], *topic, *who)
        assert "CR_SUCCESS" in result, result
    assert seen == ["once", "once"]


async def test_queues_that_were_added_while_the_group_was_stopped_are_read_from_their_start(brokers: Brokers) -> None:
    await brokers.make_topic("Grown", 2)
    seen: set[str] = set()

    async def listener(message: ReceivedMessage) -> None:
        seen.add(message.body.decode())

    async with brokers.producer() as producer:
        async with brokers.consumer("GGrown", "Grown", listener, consume_from=ConsumeFrom.LAST_OFFSET):
            await send(producer, "Grown", *(f"before{number}" for number in range(8)))
            await eventually(lambda: len(seen) == 8, what="the messages")
        await brokers.make_topic("Grown", 6)

        async def has_six() -> bool:
            await producer.client.refresh("Grown")  # RocketMQ's protocol has no watch
            return len(await producer.client.publish_queues("Grown")) == 6

        await read_until(has_six, seconds=PATIENCE_SECONDS)
        for queue in range(6):
            await producer.send_to(MessageQueue("Grown", "C", "a", queue), Message("Grown", f"after{queue}".encode()))
        async with brokers.consumer("GGrown", "Grown", listener, consume_from=ConsumeFrom.LAST_OFFSET):
            await eventually(lambda: {f"after{queue}" for queue in range(6)} <= seen, what="the added queues")


async def test_a_killed_broker_loses_nothing_that_was_acknowledged(brokers: Brokers) -> None:
    await brokers.make_topic("Killed")
    seen: set[str] = set()
    acknowledged: set[str] = set()
    failed: set[str] = set()

    async def listener(message: ReceivedMessage) -> None:
        seen.add(message.body.decode())

    async with brokers.producer() as producer, brokers.consumer("GKilled", "Killed", listener):

        async def produce() -> None:
            for number in count():
                try:
                    await producer.send(Message("Killed", f"k{number}".encode()))
                except SendError:  # not acknowledged, so it may be lost
                    failed.add(f"k{number}")
                else:
                    acknowledged.add(f"k{number}")
                if len(acknowledged) > before + 50:
                    break
                await asyncio.sleep(0.05)

        before = 100_000
        sending = asyncio.create_task(produce())
        await eventually(lambda: len(acknowledged) > 50, what="some messages")
        await asyncio.to_thread(brokers.broker.end, signal.SIGKILL)
        await eventually(lambda: failed, what="a failed send")
        before = len(acknowledged)
        brokers.broker.start_again()
        await sending
        await eventually(lambda: acknowledged <= seen, what="every acknowledged message")


async def test_two_consumers_with_one_client_id_are_reported(
    brokers: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    await brokers.make_topic("Doubled")
    first = brokers.consumer("GDoubled", "Doubled", lambda _: None, client_id="here@same")
    second = brokers.consumer("GDoubled", "Doubled", lambda _: None, client_id="here@same")
    async with first, second:
        await eventually(lambda: first.describe()["duplicateClientId"], what="the report")
    assert "client id here@same is used twice in group GDoubled" in caplog.text


async def test_members_with_other_topics_are_reported(brokers: Brokers, caplog: pytest.LogCaptureFixture) -> None:
    await brokers.make_topic("Shared")
    await brokers.make_topic("Own")
    async with brokers.consumer("GConflict", ["Shared", "Own"], lambda _: None) as consumer:
        java = brokers.java_consumer("GConflict", "Shared")
        await eventually(lambda: consumer.describe()["conflictingSubscriptions"], what="the report")
        await asyncio.to_thread(java.end)
        await eventually(lambda: not consumer.describe()["conflictingSubscriptions"], what="the end of the report")
    assert "members of group GConflict have different subscriptions" in caplog.text
