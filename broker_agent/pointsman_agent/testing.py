"""An agent for users' tests, ``python -m pointsman_agent.testing FILE``: real but for its clock, which a test moves.

See :mod:`pointsman.service.steered`. FILE is an agent's configuration; its broker need not exist, since without a probe
nobody looks for it. Topics are read from the file as ever, at the interval that it sets, by that clock.
"""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from pathlib import Path

from pointsman.service import steered
from pointsman.wire.manual_clock import ManualClock
from pointsman_agent.app import Agent
from pointsman_agent.config import load
from pointsman_agent.topic_source.build import build_topic_source


async def serve(file: Path, clock: ManualClock, announce: steered.Announce) -> None:
    """Run until the process ends."""
    config = load(file, os.environ)
    source = build_topic_source(config, clock=clock, file=file, environment=os.environ)
    agent = Agent(config, probe=None, clock=clock, version="testing", topic_source=source)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(agent.run(asyncio.Event()))
        while not agent.health()[0]:  # noqa: ASYNC110  # whether a name server took it is told by its health alone
            # In real time, for the clock stands still.
            await asyncio.sleep(steered.QUIET_SECONDS)
        announce({"broker": config.broker.addr})


if __name__ == "__main__":
    steered.run(partial(serve, Path(sys.argv[1])))
