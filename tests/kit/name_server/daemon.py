"""The installed command ``pointsman-namesrv`` as a process, its history and state in a folder of the test's."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

COMMAND = Path(sys.executable).with_name("pointsman-namesrv")


class Daemon:
    """A running process, its log lines and its address."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self.addr = ""

    async def until(self, message: str) -> dict[str, Any]:
        """Read its log until a message."""
        assert self.process.stderr is not None
        async with asyncio.timeout(90):
            async for line in self.process.stderr:
                self.lines.append(json.loads(line))
                if self.lines[-1]["message"] == message:
                    return self.lines[-1]
        raise AssertionError(f"it ended without saying {message!r}: {self.lines}")

    async def end(self) -> int:
        """Wait for its exit code."""
        async with asyncio.timeout(90):
            await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode


@asynccontextmanager
async def daemon(
    folder: Path, *arguments: str, listen: str = "127.0.0.1:0", warm_up_seconds: float = 0.0
) -> AsyncIterator[Daemon]:
    """Run the command with history and state under ``folder``; kill it at the end of the block if it still runs."""
    environment = os.environ | {
        "NAMESRV_SERVER__WARM_UP_SECONDS": str(warm_up_seconds),
        "NAMESRV_MONITORING__LISTEN": "127.0.0.1:0",
        "NAMESRV_HISTORY__DIRECTORY": str(folder / "history"),
        "NAMESRV_SNAPSHOT__DIRECTORY": str(folder / "state"),
        "NAMESRV_SNAPSHOT__INTERVAL_SECONDS": "0.1",
    }
    process = await asyncio.create_subprocess_exec(
        COMMAND, "--listen", listen, *arguments, env=environment, stderr=asyncio.subprocess.PIPE
    )
    running = Daemon(process)
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
