"""A master of real brokers crashes under producers and consumers, is replaced by its replica, or comes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pointsman_client.client import NameServerClient
from pointsman_client.consumer.push_consumer import PushConsumer
from pointsman_client.core.message import Message, ReceivedMessage
from pointsman_client.core.rebalance import ConsumeFrom
from pointsman_client.core.route import TopicRoute
from pointsman_client.core.send_outcome import SendResult, SendStatus
from pointsman_client.errors import SendError
from pointsman_client.producer.producer import Producer
from pointsman_client.redis_streams import RedisStreamsTransport
from tests.kit.agent.in_process import PATIENCE_SECONDS as UNTIL_SECONDS
from tests.kit.broker.redis.sentinel import sentinel_process
from tests.kit.broker.redis.with_agent import BrokerPlan, RedisBroker, redis_broker
from tests.kit.name_server.process import RealNameServer, real_name_server
from tests.kit.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(180)]

PATIENCE_SECONDS = 90.0


@asynccontextmanager
async def name_server(folder: Path) -> AsyncIterator[RealNameServer]:
    async with real_name_server(folder / "namesrv") as server:
        yield server


async def routed(client: NameServerClient, holds: Callable[[TopicRoute], bool]) -> None:
    """Wait until the client's own route is as wanted."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for change in client.route_changes("orders"):
            if change.new is not None and holds(change.new):
                return


def masters(route: TopicRoute) -> dict[str, str]:
    return {data.broker_name: data.master.addr for data in route.broker_datas if data.master is not None}


def replicas(route: TopicRoute) -> dict[str, dict[int, str]]:
    return {data.broker_name: {each.broker_id: each.addr for each in data.replicas} for data in route.broker_datas}


class Traffic:
    """Numbered messages, sent continuously one by one, and their results."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.acknowledged: dict[str, SendResult] = {}
        self.failed: list[tuple[float, SendError]] = []
        self.consumed: list[ReceivedMessage] = []
        self.gate = asyncio.Event()
        """While closed, the listener blocks."""
        self.gate.set()
        self._sending: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._sending = asyncio.create_task(self._send_on())

    async def stop(self) -> None:
        assert self._sending is not None
        self._sending.cancel()
        await asyncio.wait([self._sending])

    async def _send_on(self) -> None:
        number = 0
        while True:
            body = str(number)
            try:
                self.acknowledged[body] = await self._producer.send(Message("orders", body.encode()))
            except SendError as error:
                self.failed.append((time.monotonic(), error))
            number += 1
            await asyncio.sleep(0.005)

    async def listener(self, message: ReceivedMessage) -> None:
        await self.gate.wait()
        self.consumed.append(message)

    def bodies(self) -> set[str]:
        return {message.body.decode() for message in self.consumed}

    def lost(self) -> set[str]:
        """Acknowledged with SEND_OK, and not consumed yet."""
        whole = {body for body, result in self.acknowledged.items() if result.status is SendStatus.SEND_OK}
        return whole - self.bodies()

    async def more(self, count: int, *, broker: str | None = None, left_out_seconds: float = 0.0) -> None:
        """Wait for ``count`` more acknowledgements, of one broker if it is named, which may be isolated at first."""
        before = self._of(broker)
        await eventually(lambda: self._of(broker) >= before + count, seconds=UNTIL_SECONDS + left_out_seconds)

    def _of(self, broker: str | None) -> int:
        return sum(broker in (None, result.queue.broker_name) for result in self.acknowledged.values())


async def in_step(replica: RedisBroker) -> None:
    await replica.redis.until_info("replication", "master_link_status:up", seconds=PATIENCE_SECONDS)


@pytest.mark.slow
async def test_w10_a_dead_master_costs_no_send_its_slave_is_read_on_and_it_is_used_again_when_it_is_back(
    tmp_path: Path,
) -> None:
    async with (
        name_server(tmp_path) as server,
        redis_broker(tmp_path / "a", BrokerPlan("broker-a"), [server.addr]) as master,
        redis_broker(tmp_path / "a1", BrokerPlan("broker-a", broker_id=1), [server.addr], replica_of=master) as slave,
        redis_broker(tmp_path / "b", BrokerPlan("broker-b"), [server.addr]) as other,
        NameServerClient([server.addr]) as client,
        Producer(client, transport=lambda: RedisStreamsTransport(wait_replicas=1)) as producer,
    ):
        await in_step(slave)
        both = {"broker-a": master.addr, "broker-b": other.addr}
        await routed(client, lambda route: masters(route) == both and replicas(route)["broker-a"].get(1) == slave.addr)
        traffic = Traffic(producer)
        async with PushConsumer(
            client,
            group="billing",
            subscriptions={"orders": "*"},
            listener=traffic.listener,
            transport=RedisStreamsTransport,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            pull_batch_size=1,
            pull_threshold_for_queue=1,
        ):
            traffic.gate.clear()
            traffic.start()
            await traffic.more(100, broker="broker-a")

            # The consumer's lag is all but one message of each queue when the master crashes.
            master.redis.kill()
            await traffic.more(200, broker="broker-b")
            await routed(client, lambda route: masters(route) == {"broker-b": other.addr})
            assert {queue.broker_name for queue in await client.publish_queues("orders")} == {"broker-b"}
            assert len(traffic.lost()) >= 80
            traffic.gate.set()
            await eventually(lambda: not traffic.lost())
            assert traffic.failed == []

            await master.redis.restart()
            await routed(client, lambda route: masters(route) == both)
            await traffic.more(100, broker="broker-a", left_out_seconds=10.0)
            await traffic.stop()
            await eventually(lambda: traffic.acknowledged.keys() <= traffic.bodies())
            assert traffic.failed == []


async def test_producers_and_consumers_follow_a_promotion_by_sentinel_and_nothing_copied_is_lost(
    tmp_path: Path,
) -> None:
    async with (
        name_server(tmp_path) as server,
        redis_broker(tmp_path / "one", BrokerPlan("broker-a", replica_id=1), [server.addr]) as first,
        redis_broker(tmp_path / "two", BrokerPlan("broker-a", replica_id=2), [server.addr], replica_of=first) as second,
        sentinel_process(tmp_path / "sentinel", first.redis, replicas=1),
        NameServerClient([server.addr]) as client,
        Producer(client, transport=lambda: RedisStreamsTransport(wait_replicas=1)) as producer,
    ):
        await in_step(second)
        await routed(client, lambda route: replicas(route) == {"broker-a": {0: first.addr, 2: second.addr}})
        traffic = Traffic(producer)
        async with PushConsumer(
            client,
            group="billing",
            subscriptions={"orders": "*"},
            listener=traffic.listener,
            transport=RedisStreamsTransport,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ):
            traffic.start()
            await traffic.more(200)
            first.redis.kill()
            await routed(client, lambda route: masters(route) == {"broker-a": second.addr})
            # Alone it has no replica; it still accepts messages, and reports that.
            await traffic.more(100)

            await first.redis.restart()
            await routed(client, lambda route: replicas(route) == {"broker-a": {0: second.addr, 1: first.addr}})
            await in_step(first)
            await traffic.more(100)
            await traffic.stop()
            await eventually(lambda: not traffic.lost())
            # The only broker was down for a while: sends failed then, each with its cause, and none since.
            last = max((at for at, _ in traffic.failed), default=0.0)
            assert time.monotonic() - last > 0.2
            assert all(error.code in {"SEND_FAILED", "NO_WRITABLE_QUEUE"} for _, error in traffic.failed)
