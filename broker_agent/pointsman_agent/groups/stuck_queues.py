"""Queues whose reader is stuck: in the log when that begins and ends, and as a metric with their names."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from pointsman.clock import Clock
from pointsman_agent.core.group_progress import Standing
from pointsman_agent.core.queue import QueueKey

CHECK_SECONDS = 15.0
MAX_NAMED = 20
"""Queues that the metric names at most."""

log = logging.getLogger(__name__)


class StuckQueue(NamedTuple):
    """A queue, the member that reads it, and why it is stuck."""

    group: str
    queue: QueueKey
    client_id: str
    why: Standing


class StuckQueues:
    """What was found last."""

    def __init__(
        self,
        groups: Callable[[], Iterable[str]],
        find: Callable[[str], Iterable[StuckQueue]],
        *,
        has_readings: Callable[[], bool],
        clock: Clock,
    ) -> None:
        """``groups`` returns all groups, ``find(group)`` the stuck queues of one.

        ``has_readings``: whether members report what they read; without that there is nothing to look for.
        """
        self.count = 0
        self.named: tuple[StuckQueue, ...] = ()
        """The first :data:`MAX_NAMED`. Replaced as a whole: scrapes read it."""
        self._groups = groups
        self._find = find
        self._has_readings = has_readings
        self._clock = clock
        self._known: dict[tuple[str, QueueKey], StuckQueue] = {}
        self._is_read = asyncio.Event()

    def counts(self) -> dict[tuple[str, str], int]:
        """Return by group and topic how many of its queues are stuck."""
        return Counter((group, queue.topic) for group, queue in self._known)

    def note(self) -> None:
        """Look for them, after the first report of a member."""
        self._is_read.set()

    async def run(self) -> None:
        """Look for them until cancelled, group by group, so that heartbeats do not wait."""
        while True:
            await self._is_read.wait()
            await self._clock.sleep(CHECK_SECONDS)
            self._is_read.clear()
            found: dict[tuple[str, QueueKey], StuckQueue] = {}
            for group in list(self._groups()):
                found |= {(group, each.queue): each for each in self._find(group)}
                await self._clock.sleep(0)
            self._log(found)
            self._known, self.count = found, len(found)
            self.named = tuple(found[key] for key in sorted(found)[:MAX_NAMED])
            if self._known or self._has_readings():
                self._is_read.set()

    def _log(self, found: dict[tuple[str, QueueKey], StuckQueue]) -> None:
        for key in sorted(found.keys() - self._known.keys())[:MAX_NAMED]:
            log.warning("a queue is stuck", extra={"facts": _facts(found[key])})
        for key in sorted(self._known.keys() - found.keys())[:MAX_NAMED]:
            log.info("a queue is no longer stuck", extra={"facts": _facts(self._known[key])})


def _facts(stuck: StuckQueue) -> dict[str, object]:
    return {
        "group": stuck.group,
        "topic": stuck.queue.topic,
        "queue_id": stuck.queue.queue_id,
        "client_id": stuck.client_id,
        "why": stuck.why.value,
    }
