"""Sources with very many topics, next to an event loop that has heartbeats to send."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from pointsman.clock import SystemClock
from pointsman_agent.topic_source.rocketmq import RocketmqTopicSource
from tests.kit.broker.rocketmq.files import topic, topics_json, topics_path

MOST_HELD_SECONDS = 0.1
"""CPU time of this process, so that other processes do not count. Measured: 15 to 25 ms, as with any busy thread;
parsing the table in the loop takes a second."""


@asynccontextmanager
async def watched_loop() -> AsyncIterator[list[float]]:
    """Record the CPU time used between two turns of the event loop."""
    late: list[float] = []

    async def watch() -> None:
        while True:
            before = time.process_time()
            await asyncio.sleep(0.001)
            late.append(time.process_time() - before)

    task = asyncio.create_task(watch())
    try:
        yield late
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextmanager
def full_rounds() -> Iterator[list[int]]:
    """Note each full round of the collector."""
    rounds: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            rounds.append(info["collected"])

    gc.callbacks.append(note)
    try:
        yield rounds
    finally:
        gc.callbacks.remove(note)


async def test_very_many_topics_delay_the_loop_no_longer_than_any_thread(tmp_path: Path, full: bool) -> None:
    count = 100_000 if full else 50_000
    write: Callable[[bytes], int] = topics_path(tmp_path).write_bytes
    names = [f"topic-{number:06d}" for number in range(count)]
    source = RocketmqTopicSource(
        store_path=str(tmp_path), broker_conf="", max_topics=count, clock=SystemClock(), environment={}
    )
    table = {name: topic(name) for name in names}
    try:
        for counter in (1, 2):
            table[names[-1]] = topic(names[-1], perm=2 + counter)
            write(topics_json(table, counter=counter))
            gc.collect()
            with full_rounds() as rounds:
                async with watched_loop() as late:
                    topics = await source.read()
            assert len(topics.topics) == count
            assert topics.topics[-1].perm == 2 + counter
            assert rounds == []
            assert max(late) < MOST_HELD_SECONDS
        first = topics
        assert await source.read() is first
    finally:
        gc.unfreeze()
