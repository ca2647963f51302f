"""Probe the broker periodically, each time with a deadline."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from pointsman.clock import Clock
from pointsman.deadline import within
from pointsman_agent.core.probe_verdict import ProbeResult, Verdict, VerdictKeeper
from pointsman_agent.probe import Probe

log = logging.getLogger(__name__)


class Prober:
    """Probes until cancelled, in its own task, so a probe that hangs delays no heartbeat."""

    def __init__(
        self,
        probe: Probe,
        *,
        clock: Clock,
        interval: float,
        timeout: float,
        keeper: VerdictKeeper,
        on_result: Callable[[ProbeResult, Verdict], None],
    ) -> None:
        self._probe = probe
        self._clock = clock
        self._interval = interval
        self._timeout = timeout
        self._keeper = keeper
        self._on_probe_result = on_result
        self.has_verdict = asyncio.Event()
        """Set once there is a verdict."""

    async def run(self) -> None:
        """Probe every ``interval`` seconds, until cancelled."""
        while True:
            result = await self._check(self._timeout)
            self._on_probe_result(result, self._keeper.record(result))
            self.has_verdict.set()
            await self._clock.sleep(self._interval)

    async def passes_again(self, *, tries: int, seconds: float) -> bool:
        """Return whether one of ``tries`` probes within ``seconds`` passes."""
        until = self._clock.monotonic() + seconds
        for _ in range(tries):
            left = until - self._clock.monotonic()
            if left > 0 and (await self._check(min(left, self._timeout))).passed:
                return True
        return False

    async def _check(self, seconds: float) -> ProbeResult:
        try:
            return await within(self._clock, seconds, self._probe.check())
        except TimeoutError:
            return ProbeResult(passed=False, detail=f"no response within {seconds:g} s")
        except Exception as error:  # foreign code that speaks to foreign programs: its failure must not stop heartbeats
            log.exception("probe raised an unexpected exception; it counts as failed")
            return ProbeResult(passed=False, detail=f"probe: {type(error).__name__}: {error}")
