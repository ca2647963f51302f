"""One broker whose agent is started and restarted with the warm-up of production: when its group has queues."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from pointsman_client.client import NameServerClient
from pointsman_client.consumer.push_consumer import PushConsumer
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.rebalance import ConsumeFrom
from pointsman_client.redis_streams import RedisStreamsTransport
from tests.kit.broker.redis.process import free_port
from tests.kit.broker.redis.with_agent import BrokerPlan, redis_broker
from tests.kit.name_server.process import real_name_server
from tests.kit.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(240)]

PROMISED_SECONDS = 5.0
RESTART_SECONDS = 15.0
"""A process's start and the routes, on a busy machine; less than the warm-up of 30 s."""


async def listener(_message: ReceivedMessage) -> None:
    pass


def held(consumer: PushConsumer) -> int:
    queues = consumer.describe()["queues"]
    return sum(each["topic"] == "orders" and "position" in each for each in queues)


async def seconds_until(counts: list[int], *consumers: PushConsumer) -> float:
    began = time.monotonic()
    await eventually(lambda: [held(each) for each in consumers] == counts)
    return time.monotonic() - began


async def until_joined(expected: bool, *consumers: PushConsumer) -> None:
    await eventually(
        lambda: all(
            (agent["state"] == "member") is expected
            for each in consumers
            for agent in each.describe()["agents"].values()
        )
    )


async def gone(client: NameServerClient) -> None:
    """Wait until the name server no longer routes the topic."""
    async with asyncio.timeout(60.0):
        while True:
            if not (await client.refresh("orders")).broker_datas:
                return
            await asyncio.sleep(0.2)


@pytest.mark.slow
async def test_the_only_agent_of_a_site_serves_its_group_in_seconds_after_each_kind_of_start(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(real_name_server(tmp_path / "namesrv"))

        async def join(name: str) -> PushConsumer:
            consumer = PushConsumer(
                server.addr,
                group="billing",
                client_id=f"10.0.0.1@{name}",
                subscriptions={"orders": "*"},
                listener=listener,
                consume_from=ConsumeFrom.FIRST_OFFSET,
                transport=RedisStreamsTransport,
            )
            await consumer.start()
            stack.push_async_callback(consumer.close)
            return consumer

        plan = BrokerPlan("broker-a", agent_port=free_port(), warm_up_seconds=30.0)
        broker = await stack.enter_async_context(redis_broker(tmp_path / "broker", plan, [server.addr]))
        first = await join("1")
        figures = [("fresh", await seconds_until([4], first), RESTART_SECONDS)]
        await asyncio.sleep(2.0)

        await broker.agent.kill()
        client = await stack.enter_async_context(NameServerClient([server.addr]))
        await gone(client)
        await asyncio.sleep(5.0)
        await broker.agent.start()
        figures.append(("crashed: its member", await seconds_until([4], first), RESTART_SECONDS))
        second = await join("2")
        figures.append(("crashed: another member", await seconds_until([2, 2], first, second), PROMISED_SECONDS * 2))
        await asyncio.sleep(2.0)

        await broker.agent.stop()
        await until_joined(False, first, second)
        await broker.agent.start()
        await until_joined(True, first, second)  # else the agent could not know of the leave
        await second.close()
        figures.append(("upgraded: a leave", await seconds_until([4], first), PROMISED_SECONDS * 2))
        print(figures)
        assert [what for what, seconds, most in figures if seconds > most] == [], figures
