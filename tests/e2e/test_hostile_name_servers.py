"""``pointsman-observe`` beside name servers that send anything: each is named with its problem, and one that behaves is
watched, in bounded memory."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pointsman.rocketmq.frames import ANSWER_FLAG, Command, FrameReader, encode, read_header
from tests.kit.broker.rocketmq.name_server import reply
from tests.kit.history.rows import rows_in
from tests.kit.name_server.observed import scripted_fleet
from tests.kit.waiting import eventually

pytestmark = pytest.mark.e2e

MOST_MEMORY = 200 * 1024
"""Kilobytes; a frame has at most 16 MB."""

Hostile = Callable[[asyncio.StreamWriter, Command], Awaitable[None]]


def brokers(count: int) -> bytes:
    table = {
        f"b{n}": {"brokerName": f"b{n}", "cluster": "c", "brokerAddrs": {"0": f"10.0.0.1:{n % 60_000 + 1}"}}
        for n in range(count)
    }
    return json.dumps({"brokerAddrTable": table}).encode()


NESTED = b'{"brokerAddrTable":' + b"[" * 500_000
MANY_BROKERS = brokers(100_000)
MANY_TOPICS = json.dumps({"topicList": [f"T{n}" for n in range(550_000)]}).encode()
ONE_BROKER = brokers(1)
NEGATIVE = ONE_BROKER.replace(b'{"0"', b'{"-1"')


def frame_of(length: int) -> bytes:
    """The start of a frame with a body of this length, which answers the first request."""
    whole = encode(Command(code=0, opaque=1, flag=ANSWER_FLAG))
    return (len(whole) - 4 + length).to_bytes(4, "big") + whole[4:]


async def garbage(writer: asyncio.StreamWriter, _: Command) -> None:
    writer.write(b"\xff\xfe\xfd" * 1_000)


async def endless_body(writer: asyncio.StreamWriter, _: Command) -> None:
    writer.write(frame_of(15 * 1024 * 1024))
    while not writer.is_closing():
        writer.write(bytes(64 * 1024))
        await writer.drain()
        await asyncio.sleep(0.05)


async def endless_frames(writer: asyncio.StreamWriter, _: Command) -> None:
    while not writer.is_closing():
        writer.write(encode(Command(code=905, opaque=7)) * 100)
        await writer.drain()


async def drip(writer: asyncio.StreamWriter, request: Command) -> None:
    for byte in reply(request, ONE_BROKER):
        if writer.is_closing():
            return
        writer.write(bytes([byte]))
        await asyncio.sleep(0.2)


async def other_opaque(writer: asyncio.StreamWriter, request: Command) -> None:
    writer.write(encode(Command(code=0, opaque=request.opaque + 1, flag=ANSWER_FLAG), ONE_BROKER))


async def half(writer: asyncio.StreamWriter, request: Command) -> None:
    writer.write(reply(request, ONE_BROKER)[:-10])
    await writer.drain()
    writer.close()


def body(of_brokers: bytes, of_topics: bytes = b'{"topicList":[]}') -> Hostile:
    async def send(writer: asyncio.StreamWriter, request: Command) -> None:
        writer.write(reply(request, of_brokers if request.code == 106 else of_topics))

    return send


async def an_error(writer: asyncio.StreamWriter, request: Command) -> None:
    writer.write(reply(request, code=1, remark="\x1b[31m" + "x" * 1_000))


NO_ANSWER = "no response to request 106 within 3 s"
HOSTILE: dict[str, tuple[Hostile, str]] = {
    "garbage": (garbage, r"cannot be read: a frame declares \d+ bytes"),
    "endless body": (endless_body, NO_ANSWER),
    "endless frames": (endless_frames, "sent 1001 frames and no response"),
    "drip": (drip, NO_ANSWER),
    "another opaque": (other_opaque, NO_ANSWER),
    "half a frame": (half, "closed the connection in the middle of a frame"),
    "100,000 brokers": (body(MANY_BROKERS), "at most 600000 are read"),
    "nesting": (body(NESTED), "is not JSON: nested too deeply"),
    "negative ids": (body(NEGATIVE), "id must be a number from 0 to"),
    "550,000 topics": (body(ONE_BROKER, MANY_TOPICS), "550000 topics are listed, at most 500000"),
    "an error": (an_error, r"request 106 failed with code 1: \[31mx{100,300} "),
}


@asynccontextmanager
async def serving(hostile: Hostile) -> AsyncIterator[str]:
    open_writers, tasks = set[asyncio.StreamWriter](), set[asyncio.Task[None]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_writers.add(writer)
        tasks.add(task)
        frames = FrameReader()
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                frames.feed(data)
                while (frame := frames.next()) is not None:
                    await hostile(writer, read_header(frame.form, frame.header))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        server.close()
        for writer in open_writers:
            writer.transport.abort()
        await asyncio.wait(tasks)


def most_memory(pid: int) -> int:
    return int(re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[0])


async def test_each_is_named_with_its_problem_and_one_that_behaves_is_watched_to_the_end(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        good = await stack.enter_async_context(scripted_fleet("T"))
        addrs = {name: await stack.enter_async_context(serving(each)) for name, (each, _) in HOSTILE.items()}
        words = [word for addr in (good.addr, *addrs.values()) for word in ("--namesrv", addr)]
        options = ("--history", tmp_path / "history", "--poll-seconds", "0.2", "--log-format", "json")
        with (tmp_path / "log").open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "pointsman_namesrv.observe", *words, *options, stderr=output
            )

        def named(addr: str, problem: str) -> bool:
            lines: list[dict[str, Any]] = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
            of_addr = [line for line in lines if line.get("name_server") == addr]
            return any(re.search(problem, f"{line.get('problem')} {line.get('entries')}") for line in of_addr)

        try:
            for name, (_, problem) in HOSTILE.items():
                found = partial(named, addrs[name], problem)
                await eventually(found, what=f"{name}: {problem}")
            before = len(good.asked)
            await eventually(lambda: len(good.asked) > before + 5)
            assert most_memory(process.pid) < MOST_MEMORY
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(60):
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    rows = [row for row in rows_in(tmp_path / "history") if row["node"] == good.addr]
    # A slow machine may miss a deadline of 3 s; that is a new run, and no broker has left.
    events = [row["event"] for row in rows]
    assert (events[0], events[-1], events.count("EXPIRED")) == ("NAMESRV_STARTED", "NAMESRV_STOPPED", 0)
    assert "\x1b" not in (tmp_path / "log").read_text()
