"""An agent that commits offsets to a file until it is killed: ``python -m ... FILE INTERVAL``.

Commits the same rising number to every queue of two groups, and prints each number once it is committed, with the time.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from prometheus_client import CollectorRegistry

from pointsman.clock import SystemClock
from pointsman_agent.core.offsets import OffsetKey, Offsets
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.offsets.file_store import FileStore
from pointsman_agent.offsets.flusher import Flusher, OffsetMetrics

GROUPS = ("g", "h")
QUEUES = [QueueKey(f"t{n % 20}", n // 20) for n in range(400)]
KEYS = {OffsetKey(group, *queue) for group in GROUPS for queue in QUEUES}


async def commit_for_ever(file: Path, interval: float) -> None:
    """Run until killed."""
    offsets, clock = Offsets(), SystemClock()
    metrics = OffsetMetrics(CollectorRegistry())
    flusher = Flusher(offsets, FileStore(file, clock=clock), interval=interval, clock=clock, metrics=metrics)
    running = asyncio.create_task(flusher.run())
    while not flusher.is_loaded:  # noqa: ASYNC110  # there is no event for it
        await asyncio.sleep(0.001)
    number = max(offsets.get(GROUPS[0], QUEUES).values(), default=0)
    while not running.done():
        number += 1
        for group in GROUPS:
            if offsets.commit(group, dict.fromkeys(QUEUES, number)):
                sys.exit("an offset went backwards")
        print(number, time.monotonic(), flush=True)  # the test has the same monotonic clock
        await asyncio.sleep(0.001)
    running.result()


if __name__ == "__main__":
    asyncio.run(commit_for_ever(Path(sys.argv[1]), float(sys.argv[2])))
