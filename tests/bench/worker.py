"""The processes of a bench: servers that are measured and clients that load them, each told what to do over a pipe."""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from typing import Any

import uvloop

ANSWER_SECONDS = 120.0
STOP_SECONDS = 20.0

Commands = Mapping[str, Callable[..., Any]]
Main = Callable[..., Coroutine[Any, Any, None]]


class Worker:
    """A process that obeys, as its owner sees it."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    async def ask(self, command: str, *arguments: object) -> Any:
        """Let it do something and return its answer. Raises EOFError when it died, TimeoutError."""
        return await self.begin(command, *arguments)

    def begin(self, command: str, *arguments: object) -> asyncio.Future[Any]:
        """Let it do something; the answer must be awaited before it is asked for more."""
        self._pipe.send((command, arguments))
        return asyncio.ensure_future(asyncio.to_thread(self._answer, command))

    def tell_to_stop(self) -> None:
        """Let it end, if it is still there."""
        try:
            self._pipe.send(("stop", ()))
        except OSError:
            return

    def _answer(self, command: str) -> Any:
        if not self._pipe.poll(ANSWER_SECONDS):
            raise TimeoutError(f"no answer to {command!r} within {ANSWER_SECONDS:.0f} s")
        return self._pipe.recv()


@asynccontextmanager
async def worker(main: Main, *arguments: object) -> AsyncIterator[Worker]:
    """Run ``main(pipe, *arguments)`` in a process of its own for the length of the block."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(main, theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    peer = Worker(ours)
    try:
        yield peer
    finally:
        peer.tell_to_stop()
        await asyncio.to_thread(process.join, STOP_SECONDS)
        process.kill()


async def obey(pipe: Connection, commands: Commands) -> None:
    """Answer what comes through the pipe until told to stop, or until nobody is at its other end."""
    while True:
        try:
            command, arguments = await asyncio.to_thread(pipe.recv)
        except EOFError:
            return
        if command == "stop":
            return
        answer = commands[command](*arguments)
        pipe.send(await answer if inspect.isawaitable(answer) else answer)


def _run(main: Main, pipe: Connection, *arguments: object) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(pipe, *arguments))
