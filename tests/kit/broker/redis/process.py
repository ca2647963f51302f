"""A real redis-server on a free port with a folder of the test's; can be killed, restarted and made a replica."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.kit.waiting import pause, read_until

READY_SECONDS = 60.0
HOST = "127.0.0.1"


class RedisProcess:
    """One server and its port, which it keeps over restarts. ``appendonly`` is on: it comes back with its data."""

    def __init__(self, directory: Path, *, port: int | None = None, options: Sequence[str] = ()) -> None:
        self.port = port or free_port()
        self._directory = directory
        self._options = list(options)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def addr(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._process is not None

    async def start(self) -> None:
        """Start it and wait for any response, even that a password is missing."""
        self._directory.mkdir(parents=True, exist_ok=True)
        program = shutil.which("redis-server")
        if program is None:
            raise FileNotFoundError("redis-server is not installed")
        settings = ["--bind", HOST, "--port", str(self.port), "--dir", str(self._directory), "--appendonly", "yes"]
        settings += ["--save", "", "--repl-diskless-sync-delay", "0", *self._options]
        with (self._directory / "log").open("ab") as output:
            self._process = subprocess.Popen([program, *settings], stdout=output, stderr=subprocess.STDOUT)  # noqa: ASYNC220  # forking takes a millisecond
        await read_until(self._answers, seconds=READY_SECONDS)

    def add_options(self, *options: str) -> None:
        """Add these options to its next start."""
        self._options += options

    def kill(self) -> None:
        """SIGKILL: it closes nothing in order."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """SIGSTOP: its connections stay open without responses, until it is resumed or killed."""
        if self._process is not None:
            pause(self._process.pid)

    def resume(self) -> None:
        """Continue it after a pause."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    async def restart(self) -> None:
        """Start it again where it was: same port, same data, a new process."""
        self.kill()
        await self.start()

    async def replica_of(self, master: RedisProcess | None) -> None:
        """Make it a replica of ``master``, or with None a master again."""
        await self.command("REPLICAOF", *((HOST, str(master.port)) if master else ("NO", "ONE")))

    async def command(self, *words: str) -> str:
        """Send one command and return the first line of its answer."""
        reader, writer = await asyncio.open_connection(HOST, self.port)
        try:
            writer.write(_to_resp(words))
            return (await reader.readline()).decode().strip()
        finally:
            writer.close()

    async def until_info(self, section: str, text: str, *, seconds: float = 60.0) -> None:
        """Wait until this section of INFO has the text."""
        await read_until(lambda: self.bulk("INFO", section), lambda found: text in found, seconds=seconds)

    async def bulk(self, *words: str) -> str:
        """Send one command whose answer is a bulk string, and return it; empty for none."""
        reader, writer = await asyncio.open_connection(HOST, self.port)
        try:
            writer.write(_to_resp(words))
            length = int((await reader.readline()).decode().strip().removeprefix("$"))
            return (await reader.readexactly(length)).decode() if length > 0 else ""
        finally:
            writer.close()

    async def _answers(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError(f"redis-server exited right after its start; see {self._directory / 'log'}")
        try:
            reply = await self.command("PING")
        except OSError:
            return False
        return reply != "" and not reply.startswith("-LOADING")


@asynccontextmanager
async def redis_process(directory: Path, *, options: Sequence[str] = ()) -> AsyncIterator[RedisProcess]:
    """Run a server for the length of the block; killed at its end."""
    redis = RedisProcess(directory, options=options)
    await redis.start()
    try:
        yield redis
    finally:
        redis.kill()


def free_port() -> int:
    """A port without a listener, which no other test of this run is given: some rely on it that nothing listens there.

    It is below those that the kernel gives to connections: one of them may else have it before the server starts, or
    while it is restarted, even a client's that tries to reach the dead server.
    """
    while True:
        port = next(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port


def _ports_of_this_worker() -> Iterator[int]:
    """A range for each of up to eight workers, from a random start: another run on this machine has the same ranges."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 8
    ports = range(15_000 + worker * 2_000, 17_000 + worker * 2_000)
    start = random.SystemRandom().randrange(len(ports))
    return itertools.cycle([*ports[start:], *ports[:start]])


_PORTS = _ports_of_this_worker()


def _to_resp(words: Sequence[str]) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w.encode()) for w in words)
