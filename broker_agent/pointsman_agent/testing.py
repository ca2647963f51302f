"""An agent for users' tests, ``python -m pointsman_agent.testing FILE``: real, but a test moves its clock.

See :mod:`pointsman.daemon.process.steered`. FILE is an agent's configuration; its broker need not exist, as it is not
probed. Topics are read from the file at the configured interval, by that clock.
"""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from pathlib import Path

from pointsman.daemon.process import steered
from pointsman.manual_clock import ManualClock
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
        while not agent.health()[0]:  # noqa: ASYNC110  # only the health shows that a name server registered it
            # In real time, because the clock is stopped.
            await asyncio.sleep(steered.QUIET_SECONDS)
        announce({"broker": config.broker.addr})


if __name__ == "__main__":
    steered.run(partial(serve, Path(sys.argv[1])))
