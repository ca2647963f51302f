"""Offsets committed at a slave while its master is down, with real brokers: group and slave agent restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from pointsman_client.client import NameServerClient
from pointsman_client.consumer.push_consumer import PushConsumer
from pointsman_client.core.message import Message
from pointsman_client.core.rebalance import ConsumeFrom
from pointsman_client.errors import TopicNotFoundError
from pointsman_client.producer.producer import Producer
from pointsman_client.redis_streams import RedisStreamsTransport
from tests.kit.broker.redis.with_agent import BrokerPlan, RedisBroker, redis_broker
from tests.kit.client.seen import Seen
from tests.kit.ctl.process import ctl_process
from tests.kit.name_server.process import real_name_server
from tests.kit.waiting import eventually, read_until

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(120)]

MESSAGES = 500
PATIENCE_SECONDS = 40.0
TOPIC = {"orders": 4}


@dataclass
class Pair:
    """A master and its slave with an agent each, and a name server."""

    client: NameServerClient
    master: RedisBroker
    slave: RedisBroker

    async def routed(self, *broker_ids: int) -> None:
        """Wait until the route has these replicas."""

        async def ids() -> set[int]:
            try:
                route = await self.client.refresh("orders")
            except TopicNotFoundError:
                return set()
            return {each.broker_id for data in route.broker_datas for each in data.replicas}

        await until_known(ids, set(broker_ids))

    def consumer(self, seen: Seen) -> PushConsumer:
        return PushConsumer(
            self.client,
            group="billing",
            subscriptions={"orders": "*"},
            listener=seen,
            transport=RedisStreamsTransport,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        )

    async def repeats(self) -> int:
        """Start the group again: how many of its messages come again, when a new message has come from each queue."""
        seen, new = Seen(), 4
        async with Producer(self.client, transport=RedisStreamsTransport) as producer, self.consumer(seen):
            for queue in await self.client.publish_queues("orders"):
                await producer.send_to(queue, Message("orders", b"new"))
            await eventually(lambda: seen.bodies.count("new") == new, seconds=PATIENCE_SECONDS)
            return len(seen.bodies) - new


async def until_known(ask: Callable[[], Awaitable[set[int]]], wanted: set[int]) -> None:
    await read_until(ask, lambda found: found == wanted, seconds=PATIENCE_SECONDS)


@asynccontextmanager
async def consumed_at_the_slave(folder: Path) -> AsyncIterator[Pair]:
    """Messages were sent, the master crashed, and the group read all of them from the slave and closed."""
    async with (
        real_name_server(folder / "namesrv") as server,
        redis_broker(folder / "a", BrokerPlan("broker-a", TOPIC), [server.addr]) as master,
        redis_broker(folder / "a1", BrokerPlan("broker-a", TOPIC, 1), [server.addr], replica_of=master) as slave,
        NameServerClient([server.addr]) as client,
    ):
        pair = Pair(client, master, slave)
        await pair.routed(0, 1)
        await slave.redis.until_info("replication", "master_link_status:up", seconds=PATIENCE_SECONDS)
        async with Producer(client, transport=lambda: RedisStreamsTransport(wait_replicas=1)) as producer:
            for number in range(MESSAGES):
                await producer.send(Message("orders", str(number).encode()))
        # Its log is written after a slow fsync, for up to two seconds.
        await master.redis.until_info("persistence", "aof_buffer_length:0", seconds=PATIENCE_SECONDS)
        master.redis.kill()
        await pair.routed(1)
        seen = Seen()
        async with pair.consumer(seen):
            await eventually(lambda: len(seen.bodies) == MESSAGES, seconds=PATIENCE_SECONDS)
        yield pair


async def test_when_the_master_is_back_the_group_repeats_nothing_and_its_agent_gets_the_offsets(
    tmp_path: Path,
) -> None:
    async with consumed_at_the_slave(tmp_path) as pair:
        await pair.master.redis.start()
        await pair.routed(0, 1)
        assert await pair.repeats() == 0
        log = "pending offsets were acknowledged by the master's agent"
        await eventually(lambda: bool(pair.slave.agent.said(log)), seconds=PATIENCE_SECONDS)


@pytest.mark.slow
async def test_a_restart_of_the_slaves_agent_before_the_master_is_back_repeats_nothing_either(tmp_path: Path) -> None:
    async with consumed_at_the_slave(tmp_path) as pair:
        await pair.slave.agent.stop()
        await pair.slave.agent.start()
        await pair.routed(1)
        seen = Seen()
        async with pair.consumer(seen) as consumer:
            await eventually(
                lambda: sum("position" in each for each in consumer.describe()["queues"]) >= 4, seconds=PATIENCE_SECONDS
            )
            await asyncio.sleep(1.0)
        assert seen.bodies == []
        await pair.master.redis.start()
        await pair.routed(0, 1)
        assert await pair.repeats() == 0


async def reset(pair: Pair, to: str) -> None:
    ended = await ctl_process(
        *("offsets", "reset", "billing", "orders", f"--to={to}", "--yes"),
        POINTSMAN_NAMESRV=",".join(pair.client.name_servers),
    )
    assert (ended.code, ended.err) == (0, ""), ended


async def test_a_reset_while_the_master_is_down_outlives_a_kill_of_the_slaves_agent_and_reaches_the_master(
    tmp_path: Path,
) -> None:
    async with consumed_at_the_slave(tmp_path) as pair:
        await reset(pair, "-10")
        await pair.slave.agent.kill()
        await pair.slave.agent.start()
        await pair.routed(1)
        await pair.master.redis.start()
        await pair.routed(0, 1)
        log = "pending offsets were acknowledged by the master's agent"
        await eventually(lambda: bool(pair.slave.agent.said(log)), seconds=PATIENCE_SECONDS)
        assert await pair.repeats() == 40
        assert await pair.repeats() == 0


async def test_a_reset_outlives_a_kill_of_the_agent_and_the_running_consumer_follows_it(tmp_path: Path) -> None:
    async with (
        real_name_server(tmp_path / "namesrv") as server,
        redis_broker(tmp_path / "a", BrokerPlan("broker-a", TOPIC), [server.addr]) as master,
        NameServerClient([server.addr]) as client,
    ):
        pair = Pair(client, master, master)
        await pair.routed(0)
        seen = Seen()
        async with Producer(client, transport=RedisStreamsTransport) as producer, pair.consumer(seen) as consumer:
            for number in range(MESSAGES):
                await producer.send(Message("orders", str(number).encode()))
            await eventually(lambda: len(seen.bodies) == MESSAGES, seconds=PATIENCE_SECONDS)

            def committed() -> int:
                return sum(each["committed"] or 0 for each in consumer.describe()["queues"])

            await eventually(lambda: committed() == MESSAGES, seconds=PATIENCE_SECONDS)
            await reset(pair, "earliest")
            await master.agent.kill()
            await master.agent.start()
            await eventually(lambda: len(seen.bodies) == 2 * MESSAGES, seconds=PATIENCE_SECONDS)
            await eventually(lambda: committed() == MESSAGES, seconds=PATIENCE_SECONDS)
        assert await pair.repeats() == 0
