"""Removes messages that are older than ``max_age_seconds``.

Ids are not times, so the offset to trim at is found by the messages' creation times. This runs in the background after
sends to the queue, at limited frequency. A queue without sends is not trimmed.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from pointsman.clock import Clock
from pointsman.redis_queues import entry_id
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import BrokerError, ClientClosedError
from pointsman_client.redis_streams.lane import Lane
from pointsman_client.redis_streams.reading import Reader, key_of
from pointsman_client.redis_streams.refusal import refused
from pointsman_client.redis_streams.resp import pack

MAX_TRIMMED = 10_000
"""Maximum per XTRIM, which blocks other commands of the Redis server."""
MIN_INTERVAL_SECONDS = 1.0
INTERVAL_SHARE = 0.05
"""Interval between two checks of a queue, as a share of the maximum age."""
CALL_SECONDS = 3.0

logger = logging.getLogger(__name__)


class AgeTrimmer:
    """Trims the written queues of one broker, one at a time."""

    def __init__(self, reader: Reader, lane: Lane, *, max_age_seconds: float, clock: Clock) -> None:
        self.trimmed = 0
        """Messages removed."""
        self._reader = reader
        self._lane = lane
        self._max_age = timedelta(seconds=max_age_seconds)
        self._interval_seconds = max(MIN_INTERVAL_SECONDS, INTERVAL_SHARE * max_age_seconds)
        self._clock = clock
        self._checked_at: dict[MessageQueue, float] = {}
        self._due: dict[MessageQueue, None] = {}
        self._task: asyncio.Task[None] | None = None

    def written(self, queue: MessageQueue) -> None:
        """Record a send."""
        now = self._clock.monotonic()
        checked_at = self._checked_at.get(queue)
        if checked_at is not None and now - checked_at < self._interval_seconds:
            return
        self._checked_at[queue] = now
        self._due[queue] = None
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=f"pointsman-redis-trim-{self._reader.addr}")

    def close(self) -> list[asyncio.Task[None]]:
        """Stop trimming; return the task that is ending."""
        if self._task is None:
            return []
        self._task.cancel()
        return [self._task]

    async def _run(self) -> None:
        while self._due:
            queue = next(iter(self._due))
            del self._due[queue]
            try:
                await self._trim(queue)
            except ClientClosedError:
                return
            except BrokerError as error:
                logger.warning("cannot remove old messages of %s: %s", key_of(queue).decode(), error)

    async def _trim(self, queue: MessageQueue) -> None:
        born_before = self._clock.utc_now() - self._max_age
        _, born = await self._reader.born_at(queue, 0, timeout_seconds=CALL_SECONDS)
        if born is None or born >= born_before:
            return
        offset = await self._reader.offset_at(queue, born_before, timeout_seconds=CALL_SECONDS)
        arguments = (b"XTRIM", key_of(queue), b"MINID", b"~", entry_id(offset).encode(), b"LIMIT", b"%d" % MAX_TRIMMED)
        (reply,) = await self._lane.execute(pack(*arguments), 1, timeout_seconds=CALL_SECONDS)
        if isinstance(reply, Exception):
            raise refused(self._reader.addr, reply) from reply
        self.trimmed += reply
