"""Removes messages that are older than ``max_age_seconds``.

Ids are no times, so the place to cut at is searched by the messages' birth, in the background, after a send to the
queue and at most every so often. A queue that nobody writes to keeps what it has.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from pointsman.wire.clock import Clock
from pointsman.wire.redis_queues import entry_id
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import BrokerError, ClientClosedError
from pointsman_client.transports.redis_streams.lane import Lane
from pointsman_client.transports.redis_streams.reading import Reader, key_of
from pointsman_client.transports.redis_streams.refusal import refused
from pointsman_client.transports.redis_streams.resp import pack

MAX_TRIMMED = 10_000
"""Messages that one XTRIM removes: Redis serves nobody else meanwhile."""
SHORTEST_INTERVAL_SECONDS = 1.0
AGE_SHARE = 0.05
"""Of the age: the interval between two looks at a queue."""
CALL_SECONDS = 3.0

logger = logging.getLogger(__name__)


class AgeTrimmer:
    """Trims the queues of one broker that are written to, one at a time."""

    def __init__(self, reader: Reader, lane: Lane, *, max_age_seconds: float, clock: Clock) -> None:
        self.trimmed = 0
        """Messages removed."""
        self._reader = reader
        self._lane = lane
        self._max_age = timedelta(seconds=max_age_seconds)
        self._interval_seconds = max(SHORTEST_INTERVAL_SECONDS, AGE_SHARE * max_age_seconds)
        self._clock = clock
        self._looked_at: dict[MessageQueue, float] = {}
        self._due: dict[MessageQueue, None] = {}
        self._working: asyncio.Task[None] | None = None

    def written(self, queue: MessageQueue) -> None:
        """Note a send."""
        now = self._clock.monotonic()
        looked_at = self._looked_at.get(queue)
        if looked_at is not None and now - looked_at < self._interval_seconds:
            return
        self._looked_at[queue] = now
        self._due[queue] = None
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work(), name=f"pointsman-redis-trim-{self._reader.addr}")

    def close(self) -> list[asyncio.Task[None]]:
        """End it."""
        if self._working is None:
            return []
        self._working.cancel()
        return [self._working]

    async def _work(self) -> None:
        while self._due:
            queue = next(iter(self._due))
            del self._due[queue]
            try:
                await self._trim(queue)
            except ClientClosedError:
                return
            except BrokerError as error:
                logger.warning("old messages of %s are not removed: %s", key_of(queue).decode(), error)

    async def _trim(self, queue: MessageQueue) -> None:
        born_before = self._clock.utc_now() - self._max_age
        _, born = await self._reader.born_at(queue, 0, timeout_seconds=CALL_SECONDS)
        if born is None or born >= born_before:
            return
        offset = await self._reader.offset_at(queue, born_before, timeout_seconds=CALL_SECONDS)
        words = (b"XTRIM", key_of(queue), b"MINID", b"~", entry_id(offset).encode(), b"LIMIT", b"%d" % MAX_TRIMMED)
        (answer,) = await self._lane.ask(pack(*words), 1, timeout_seconds=CALL_SECONDS)
        if isinstance(answer, Exception):
            raise refused(self._reader.addr, answer) from answer
        self.trimmed += answer
