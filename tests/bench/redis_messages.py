"""Messages per second through the Redis transport, against bare redis-py doing the same XADD and XREAD, in one run."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.utils import HIREDIS_AVAILABLE

from pointsman.redis_queues import id_before, stream_key
from pointsman_client.core.message import Message, OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.stream_entry import to_fields
from pointsman_client.ports.transport import Reader, Transport
from pointsman_client.redis_streams import RedisStreamsTransport
from tests.bench.report import Report
from tests.kit.broker.redis.process import HOST, RedisProcess, redis_process

ROUNDS = 7
ROUND_SECONDS = 0.7
MESSAGES = 20_000
"""In a queue that is consumed."""
BATCH = 32
WAIT_SECONDS = 0.1
"""Short: a round ends when the last wait does."""
TARGET = 0.7
TIMEOUT_SECONDS = 10.0
READER = Reader("bench")

OUTGOING = OutgoingMessage(
    Message("orders", b"x" * 256, "paid", ("order-4711",)), "01JD8B7Z6Q3M5N8K2T4V", datetime(2026, 1, 1, tzinfo=UTC)
)

Load = Callable[[float], Awaitable[int]]
"""Run until that time of the monotonic clock; return how many messages."""


@dataclass(frozen=True)
class _Rival:
    ours: Load
    bare: Load


async def measure(report: Report) -> None:
    """Print the ratios."""
    parser = "hiredis" if HIREDIS_AVAILABLE else "its parser in Python"
    report.subject(f"Messages through Redis, as a share of bare redis-py with {parser}; one process, uvloop")
    with tempfile.TemporaryDirectory() as folder:
        async with redis_process(Path(folder), options=("--appendfsync", "everysec")) as server:
            transport, bare = RedisStreamsTransport(), Redis(host=HOST, port=server.port, max_connections=64)
            try:
                for title, rival in (await _rivals(server, transport, bare)).items():
                    report.progress(title)
                    await _compare(report, title, rival)
            finally:
                await transport.close()
                await bare.aclose()


async def _rivals(server: RedisProcess, transport: Transport, bare: Redis) -> dict[str, _Rival]:
    queues = [MessageQueue("orders", "c1", "a", number) for number in range(16)]
    live = [MessageQueue("live", "c1", "a", number) for number in range(16)]
    for queue in queues:
        for _ in range(MESSAGES // 500):
            await transport.send(server.addr, queue, [OUTGOING] * 500, timeout_seconds=TIMEOUT_SECONDS)
    for queue in live:
        await transport.send(server.addr, queue, [OUTGOING], timeout_seconds=TIMEOUT_SECONDS)
    write = MessageQueue("written", "c1", "a", 0)
    fields = to_fields(OUTGOING, "written")
    fields_by_name: dict[Any, Any] = dict(zip(fields[::2], fields[1::2], strict=True))

    async def send(queue: MessageQueue) -> int:
        await transport.send(server.addr, queue, [OUTGOING], timeout_seconds=TIMEOUT_SECONDS)
        return 1

    async def add(queue: MessageQueue) -> int:
        key = stream_key(queue.topic, queue.queue_id)
        await bare.xadd(key, fields_by_name, id="0-*", maxlen=1_000_000, approximate=True)
        return 1

    def pull(queue: MessageQueue) -> Callable[[], Awaitable[int]]:
        offset = 0

        async def once() -> int:
            nonlocal offset
            pulled = await transport.pull(
                server.addr,
                queue,
                offset,
                max_messages=BATCH,
                wait_seconds=0.0,
                timeout_seconds=TIMEOUT_SECONDS,
                reader=READER,
            )
            offset = 0 if pulled.next_offset >= MESSAGES else pulled.next_offset
            return len(pulled.messages)

        return once

    def read(queue: MessageQueue) -> Callable[[], Awaitable[int]]:
        key, offset = stream_key(queue.topic, queue.queue_id), 0

        async def once() -> int:
            nonlocal offset
            answer: Any = await bare.xread({key: id_before(offset)}, count=BATCH)
            ((_, entries),) = answer
            offset = 0 if offset + len(entries) >= MESSAGES else offset + len(entries)
            return len(entries)

        return once

    return {
        "produced by one task": _Rival(_repeat([lambda: send(write)]), _repeat([lambda: add(write)])),
        "produced by 32 tasks": _Rival(_repeat([lambda: send(write)] * 32), _repeat([lambda: add(write)] * 32)),
        "consumed from one queue": _Rival(_repeat([pull(queues[0])]), _repeat([read(queues[0])])),
        "consumed from 16 queues": _Rival(_repeat([*map(pull, queues)]), _repeat([*map(read, queues)])),
        "produced and waited for, 16 queues": _Rival(
            _live(live, send, lambda queue: _follow(transport, server.addr, queue)),
            _live(live, add, lambda queue: _follow_bare(bare, queue)),
        ),
    }


def _repeat(calls: Sequence[Callable[[], Awaitable[int]]]) -> Load:
    """Run a task per call, which repeats it."""

    async def run(until: float) -> int:
        async def one(call: Callable[[], Awaitable[int]]) -> int:
            count = 0
            while time.monotonic() < until:
                count += await call()
            return count

        return sum(await asyncio.gather(*map(one, calls)))

    return run


_Follower = Callable[[MessageQueue], Awaitable[Callable[[], Awaitable[int]]]]


def _live(queues: Sequence[MessageQueue], add: Callable[[MessageQueue], Awaitable[int]], follow: _Follower) -> Load:
    """One task writes to the queues in turn, as fast as messages are read; one task per queue waits and reads."""

    async def run(until: float) -> int:
        count = 0
        room = asyncio.Semaphore(64)

        async def reader(once: Callable[[], Awaitable[int]]) -> None:
            nonlocal count
            while time.monotonic() < until:
                came = await once()
                count += came
                for _ in range(came):
                    room.release()

        tasks = [asyncio.create_task(reader(await follow(queue))) for queue in queues]
        for queue in itertools.cycle(queues):
            if time.monotonic() >= until:
                break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(asyncio.get_running_loop().time() + until - time.monotonic()):
                    await room.acquire()
            await add(queue)
        await asyncio.gather(*tasks)
        return count

    return run


async def _follow(transport: Transport, addr: str, queue: MessageQueue) -> Callable[[], Awaitable[int]]:
    offset = await transport.max_offset(addr, queue, timeout_seconds=TIMEOUT_SECONDS)

    async def once() -> int:
        nonlocal offset
        pulled = await transport.pull(
            addr,
            queue,
            offset,
            max_messages=BATCH,
            wait_seconds=WAIT_SECONDS,
            timeout_seconds=TIMEOUT_SECONDS,
            reader=READER,
        )
        offset = pulled.next_offset
        return len(pulled.messages)

    return once


async def _follow_bare(bare: Redis, queue: MessageQueue) -> Callable[[], Awaitable[int]]:
    key = stream_key(queue.topic, queue.queue_id)
    after = (await bare.xinfo_stream(key))["last-generated-id"]

    async def once() -> int:
        nonlocal after
        answer: Any = await bare.xread({key: after}, count=BATCH, block=int(1000 * WAIT_SECONDS))
        if not answer:
            return 0
        ((_, entries),) = answer
        after = entries[-1][0]
        return len(entries)

    return once


async def _compare(report: Report, title: str, rival: _Rival) -> None:
    costs: dict[str, list[tuple[float, float]]] = {"ours": [], "bare": []}
    for number in range(ROUNDS + 1):
        for name in ("ours", "bare")[:: 1 if number % 2 else -1]:
            load = rival.ours if name == "ours" else rival.bare
            cpu, wall = time.process_time(), time.monotonic()
            messages = await load(wall + ROUND_SECONDS)
            cpu, wall = time.process_time() - cpu, time.monotonic() - wall
            if number:
                costs[name].append((cpu / messages, wall / messages))
    for at, kind in enumerate(("per CPU second", "per second")):
        ours, bare = ([cost[at] for cost in costs[name]] for name in ("ours", "bare"))
        ratio = statistics.median(b / o for o, b in zip(ours, bare, strict=True))
        figures = f"{ratio:.2f} ({1 / statistics.median(ours):,.0f} against {1 / statistics.median(bare):,.0f})"
        report.figure(f"{title}, {kind}", figures, target=f">= {TARGET}", is_met=ratio >= TARGET)
