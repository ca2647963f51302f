"""The temporary topic of docs/queue-planning.md, from its addition to its removal, with real processes."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pointsman_client.client import NameServerClient
from pointsman_client.consumer.push_consumer import PushConsumer
from pointsman_client.core.message import Message, ReceivedMessage
from pointsman_client.errors import TopicNotFoundError
from pointsman_client.producer.outbox import Outbox
from pointsman_client.producer.producer import Producer
from pointsman_client.producer.producer_options import Park
from pointsman_client.redis_streams import RedisStreamsTransport
from tests.kit.broker.redis.with_agent import BrokerPlan, agent_config, redis_broker
from tests.kit.ctl.command import ctl
from tests.kit.name_server.process import real_name_server
from tests.kit.waiting import eventually, read_until

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(240)]

PATIENCE_SECONDS = 90.0
SALE = "orders-sale"
CUSTOMERS = [f"customer-{number}" for number in range(8)]
PLAN = BrokerPlan("broker-a")


async def until_ended(code: int, *arguments: str) -> None:
    """Repeat a command until it ends with this code."""
    await read_until(lambda: ctl(*arguments), lambda ended: ended.code == code, seconds=PATIENCE_SECONDS)


async def lag(topic: str, *at: str) -> int | None:
    """Return the group's, as `pointsmanctl offsets` shows it; None: not all of it is known."""
    shown = await ctl(*at, "-o", "json", "offsets", "billing")
    rows: list[Any] = shown.document["offsets"] if shown.out else []
    lags = [row["lag"] for row in rows if row["topic"] == topic]
    return None if not lags or None in lags else sum(lags)


async def refusal(*arguments: str) -> str:
    """Return the code with which the name servers refuse a command."""
    ended = await ctl("-o", "json", *arguments)
    assert ended.code == 1
    return str(json.loads(ended.err)["error"]["code"])


async def test_a_topic_is_added_drained_and_removed_and_no_message_is_lost_or_overtaken(tmp_path: Path) -> None:
    seen: dict[str, list[bytes]] = {customer: [] for customer in CUSTOMERS}
    may_consume = asyncio.Event()
    may_consume.set()

    async def listener(message: ReceivedMessage) -> None:
        await may_consume.wait()
        seen[message.keys[0]].append(message.body)

    async with (
        real_name_server(tmp_path / "namesrv") as server,
        redis_broker(tmp_path / "a", PLAN, [server.addr]) as broker,
        NameServerClient([server.addr]) as client,
        Producer(client, transport=RedisStreamsTransport, on_unavailable=Park(Outbox(tmp_path / "outbox"))) as producer,
        PushConsumer(
            client,
            group="billing",
            subscriptions={"orders": "*", SALE: "*"},
            listener=listener,
            ordered=True,
            transport=RedisStreamsTransport,
        ),
    ):
        at = ("--namesrv", server.addr)

        async def send(topic: str, body: bytes) -> set[bool]:
            sends = (producer.send_by_key(Message(topic, body, keys=(key,)), key) for key in CUSTOMERS)
            return {result.is_parked for result in await asyncio.gather(*sends)}

        async def drained(topic: str) -> None:
            await eventually(lambda: producer.parked == 0, seconds=PATIENCE_SECONDS)
            await read_until(lambda: lag(topic, *at), lambda found: found == 0, seconds=PATIENCE_SECONDS)

        def has_topics(**topics: int) -> None:
            plan = replace(PLAN, topics=topics)
            broker.agent.reconfigure(agent_config(plan, broker.addr, [server.addr]))

        # The subscription was there before the topic.
        await until_ended(0, *at, "route", "orders")
        await client.refresh("orders")
        assert await send("orders", b"before") == {False}
        has_topics(**{"orders": 4, SALE: 2})
        await until_ended(0, *at, "route", SALE)
        await drained("orders")

        assert await send(SALE, b"sale") == {False}
        may_consume.clear()
        broker.redis.kill()
        assert await send(SALE, b"parked") == {True}
        assert producer.parked == len(CUSTOMERS)
        await broker.redis.start()
        await eventually(lambda: producer.parked == 0, seconds=PATIENCE_SECONDS)
        await read_until(lambda: lag(SALE, *at), seconds=PATIENCE_SECONDS)
        may_consume.set()
        await drained(SALE)
        assert await send("orders", b"after") == {False}

        assert await refusal(*at, "delete-topic", SALE) == "TOPIC_HELD"
        has_topics(orders=4)
        await until_ended(1, *at, "route", SALE)
        assert await refusal(*at, "delete-topic", SALE) == "TOPIC_NOT_FOUND"
        assert await broker.redis.command("DEL", f"{SALE}:queue:0", f"{SALE}:queue:1") == ":2"
        with pytest.raises(TopicNotFoundError):
            await client.refresh(SALE)
        with pytest.raises(TopicNotFoundError):
            await producer.send(Message(SALE, b"late"))
        await drained("orders")
    assert seen == {customer: [b"before", b"sale", b"parked", b"after"] for customer in CUSTOMERS}
