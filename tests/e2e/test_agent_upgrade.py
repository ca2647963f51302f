"""Agents are upgraded one by one under running consumers, without an effect on them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from pointsman_client.client import NameServerClient
from pointsman_client.consumer.push_consumer import PushConsumer
from pointsman_client.core.message import Message, ReceivedMessage
from pointsman_client.core.rebalance import ConsumeFrom
from pointsman_client.core.route import RouteChange
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.producer.producer import Producer
from pointsman_client.redis_streams import RedisStreamsTransport
from tests.kit.broker.redis.process import free_port
from tests.kit.broker.redis.with_agent import BrokerPlan, redis_broker
from tests.kit.name_server.process import real_name_server
from tests.kit.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(180)]

BROKERS = 5
CONSUMERS = 3
WARM_UP_SECONDS = 10.0
"""Ten times what members need to be back: the queues of a member that is not back in time are moved, correctly."""
PATIENCE_SECONDS = 90.0


class Diary(MetricsHook):
    """Numbers of queues held, as they change."""

    def __init__(self) -> None:
        self.entries: list[int] = []
        self.committed = 0

    def queues_held(self, *, group: str, topic: str, count: int) -> None:  # noqa: ARG002  # the hook's names
        if topic == "orders":
            self.entries.append(count)

    def offsets_committed(self, *, group: str, queues: int, result: str) -> None:  # noqa: ARG002  # as above
        self.committed += queues if result == "ok" else 0


@pytest.mark.slow
async def test_agents_upgraded_one_after_the_other_change_no_route_and_move_no_queue(tmp_path: Path) -> None:
    consumed: list[ReceivedMessage] = []

    async def listener(message: ReceivedMessage) -> None:
        consumed.append(message)

    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(real_name_server(tmp_path / "namesrv"))
        brokers = [
            await stack.enter_async_context(
                redis_broker(
                    tmp_path / f"broker-{number}",
                    BrokerPlan(f"broker-{number}", agent_port=free_port(), warm_up_seconds=WARM_UP_SECONDS),
                    [server.addr],
                )
            )
            for number in range(BROKERS)
        ]
        client = await stack.enter_async_context(NameServerClient([server.addr]))
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for change in client.route_changes("orders"):
                if change.new is not None and len(change.new.broker_datas) == BROKERS:
                    break
        producer = await stack.enter_async_context(
            Producer(client, transport=RedisStreamsTransport, send_msg_timeout_seconds=PATIENCE_SECONDS)
        )
        diaries = [Diary() for _ in range(CONSUMERS)]
        members = [
            await stack.enter_async_context(
                PushConsumer(
                    [server.addr],
                    group="billing",
                    subscriptions={"orders": "*"},
                    listener=listener,
                    transport=RedisStreamsTransport,
                    consume_from=ConsumeFrom.FIRST_OFFSET,
                    metrics_hook=diary,
                )
            )
            for diary in diaries
        ]

        def held() -> list[list[tuple[str, int]]]:
            return [
                [(each["brokerName"], each["queueId"]) for each in member.describe()["queues"]] for member in members
            ]

        await eventually(lambda: all(held()) and len({queue for queues in held() for queue in queues}) >= BROKERS * 4)
        before = held()
        entries = [list(diary.entries) for diary in diaries]
        changes: list[RouteChange] = []
        client.on_route_change(changes.append)

        for number, broker in enumerate(brokers):
            await broker.agent.stop()
            await broker.agent.start()
            for sent in range(10):
                await producer.send(Message("orders", f"{number}/{sent}".encode()))
            # The next one follows when this one can be relied on again, as a careful operator would wait.
            await asyncio.sleep(WARM_UP_SECONDS + 1.0)
            assert held() == before

        assert [diary.entries for diary in diaries] == entries, "a queue moved"
        assert [change.new and len(change.new.broker_datas) for change in changes if masters_differ(change)] == []
        await eventually(lambda: len(consumed) == BROKERS * 10)


def masters_differ(change: RouteChange) -> bool:
    """Whether brokers were added or removed; marks such as SUSPECT do not count."""
    if change.old is None or change.new is None:
        return True
    old, new = (
        [(data.broker_name, [(each.broker_id, each.addr) for each in data.replicas]) for data in route.broker_datas]
        for route in (change.old, change.new)
    )
    return old != new
