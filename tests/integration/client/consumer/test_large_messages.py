"""A group whose pulls from a real Redis server exceed ``max_reply_bytes``: it reads no further, and loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from pointsman_client.core.message import Message, OutgoingMessage, ReceivedMessage
from pointsman_client.redis_streams import RedisStreamsTransport
from tests.kit.broker.redis.process import RedisProcess, redis_process
from tests.kit.broker.under_test import BORN_AT
from tests.kit.client.consumer_setup import Setup
from tests.kit.client.memory_group import queue_of, route_of

pytestmark = pytest.mark.redis

MAX_REPLY_BYTES = 1_000_000
SIZE = 300_000
MESSAGES = 5


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisProcess]:
    async with redis_process(tmp_path / "redis") as process:
        yield process


async def test_a_group_reads_on_after_a_start_with_a_smaller_batch(
    setup: Setup, redis: RedisProcess, caplog: pytest.LogCaptureFixture
) -> None:
    route = route_of("orders", {"a": 2})
    (data,) = route.broker_datas
    replica = replace(data.replicas[0], addr=redis.addr)
    setup.routes.set(replace(route, broker_datas=(replace(data, replicas=(replica,)),)))
    writing = RedisStreamsTransport()
    for number in range(MESSAGES):
        message = OutgoingMessage(Message("orders", b"%d" % number * SIZE), f"id-{number}", BORN_AT)
        await writing.send(redis.addr, queue_of(0), [message], timeout_seconds=30)
    await writing.close()
    seen: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.body[:1])

    def transport() -> RedisStreamsTransport:
        return RedisStreamsTransport(max_reply_bytes=MAX_REPLY_BYTES)

    large = await setup.join("x", listener, transport=transport, pull_batch_size=MESSAGES)
    await setup.until(lambda: any("a reply has more than 1000128 bytes" in line for line in caplog.messages))
    await setup.until(lambda: setup.group.commits, seconds=90)
    assert (seen, setup.group.offsets[queue_of(0)]) == ([], 0)
    closing = asyncio.ensure_future(large.close())
    await setup.until(closing.done)
    await setup.join("y", listener, transport=transport, pull_batch_size=MAX_REPLY_BYTES // SIZE)
    await setup.until(lambda: len(seen) == MESSAGES)
    assert seen == [b"%d" % number for number in range(MESSAGES)]
