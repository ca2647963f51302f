"""A producer, with a name server on a real socket and scripted brokers, all controlled by the test."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pointsman.manual_clock import ManualClock
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.send_outcome import SendResult
from pointsman_client.errors import PointsmanError
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.producer.producer import Producer
from tests.kit.client.scripted_transport import ScriptedTransport
from tests.kit.name_server.scripted_routes import ScriptedRouteServer, broker_data, topic_route

A, B, C = "10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"
ADDRS = {"a": A, "b": B, "c": C}


class Heard(MetricsHook):
    """Records the calls of a producer's metrics hook."""

    def __init__(self) -> None:
        self.sends: list[tuple[str, int]] = []
        self.tries: list[tuple[str, str]] = []
        self.isolations: list[tuple[str, float]] = []
        self.hits: list[str] = []
        self.waiting: list[int] = []

    def sent(self, *, topic: str, outcome: str, seconds: float, tries: int) -> None:  # noqa: ARG002
        self.sends.append((outcome, tries))

    def send_tried(self, *, queue: MessageQueue, outcome: str, seconds: float) -> None:  # noqa: ARG002
        self.tries.append((queue.broker_name, outcome))

    def isolated(self, *, cluster: str, broker_name: str, seconds: float) -> None:  # noqa: ARG002
        self.isolations.append((broker_name, seconds))

    def isolation_hit(self, *, cluster: str, broker_name: str) -> None:  # noqa: ARG002
        self.hits.append(broker_name)

    def parked(self, *, topic: str, waiting: int) -> None:  # noqa: ARG002
        self.waiting.append(waiting)


class SendCallback:
    """A callback for ``send_async`` that keeps each result and error."""

    def __init__(self) -> None:
        self.results: list[SendResult] = []
        self.errors: list[Exception] = []

    def __call__(self, ended: SendResult | Exception) -> None:
        if isinstance(ended, SendResult):
            self.results.append(ended)
        else:
            self.errors.append(ended)

    @property
    def codes(self) -> list[str]:
        return [error.code if isinstance(error, PointsmanError) else repr(error) for error in self.errors]


class Shop:
    """The parts of a producer's test."""

    def __init__(self, producer: Producer, server: ScriptedRouteServer, clock: ManualClock, heard: Heard) -> None:
        self.producer = producer
        self.server = server
        self.transport = ScriptedTransport()
        self.clock = clock
        self.heard = heard


def put_route(server: ScriptedRouteServer, *names: str, topic: str = "orders", **more: Any) -> None:
    """Set the topic's route to these brokers."""
    groups = [broker_data(name, {0: ADDRS[name]}, cluster="c1") for name in names]
    server.routes[topic] = topic_route(topic, groups, **more)


@asynccontextmanager
async def producing(server: ScriptedRouteServer, **settings: Any) -> AsyncIterator[Shop]:
    """Run a producer for the length of the block, on brokers a and b with two queues by default."""
    if not server.routes:
        put_route(server, "a", "b", write=2)
    clock, heard = ManualClock(), Heard()
    transport = ScriptedTransport()
    producer = Producer(
        [server.addr],
        **{"transport": transport, "clock": clock, "metrics_hook": heard, "rng": random.Random(3), **settings},
    )
    async with producer:
        shop = Shop(producer, server, clock, heard)
        shop.transport = transport
        yield shop
