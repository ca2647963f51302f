"""A process that loads a broker with another client, and measures itself."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

ROUND_LIMIT_SECONDS = 60.0


class Load(NamedTuple):
    """What a client did in one round."""

    messages: int
    failed: int
    cpu_seconds: float
    seconds: float


class LoadProcess:
    """One that runs each line of its input, and then prints ``measured MESSAGES FAILED CPU_SECONDS SECONDS``."""

    def __init__(self, process: Process, name: str) -> None:
        self._process = process
        self._name = name

    async def measure(self, command: str) -> Load:
        """Run a command and return what the process measured. Raises EOFError when it has ended, TimeoutError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n".encode())
        async with asyncio.timeout(ROUND_LIMIT_SECONDS):
            while line := (await self._process.stdout.readline()).split():
                if line[0] == b"measured":
                    return Load(int(line[1]), int(line[2]), float(line[3]), float(line[4]))
        raise EOFError(f"{self._name} ended during {command!r}")


@asynccontextmanager
async def load_process(
    command: Sequence[str], name: str, environment: Mapping[str, str] | None = None
) -> AsyncIterator[LoadProcess]:
    """Run it during the block."""
    env = {**os.environ, **(environment or {})}
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=env)
    try:
        yield LoadProcess(process, name)
    finally:
        process.kill()
        await process.wait()
