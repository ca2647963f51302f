"""A real Redis Sentinel on a free port, which promotes a replica by itself two seconds after the master is gone."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.kit.broker.redis.process import HOST, READY_SECONDS, RedisProcess, free_port
from tests.kit.waiting import read_until

GROUP = "group"
DOWN_AFTER_MILLISECONDS = 2_000

CONFIG = """\
bind {host}
port {port}
dir {directory}
sentinel monitor {group} {host} {master_port} 1
sentinel down-after-milliseconds {group} {down_after}
sentinel failover-timeout {group} 3000
"""


class SentinelProcess:
    """One Sentinel with quorum 1."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self, master: RedisProcess, *, replicas: int) -> None:
        """Start it and wait until it knows the master's ``replicas``."""
        self._directory.mkdir(parents=True, exist_ok=True)
        program = shutil.which("redis-server")
        if program is None:
            raise FileNotFoundError("redis-server is not installed")
        file = self._directory / "sentinel.conf"
        text = CONFIG.format(
            host=HOST,
            port=self.port,
            directory=self._directory,
            group=GROUP,
            master_port=master.port,
            down_after=DOWN_AFTER_MILLISECONDS,
        )
        file.write_text(text, encoding="utf-8")
        with (self._directory / "log").open("ab") as output:
            self._process = subprocess.Popen(  # noqa: ASYNC220  # forking takes a millisecond
                [program, str(file), "--sentinel"], stdout=output, stderr=subprocess.STDOUT
            )
        await read_until(self._masters, lambda found: f"slaves={replicas}," in found, seconds=READY_SECONDS)

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def _masters(self) -> str:
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError(f"the sentinel exited right after its start; see {self._directory / 'log'}")
        try:
            reader, writer = await asyncio.open_connection(HOST, self.port)
        except OSError:
            return ""
        try:
            writer.write(b"INFO sentinel\r\n")
            length = (await reader.readline()).decode().strip().removeprefix("$")
            return (await reader.readexactly(int(length))).decode() if length.isdigit() else ""
        finally:
            writer.close()


@asynccontextmanager
async def sentinel_process(directory: Path, master: RedisProcess, *, replicas: int) -> AsyncIterator[SentinelProcess]:
    """Watch over ``master`` for the length of the block; killed at its end."""
    sentinel = SentinelProcess(directory)
    try:
        await sentinel.start(master, replicas=replicas)
        yield sentinel
    finally:
        sentinel.kill()
