"""A broker that is drained under a slow consumer group: everything is read before it is removed from the routes."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from pointsman_client.client import NameServerClient
from pointsman_client.consumer.push_consumer import PushConsumer
from pointsman_client.core.message import Message, ReceivedMessage
from pointsman_client.core.rebalance import ConsumeFrom
from pointsman_client.producer.producer import Producer
from pointsman_client.redis_streams import RedisStreamsTransport
from tests.kit.broker.redis.with_agent import BrokerPlan, redis_broker
from tests.kit.ctl.process import ended, started
from tests.kit.name_server.process import real_name_server
from tests.kit.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(180)]

MESSAGES = 160
PATIENCE_SECONDS = 90.0


async def test_a_drain_waits_until_a_slow_group_has_read_the_backlog_and_then_consumers_lose_nothing(
    tmp_path: Path,
) -> None:
    consumed: Counter[str] = Counter()
    may_read = asyncio.Event()

    async def slowly(message: ReceivedMessage) -> None:
        await may_read.wait()
        await asyncio.sleep(0.05)
        consumed[message.queue.broker_name] += 1

    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(real_name_server(tmp_path / "namesrv"))
        for name in ("broker-a", "broker-b"):
            plan = BrokerPlan(name, {"orders": 2})
            await stack.enter_async_context(redis_broker(tmp_path / name, plan, [server.addr]))
        client = await stack.enter_async_context(NameServerClient([server.addr]))
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for change in client.route_changes("orders"):
                if change.new is not None and len(change.new.broker_datas) == 2:
                    break
        producer = await stack.enter_async_context(Producer(client, transport=RedisStreamsTransport))
        consumer = await stack.enter_async_context(
            PushConsumer(
                [server.addr],
                group="billing",
                subscriptions={"orders": "*"},
                listener=slowly,
                transport=RedisStreamsTransport,
                consume_from=ConsumeFrom.FIRST_OFFSET,
                consume_concurrency=2,
            )
        )
        await eventually(
            lambda: len([each for each in consumer.describe()["queues"] if each["topic"] == "orders"]) == 4
        )
        results = [await producer.send(Message("orders", b"x")) for _ in range(MESSAGES)]
        sent = Counter(result.queue.broker_name for result in results)

        drain = await started(
            *("--namesrv", server.addr, "--output", "json", "drain-broker", "c1/broker-b/0", "--quiet", "1s", "--yes")
        )
        assert drain.stdout is not None
        progress: list[dict[str, Any]] = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not progress or not progress[-1]["groups"]:
                progress.append(json.loads(await drain.stdout.readline()))
        may_read.set()
        drained = await ended(drain)

        assert drained.code == 0, drained.err
        progress += [json.loads(line) for line in drained.out.splitlines()]
        lags = [sum(group["lag"] for group in each["groups"]) for each in progress if each["groups"]]
        assert lags, "the drain showed no lag"
        assert lags == sorted(lags, reverse=True)
        assert ("WAIT_FOR_CONSUMERS", "DONE") in [(each["step"], each["state"]) for each in progress]
        assert consumed["broker-b"] == sent["broker-b"]
        await eventually(lambda: consumed.total() == MESSAGES)
