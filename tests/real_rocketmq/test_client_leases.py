"""Leases of messages (POP) at real brokers, 5.5.0 and 5.3.3, alone and together with Java members; 4.9.7 has none."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from deploy.rocketmq.processes import RocketMQ, free_port
from pointsman_client import (
    ConsumeFrom,
    ConsumeMode,
    GroupModeError,
    Message,
    PointsmanError,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    Reject,
    SimpleConsumer,
)
from pointsman_client.rocketmq import RocketmqTransport
from tests.e2e.consumer_processes import consumer_processes
from tests.kit.waiting import eventually, read_until, until
from tests.real_rocketmq.conftest import VERSIONS, Jars
from tests.real_rocketmq.name_server import Pointsman
from tests.real_rocketmq.test_client_groups import Brokers

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(400)]

MESSAGES = 10_000
LEASE_SECONDS = 10.0
PATIENCE_SECONDS = 240.0
"""A broker delivers again some seconds after the end of a lease (``PopReviveService``)."""

OFFSETS_WRITTEN_SECONDS = 12.0
"""A broker has written its offsets by then (``flushConsumerOffsetInterval``, 5 s)."""

_numbers = count()


@pytest.fixture(scope="module", params=[version for version in VERSIONS if version > "5"])
def processes(
    request: pytest.FixtureRequest, jars: Jars, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Brokers]:
    with brokers_of(jars, request.param, tmp_path_factory.mktemp("leases")) as made:
        yield made


@pytest.fixture
def brokers(processes: Brokers) -> Iterator[Brokers]:
    with processes.clients:
        yield processes


@contextmanager
def brokers_of(jars: Jars, version: str, folder: Path) -> Iterator[Brokers]:
    lib, addr = jars.of(version), f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        name_server = Pointsman(folder / "ns", settings={"server.listen": addr})
        stack.callback(name_server.stop)
        mq = RocketMQ(lib, folder / lib.name, name_server.addr)
        broker = mq.broker("a")
        stack.callback(broker.end)
        until(lambda: name_server.addrs("a"), what="the broker")
        yield Brokers(name_server, f"rocketmq://{name_server.addr}" if mq.is_4 else addr, mq, broker)


async def topic_with(brokers: Brokers, *bodies: str, queues: int = 4) -> str:
    topic = f"Leased{next(_numbers)}"
    await brokers.make_topic(topic, queues)
    async with brokers.producer() as producer:
        for body in bodies:
            await producer.send(Message(topic, body.encode()))
    return topic


def leasing(brokers: Brokers, topic: str, **more: Any) -> SimpleConsumer:
    settings: dict[str, Any] = {"group": f"G{topic}", "consume_from": ConsumeFrom.FIRST_OFFSET} | more
    return SimpleConsumer(
        brokers.addr,
        subscriptions=topic,
        transport=RocketmqTransport,
        invisible_seconds=LEASE_SECONDS,
        **settings,
    )


async def received(consumer: SimpleConsumer, wanted: int) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(found) < wanted:
            found += await consumer.receive(timeout_seconds=5.0)
    return found


async def attempted(producer: Producer, message: Message) -> bool:
    try:
        await producer.send(message)
    except PointsmanError:
        return False
    return True


async def received_until(consumer: SimpleConsumer, body: bytes) -> list[ReceivedMessage]:
    """What is received until a message with this body is, each acknowledged."""
    found: list[ReceivedMessage] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        while body not in {message.body for message in found}:
            with suppress(PointsmanError):
                messages = await consumer.receive(timeout_seconds=5.0)
                found += messages
                await consumer.ack(*messages)
    return found


def bodies(messages: list[ReceivedMessage]) -> list[str]:
    return sorted(message.body.decode() for message in messages)


async def test_a_message_comes_back_unless_it_is_acknowledged(brokers: Brokers) -> None:
    topic = await topic_with(brokers, *"abcdef")
    async with leasing(brokers, topic) as x, leasing(brokers, topic) as y:
        first = await received(x, 6)
        assert bodies(first) == list("abcdef")
        assert {message.reconsume_times for message in first} == {0}
        await x.ack(*(message for message in first if message.body not in {b"b", b"e"}))
        again = await received(y, 2)
        assert bodies(again) == ["b", "e"]
        assert {(message.topic, message.reconsume_times) for message in again} == {(topic, 1)}
        await y.ack(again[0])
        await y.change_invisible_duration(again[1], 20.0)
        began_at = time.monotonic()
        (third,) = await received(x, 1)
        assert (third.body, third.reconsume_times) == (again[1].body, 2)
        assert time.monotonic() - began_at > 15.0
        await x.ack(third)
        assert await x.receive(timeout_seconds=LEASE_SECONDS + 5.0) == ()


async def test_a_receive_waits_for_a_message(brokers: Brokers) -> None:
    topic = await topic_with(brokers)
    async with leasing(brokers, topic) as consumer, brokers.producer() as producer:
        waiting = asyncio.create_task(consumer.receive(timeout_seconds=60.0))
        await asyncio.sleep(2.0)
        assert not waiting.done()
        await producer.send(Message(topic, b"a"))
        sent_at = time.monotonic()
        assert [message.body for message in await waiting] == [b"a"]
        assert time.monotonic() - sent_at < 5.0


async def test_a_renewed_lease_keeps_a_slow_handlers_message(brokers: Brokers) -> None:
    topic = await topic_with(brokers, "a")
    async with leasing(brokers, topic, renew=True) as x, leasing(brokers, topic) as y:
        messages = await received(x, 1)
        assert await y.receive(timeout_seconds=2.5 * LEASE_SECONDS) == ()
        await x.ack(*messages)
        assert await y.receive(timeout_seconds=LEASE_SECONDS + 5.0) == ()


async def test_an_ordered_group_has_one_receiver_for_a_queue(brokers: Brokers) -> None:
    topic = await topic_with(brokers, "a", "b", "c", queues=1)
    async with leasing(brokers, topic, ordered=True) as x, leasing(brokers, topic, ordered=True) as y:

        async def first() -> tuple[ReceivedMessage, ...]:
            return await x.receive(1)

        (a,) = await read_until(first, lambda found: len(found) == 1)
        assert a.body == b"a"
        assert await y.receive(1, timeout_seconds=2.0) == ()
        await x.ack(a)
        (b,) = await y.receive(1, timeout_seconds=5.0)
        assert b.body == b"b"
        again = (await received(x, 1))[0]
        assert (again.body, again.reconsume_times) == (b"b", 1)


async def test_a_killed_broker_repeats_only_what_it_delivered_since_it_wrote_its_offsets(brokers: Brokers) -> None:
    topic = await topic_with(brokers, "a", "b")
    async with leasing(brokers, topic) as consumer:
        await consumer.ack(*await received(consumer, 2))
        await asyncio.sleep(OFFSETS_WRITTEN_SECONDS)
        async with brokers.producer() as producer:
            await producer.send(Message(topic, b"c"))
            await consumer.ack(*await received(consumer, 1))
            brokers.broker.end(signal.SIGKILL)
            await asyncio.to_thread(brokers.broker.start_again)
            await eventually(lambda: brokers.name_server.perms(topic), what="the broker")
            await read_until(partial(attempted, producer, Message(topic, b"d")), bool)
        found = [*await received_until(consumer, b"d"), *await consumer.receive(timeout_seconds=2 * LEASE_SECONDS)]
        # The last one may have been sent twice.
        assert {message.body for message in found} <= {b"c", b"d"}


async def test_after_its_last_delivery_a_message_is_a_dead_letter(brokers: Brokers) -> None:
    topic = await topic_with(brokers, "a")
    letters: list[str] = []
    async with leasing(
        brokers, topic, max_reconsume_times=0, on_dead_letter=lambda message, _: letters.append(message.message_id)
    ) as consumer:
        (message,) = await received(consumer, 1)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not letters:
                assert await consumer.receive(timeout_seconds=5.0) == ()
    assert letters == [message.message_id]
    reader = PullConsumer(
        brokers.addr,
        group=f"Dead{topic}",
        subscriptions=f"%DLQ%G{topic}",
        transport=RocketmqTransport,
        consume_from=ConsumeFrom.FIRST_OFFSET,
    )
    async with reader:
        letter = await anext(reader)
    assert (letter.topic, letter.body) == (topic, b"a")


async def test_a_listener_gets_leased_messages_where_the_broker_has_the_group_pop(brokers: Brokers) -> None:
    topic = await topic_with(brokers, "a", "b", "bad", "rejected")
    group = f"G{topic}"
    seen: list[tuple[str, int]] = []
    letters: list[tuple[bytes, str]] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append((message.body.decode(), message.reconsume_times))
        if message.body == b"rejected":
            raise Reject("no such customer")
        if message.body == b"bad" and not message.reconsume_times:
            raise ValueError("not yet")

    def pushing(group: str, mode: ConsumeMode) -> PushConsumer:
        return PushConsumer(
            brokers.addr,
            group=group,
            subscriptions=topic,
            listener=listener,
            consume_mode=mode,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            invisible_seconds=LEASE_SECONDS,
            on_dead_letter=lambda message, error: letters.append((message.body, error)),
            transport=RocketmqTransport,
        )

    async with pushing(group, ConsumeMode.POP) as consumer:
        await eventually(lambda: not consumer.health().is_ready, seconds=PATIENCE_SECONDS, what="the problem")
        (problem,) = consumer.health().problems
        command = f"mqadmin setConsumeMode -b {brokers.broker.addr} -t {topic} -g {group} -m POP"
        assert problem.endswith(f"has the group pull it, as its Java members do; have it pop: {command}")
        assert seen == []
        await pop_mode(brokers, topic, group)
        await an_ordered_listener_has_one_message_of_a_queue_and_repeats_it_in_place(brokers)  # while one waits
        await eventually(lambda: len(seen) == 5, seconds=PATIENCE_SECONDS, what="the message that failed")
        assert sorted(seen) == [("a", 0), ("b", 0), ("bad", 0), ("bad", 1), ("rejected", 0)]
        assert letters == [(b"rejected", "no such customer")]
        await eventually(lambda: consumer.health().is_ready, what="health")
    # What the broker has set is not for consumers that pull.
    async with pushing(group, ConsumeMode.PULL), brokers.producer() as producer:
        await producer.send(Message(topic, b"pulled"))
        await eventually(lambda: seen[-1] == ("pulled", 0), seconds=PATIENCE_SECONDS, what="the message by pulling")


async def an_ordered_listener_has_one_message_of_a_queue_and_repeats_it_in_place(brokers: Brokers) -> None:
    topic = await topic_with(brokers, *"abc", queues=1)
    await pop_mode(brokers, topic, f"G{topic}")
    seen: list[tuple[str, int]] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append((message.body.decode(), message.reconsume_times))
        if message.body == b"a" and not message.reconsume_times:
            raise ValueError("not yet")

    def pushing() -> PushConsumer:
        return PushConsumer(
            brokers.addr,
            group=f"G{topic}",
            subscriptions=topic,
            listener=listener,
            ordered=True,
            consume_mode=ConsumeMode.POP,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            invisible_seconds=LEASE_SECONDS,
            transport=RocketmqTransport,
        )

    async with pushing(), pushing():
        await eventually(lambda: len(seen) == 4, seconds=PATIENCE_SECONDS, what="all messages")
    assert seen == [("a", 0), ("a", 1), ("b", 0), ("c", 0)]


async def pop_mode(brokers: Brokers, topic: str, group: str) -> None:
    """Have push consumers of a group that ask the broker use POP, as Java's."""
    mode = await brokers.admin("setConsumeMode", "-b", brokers.broker.addr, "-t", topic, "-g", group, "-m", "POP")
    assert "success" in mode


