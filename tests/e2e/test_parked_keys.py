"""A key's order when its broker dies, a message of it is parked, and queues are added, with real processes."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from pathlib import Path

import pytest

from pointsman_client.client import NameServerClient
from pointsman_client.consumer.push_consumer import PushConsumer
from pointsman_client.core.message import Message, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.sharding import HashRing
from pointsman_client.errors import TopicNotFoundError
from pointsman_client.producer.outbox import Outbox
from pointsman_client.producer.producer import Producer
from pointsman_client.producer.producer_options import Park
from pointsman_client.redis_streams import RedisStreamsTransport
from tests.kit.broker.redis.with_agent import BrokerPlan, redis_broker
from tests.kit.name_server.process import real_name_server
from tests.kit.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(240)]

PATIENCE_SECONDS = 90.0


def keys_that_move(count: int) -> list[str]:
    """Keys whose queue is on broker-b of two brokers, and on broker-c of three."""
    names = ("broker-a", "broker-b", "broker-c")
    two, three = (
        HashRing().over([MessageQueue("orders", "c1", name, n) for name in names[:brokers] for n in range(4)])
        for brokers in (2, 3)
    )
    keys = (f"key-{number}" for number in range(1_000))
    moving = (
        key
        for key in keys
        if (two.queue_of(key).broker_name, three.queue_of(key).broker_name) == ("broker-b", "broker-c")
    )
    return [key for _, key in zip(range(count), moving, strict=False)]


async def queues_of(client: NameServerClient, brokers: set[str]) -> None:
    """Wait until exactly these brokers have queues that can be written."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            with contextlib.suppress(TopicNotFoundError):
                await client.refresh("orders")
                if {queue.broker_name for queue in await client.publish_queues("orders")} == brokers:
                    return
            await asyncio.sleep(0.1)


async def test_five_keys_keep_their_order_when_queues_are_added_while_their_messages_are_parked(
    tmp_path: Path,
) -> None:
    keys = keys_that_move(5)
    seen: defaultdict[str, list[int]] = defaultdict(list)

    async def listener(message: ReceivedMessage) -> None:
        seen[message.keys[0]].append(int(message.body))

    async with (
        real_name_server(tmp_path / "namesrv") as server,
        redis_broker(tmp_path / "a", BrokerPlan("broker-a"), [server.addr]),
        redis_broker(tmp_path / "b", BrokerPlan("broker-b"), [server.addr]) as broker_b,
        NameServerClient([server.addr]) as client,
        Producer(client, transport=RedisStreamsTransport, on_unavailable=Park(Outbox(tmp_path / "outbox"))) as producer,
        PushConsumer(
            client,
            group="billing",
            subscriptions={"orders": "*"},
            listener=listener,
            ordered=True,
            transport=RedisStreamsTransport,
        ),
    ):
        await queues_of(client, {"broker-a", "broker-b"})

        async def send(number: int) -> set[bool]:
            sends = [producer.send_by_key(Message("orders", b"%d" % number, keys=(key,)), key) for key in keys]
            return {result.is_parked for result in await asyncio.gather(*sends)}

        assert await send(0) == {False}
        await eventually(lambda: dict(seen) == {key: [0] for key in keys}, seconds=PATIENCE_SECONDS)
        broker_b.redis.kill()
        assert await send(1) == {True}
        async with redis_broker(tmp_path / "c", BrokerPlan("broker-c"), [server.addr]):
            await queues_of(client, {"broker-a", "broker-c"})
            await send(2)
            await asyncio.sleep(1.0)  # a message at the added broker would be consumed in this time
            await broker_b.redis.start()
            await eventually(lambda: all(2 in seen[key] for key in keys), seconds=PATIENCE_SECONDS)
            await eventually(lambda: producer.parked == 0, seconds=PATIENCE_SECONDS)
            assert await send(3) == {False}
            await eventually(lambda: all(len(set(seen[key])) == 4 for key in keys), seconds=PATIENCE_SECONDS)
    assert dict(seen) == {key: [0, 1, 2, 3] for key in keys}
