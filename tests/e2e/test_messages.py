"""Messages through real brokers: Redis with agents, a name server and consumers, each a separate process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count, groupby
from pathlib import Path

import pytest

from pointsman_client.client import NameServerClient
from pointsman_client.core.message import Message
from pointsman_client.producer.producer import Producer
from pointsman_client.redis_streams import RedisStreamsTransport
from tests.e2e.consumer_processes import Consumed, consumer_processes
from tests.kit.broker.redis.with_agent import BrokerPlan, RedisBroker, redis_broker
from tests.kit.name_server.process import RealNameServer, real_name_server
from tests.kit.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(240)]

PATIENCE_SECONDS = 90.0
QUEUES = 4
BATCH = 32
"""Messages that a consumer pulls from a queue in one request."""


@asynccontextmanager
async def fleet(folder: Path, *names: str) -> AsyncIterator[tuple[RealNameServer, Sequence[RedisBroker]]]:
    """A name server, and a broker of each name with ``orders`` on it."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(real_name_server(folder / "namesrv"))
        brokers = [
            await stack.enter_async_context(redis_broker(folder / name, BrokerPlan(name), [server.addr]))
            for name in names
        ]
        await routed(server, len(names))
        yield server, brokers


async def routed(server: RealNameServer, brokers: int) -> None:
    """Wait until the route of ``orders`` has writable queues on ``brokers`` brokers."""
    async with NameServerClient([server.addr]) as client, asyncio.timeout(PATIENCE_SECONDS):
        async for change in client.route_changes("orders"):
            if change.new is not None and len(change.new.broker_datas) == brokers:
                return


class Sent:
    """Bodies that brokers acknowledged."""

    def __init__(self) -> None:
        self.acknowledged: set[str] = set()

    async def more(self, count: int) -> None:
        """Wait until this number of further ones was acknowledged."""
        wanted = len(self.acknowledged) + count
        await eventually(lambda: len(self.acknowledged) >= wanted, seconds=PATIENCE_SECONDS)


async def produce(
    server: RealNameServer,
    *,
    at_least: int,
    enough: asyncio.Event,
    seconds_between: float,
    so_far: Sent | None = None,
) -> int:
    """Send numbered messages, eight at a time, each acknowledged, until ``enough``; return how many."""
    numbers = count()
    sent = 0
    async with Producer([server.addr], transport=RedisStreamsTransport) as producer:

        async def send() -> None:
            nonlocal sent
            while sent < at_least or not enough.is_set():
                sent += 1
                body = str(next(numbers))
                await producer.send(Message("orders", body.encode()))
                if so_far is not None:
                    so_far.acknowledged.add(body)
                await asyncio.sleep(seconds_between)

        await asyncio.gather(*(send() for _ in range(8)))
    return sent


def moved_queues(consumed: Sequence[Consumed]) -> int:
    """How often a queue went to another consumer."""
    by_queue = sorted(consumed, key=lambda each: (each.broker_name, each.queue_id, each.at))
    moves = 0
    for _, of_queue in groupby(by_queue, key=lambda each: (each.broker_name, each.queue_id)):
        workers = [worker for worker, _ in groupby(each.worker for each in of_queue)]
        moves += len(workers) - 1
    return moves


