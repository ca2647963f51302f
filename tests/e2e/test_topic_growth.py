"""Growing a topic with the default settings, with real brokers: added under load, and to a stopped group."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from pointsman_client.client import NameServerClient
from pointsman_client.consumer.push_consumer import PushConsumer
from pointsman_client.core.message import Message
from pointsman_client.core.send_outcome import SendStatus
from pointsman_client.errors import TopicNotFoundError
from pointsman_client.producer.producer import Producer
from pointsman_client.redis_streams import RedisStreamsTransport
from tests.kit.broker.redis.with_agent import BrokerPlan, redis_broker
from tests.kit.client.seen import Seen
from tests.kit.name_server.process import real_name_server
from tests.kit.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(240)]

PATIENCE_SECONDS = 90.0
MESSAGES = 10_000
CONCURRENT_SENDS = 20


async def queues(client: NameServerClient, count: int) -> None:
    """Wait until ``count`` queues can be written."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            with contextlib.suppress(TopicNotFoundError):
                await client.refresh("orders")
                if len(await client.publish_queues("orders")) == count:
                    return
            await asyncio.sleep(0.1)


async def test_a_broker_added_under_load_and_another_one_while_the_group_is_stopped_lose_none_of_10000(
    tmp_path: Path,
) -> None:
    seen, sent = Seen(), set[str]()

    def consumer(client: NameServerClient) -> PushConsumer:
        return PushConsumer(
            client, group="billing", subscriptions={"orders": "*"}, listener=seen, transport=RedisStreamsTransport
        )

    async with (
        real_name_server(tmp_path / "namesrv") as server,
        redis_broker(tmp_path / "a", BrokerPlan("broker-a"), [server.addr]),
        NameServerClient([server.addr]) as client,
        Producer(client, transport=RedisStreamsTransport) as producer,
    ):
        await queues(client, 4)

        async def send(count: int) -> None:
            for start in range(len(sent), len(sent) + count, CONCURRENT_SENDS):
                bodies = [str(number) for number in range(start, start + CONCURRENT_SENDS)]
                sends = (producer.send(Message("orders", body.encode())) for body in bodies)
                results = await asyncio.gather(*sends)
                assert {result.status for result in results} == {SendStatus.SEND_OK}
                sent.update(bodies)

        async with consumer(client) as first:
            await eventually(lambda: len(first.describe()["queues"]) >= 4, seconds=PATIENCE_SECONDS)
            sending = asyncio.create_task(send(MESSAGES - 2_000))
            async with redis_broker(tmp_path / "b", BrokerPlan("broker-b"), [server.addr]):
                await queues(client, 8)
                await sending
                await eventually(lambda: set(seen.bodies) == sent, seconds=PATIENCE_SECONDS)
                await first.close()
                async with redis_broker(tmp_path / "c", BrokerPlan("broker-c"), [server.addr]):
                    await queues(client, 12)
                    await send(2_000)
                    async with consumer(client):
                        await eventually(lambda: set(seen.bodies) == sent, seconds=PATIENCE_SECONDS)
    assert len(sent) == MESSAGES