async def test_no_message_of_a_mixed_group_is_lost_and_a_second_delivery_has_a_missed_lease(
    brokers: Brokers, tmp_path: Path
) -> None:
    topic = await topic_with(brokers)
    group = f"G{topic}"
    await pop_mode(brokers, topic, group)
    java = brokers.mq.pop_consumer(topic, group)
    brokers.clients.callback(java.end)
    sent = [f"m{number}" for number in range(MESSAGES)]

    async def send() -> None:
        async with brokers.producer() as producer:
            for begin in range(0, MESSAGES, 100):
                part = sent[begin : begin + 100]
                await asyncio.gather(*(producer.send(Message(topic, body.encode())) for body in part))

    options = ("--leasing", "--rocketmq", "--group", group, "--topic", topic, "--work-seconds", "0.002")
    async with consumer_processes(tmp_path / "workers", [brokers.addr], *options) as workers:
        first = [await workers.join(), await workers.join(), await workers.join("--popping")]
        sending = asyncio.create_task(send())
        await workers.have_consumed(500, seconds=PATIENCE_SECONDS)
        await first[0].kill()
        popping = await workers.join("--popping")
        await workers.have_consumed(1_000, seconds=PATIENCE_SECONDS)
        await first[1].leave()
        await workers.join()
        await workers.have_consumed(1_500, seconds=PATIENCE_SECONDS)
        await first[2].kill()
        await popping.leave()
        await workers.join("--popping")
        await sending

        def by_java() -> Counter[str]:
            return Counter(line.split(" ")[1] for line in java.said() if line.startswith("got "))

        await eventually(
            lambda: set(sent) <= by_java().keys() | workers.times_consumed().keys(),
            seconds=PATIENCE_SECONDS,
            what="all messages",
        )
        killed = {first[0].log.stem, first[2].log.stem}
        by_killed = {each.body for each in workers.consumed() if each.worker in killed}
        total = by_java() + workers.times_consumed()
        twice = {body for body, times in total.items() if times > 1}
        print(
            f"{len(total)} messages, {sum(by_java().values())} by Java, {len(twice)} twice, {len(by_killed)} by killed"
        )
        assert by_java()
        assert {first[2].log.stem, popping.log.stem} <= {each.worker for each in workers.consumed()}
        assert twice <= by_killed


async def test_a_broker_4_9_is_refused_by_name(jars: Jars, tmp_path: Path) -> None:
    with brokers_of(jars, "4.9.7", tmp_path) as brokers:
        topic = await topic_with(brokers, "a")
        async with leasing(brokers, topic) as consumer:
            with pytest.raises(GroupModeError, match=r"broker .* is older than RocketMQ 5\.0 and has no POP"):
                await consumer.receive()
        async with PushConsumer(
            brokers.addr,
            group=f"Push{topic}",
            subscriptions=topic,
            listener=lambda _: None,
            consume_mode=ConsumeMode.POP,
            transport=RocketmqTransport,
        ) as pushing:
            await eventually(lambda: not pushing.health().is_ready, what="the problem")
            assert "is older than RocketMQ 5.0 and has no POP; use PushConsumer with" in pushing.health().problems[0]
