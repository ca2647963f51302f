"""Effect of a killed master and of a leaving consumer, with real name server, brokers and agents."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from pointsman_client.client import NameServerClient
from pointsman_client.consumer.push_consumer import PushConsumer
from pointsman_client.core.message import Message, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.rebalance import ConsumeFrom
from pointsman_client.errors import PointsmanError
from pointsman_client.producer.producer import Producer
from pointsman_client.redis_streams import RedisStreamsTransport
from tests.bench.report import Report
from tests.kit.broker.redis.with_agent import BrokerPlan, RedisBroker, redis_broker
from tests.kit.name_server.process import RealNameServer, real_name_server

QUEUES = 8
PROBE_SECONDS = 5.0
"""An agent's default: with the fall count of 2 a dead broker is out of the routes after 5 to 10 s."""
OBSERVED_SECONDS = 25.0
SENDS_A_SECOND = 200
MEMBERS = 3
LEAVES = 5
PAUSE_SECONDS = 1.5
PATIENCE_SECONDS = 60.0


async def measure(report: Report) -> None:
    """Print the figures."""
    report.subject(
        f"A master is killed (SIGKILL) under {SENDS_A_SECOND} sends per second to two brokers with {QUEUES} queues each"
    )
    for tolerant in (False, True):
        for retries in (0, 2):
            report.progress(f"fault tolerance {'on' if tolerant else 'off'}, {retries} retries")
            seen = await _killed_master(tolerant=tolerant, retries=retries)
            text = f"{len(seen.failed_after)} of {seen.sent} sends failed"
            if seen.failed_after:
                text += f", the last one {max(seen.failed_after):.1f} s after the kill"
            text += f"; the slowest took {seen.slowest * 1e3:.0f} ms"
            report.figure(f"fault tolerance {'on' if tolerant else 'off'}, {retries} retries", text)
    report.subject(f"One of {MEMBERS} consumers of {2 * QUEUES} queues closes, under messages all the time")
    report.progress(f"{LEAVES} leaves")
    took = await _leaves()
    text = f"{statistics.median(took):.2f} s in the middle, at most {max(took):.2f} s"
    report.figure("from close() to a message of its last queue", text)


@dataclass
class Seen:
    """Results of a producer's sends after the kill."""

    sent: int = 0
    failed_after: list[float] = field(default_factory=list)
    slowest: float = 0.0


async def _killed_master(*, tolerant: bool, retries: int) -> Seen:
    seen = Seen()
    async with (
        _fleet() as (server, brokers),
        Producer(
            [server.addr],
            transport=RedisStreamsTransport,
            send_latency_fault_enable=tolerant,
            retry_times_when_send_failed=retries,
        ) as producer,
        asyncio.TaskGroup() as sends,
    ):
        killed_at = 0.0

        async def send() -> None:
            began_at = time.monotonic()
            try:
                await producer.send(Message("orders", b"x" * 100))
            except PointsmanError:
                seen.failed_after.append(time.monotonic() - killed_at)
            seen.slowest = max(seen.slowest, time.monotonic() - began_at)
            seen.sent += 1

        for _ in range(SENDS_A_SECOND):
            await send()
        seen.slowest, seen.sent = 0.0, 0
        brokers[0].redis.kill()
        killed_at = time.monotonic()
        while time.monotonic() < killed_at + OBSERVED_SECONDS:
            sends.create_task(send())
            await asyncio.sleep(1 / SENDS_A_SECOND)
    return seen


async def _leaves() -> list[float]:
    took = []
    async with _fleet() as (server, _), Producer([server.addr], transport=RedisStreamsTransport) as producer:
        queues = await producer.client.publish_queues("orders")
        producing = asyncio.create_task(_produce(producer, queues))
        members = [_Member(server.addr) for _ in range(MEMBERS)]
        for member in members:
            await member.consumer.start()
        for _ in range(LEAVES):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while sorted(len(member.held()) for member in members) != [5, 5, 6]:  # noqa: ASYNC110  # agents decide
                    await asyncio.sleep(0.1)
            # Else the least time between two rebalances would be measured, since the last member has just joined.
            await asyncio.sleep(PAUSE_SECONDS)
            leaver, *others = members
            left = leaver.held()
            began_at = time.monotonic()
            closing = asyncio.create_task(leaver.consumer.close())
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not left <= _consumed(others, since=began_at):  # noqa: ASYNC110  # as above
                    await asyncio.sleep(0.002)
            took.append(time.monotonic() - began_at)
            await closing
            members = [*others, _Member(server.addr)]
            await members[-1].consumer.start()
        producing.cancel()
        for member in members:
            await member.consumer.close()
    return took


def _consumed(members: Sequence[_Member], *, since: float) -> set[MessageQueue]:
    return {queue for member in members for queue in member.consumed_since(since)}


async def _produce(producer: Producer, queues: tuple[MessageQueue, ...]) -> None:
    while True:
        for queue in queues:
            await producer.send_to(queue, Message("orders", b"x"))
        await asyncio.sleep(0.005)


class _Member:
    """A consumer, and when it last had a message of each queue."""

    def __init__(self, name_server: str) -> None:
        self._last: dict[MessageQueue, float] = {}

        async def listener(message: ReceivedMessage) -> None:
            self._last[message.queue] = time.monotonic()

        self.consumer = PushConsumer(
            [name_server],
            group="billing",
            subscriptions={"orders": "*"},
            listener=listener,
            transport=RedisStreamsTransport,
            consume_from=ConsumeFrom.LAST_OFFSET,
        )

    def held(self) -> set[MessageQueue]:
        return {
            MessageQueue(each["topic"], each["cluster"], each["brokerName"], each["queueId"])
            for each in self.consumer.describe()["queues"]
            if each["topic"] == "orders"
        }

    def consumed_since(self, at: float) -> set[MessageQueue]:
        return {queue for queue, last in self._last.items() if last > at}


@asynccontextmanager
async def _fleet() -> AsyncIterator[tuple[RealNameServer, list[RedisBroker]]]:
    with TemporaryDirectory() as folder:
        root = Path(folder)
        async with (
            real_name_server(root / "namesrv") as server,
            redis_broker(root / "a", _plan("broker-a"), [server.addr]) as first,
            redis_broker(root / "b", _plan("broker-b"), [server.addr]) as second,
            NameServerClient([server.addr]) as client,
            asyncio.timeout(PATIENCE_SECONDS + 120.0),
        ):
            async for change in client.route_changes("orders"):
                if change.new is not None and len(change.new.broker_datas) == 2:
                    break
            yield server, [first, second]


def _plan(name: str) -> BrokerPlan:
    return BrokerPlan(name, {"orders": QUEUES}, probe_seconds=PROBE_SECONDS)
