"""An application in a namespace: its names are full at the brokers, and short for the application."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pointsman_client import (
    ConsumeMode,
    ConsumeResult,
    Fallback,
    InvalidMessageError,
    InvalidNameError,
    Message,
    MessageQueue,
    Producer,
    QueueUnavailableError,
    ReceivedMessage,
    SendResult,
    TransactionProducer,
    TransactionState,
    sync,
)
from pointsman_client.core.subscription import SqlFilter
from pointsman_client.memory import MemoryTransport
from pointsman_client.tracing_hook import TracingHook
from tests.kit.client.consumer_setup import Setup, numbers
from tests.kit.client.memory_group import addr_of, queue_of, route_of
from tests.kit.waiting import eventually

FULL = [queue_of(0, topic="SHOP%orders"), queue_of(1, topic="SHOP%orders")]
SHORT = [queue_of(0), queue_of(1)]
DEAD = queue_of(0, topic="%DLQ%SHOP%billing")
ORDER = Message("orders", b"4711", tags="paid", keys=("k",), properties={"a": "b"})


@pytest.fixture
async def shop(setup: Setup) -> Setup:
    """Brokers that have the topic of the namespace, and nothing else."""
    setup.routes.routes.clear()
    setup.routes.set(route_of("SHOP%orders", {"a": 2}))
    return setup


def producer(shop: Setup, **more: Any) -> Producer:
    return Producer(shop.routes, transport=shop.brokers.transport, clock=shop.clock, namespace="SHOP", **more)


async def stored(shop: Setup, queue: MessageQueue) -> list[ReceivedMessage]:
    pulled = await shop.brokers.transport.pull(
        addr_of("a"), queue, 0, max_messages=32, wait_seconds=0, timeout_seconds=5
    )
    return list(pulled.messages)


async def test_a_message_is_stored_under_the_full_name_and_its_result_has_the_short_one(shop: Setup) -> None:
    async with producer(shop) as sending:
        result = await sending.send(ORDER)
        batch = await sending.send_batch([Message("orders", b"1"), Message("orders", b"2")])
        wrapped = await sending.send(Message("SHOP%orders", b"3"))
    assert result.queue in SHORT
    assert {each.queue.topic for each in (*batch, wrapped)} == {"orders"}
    found = [*await stored(shop, FULL[0]), *await stored(shop, FULL[1])]
    assert sorted(message.body for message in found) == [b"1", b"2", b"3", b"4711"]
    assert {message.topic for message in found} == {"SHOP%orders"}


async def test_each_way_of_sending_takes_short_and_full_queues_and_reports_short_ones(shop: Setup) -> None:
    given: list[tuple[MessageQueue, ...]] = []
    ended: asyncio.Future[SendResult | Exception] = asyncio.get_running_loop().create_future()

    def select(queues: tuple[MessageQueue, ...], message: Message, _: object) -> MessageQueue:
        given.append(queues)
        assert message.topic == "orders"
        return queues[1]

    async with producer(shop) as sending:
        results = [
            await sending.send_to(SHORT[0], ORDER),
            await sending.send_to((await sending.client.publish_queues("SHOP%orders"))[1], ORDER),
            await sending.send_selected(ORDER, select),
            await sending.send_by_key(ORDER, "customer-9"),
        ]
        sending.send_async(ORDER, ended.set_result)
        sending.send_oneway(ORDER)
        last = await ended
    assert isinstance(last, SendResult)
    assert [result.queue for result in results[:3]] == [SHORT[0], SHORT[1], SHORT[1]]
    assert {result.queue.topic for result in (*results, last)} == {"orders"}
    assert given == [tuple(SHORT)]
    assert len(await stored(shop, FULL[0])) + len(await stored(shop, FULL[1])) == 6


async def test_the_keys_of_a_removed_broker_move_when_its_topic_is_named(shop: Setup) -> None:
    shop.routes.set(route_of("SHOP%orders", {"a": 1, "b": 1}))
    async with producer(shop) as sending:
        places = {key: (await sending.send_by_key(ORDER, key)).queue.broker_name for key in numbers(20)}
        key = next(key for key, name in places.items() if name == "b")
        shop.routes.set(route_of("SHOP%orders", {"a": 1}))
        with pytest.raises(QueueUnavailableError):
            await sending.send_by_key(ORDER, key)
        sending.drop_absent_brokers("orders")
        assert (await sending.send_by_key(ORDER, key)).queue == SHORT[0]


async def test_a_queue_of_another_topic_is_refused(shop: Setup) -> None:
    async with producer(shop) as sending:
        with pytest.raises(InvalidMessageError, match="topic 'orders' is not the topic of queue 0 of SHOP%other"):
            await sending.send_to(queue_of(0, topic="other"), ORDER)


@pytest.mark.parametrize("is_function", [False, True])
async def test_a_fallback_knows_short_queues(shop: Setup, is_function: bool) -> None:
    shop.routes.set(route_of("SHOP%orders", {"a": 1, "b": 1}))
    shop.brokers.transport.take_down(addr_of("a"))
    first, other = queue_of(0), queue_of(0, broker_name="b")
    asked: list[object] = []

    def choose(queue: MessageQueue, writable: tuple[MessageQueue, ...]) -> MessageQueue:
        asked.append((queue, writable))
        return other

    async with producer(shop) as sending:
        with pytest.raises(QueueUnavailableError):
            await sending.send_to(first, ORDER)
        result = await sending.send_to(first, ORDER, on_unavailable=Fallback(choose if is_function else other))
    assert result.queue == other
    assert asked == ([(first, (first, other))] if is_function else [])


async def test_a_push_consumer_gets_short_names_and_sends_failed_messages_to_the_full_topics(shop: Setup) -> None:
    seen: list[ReceivedMessage] = []
    dead: list[ReceivedMessage] = []
    results = [ConsumeResult.RECONSUME_LATER, ConsumeResult.DEAD_LETTER]

    async def listener(message: ReceivedMessage) -> ConsumeResult:
        seen.append(message)
        return results.pop(0)

    await shop.join("x", listener, namespace="SHOP", on_dead_letter=lambda message, _: dead.append(message))
    async with producer(shop) as sending:
        sent = await sending.send_to(SHORT[1], ORDER)
    await shop.until(lambda: dead)
    assert [(message.topic, message.message) for message in seen] == [("orders", ORDER)] * 2
    assert [seen[0].queue, seen[1].queue.topic] == [SHORT[1], "%RETRY%billing"]
    assert {message.message_id for message in (*seen, *dead)} == {sent.message_id}
    assert dead[0].topic == "orders"
    (letter,) = await stored(shop, DEAD)
    assert (letter.topic, letter.body) == ("SHOP%orders", b"4711")
    await shop.clock.advance(6)
    assert shop.group.offsets[FULL[1]] == 1


async def test_a_push_consumer_that_leases_messages_gets_short_names_and_finishes_them(shop: Setup) -> None:
    seen: list[ReceivedMessage] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message)

    await shop.join("x", listener, namespace="SHOP", consume_mode=ConsumeMode.POP)
    await shop.brokers.put(FULL[0], numbers(3))
    await shop.until(lambda: len(seen) == 3 and shop.hook.acknowledged_messages["ok"] == 3)
    assert {(message.topic, message.queue) for message in seen} == {("orders", SHORT[0])}


async def test_groups_of_two_namespaces_do_not_share_messages(shop: Setup) -> None:
    shop.routes.set(route_of("ATELIER%orders", {"a": 2}))
    seen: dict[str, list[bytes]] = {"SHOP": [], "ATELIER": []}
    for name, found in seen.items():

        async def listener(message: ReceivedMessage, found: list[bytes] = found) -> None:
            found.append(message.body)

        await shop.join(name, listener, namespace=name)
    await shop.brokers.put(FULL[0], ["shop"])
    await shop.brokers.put(queue_of(0, topic="ATELIER%orders"), ["atelier"])
    await shop.until(lambda: all(seen.values()))
    assert seen == {"SHOP": [b"shop"], "ATELIER": [b"atelier"]}


async def test_a_subscription_is_changed_by_its_short_name(shop: Setup) -> None:
    consumer = await shop.join_pulling("x", namespace="SHOP", subscriptions=["orders", "SHOP%bills"])
    assert sorted(consumer.describe()["subscriptions"]) == ["SHOP%bills", "SHOP%orders"]
    consumer.unsubscribe("bills")
    consumer.subscribe("orders", "paid")
    assert consumer.describe()["subscriptions"] == {"SHOP%orders": "paid"}


async def test_a_pull_consumer_takes_and_returns_short_queues(shop: Setup) -> None:
    await shop.brokers.put(FULL[0], numbers(5))
    consumer = await shop.join_pulling("x", namespace="SHOP", subscriptions=None)
    await consumer.assign(SHORT)
    await shop.clock.advance(1)
    assert consumer.assignment == tuple(SHORT)
    consumer.pause([SHORT[1]])
    consumer.resume([FULL[1]])
    assert consumer.position(SHORT[0]) == 0
    consumer.seek(SHORT[0], 3)
    await shop.clock.advance(1)
    polling = asyncio.ensure_future(consumer.poll())
    await shop.clock.advance(1)
    messages = await polling
    assert [(each.topic, each.queue, each.body) for each in messages] == [
        ("orders", SHORT[0], b"3"),
        ("orders", SHORT[0], b"4"),
    ]
    await consumer.commit()
    assert await consumer.committed(SHORT[0]) == 5


async def test_a_simple_consumer_acknowledges_what_it_handed_out(shop: Setup) -> None:
    await shop.brokers.put(FULL[0], numbers(3))
    consumer = await shop.join_leasing("x", namespace="SHOP")
    first, second = await consumer.receive(2)
    assert (first.topic, first.queue) == ("orders", SHORT[0])
    await consumer.ack(first)
    await consumer.change_invisible_duration(second, 10)
    third = await anext(consumer)
    assert (third.topic, third.body) == ("orders", b"2")
    waiting = asyncio.ensure_future(anext(consumer))
    await shop.clock.advance(11)
    assert (await waiting).body == second.body
    assert shop.hook.acknowledged_messages == {"ok": 2}


async def test_the_check_of_a_transaction_gets_short_names(shop: Setup) -> None:
    transport = MemoryTransport(clock=shop.clock)
    asked: list[ReceivedMessage] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message)
        return TransactionState.COMMIT

    async with TransactionProducer(
        shop.routes,
        producer_group="shop",
        topics=["orders"],
        check=check,
        transport=transport,
        clock=shop.clock,
        namespace="SHOP",
    ) as sending:
        async with sending.transaction(ORDER) as transaction:
            transaction.state = TransactionState.UNKNOWN
        assert transaction.result.queue.topic == "orders"
        with pytest.raises(InvalidMessageError, match=r"is not one of the producer's topics \(SHOP%orders\)"):
            async with sending.transaction(Message("bills", b"1")):
                pass
        await eventually(lambda: asked, clock=shop.clock)
    assert asked[0].topic == "orders"


async def test_the_tracing_hook_gets_the_names_of_the_broker(shop: Setup) -> None:
    topics: list[str] = []

    def received(messages: Sequence[ReceivedMessage], **_: object) -> None:
        topics.extend(message.topic for message in messages)

    tracing = cast("TracingHook", SimpleNamespace(received=received))
    await shop.brokers.put(FULL[0], ["1"])
    consumer = await shop.join_pulling("x", namespace="SHOP", tracing_hook=tracing)
    await shop.clock.advance(1)
    assert (await anext(consumer)).topic == "orders"
    assert topics == ["SHOP%orders"]


def test_the_blocking_classes_have_it_too() -> None:
    options: dict[str, Any] = {"transport": MemoryTransport, "namespace": "SHOP"}
    consumer = sync.PushConsumer(
        "127.0.0.1:1", group="billing", subscriptions={"orders": SqlFilter("a > 1")}, listener=print, **options
    )
    assert consumer.describe()["group"] == "SHOP%billing"
    sync.Producer("127.0.0.1:1", **options)
    sync.SimpleConsumer("127.0.0.1:1", group="billing", subscriptions="orders", **options)


@pytest.mark.parametrize(
    ("namespace", "problem"),
    [("SHOP%A", r"namespace 'SHOP%A' must not hold %, which ends it"), ("a b", "may hold only letters")],
)
def test_a_namespace_that_could_not_be_taken_off_is_refused(namespace: str, problem: str) -> None:
    with pytest.raises(InvalidNameError, match=problem):
        Producer("127.0.0.1:1", transport=MemoryTransport, namespace=namespace)


def test_a_group_that_is_too_long_with_its_namespace_is_refused() -> None:
    with pytest.raises(InvalidNameError, match="has 124 characters, at most 120 are allowed"):
        sync.PullConsumer("127.0.0.1:1", group="g" * 119, transport=MemoryTransport, namespace="SHOP")
