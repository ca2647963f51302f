"""Consumers as processes, and what they consumed, read from their logs."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

START_SECONDS = 90.0
POLL_SECONDS = 0.05


@dataclass(frozen=True, order=True)
class Consumed:
    """One message that a listener finished."""

    at: float
    broker_name: str
    queue_id: int
    queue_offset: int
    key: str
    body: str
    worker: str


class ConsumerProcess:
    """One worker."""

    def __init__(self, log: Path, process: asyncio.subprocess.Process) -> None:
        self.log = log
        self.process = process

    def lines(self) -> list[str]:
        """Complete lines only: the last one may be half written."""
        text = self.log.read_text(encoding="utf-8") if self.log.exists() else ""
        return text[: text.rfind("\n") + 1].splitlines()

    async def leave(self) -> None:
        """Send SIGTERM, and wait until it has closed in order."""
        self.process.send_signal(signal.SIGTERM)
        await self.process.wait()
        assert self.lines()[-1] == "closed", self.log.with_suffix(".err").read_text()

    async def kill(self) -> None:
        """SIGKILL."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


class ConsumerProcesses:
    """The workers of one group, with one folder of logs."""

    def __init__(self, folder: Path, name_servers: Sequence[str], *options: str) -> None:
        self._folder = folder
        self._words = [word for addr in name_servers for word in ("--name-server", addr)] + list(options)
        self.all: list[ConsumerProcess] = []

    async def join(self, *options: str) -> ConsumerProcess:
        """Start one more, with further options; returns when it has joined."""
        self._folder.mkdir(parents=True, exist_ok=True)
        log = self._folder / f"worker-{len(self.all)}.log"
        with log.with_suffix(".err").open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.e2e.consumer_worker",
                *self._words,
                *options,
                "--log",
                str(log),
                stderr=errors,
                cwd=Path(__file__).parents[2],
            )
        worker = ConsumerProcess(log, process)
        self.all.append(worker)
        async with asyncio.timeout(START_SECONDS):
            while "started" not in worker.lines():
                assert process.returncode is None, log.with_suffix(".err").read_text()
                await asyncio.sleep(POLL_SECONDS)
        return worker

    def consumed(self) -> list[Consumed]:
        """Everything that was consumed so far, in the order of time."""
        found = []
        for worker in self.all:
            for line in worker.lines():
                words = line.split(" ")
                if len(words) == 6:
                    at, broker_name, queue_id, offset, key, body = words
                    found.append(
                        Consumed(float(at), broker_name, int(queue_id), int(offset), key, body, worker.log.stem)
                    )
        return sorted(found)

    def times_consumed(self) -> Counter[str]:
        """How often each body was consumed."""
        return Counter(each.body for each in self.consumed())

    async def have_consumed(self, count: int, *, seconds: float) -> None:
        """Wait until this number of different messages was consumed."""
        async with asyncio.timeout(seconds):
            while len(self.times_consumed()) < count:  # noqa: ASYNC110  # other processes write
                await asyncio.sleep(POLL_SECONDS * 4)

    async def have_consumed_all(self, bodies: Collection[str], *, seconds: float) -> None:
        """Wait until each of these bodies was consumed; more may be added to them."""
        wanted = frozenset(bodies)
        async with asyncio.timeout(seconds):
            while not wanted <= self.times_consumed().keys():  # noqa: ASYNC110  # other processes write
                await asyncio.sleep(POLL_SECONDS * 4)

    async def have_consumed_more(self, count: int, *, seconds: float) -> None:
        """Wait until ``count`` more messages were consumed than at the call."""
        await self.have_consumed(len(self.times_consumed()) + count, seconds=seconds)


@asynccontextmanager
async def consumer_processes(
    folder: Path, name_servers: Sequence[str], *options: str
) -> AsyncIterator[ConsumerProcesses]:
    """Consumer processes; those that still run at the end of the block are killed."""
    workers = ConsumerProcesses(folder, name_servers, *options)
    try:
        yield workers
    finally:
        for worker in workers.all:
            await worker.kill()
