"""Delayed messages from producer to consumer, in memory, with a clock that moves by hand; Redis refuses them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_client.consumer.group_consumer import GroupConsumer
from pointsman_client.core.message import Message, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.route import BrokerData, BrokerReplica, BrokerState
from pointsman_client.errors import InvalidMessageError
from pointsman_client.producer.outbox import Outbox
from pointsman_client.producer.producer import Producer
from pointsman_client.producer.producer_options import Park
from pointsman_client.redis_streams import RedisStreamsTransport
from tests.kit.broker.redis.process import redis_process
from tests.kit.client.consumer_setup import Setup
from tests.kit.client.memory_group import addr_of, queue_of, route_of

QUEUE, OTHER_QUEUE = queue_of(0), queue_of(1)


def a_producer(setup: Setup, **options: Any) -> Producer:
    return Producer(setup.routes, **{"transport": setup.brokers.transport, "clock": setup.clock, **options})


def in_seconds(setup: Setup, seconds: float, body: bytes = b"later") -> Message:
    return Message("orders", body, deliver_at=setup.clock.utc_now() + timedelta(seconds=seconds))


class Seen:
    """Records what a listener gets, and when."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self.calls: list[tuple[bytes, float]] = []

    async def __call__(self, message: ReceivedMessage) -> None:
        self.calls.append((message.body, round(self._clock.monotonic() - self._began)))


async def test_a_listener_gets_a_delayed_message_when_it_is_due(setup: Setup) -> None:
    seen = Seen(setup.clock)
    await setup.join("x", seen)
    async with a_producer(setup) as producer:
        result = await producer.send_to(QUEUE, in_seconds(setup, 20))
        await producer.send_to(OTHER_QUEUE, Message("orders", b"now"))
        await producer.send_to(OTHER_QUEUE, in_seconds(setup, -20, b"past"))
    await setup.until(lambda: len(seen.calls) == 3)

    assert result.queue_offset == 0
    assert seen.calls == [(b"now", 0), (b"past", 0), (b"later", 20)]


async def test_a_queue_whose_next_message_is_not_due_is_reported_as_waiting(setup: Setup) -> None:
    consumer = await setup.join("x", Seen(setup.clock))

    def waiting() -> set[MessageQueue]:
        assert isinstance(consumer._core, GroupConsumer)
        read = consumer._core.reading(lambda queue: queue.topic == "orders").queues
        return {queue for queue, each in read.items() if each.is_waiting}

    async with a_producer(setup) as producer:
        await producer.send_to(QUEUE, in_seconds(setup, 20))
    await setup.clock.advance(5)
    assert waiting() == {QUEUE}
    await setup.clock.advance(20)
    assert waiting() == set()


async def test_messages_behind_a_delayed_one_in_its_queue_wait_too(setup: Setup) -> None:
    seen = Seen(setup.clock)
    await setup.join("x", seen)
    async with a_producer(setup) as producer:
        await producer.send_to(QUEUE, in_seconds(setup, 20))
        await producer.send_to(QUEUE, Message("orders", b"behind"))
    await setup.until(lambda: len(seen.calls) == 2)

    assert seen.calls == [(b"later", 20), (b"behind", 20)]


async def test_a_poll_returns_a_delayed_message_when_it_is_due_and_others_before(setup: Setup) -> None:
    async with a_producer(setup) as producer:
        await producer.send_to(QUEUE, in_seconds(setup, 20))
        await producer.send_to(OTHER_QUEUE, Message("orders", b"now"))
    consumer = await setup.join_pulling("x")
    await setup.clock.advance(1)

    assert [message.body for message in await consumer.poll(timeout_seconds=1.0)] == [b"now"]
    polling = asyncio.ensure_future(consumer.poll(timeout_seconds=30.0))
    await setup.clock.advance(18)
    assert not polling.done()
    await setup.clock.advance(1)
    (message,) = await polling
    assert (message.body, message.due_at) == (b"later", setup.clock.utc_now())
    assert message.message.deliver_at is None


async def test_a_failed_delayed_message_is_retried_with_the_delay_of_retries(setup: Setup) -> None:
    seen = Seen(setup.clock)

    async def listener(message: ReceivedMessage) -> None:
        await seen(message)
        if len(seen.calls) == 1:
            raise RuntimeError("first")

    await setup.join("x", listener)
    async with a_producer(setup) as producer:
        await producer.send(in_seconds(setup, 5))
    await setup.until(lambda: len(seen.calls) == 2)

    assert [at for _, at in seen.calls] == [5, 15]


async def test_a_parked_message_keeps_its_delay(setup: Setup, tmp_path: Path) -> None:
    seen = Seen(setup.clock)
    await setup.join("x", seen)
    setup.brokers.transport.take_down(addr_of("a"))
    outbox = Park(Outbox(tmp_path / "outbox"))
    async with a_producer(setup, on_unavailable=outbox) as producer:
        assert (await producer.send_by_key(in_seconds(setup, 20), "4711")).is_parked
    async with a_producer(setup, on_unavailable=outbox) as producer:
        setup.brokers.transport.bring_up(addr_of("a"))
        await setup.until(lambda: not producer.parked)
        await setup.until(lambda: seen.calls)

    assert seen.calls[0][0] == b"later"
    assert seen.calls[0][1] >= 20


@pytest.mark.redis
async def test_redis_refuses_a_delay_because_it_would_hold_up_the_queue(setup: Setup, tmp_path: Path) -> None:
    async with redis_process(tmp_path) as redis:
        route = route_of("orders", {"a": 2})
        replica = BrokerReplica(0, redis.addr, "", "", BrokerState.UP)
        data = BrokerData(route.broker_datas[0].cluster, "a", (replica,), zone="", acting_master=True)
        setup.routes.set(replace(route, broker_datas=(data,)))
        async with a_producer(setup, transport=RedisStreamsTransport) as producer:
            with pytest.raises(InvalidMessageError, match="is not supported with Redis"):
                await producer.send_batch([Message("orders", b"now"), in_seconds(setup, 20)])
            assert (await producer.send_to(QUEUE, Message("orders", b"now"))).queue_offset == 0
            redis.kill()
            outbox = Park(Outbox(tmp_path / "outbox"))
            assert (await producer.send_to(QUEUE, Message("orders", b"waits"), on_unavailable=outbox)).is_parked
            with pytest.raises(InvalidMessageError, match="is not supported with Redis"):
                await producer.send_to(QUEUE, in_seconds(setup, 20), on_unavailable=outbox)
            assert producer.parked == 1
