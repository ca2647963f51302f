"""``pointsmanctl`` as a process: for one test per family of commands; all others use ``ctl_command``."""

from __future__ import annotations

import asyncio
import os
import sys

from tests.kit.ctl.command import OWN_VARIABLES, Ended

ENDS_WITHIN_SECONDS = 60


def environment() -> dict[str, str]:
    """The environment of a user who has set nothing."""
    inherited = {name: value for name, value in os.environ.items() if name not in OWN_VARIABLES}
    # gRPC reads this when it is imported; else it may print its own lines when a server is killed.
    return {**inherited, "GRPC_VERBOSITY": "NONE"}


async def started(
    *arguments: str,
    env: dict[str, str] | None = None,
    out: int = asyncio.subprocess.PIPE,
    stdin: int = asyncio.subprocess.DEVNULL,
) -> asyncio.subprocess.Process:
    """Start one, without a terminal unless the test gives one."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pointsman_ctl", *arguments),
        stdin=stdin,
        stdout=out,
        stderr=asyncio.subprocess.PIPE,
        env={**environment(), **(env or {})},
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


async def ctl_process(*arguments: str, **env: str) -> Ended:
    """Run one to its end."""
    return await ended(await started(*arguments, env=env))
