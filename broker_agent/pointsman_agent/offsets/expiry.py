"""Expiry of the offsets of groups without a client for 30 days, where no message is lost by it.

Offsets of queues with unknown ends never expire, and at a slave none does: its data come from its master.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter

from pointsman.clock import Clock, utc_millis
from pointsman_agent.core.offsets import Offsets
from pointsman_agent.queue_stats.ends import QueueEnds, QueueEndsError

CHECK_INTERVAL_SECONDS = 3_600.0
LOAD_POLL_SECONDS = 1.0

log = logging.getLogger(__name__)


class OffsetExpiry:
    """Call :meth:`run` while the agent serves. ``members`` returns the groups that have a member now."""

    def __init__(
        self,
        offsets: Offsets,
        *,
        is_loaded: Callable[[], bool],
        is_master: Callable[[], bool],
        members: Callable[[], Iterable[str]],
        ends: QueueEnds,
        clock: Clock,
        registry: CollectorRegistry,
    ) -> None:
        self._offsets = offsets
        self._is_loaded = is_loaded
        self._is_master = is_master
        self._members = members
        self._ends = ends
        self._clock = clock
        self._expired = Counter(
            "pointsman_agent_offsets_expired_total",
            "Committed offsets removed because their group was inactive.",
            registry=registry,
        )

    async def run(self) -> None:
        """Record begins for older offsets without one; then check every hour, until cancelled."""
        while not (self._is_loaded() and self._is_master()):
            await self._clock.sleep(LOAD_POLL_SECONDS)
        await self._begin_all()
        while True:
            # Wait first: shortly after a start the members have not reconnected yet.
            await self._clock.sleep(CHECK_INTERVAL_SECONDS)
            await self.check()

    async def check(self) -> None:
        """Remove offsets that may expire."""
        if not self._is_master():
            return
        await self._begin_all()
        now = utc_millis(self._clock)
        self._offsets.saw(self._members(), now=now)
        expired: dict[str, int] = {}
        for group, queues in self._offsets.unseen(now=now).items():
            try:
                ends = await self._ends.ends(queues)
            except QueueEndsError:
                break  # the broker is down: wait for the next check
            count = self._offsets.expire(group, {queue: end.min_offset for queue, end in ends.items()})
            if count:
                expired[group] = count
        if expired:
            self._expired.inc(sum(expired.values()))
            facts = {"groups": len(expired), "offsets": sum(expired.values()), "first_group": min(expired)}
            log.info("offsets of inactive groups expired", extra={"facts": facts})

    async def _begin_all(self) -> None:
        for group in self._offsets.groups():
            self._offsets.begin_committed(group, self._offsets.of(group)[0], now=utc_millis(self._clock))
            await asyncio.sleep(0)
