"""Consumers of one group, against brokers and a group in memory, with a clock that moves by hand."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from pointsman.manual_clock import ManualClock
from pointsman_client.consumer.listener import Listener
from pointsman_client.consumer.pull_consumer import PullConsumer
from pointsman_client.consumer.push_consumer import PushConsumer
from pointsman_client.consumer.simple_consumer import SimpleConsumer
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.rebalance import ConsumeFrom
from pointsman_client.metrics_hook import MetricsHook
from tests.kit.client.memory_group import MemoryBrokers, MemoryGroup, RoutesInMemory, route_of

CLOSE_STEPS = 60

ConsumerT = TypeVar("ConsumerT", PushConsumer, PullConsumer, SimpleConsumer)


def numbers(count: int, prefix: str = "") -> list[str]:
    """Bodies 0, 1, 2 ..."""
    return [f"{prefix}{number}" for number in range(count)]


class Setup:
    """One group, its brokers and consumers that are closed at the end of the test."""

    def __init__(self, clock: ManualClock, stack: AsyncExitStack) -> None:
        self.clock = clock
        self.group = MemoryGroup(clock)
        self.routes = RoutesInMemory(clock)
        self.brokers = MemoryBrokers(clock)
        self.hook = Recorded()
        self._stack = stack

    async def join(self, name: str, listener: Listener | None, **settings: Any) -> PushConsumer:
        """Start a consumer with a listener, by default for all of ``orders`` from its first message on.

        None: ``settings`` have a ``batch_listener``.
        """
        settings = {"subscriptions": {"orders": "*"}} | settings
        consumer = PushConsumer(self.routes, listener=listener, **self._settings(name) | settings)
        return await self._enter(consumer)

    async def join_pulling(self, name: str, **settings: Any) -> PullConsumer:
        """Start a pull consumer."""
        settings = {"subscriptions": {"orders": "*"}} | settings
        return await self._enter(PullConsumer(self.routes, **self._settings(name) | settings))

    async def join_leasing(self, name: str, **settings: Any) -> SimpleConsumer:
        """Start a consumer that leases messages."""
        settings = {"subscriptions": {"orders": "*"}} | settings
        return await self._enter(SimpleConsumer(self.routes, **self._settings(name) | settings))

    def _settings(self, name: str) -> dict[str, Any]:
        return {
            "group": "billing",
            "transport": self.brokers.transport,
            "client_id": f"{name}@1",
            "consume_from": ConsumeFrom.FIRST_OFFSET,
            "make_coordination": self.group.coordinate,
            "metrics_hook": self.hook,
            "clock": self.clock,
        }

    async def _enter(self, consumer: ConsumerT) -> ConsumerT:
        await self._stack.enter_async_context(consumer)
        await self.clock.advance(0)
        return consumer

    async def until(self, condition: Callable[[], object], *, seconds: float = 30.0) -> None:
        """Let time pass in small steps until the condition holds."""
        for _ in range(int(seconds * 4)):
            if condition():
                return
            await self.clock.advance(0.25)
            await asyncio.sleep(0.005)  # of real time: the outbox reads and writes its file in a thread
        assert condition(), "what was waited for did not come"


class Recorded(MetricsHook):
    def __init__(self) -> None:
        self.results: Counter[str] = Counter()
        self.destinations: Counter[str] = Counter()
        self.triggers: Counter[str] = Counter()
        self.idle: list[bool] = []
        self.aside: list[bool] = []
        self.queues: dict[str, int] = {}
        self.lost_locks = 0
        self.trimmed_messages = 0
        self.acknowledged_messages: Counter[str] = Counter()
        self.filtered_messages = 0
        self.blocked: dict[MessageQueue, float] = {}
        self.running: dict[MessageQueue, float] = {}

    def consumed(self, *, result: str, **_: object) -> None:
        self.results[result] += 1

    def sent_back(self, *, destination: str, **_: object) -> None:
        self.destinations[destination] += 1

    def acknowledged(self, *, messages: int, result: str, **_: object) -> None:
        self.acknowledged_messages[result] += messages

    def rebalanced(self, *, topic: str, trigger: str, **_: object) -> None:
        if topic == "orders":
            self.triggers[trigger] += 1

    def queues_held(self, *, topic: str, count: int, **_: object) -> None:
        self.queues[topic] = count

    def idle_member(self, *, is_idle: bool, **_: object) -> None:
        self.idle.append(is_idle)

    def standing_aside(self, *, is_aside: bool, **_: object) -> None:
        self.aside.append(is_aside)

    def lock_lost(self, **_: object) -> None:
        self.lost_locks += 1

    def filtered(self, *, messages: int, **_: object) -> None:
        self.filtered_messages += messages

    def queue_blocked(self, *, queue: MessageQueue, since: float | None, **_: object) -> None:
        self.blocked.pop(queue, None)
        if since is not None:
            self.blocked[queue] = since

    def call_running(self, *, queue: MessageQueue, since: float | None, **_: object) -> None:
        self.running.pop(queue, None)
        if since is not None:
            self.running[queue] = since

    def trimmed(self, *, messages: int, **_: object) -> None:
        self.trimmed_messages += messages


@asynccontextmanager
async def consumer_setup(clock: ManualClock) -> AsyncIterator[Setup]:
    """``orders`` has two queues on broker a; at the end time passes until every consumer is closed."""
    async with AsyncExitStack() as stack:
        made = Setup(clock, stack)
        made.routes.set(route_of("orders", {"a": 2}))
        yield made
        closing = asyncio.ensure_future(stack.aclose())
        for _ in range(CLOSE_STEPS):
            if closing.done():
                break
            await clock.advance(0.5)
        await closing


def queues_of(consumer: PushConsumer) -> list[int]:
    return [each["queueId"] for each in consumer.describe()["queues"] if each["topic"] == "orders"]
