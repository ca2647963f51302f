"""``python -m tests.architecture.walks``: how many files and functions of ours six calls cross, counted as they run.

Counted with ``sys.setprofile`` on the real objects, warm. A route query and a unary heartbeat: from the gRPC handler to
the bytes of the answer, over a real connection, by grpcio's server, so that HTTP/2 is not counted; a RocketMQ query:
from its frame to that of the answer. A watch's change: from the hub, which finds it, to the bytes of one watcher. A
history row: from the event to its line on the disk. A send: from the call to its result, to a broker in memory. Not
counted are generated code (stubs, what dataclasses make), comprehensions, and what moves the manual clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType

import grpc.aio

from pointsman.daemon.rpc.listeners import GRPCIO
from pointsman.manual_clock import ManualClock
from pointsman.names import split_addr
from pointsman.rocketmq.codes import RequestCode as Code
from pointsman_client import Message, Producer
from pointsman_client.memory import MemoryTransport
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import RemotingConfig
from pointsman_namesrv.history.history_files import HistoryFiles
from pointsman_namesrv.history.recorder import Recorder
from pointsman_namesrv.node_metrics import Metrics
from tests.bench import messages
from tests.kit.broker.rocketmq import frames as rocketmq_frames
from tests.kit.history import rows as history_rows
from tests.kit.name_server import events
from tests.kit.name_server.in_process import running_name_server
from tests.kit.waiting import eventually

ROOT = Path(__file__).parents[2]
NAME_SERVER = (ROOT / "namesrv", ROOT / "proto")
CLIENT = (ROOT / "client", ROOT / "proto")
GENERATED = ROOT / "proto" / "pointsman" / "v1"
CLOCK = ROOT / "proto" / "pointsman" / "manual_clock.py"
SECONDS = 20.0
STEP = 0.05
"""Changes of a watch are collected for this time, seconds."""
LIMITS = {
    "route query": (5, 8),
    "unary heartbeat": (10, 32),
    "RocketMQ query": (6, 13),
    "watch's change": (14, 41),
    "history row": (8, 25),
    "send": (15, 40),
}
"""Maximum of files and functions."""


class Walk:
    """The functions of some folders that a call enters, in the order of their first entry."""

    def __init__(self, *folders: Path) -> None:
        self._folders = tuple(f"{folder}/" for folder in folders)
        self._is_recording = False
        self.functions: dict[CodeType, None] = {}

    @property
    def files(self) -> list[str]:
        """Their files, in the order of first entry."""
        return list(dict.fromkeys(code.co_filename for code in self.functions))

    async def of(self, call: Callable[[], Awaitable[object]]) -> Walk:
        """Record the calls in this thread, and in those of :meth:`threads`, until this one is over."""
        self._is_recording = True
        sys.setprofile(self._note)
        try:
            await call()
        finally:
            sys.setprofile(None)
            self._is_recording = False
        return self

    @contextlib.contextmanager
    def threads(self) -> Iterator[None]:
        """Include the threads that start in the block."""
        threading.setprofile(self._note)
        try:
            yield
        finally:
            threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not self._is_recording:
            return
        code = frame.f_code
        is_ours = code.co_filename.startswith(self._folders) and not code.co_filename.startswith(f"{GENERATED}/")
        is_named = not code.co_name.startswith("<") or code.co_name == "<lambda>"
        moves_clock = code.co_filename == str(CLOCK) and code.co_name not in {"monotonic", "utc_now", "sleep"}
        if is_ours and is_named and not moves_clock:
            self.functions[code] = None


async def measure() -> dict[str, Walk]:
    """Each walk, by name."""
    async with contextlib.AsyncExitStack() as stack:
        clock, remoting = ManualClock(), RemotingConfig(listen="127.0.0.1:0")
        server = await stack.enter_async_context(running_name_server(clock=clock, remoting=remoting, listener=GRPCIO))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.addr))
        generation = await messages.register(channel, messages.registration(1, topics=1))
        query, beat = messages.query("topic-0"), messages.beat(1, generation)
        ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(messages.ROUTE)
        heartbeat: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(messages.HEARTBEAT)
        for _ in range(2):
            await asyncio.gather(ask(query), heartbeat(beat))
        walks = {
            "route query": await Walk(*NAME_SERVER).of(lambda: ask(query)),
            "unary heartbeat": await Walk(*NAME_SERVER).of(lambda: heartbeat(beat)),
            "RocketMQ query": await _rocketmq_query(server),
            "watch's change": await _watched_change(channel, clock, generation),
        }
        producer = await stack.enter_async_context(Producer([server.addr], transport=MemoryTransport))
        message = Message("topic-0", b"4711")
        for _ in range(8):  # each of the topic's queues has had a message
            await producer.send(message)
        walks["send"] = await Walk(*CLIENT).of(lambda: producer.send(message))
    # While a loaded machine writes a row late, the tasks of a name server would run beside it.
    return {**walks, "history row": await _history_row(clock)}


async def _rocketmq_query(server: NameServerApp) -> Walk:
    reader, writer = await asyncio.open_connection(*split_addr(server.remoting_addr))
    query = rocketmq_frames.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "topic-0"})

    async def answered() -> bytes:
        writer.write(query)
        async with asyncio.timeout(SECONDS):
            return await reader.read(65_536)

    for _ in range(2):
        await answered()
    walk = await Walk(*NAME_SERVER).of(answered)
    writer.close()
    await writer.wait_closed()
    return walk


async def _watched_change(channel: grpc.aio.Channel, clock: ManualClock, generation: int) -> Walk:
    topic = messages.ChangingTopic(channel, 1, generation)
    follow: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(messages.WATCH)
    watch = follow(messages.watch("topic-0"))

    async def sent() -> object:
        await clock.advance(STEP)
        async with asyncio.timeout(SECONDS):
            return await watch.read()

    async with asyncio.timeout(SECONDS):
        await watch.read()  # the route
    for _ in range(2):
        await clock.advance(math.ceil(clock.now) + 0.2 - clock.now)  # periodic tasks run at each half second
        await topic.change()
        walk = await Walk(*NAME_SERVER).of(sent)
    watch.cancel()
    return walk


async def _history_row(clock: ManualClock) -> Walk:
    walk = Walk(*NAME_SERVER)
    with tempfile.TemporaryDirectory() as folder, walk.threads():
        files = HistoryFiles(Path(folder), node="n:1", boot_id="b")
        metrics = Metrics()
        recorder = Recorder(
            files, node="n:1", boot_id="b", clock=clock, metrics=metrics, queue_rows=100, queue_bytes=2**20
        )
        recorder.start()

        async def written(rows: int) -> None:
            recorder.record([events.broker_event()])
            await eventually(lambda: len(history_rows.rows_in(Path(folder))) >= rows, seconds=SECONDS)

        await written(1)
        await walk.of(lambda: written(2))
        recorder.stop(timeout=SECONDS)
    return walk


def main() -> int:
    """Print each walk; 1 if one crosses more than its limit."""
    is_over = False
    for name, walk in asyncio.run(measure()).items():
        found = (len(walk.files), len(walk.functions))
        limits = LIMITS[name]
        is_over |= any(number > limit for number, limit in zip(found, limits, strict=True))
        print(f"{name}: {found[0]} files, {found[1]} functions (at most {limits[0]} and {limits[1]})")
        if "-v" in sys.argv:
            for code in walk.functions:
                print(f"    {Path(code.co_filename).relative_to(ROOT)}  {code.co_qualname}")
    return int(is_over)


if __name__ == "__main__":
    sys.exit(main())
