"""``pointsmanctl`` as a process."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from typing import Any

ENDS_WITHIN_SECONDS = 60


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


async def started(
    *arguments: str,
    env: dict[str, str] | None = None,
    out: int = asyncio.subprocess.PIPE,
    stdin: int = asyncio.subprocess.DEVNULL,
) -> asyncio.subprocess.Process:
    """Start one, without a terminal unless told."""
    inherited = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "POINTSMAN_NAMESRV"}}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pointsman_client.ctl", *arguments),
        stdin=stdin,
        stdout=out,
        stderr=asyncio.subprocess.PIPE,
        # gRPC reads this when it is imported; else it may put a line of its own between ours when a server is killed.
        env={**inherited, "GRPC_VERBOSITY": "NONE", **(env or {})},
    )


async def ended(process: asyncio.subprocess.Process) -> Ended:
    """Wait for its end; it is killed if that does not come."""
    try:
        out, err = await asyncio.wait_for(process.communicate(), ENDS_WITHIN_SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    return Ended(process.returncode, (out or b"").decode(), (err or b"").decode())


async def ctl(*arguments: str, **env: str) -> Ended:
    """Run one to its end."""
    return await ended(await started(*arguments, env=env))
