"""Client processes: watchers, agents with heartbeats, a broker that re-registers repeatedly, steady route queries.

The process that runs the bench sends them commands (see worker.py). Their times are on the monotonic clock, which the
processes of one machine share.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from multiprocessing.connection import Connection

import grpc

from pointsman.v1.registration_service_pb2 import BEAT_STATUS_OK, KeepAliveResponse
from pointsman.wire.channel_options import CHANNEL_OPTIONS, KEEPALIVE_OPTIONS
from tests.bench import messages
from tests.bench.worker import serve_commands

STREAMS_A_CONNECTION = 400
CONCURRENT_CALLS = 100
"""Concurrent calls of one process."""
FIRST_ANSWERS = 2
"""Responses at the start of a watch of one topic: its route, and the end of the first state."""

_Stream = grpc.aio.StreamStreamCall[bytes, bytes]


async def watchers(pipe: Connection, addr: str, count: int) -> None:
    """Open ``count`` watches of ``topic-0``."""
    watching = _Watching()
    channels = _channels(addr, count, KEEPALIVE_OPTIONS)

    async def open_all() -> None:
        await _gather(functools.partial(watching.open, channels[i % len(channels)]) for i in range(count))

    await serve_commands(pipe, {"open": open_all, "last": watching.last_of})
    await watching.close()
    for channel in channels:
        await channel.close()


class _Watching:
    """Open watches, and when each update had reached the last of them."""

    def __init__(self) -> None:
        self._reading: list[asyncio.Task[None]] = []
        self._received: dict[int, int] = {}
        self._last: dict[int, float] = {}
        self._complete = asyncio.Condition()

    async def open(self, channel: grpc.aio.Channel) -> None:
        """Open one more; return when it has its first state."""
        watch: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(messages.WATCH)
        stream = watch(messages.watch(messages.topic_name(0)))
        for _ in range(FIRST_ANSWERS):
            assert isinstance(await stream.read(), bytes), "the watch ended"
        self._reading.append(asyncio.create_task(self._read(stream)))

    async def last_of(self, number: int) -> float:
        """Wait until update ``number``, from 1, has reached the last watcher; return when, in monotonic seconds."""
        async with self._complete:
            await self._complete.wait_for(lambda: number in self._last)
        return self._last[number]

    async def close(self) -> None:
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)

    async def _read(self, stream: grpc.aio.UnaryStreamCall[bytes, bytes]) -> None:
        number = 0
        while isinstance(await stream.read(), bytes):
            number += 1
            count = self._received[number] = self._received.get(number, 0) + 1
            if count == len(self._reading):
                self._last[number] = time.monotonic()
                async with self._complete:
                    self._complete.notify_all()


async def agents(pipe: Connection, addr: str, first: int, count: int, interval: int) -> None:
    """Register ``count`` brokers with one topic each; spread their heartbeats evenly over the interval (seconds)."""
    fleet = _Fleet(_channels(addr, count, ()), first, interval)

    async def register() -> None:
        await _gather(functools.partial(fleet.register, first + i) for i in range(count))

    await serve_commands(
        pipe, {"register": register, "begin": fleet.begin, "beats": lambda: (fleet.beats, fleet.refused)}
    )
    await fleet.close()


class _Fleet:
    def __init__(self, channels: list[grpc.aio.Channel], first: int, interval: int) -> None:
        self.beats = self.refused = 0
        self._channels = channels
        self._first = first
        self._interval = interval
        self._streams: dict[int, tuple[_Stream, bytes]] = {}
        self._beating: list[asyncio.Task[None]] = []

    async def register(self, number: int) -> None:
        """Register one broker and open its stream with a first heartbeat."""
        channel = self._channels[number % len(self._channels)]
        chunks = messages.registration(number, topics=1, heartbeat=self._interval, expiry=4 * self._interval)
        beat = messages.beat(number, await messages.register(channel, chunks))
        keep_alive: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(messages.KEEP_ALIVE)
        self._streams[number] = keep_alive(), beat
        await self._beat(number)

    def begin(self) -> None:
        """Start the heartbeats."""
        start = time.monotonic()
        for i, number in enumerate(self._streams):
            first_at = start + self._interval * i / len(self._streams)
            self._beating.append(asyncio.create_task(self._beat_for_ever(number, first_at)))

    async def close(self) -> None:
        for task in self._beating:
            task.cancel()
        await asyncio.gather(*self._beating, return_exceptions=True)
        for channel in self._channels:
            await channel.close()

    async def _beat_for_ever(self, number: int, due: float) -> None:
        while True:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            await self._beat(number)
            due += self._interval

    async def _beat(self, number: int) -> None:
        stream, beat = self._streams[number]
        await stream.write(beat)
        answer = await stream.read()
        self.beats += 1
        is_ok = isinstance(answer, bytes) and KeepAliveResponse.FromString(answer).answer.status == BEAT_STATUS_OK
        self.refused += not is_ok


async def registrars(pipe: Connection, addr: str, first: int, count: int, topics: int) -> None:
    """Run ``count`` brokers with ``topics`` topics each, which register together."""
    sets = [messages.registration(number, topics) for number in range(first, first + count)]
    async with AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(addr, options=CHANNEL_OPTIONS)) for _ in sets
        ]

        async def register() -> None:
            await asyncio.gather(*map(messages.register, channels, sets))

        await serve_commands(pipe, {"register": register})


async def changing_registrar(pipe: Connection, addr: str, topics: int, changed_of: int) -> None:
    """Run a broker with ``topics`` topics, every ``changed_of``-th of which changes with each registration."""
    versions = [messages.registration(0, topics, version=version, changed_of=changed_of) for version in (1, 2)]
    async with grpc.aio.insecure_channel(addr, options=CHANNEL_OPTIONS) as channel:

        async def register(seconds: float, a_second: float) -> int:
            """Register with changes ``a_second`` times per second; return how many were accepted."""
            started, running = time.monotonic(), []
            for number in range(round(seconds * a_second)):
                await asyncio.sleep(max(0.0, started + number / a_second - time.monotonic()))
                running.append(asyncio.create_task(messages.register(channel, versions[number % 2])))
            return len(await asyncio.gather(*running))

        await serve_commands(pipe, {"register": register})


async def querier(pipe: Connection, addr: str, topics: int) -> None:
    """Query ``topics`` topics in turn, at a steady rate."""
    queries = [messages.query(messages.topic_name(i)) for i in range(topics)]
    async with grpc.aio.insecure_channel(addr, options=(*CHANNEL_OPTIONS, *KEEPALIVE_OPTIONS)) as channel:
        ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(messages.ROUTE)

        async def one(number: int) -> float:
            started = time.monotonic()
            await ask(queries[number * 37 % topics], timeout=messages.CALL_SECONDS)
            return time.monotonic() - started

        async def latencies(seconds: float, a_second: float) -> list[float]:
            """Return the latency of each query in seconds; the next one does not wait for it."""
            started, running = time.monotonic(), []
            for number in range(round(seconds * a_second)):
                await asyncio.sleep(max(0.0, started + number / a_second - time.monotonic()))
                running.append(asyncio.create_task(one(number)))
            return await asyncio.gather(*running)

        await serve_commands(pipe, {"latencies": latencies})


def _channels(addr: str, streams: int, options: tuple[tuple[str, int | str], ...]) -> list[grpc.aio.Channel]:
    count = -(-streams // STREAMS_A_CONNECTION)
    return [grpc.aio.insecure_channel(addr, options=(*CHANNEL_OPTIONS, *options)) for _ in range(count)]


async def _gather(calls: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Make all calls, CONCURRENT_CALLS at a time."""
    waiting = iter(calls)

    async def some() -> None:
        for call in waiting:
            await call()

    await asyncio.gather(*(some() for _ in range(CONCURRENT_CALLS)))
