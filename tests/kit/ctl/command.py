"""``pointsmanctl`` in this process: the same command line, without the start of an interpreter."""

from __future__ import annotations

import asyncio
import concurrent.futures
import io
import json
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import pytest

from pointsman_ctl.command_line import run

T = TypeVar("T")
SOON = 30.0
OWN_VARIABLES = (
    "COLUMNS",
    "POINTSMAN_ACCESS_KEY_FILE",
    "POINTSMAN_NAMESRV",
    "POINTSMAN_REDIS_PASSWORD_FILE",
    "POINTSMAN_REDIS_TLS",
    "POINTSMAN_REDIS_USERNAME",
    "POINTSMAN_ROCKETMQ_TLS",
    "POINTSMAN_TLS",
    "POINTSMAN_TLS_CA",
    "POINTSMAN_TLS_CERTIFICATE",
    "POINTSMAN_TLS_KEY",
    "POINTSMAN_TLS_SERVER_NAME",
    "POINTSMAN_TOKEN_FILE",
)
"""Environment variables that change its output or its servers: unset unless a test sets them.

Readline, which pytest imports, sets COLUMNS for all processes that are started afterwards: xdist's workers have it.
"""

_one_at_a_time: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
"""Standard output is one in a process."""


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    code: int | None
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Its output as JSON."""
        return json.loads(self.out)


class Printed(io.StringIO):
    """A stream that is written in any thread and read line by line in the test's loop."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._written = asyncio.Event()
        self._taken = 0

    def write(self, text: str) -> int:
        """Append, and wake the reader."""
        count = super().write(text)
        self._loop.call_soon_threadsafe(self._written.set)
        return count

    async def line(self) -> str:
        """Wait for the next line."""
        async with asyncio.timeout(SOON):
            while "\n" not in self.rest():
                self._written.clear()
                await self._written.wait()
        line = self.rest().partition("\n")[0] + "\n"
        self._taken += len(line)
        return line

    def rest(self) -> str:
        """Output that was not read as a line."""
        return self.getvalue()[self._taken :]


class Terminal(io.StringIO):
    """Standard input of a terminal with typed text."""

    def isatty(self) -> bool:
        """Always true."""
        return True


class Command:
    """A running command: click in a thread, its calls in the test's loop, since ``grpc.aio`` supports only one."""

    def __init__(self, arguments: tuple[str, ...], env: Mapping[str, str], stdin: io.StringIO) -> None:
        self.out, self.err = Printed(), Printed()
        self._arguments = arguments
        self._env = env
        self._stdin = stdin
        self._loop = asyncio.get_running_loop()
        self._calls: asyncio.Task[Any] | None = None
        self._is_interrupted = False
        self._whole = asyncio.create_task(self._in_turn())

    async def ended(self) -> Ended:
        """Wait for its end."""
        code = await asyncio.shield(self._whole)
        return Ended(code, self.out.rest(), self.err.rest())

    async def interrupted(self) -> Ended:
        """End it as ``asyncio.run`` does at Ctrl-C."""
        self._is_interrupted = True
        if self._calls is not None:
            self._calls.cancel()
        return await self.ended()

    async def _in_turn(self) -> int:
        async with _one_at_a_time.setdefault(self._loop, asyncio.Lock()):
            return await asyncio.to_thread(self._run)

    def _run(self) -> int:
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(self.out), redirect_stderr(self.err):
            for name in OWN_VARIABLES:
                patch.delenv(name, raising=False)
            for name, value in self._env.items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdin", self._stdin)
            patch.setattr(asyncio, "run", self._run_in_loop)
            return run(self._arguments)

    def _run_in_loop(self, calls: Coroutine[Any, Any, T]) -> T:
        async def call() -> T:
            task: asyncio.Task[T] = asyncio.create_task(calls)
            self._calls = task
            if self._is_interrupted:
                task.cancel()
            return await task

        try:
            return asyncio.run_coroutine_threadsafe(call(), self._loop).result()
        except concurrent.futures.CancelledError:
            raise KeyboardInterrupt from None


@asynccontextmanager
async def running_ctl(
    *arguments: str, stdin: io.StringIO | None = None, env: Mapping[str, str] | None = None
) -> AsyncIterator[Command]:
    """Run one for the length of the block; interrupted at its end if it has not ended."""
    command = Command(arguments, env or {}, stdin or io.StringIO())
    try:
        yield command
    finally:
        await command.interrupted()


async def ctl(*arguments: str, stdin: io.StringIO | None = None, **env: str) -> Ended:
    """Run one to its end; without a terminal, unless ``stdin`` is one."""
    async with running_ctl(*arguments, stdin=stdin, env=env) as command:
        return await command.ended()
