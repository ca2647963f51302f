"""Clients that use all they can get, and hold it until their process ends (:mod:`tests.bench.worker`)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from datetime import datetime
from itertools import cycle, islice
from multiprocessing.connection import Connection
from typing import Any

import grpc
from google.protobuf.message import Message
from grpc_status import rpc_status

from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1.admin_service_pb2_grpc import AdminServiceStub
from pointsman.v1.registration_service_pb2 import RegisterBrokerResponse
from pointsman.v1.route_service_pb2 import KnownRoute, WatchTopicRoutesRequest
from pointsman.wire.error_details import read_status
from tests.bench.worker import serve_commands
from tests.kit.http_answer import ask
from tests.kit.name_server import wire

WATCH = "/pointsman.v1.RouteService/WatchTopicRoutes"
REGISTER = "/pointsman.v1.RegistrationService/RegisterBroker"
KEEP_ALIVE = "/pointsman.v1.RegistrationService/KeepAlive"
HEALTH = "/grpc.health.v1.Health/Watch"
STREAMS_A_CONNECTION = 900
STALLED_A_CONNECTION = 4
"""The lane refuses calls of a connection with 1 MiB unread: with more, watches would not reach the limit of all."""
BATCH = 100
PADDING = "n" * 105
"""A topic name of the review: 110 characters and more."""
Act = Callable[[grpc.aio.Channel, int], Coroutine[Any, Any, None]]
WIDE, NARROW, NOISY = "wide", "narrow", "noisy"
"""Of the history of the test: a topic of all brokers and one of some, a broker with more events than an answer has."""
PAGE_ASKERS = 4
REFUSED_SECONDS = 0.1
OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
    # With its probe gRPC widens the windows of flow control, and buffers megabytes that are not read.
    ("grpc.http2.bdp_probe", 0),
]


async def greedy(pipe: Connection, addr: str) -> None:
    """Obey the commands of :class:`Greedy` until the pipe ends."""
    async with AsyncExitStack() as stack:
        await serve_commands(pipe, Greedy(addr, stack).commands())


class Greedy:
    """All connections and streams of one greedy process."""

    def __init__(self, addr: str, stack: AsyncExitStack) -> None:
        self._addr = addr
        self._stack = stack
        self._calls = list[Any]()

    def commands(self) -> dict[str, Callable[..., Coroutine[Any, Any, Any]]]:
        """Its commands."""
        return {
            "watches": self._watches,
            "topics": self._topics,
            "brokers": self._brokers,
            "silent": self._silent,
            "keep_alives": self._keep_alives,
            "health": self._health,
            "knock": self._knock,
            "stay_silent": self._stay_silent,
            "widen": self._widen,
            "stall": self._stall,
            "ask_the_past": self._ask_the_past,
        }

    async def _channel(self) -> grpc.aio.Channel:
        return await self._stack.enter_async_context(grpc.aio.insecure_channel(self._addr, options=OPTIONS))

    async def _each(self, count: int, act: Act, share: int = STREAMS_A_CONNECTION) -> int:
        """Do something ``count`` times, over as many connections as that needs; return how often it was served."""
        served, channels = 0, [await self._channel() for _ in range(-(-count // share))]
        for start in range(0, count, BATCH):
            numbers = range(start, min(start + BATCH, count))
            made = await asyncio.gather(
                *(act(channels[number // share], number) for number in numbers), return_exceptions=True
            )
            served += sum(not isinstance(result, BaseException) for result in made)
        return served

    async def _watches(self, count: int, topics: int) -> int:
        async def watch(channel: grpc.aio.Channel, number: int) -> None:
            # One message is read, and nothing after it.
            call = _watching(channel)(watch_request(number, topics))
            self._calls.append(call)
            assert await call.read() is not grpc.aio.EOF

        return await self._each(count, watch)

    async def _widen(self, brokers: int, queues: int) -> int:
        """Register a topic on ``brokers`` brokers."""

        async def register(channel: grpc.aio.Channel, number: int) -> None:
            await self._register(channel, f"{'w' * 60}-{number}", 30_000 + number, [wire.topic("wide", queues)])

        return await self._each(brokers, register)

    async def _stall(self, count: int) -> int:
        """Watch that topic, and read nothing."""
        request = WatchTopicRoutesRequest(topics=[KnownRoute(topic="wide")]).SerializeToString()
        return await self._open_streams(count, lambda channel: _watching(channel)(request), STALLED_A_CONNECTION)

    async def _topics(self, brokers: int, topics: int) -> int:
        served, channel = 0, await self._channel()
        for number in range(brokers):
            entries = [wire.topic(f"{number}-{PADDING}{i}") for i in range(topics)]
            await self._register(channel, f"many-{number}", 20_000 + number, entries)
            served += 1
        return served

    async def _brokers(self, count: int) -> int:
        async def register(channel: grpc.aio.Channel, number: int) -> None:
            await self._register(channel, f"{'b' * 60}-{number}", number + 1, [])

        return await self._each(count, register)

    async def _register(self, channel: grpc.aio.Channel, name: str, port: int, topics: list[Any]) -> None:
        who = wire.identity(name=name, addr=f"10.0.{port >> 15}.1:{port % 32_768 + 1}", cluster="greedy")
        chunks = [c.SerializeToString() for c in wire.registration(*topics, who=who, heartbeat=300, expiry=900)]

        async def send() -> AsyncIterator[bytes]:
            for chunk in chunks:
                yield chunk

        register: Any = channel.stream_unary(REGISTER)
        RegisterBrokerResponse.FromString(await register(send(), timeout=60))

    async def _silent(self, count: int) -> int:
        return await self._open_streams(count, lambda channel: channel.stream_unary(REGISTER)())

    async def _keep_alives(self, count: int) -> int:
        return await self._open_streams(count, lambda channel: channel.stream_stream(KEEP_ALIVE)())

    async def _health(self, count: int) -> int:
        return await self._open_streams(count, lambda channel: _watching(channel, HEALTH)(b""))

    async def _open_streams(
        self, count: int, call: Callable[[grpc.aio.Channel], Any], share: int = STREAMS_A_CONNECTION
    ) -> int:
        async def open_one(channel: grpc.aio.Channel, _: int) -> None:
            opened = call(channel)
            self._calls.append(opened)
            await opened.wait_for_connection()

        return await self._each(count, open_one, share)

    async def _knock(self, seconds: float, a_second: int, topics: int) -> dict[str, int]:
        """Open watches at a steady pace; return how each ended, or that it was served."""
        channel, ends, number = await self._channel(), dict[str, int](), 1_000_000
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            call = _watching(channel)(watch_request(number, topics))
            number += 1
            try:
                await call.read()
                end = "served"
                self._calls.append(call)
            except grpc.aio.AioRpcError as error:
                end = error.code().name
            ends[end] = ends.get(end, 0) + 1
            await asyncio.sleep(1 / a_second)
        return ends

    async def _stay_silent(self, seconds: float, connections: int) -> int:
        """Open as many silent registration streams as the connections allow; return how many were opened."""
        channels, opened = [await self._channel() for _ in range(connections)], 0
        until = time.monotonic() + seconds

        async def keep(channel: grpc.aio.Channel) -> None:
            nonlocal opened
            while (left := until - time.monotonic()) > 0:
                call: Any = channel.stream_unary(REGISTER)()
                opened += 1
                try:
                    async with asyncio.timeout(left):
                        await call
                except (grpc.aio.AioRpcError, TimeoutError):
                    call.cancel()
                    await asyncio.sleep(0.05)

        await asyncio.gather(*(keep(channel) for channel in channels for _ in range(STREAMS_A_CONNECTION)))
        return opened

    async def _ask_the_past(self, seconds: float, askers: int, at: str, port: int) -> dict[str, int]:
        """Ask large questions about a moment without pause, over gRPC and as pages; return how each ended.

        After a refusal they pause only so that its own rate is not what is measured.
        """
        ends, until = Counter[str](), time.monotonic() + seconds
        asked = list(_large_questions(datetime.fromisoformat(at)))

        async def over_grpc(number: int) -> None:
            stub = AdminServiceStub(await self._channel())
            for kind, request in cycle([*asked[number % len(asked) :], *asked[: number % len(asked)]]):
                if time.monotonic() > until:
                    return
                try:
                    await getattr(stub, kind)(request, timeout=60)
                    ends[kind] += 1
                except grpc.aio.AioRpcError as error:
                    details = read_status(rpc_status.from_call(error))
                    wait = float(details.facts.get("retry_after_seconds", "0"))
                    end = f"{error.code().name} {details.code or error.details()}"
                    ends[f"{end} with a time" if wait >= 1 else end] += 1
                    await asyncio.sleep(REFUSED_SECONDS)

        async def as_pages() -> None:
            while time.monotonic() < until:
                answer = await ask(port, f"/?at={at.replace('+', '%2B')}")
                wait = int(answer.headers.get("Retry-After", "0"))
                ends[f"page {answer.status}{' with a time' if wait >= 1 else ''}"] += 1
                if wait:
                    await asyncio.sleep(REFUSED_SECONDS)

        await asyncio.gather(*map(over_grpc, range(askers)), *(as_pages() for _ in islice(range(askers), PAGE_ASKERS)))
        return dict(ends)


def _large_questions(at: datetime) -> Iterator[tuple[str, Message]]:
    """Yield a call of the AdminService, and its request, for each kind of question."""
    route = admin.GetPastRouteRequest(topic=WIDE)
    few = admin.GetPastRouteRequest(topic=NARROW)
    broker = admin.GetPastBrokerRequest(broker_name=NOISY, limit=1_000)
    for request in (route, few, broker):
        request.at.FromDatetime(at)
    events, changes = admin.ListPastEventsRequest(page_size=1_000), admin.ListChangesRequest(page_size=1_000)
    for listed in (events, changes):
        listed.until.FromDatetime(at)
    yield from (("GetPastRoute", route), ("GetPastRoute", few), ("GetPastBroker", broker))
    yield from (("ListPastEvents", events), ("ListChanges", changes))


def _watching(channel: grpc.aio.Channel, method: str = WATCH) -> Any:  # bytes to bytes
    return channel.unary_stream(method)


def watch_request(number: int, topics: int) -> bytes:
    """A watch of topics without a route."""
    names = [KnownRoute(topic=f"{number}-{PADDING}{i}") for i in range(topics)]
    return WatchTopicRoutesRequest(topics=names).SerializeToString()
