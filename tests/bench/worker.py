"""The processes of a bench: measured servers and clients that load them, each with commands over a pipe."""

from __future__ import annotations

import asyncio
import functools
import inspect
import multiprocessing
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from typing import Any, Concatenate, ParamSpec

import uvloop

ANSWER_SECONDS = 180.0
STOP_SECONDS = 20.0

P = ParamSpec("P")
Commands = Mapping[str, Callable[..., Any]]
Main = Callable[Concatenate[Connection, P], Coroutine[Any, Any, None]]


class Worker:
    """A process that obeys, as its owner sees it."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._begun: asyncio.Future[Any] | None = None

    async def ask(self, command: str, *arguments: object) -> Any:
        """Run a command in it and return the result. Raises EOFError when the process has exited, TimeoutError."""
        return await self.begin(command, *arguments)

    def begin(self, command: str, *arguments: object) -> asyncio.Future[Any]:
        """Start a command in it; the result must be awaited before the next command."""
        self._pipe.send((command, arguments))
        self._begun = asyncio.ensure_future(asyncio.to_thread(self._answer, command))
        return self._begun

    def request_stop(self) -> None:
        """Send the stop command, if the process still runs."""
        try:
            self._pipe.send(("stop", ()))
        except OSError:
            return

    async def close(self) -> None:
        """Close the pipe, after the process has exited: a failed test may have left a command without its result."""
        if self._begun is not None:
            await asyncio.gather(self._begun, return_exceptions=True)
        self._pipe.close()

    def _answer(self, command: str) -> Any:
        if not self._pipe.poll(ANSWER_SECONDS):
            raise TimeoutError(f"no response to {command!r} within {ANSWER_SECONDS:.0f} s")
        return self._pipe.recv()


@asynccontextmanager
async def worker(main: Main[P], *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[Worker]:
    """Run ``main(pipe, *args, **kwargs)`` in a separate process during the block."""
    ours, theirs = multiprocessing.Pipe()
    run = functools.partial(_run, main, theirs, *args, **kwargs)
    process = multiprocessing.get_context("spawn").Process(target=run, daemon=True)
    process.start()
    theirs.close()
    peer = Worker(ours)
    try:
        yield peer
    finally:
        peer.request_stop()
        await asyncio.to_thread(process.join, STOP_SECONDS)
        process.kill()
        await asyncio.to_thread(process.join)  # one with a hundred thousand calls does not end within STOP_SECONDS
        await peer.close()


async def serve_commands(pipe: Connection, commands: Commands) -> None:
    """Serve commands from the pipe until "stop", or until its other end is closed."""
    while True:
        try:
            command, arguments = await asyncio.to_thread(pipe.recv)
        except EOFError:
            return
        if command == "stop":
            return
        answer = commands[command](*arguments)
        pipe.send(await answer if inspect.isawaitable(answer) else answer)


def _run(main: Main[P], pipe: Connection, *args: P.args, **kwargs: P.kwargs) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(pipe, *args, **kwargs))