async def test_every_message_reaches_the_group_while_members_join_leave_and_are_killed(
    tmp_path: Path, full: bool
) -> None:
    messages, seconds_between = (10_000, 0.01) if full else (1_000, 0.05)
    async with (
        fleet(tmp_path, "broker-a", "broker-b") as (server, _),
        consumer_processes(tmp_path / "group", [server.addr]) as group,
    ):
        first = await group.join()
        second = await group.join()
        enough = asyncio.Event()
        producing = asyncio.create_task(
            produce(server, at_least=messages, enough=enough, seconds_between=seconds_between)
        )
        await group.have_consumed(messages // 5, seconds=PATIENCE_SECONDS)
        third = await group.join()
        await group.have_consumed_more(messages // 5, seconds=PATIENCE_SECONDS)
        await first.leave()
        await group.have_consumed_more(messages // 5, seconds=PATIENCE_SECONDS)
        await group.join()
        before_the_kill = sum(group.times_consumed().values())
        duplicates_of_joins_and_leaves = before_the_kill - len(group.times_consumed())
        moved = moved_queues(group.consumed())
        await second.kill()
        enough.set()
        sent = await producing
        await group.have_consumed(sent, seconds=PATIENCE_SECONDS)
        await third.leave()

        times = group.times_consumed()
        assert sorted(map(int, times)) == list(range(sent))
        assert moved >= QUEUES
        assert duplicates_of_joins_and_leaves <= BATCH * moved
        # Redelivered: what the killed one had finished since its last commit, at most five seconds of its share.
        of_the_killed = [each for each in group.consumed() if each.worker == second.log.stem]
        last_seconds = [each for each in of_the_killed if each.at > of_the_killed[-1].at - 10.0]
        duplicates = sum(times.values()) - len(times)
        assert duplicates <= duplicates_of_joins_and_leaves + len(last_seconds) + BATCH * 2 * QUEUES
        print(f"moved {moved}, duplicates {duplicates_of_joins_and_leaves} before the kill, {duplicates} at the end")


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_five_members_are_rolled_to_another_strategy_and_back_under_load_and_no_queue_is_unread(
    tmp_path: Path,
) -> None:
    """After each step the members have both strategies, and everything sent so far must be consumed nevertheless."""
    async with (
        fleet(tmp_path, "broker-a", "broker-b") as (server, _),
        consumer_processes(tmp_path / "group", [server.addr]) as group,
    ):
        members = [await group.join("--strategy", "averagely") for _ in range(5)]
        enough, sent = asyncio.Event(), Sent()
        producing = asyncio.create_task(produce(server, at_least=0, enough=enough, seconds_between=0.05, so_far=sent))
        await group.have_consumed(100, seconds=PATIENCE_SECONDS)
        for strategy in ("consistent_hash", "averagely"):
            for number, old in enumerate(members):
                await old.leave()
                members[number] = await group.join("--strategy", strategy)
                # From here on each queue gets messages that only the mixed members can consume.
                await sent.more(64)
                await group.have_consumed_all(sent.acknowledged, seconds=PATIENCE_SECONDS)
        enough.set()
        await producing
        await group.have_consumed_all(sent.acknowledged, seconds=PATIENCE_SECONDS)
        times = group.times_consumed()
        moved = moved_queues(group.consumed())
        repeated = sum(times.values()) - len(times)
        print(f"sent {len(sent.acknowledged)}, lost 0, repeated {repeated}, moved {moved}")
        assert repeated <= BATCH * moved


async def test_ordered_consumers_see_each_key_in_order_through_joins_and_leaves(tmp_path: Path) -> None:
    async with (
        fleet(tmp_path, "broker-a", "broker-b") as (server, _),
        consumer_processes(tmp_path / "group", [server.addr], "--ordered") as group,
        Producer([server.addr], transport=RedisStreamsTransport) as producer,
    ):
        keys = [f"customer-{number}" for number in range(20)]

        enough = asyncio.Event()

        async def produce_in_order() -> int:
            """Send a message of each key a round until it is enough; return how many rounds."""
            for number in count():
                if enough.is_set():
                    return number
                for key in keys:
                    await producer.send_by_key(Message("orders", f"{key}/{number}".encode(), keys=(key,)), key)
                await asyncio.sleep(0.01)
            raise AssertionError

        first = await group.join()
        await group.join()
        producing = asyncio.create_task(produce_in_order())
        await group.have_consumed(500, seconds=PATIENCE_SECONDS)
        await group.join()
        await group.have_consumed_more(500, seconds=PATIENCE_SECONDS)
        await first.leave()
        await group.have_consumed_more(500, seconds=PATIENCE_SECONDS)
        enough.set()
        rounds = await producing
        await group.have_consumed(rounds * len(keys), seconds=PATIENCE_SECONDS)

        consumed = group.consumed()
        assert moved_queues(consumed) >= QUEUES
        for key in keys:
            of_key = [int(each.body.rpartition("/")[2]) for each in consumed if each.key == key]
            assert of_key == list(range(rounds)), f"{key} out of order or twice"
