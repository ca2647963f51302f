"""``python -m tests.architecture.walks``: how many files and functions of ours three calls cross, counted as they run.

Counted with ``sys.setprofile`` on the real objects, warm. A route query and a unary heartbeat: from the gRPC handler to
the bytes of the answer, over a real connection. A send: from the call to its result, to a broker in memory. Not counted
are generated code (stubs, what dataclasses make) and comprehensions.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import CodeType, FrameType

import grpc.aio

from pointsman.manual_clock import ManualClock
from pointsman_client import Message, Producer
from pointsman_client.transports.memory import MemoryTransport
from tests.bench import messages
from tests.fakes.name_server import running_name_server

ROOT = Path(__file__).parents[2]
NAME_SERVER = (ROOT / "namesrv", ROOT / "proto")
CLIENT = (ROOT / "client", ROOT / "proto")
GENERATED = ROOT / "proto" / "pointsman" / "v1"
LIMITS = {"route query": (5, 9), "unary heartbeat": (10, None), "send": (17, 50)}
"""Maximum of files and functions; None: no limit."""


class Walk:
    """The functions of some folders that a call enters, in the order of their first entry."""

    def __init__(self, *folders: Path) -> None:
        self._folders = tuple(f"{folder}/" for folder in folders)
        self.functions: dict[CodeType, None] = {}

    @property
    def files(self) -> list[str]:
        """Their files, in the order of first entry."""
        return list(dict.fromkeys(code.co_filename for code in self.functions))

    async def of(self, call: Callable[[], Awaitable[object]]) -> Walk:
        """Record the calls in this thread until the block ends."""
        sys.setprofile(self._note)
        try:
            await call()
        finally:
            sys.setprofile(None)
        return self

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        is_ours = code.co_filename.startswith(self._folders) and not code.co_filename.startswith(f"{GENERATED}/")
        is_named = not code.co_name.startswith("<") or code.co_name == "<lambda>"
        if event == "call" and is_ours and is_named:
            self.functions[code] = None


async def measure() -> dict[str, Walk]:
    """Each walk, by name."""
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(running_name_server(clock=ManualClock()))
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
        }
        producer = await stack.enter_async_context(Producer([server.addr], transport=MemoryTransport))
        message = Message("topic-0", b"4711")
        for _ in range(8):  # each of the topic's queues has had a message
            await producer.send(message)
        return {**walks, "send": await Walk(*CLIENT).of(lambda: producer.send(message))}


def main() -> int:
    """Print each walk; 1 if one crosses more than its limit."""
    is_over = False
    for name, walk in asyncio.run(measure()).items():
        found = (len(walk.files), len(walk.functions))
        limits = LIMITS[name]
        is_over |= any(limit is not None and number > limit for number, limit in zip(found, limits, strict=True))
        print(f"{name}: {found[0]} files, {found[1]} functions (at most {limits[0]} and {limits[1] or 'any number'})")
        if "-v" in sys.argv:
            for code in walk.functions:
                print(f"    {Path(code.co_filename).relative_to(ROOT)}  {code.co_qualname}")
    return int(is_over)


if __name__ == "__main__":
    sys.exit(main())
