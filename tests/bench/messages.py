"""Messages of the benches as bytes: encoding is not the server's work, and must not slow down the clients."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from pointsman.v1.broker_pb2 import BrokerIdentity
from pointsman.v1.registration_service_pb2 import (
    HeartbeatRequest,
    RegisterBrokerResponse,
    UpdateTopicsRequest,
)
from pointsman.v1.route_service_pb2 import GetTopicRouteRequest, KnownRoute, WatchTopicRoutesRequest
from tests.kit.name_server import wire

REGISTER = "/pointsman.v1.RegistrationService/RegisterBroker"
UPDATE = "/pointsman.v1.RegistrationService/UpdateTopics"
KEEP_ALIVE = "/pointsman.v1.RegistrationService/KeepAlive"
UNREGISTER = "/pointsman.v1.RegistrationService/UnregisterBroker"
HEARTBEAT = "/pointsman.v1.RegistrationService/Heartbeat"
ROUTE = "/pointsman.v1.RouteService/GetTopicRoute"
WATCH = "/pointsman.v1.RouteService/WatchTopicRoutes"
PUSH = "/pointsman.bench.Bare/Push"

CALL_SECONDS = 60.0


def broker(number: int) -> BrokerIdentity:
    """The identity of one of many brokers."""
    return wire.identity(name=f"b{number}", addr=f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:10911")


def registration(
    number: int, topics: int, *, version: int = 1, changed_of: int = 0, heartbeat: int = 300, expiry: int = 900
) -> list[bytes]:
    """The chunks of a broker with topics ``topic-0`` and so on; every ``changed_of``-th changes with the version.

    By default its interval is long enough that it does not expire during a bench.
    """
    entries = [
        wire.topic(topic_name(i), queues=8 + (version % 2 if changed_of and i % changed_of == 0 else 0))
        for i in range(topics)
    ]
    chunks = wire.registration(
        *entries, who=broker(number), version=(0, 0, version), heartbeat=heartbeat, expiry=expiry
    )
    return [chunk.SerializeToString() for chunk in chunks]


def topic_name(number: int) -> str:
    """One of the names that :func:`registration` registers."""
    return f"topic-{number}"


def query(topic: str, *, known_digest: bytes = b"") -> bytes:
    """A route query."""
    return GetTopicRouteRequest(topic=topic, known_digest=known_digest).SerializeToString()


def watch(topic: str) -> bytes:
    """A watch of one topic."""
    return WatchTopicRoutesRequest(topics=[KnownRoute(topic=topic)]).SerializeToString()


def beat(number: int, generation: int, *, version: int = 1) -> bytes:
    """A heartbeat: HeartbeatRequest and KeepAliveRequest have it under the same field number."""
    message = wire.beat(generation, who=broker(number), version=(0, 0, version))
    return HeartbeatRequest(beat=message).SerializeToString()


async def register(channel: grpc.aio.Channel, chunks: list[bytes], metadata: Sequence[tuple[str, str]] = ()) -> int:
    """Send a registration and return its generation."""
    call: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(REGISTER)
    answer = await call(iter(chunks), timeout=CALL_SECONDS, metadata=metadata)
    return RegisterBrokerResponse.FromString(answer).generation


class ChangingTopic:
    """A registered broker that changes the queues of ``topic-0`` on request, by a delta."""

    def __init__(self, channel: grpc.aio.Channel, number: int, generation: int) -> None:
        self._call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(UPDATE)
        self._number = number
        self._generation = generation
        self._version = 1

    async def change(self) -> None:
        """Change it once."""
        base, self._version = self._version, self._version + 1
        request = UpdateTopicsRequest(
            identity=broker(self._number),
            generation=self._generation,
            base_data_version=wire.data_version((0, 0, base)),
            data_version=wire.data_version((0, 0, self._version)),
            changed=[wire.topic(topic_name(0), queues=8 + (self._version - 1) % 2)],
        )
        await self._call(request.SerializeToString(), timeout=CALL_SECONDS)
