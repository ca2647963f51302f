"""Topics changed by ``pointsmanctl topic`` under running producers and consumers, with real brokers of both sources."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pointsman_client.client import NameServerClient
from pointsman_client.consumer.push_consumer import PushConsumer
from pointsman_client.core.message import Message
from pointsman_client.core.send_outcome import SendStatus
from pointsman_client.producer.producer import Producer
from pointsman_client.redis_streams import RedisStreamsTransport
from tests.kit.broker.redis.process import free_port
from tests.kit.broker.redis.with_agent import BrokerPlan, RedisBroker, redis_broker
from tests.kit.client.seen import Seen
from tests.kit.ctl.command import Ended, ctl, running_ctl
from tests.kit.name_server.process import real_name_server
from tests.kit.waiting import eventually, read_until

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(180)]

both_sources = pytest.mark.parametrize("source", ["toml", "redis"])
PATIENCE_SECONDS = 60.0


@dataclass
class Traffic:
    """A producer that sends without a pause, and a consumer group."""

    name_server: str
    broker: RedisBroker
    client: NameServerClient
    seen: Seen = field(default_factory=Seen)
    sent: set[str] = field(default_factory=set)

    async def ctl(self, *arguments: str) -> Ended:
        return await ctl("--namesrv", self.name_server, "--timeout", "20", *arguments)

    async def done(self, *arguments: str) -> Ended:
        ended = await self.ctl(*arguments)
        assert ended.code == 0, ended
        return ended

    async def status(self, topic: str = "orders") -> Any:
        return (await self.done("-o", "json", "topic", "status", topic)).document["brokers"]

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """Send and consume during the block; then all that was sent must have been seen."""
        ending = asyncio.Event()

        async def send(producer: Producer) -> None:
            while not ending.is_set():
                body = str(len(self.sent))
                result = await producer.send(Message("orders", body.encode()))
                assert result.status is SendStatus.SEND_OK
                self.sent.add(body)
                await asyncio.sleep(0.005)

        consumer = PushConsumer(
            self.client,
            group="billing",
            subscriptions={"orders": "*"},
            listener=self.seen,
            transport=RedisStreamsTransport,
        )
        async with Producer(self.client, transport=RedisStreamsTransport) as producer, consumer:
            sending = asyncio.create_task(send(producer))
            await eventually(lambda: len(self.seen.bodies) > 10, seconds=PATIENCE_SECONDS)
            try:
                yield
            finally:
                ending.set()
                await sending
            await eventually(lambda: set(self.seen.bodies) == self.sent, seconds=PATIENCE_SECONDS)

    async def queues(self, count: int) -> None:
        """Wait until producers have this number of queues."""

        async def has() -> bool:
            await self.client.refresh("orders")
            return len(await self.client.publish_queues("orders")) == count

        await read_until(has, seconds=PATIENCE_SECONDS)


@asynccontextmanager
async def traffic(folder: Path, source: str) -> AsyncIterator[Traffic]:
    plan = BrokerPlan(
        "broker-a",
        topics={"held": 1},
        topic_source=source,
        is_writable=source == "toml",
        agent_port=free_port(),
    )
    async with (
        real_name_server(folder / "namesrv") as server,
        redis_broker(folder / "a", plan, [server.addr]) as broker,
        NameServerClient([server.addr]) as client,
    ):
        if source == "redis":
            await broker.redis.command("XADD", "held:queue:0", "0-*", "body", "x")
        await eventually(lambda: bool(broker.agent.said("heartbeat response received")), seconds=PATIENCE_SECONDS)
        yield Traffic(server.addr, broker, client)


@both_sources
async def test_a_topic_grows_and_shrinks_under_load_without_a_lost_message(tmp_path: Path, source: str) -> None:
    async with traffic(tmp_path, source) as flow:
        await flow.done("topic", "create", "orders", "--queues", "4", "--yes")
        await flow.queues(4)
        async with flow.flowing():
            await flow.done("topic", "alter", "orders", "--queues", "8", "--yes")
            await flow.queues(8)
            eighth = await flow.status()
            await eventually(lambda: len(flow.sent) > 200, seconds=PATIENCE_SECONDS)
            shrunk = await flow.done(
                "topic", "alter", "orders", "--queues", "2", "--yes", "--quiet", "2s", "--delete-messages"
            )
            await flow.queues(2)
            after = await flow.status()
        assert [each["queueId"] for each in eighth[0]["queues"]] == list(range(8))
        assert [each["queueId"] for each in after[0]["queues"]] == [0, 1]
        assert "6 queues with" in shrunk.out
        # Grown again, the queues begin at 0: an offset of the deleted ones would skip messages.
        async with flow.flowing():
            await flow.done("topic", "alter", "orders", "--queues", "4", "--yes")
            await flow.queues(4)
            sent = len(flow.sent)
            await eventually(lambda: len(flow.sent) > sent + 100, seconds=PATIENCE_SECONDS)


@both_sources
async def test_an_agent_that_is_killed_while_a_topic_shrinks_is_waited_for_and_nothing_is_lost(
    tmp_path: Path, source: str
) -> None:
    async with traffic(tmp_path, source) as flow:
        await flow.done("topic", "create", "orders", "--queues", "4", "--yes")
        await flow.queues(4)
        shrink = ("topic", "alter", "orders", "--queues", "1", "--yes", "--quiet", "2s", "--delete-messages")
        async with flow.flowing():
            await eventually(lambda: len(flow.sent) > 100, seconds=PATIENCE_SECONDS)
            async with running_ctl("--namesrv", flow.name_server, "--timeout", "20", *shrink) as command:
                await eventually(lambda: "waiting for" in command.err.getvalue(), seconds=PATIENCE_SECONDS)
                await flow.broker.agent.kill()
                await eventually(lambda: "to respond" in command.err.getvalue(), seconds=PATIENCE_SECONDS)
                await flow.broker.agent.start_again()
                first = await command.ended()
            # The agent may have been killed while it wrote: then the same command finishes it.
            second = await flow.ctl(*shrink)
            assert (first.code, second.code) in {(0, 0), (1, 0)}, (first, second)
            await flow.queues(1)
        (broker,) = await flow.status()
        assert broker["settings"] == {"readQueueNums": 1, "writeQueueNums": 1, "perm": "rw"}
        assert [each["queueId"] for each in broker["queues"]] == [0]
