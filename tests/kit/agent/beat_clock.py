"""A manual clock for agents with real sockets: a test can wait until their heartbeats were answered."""

from __future__ import annotations

from pointsman.manual_clock import ManualClock
from pointsman_agent.registration.loop import Timeouts
from tests.kit.waiting import eventually

BEAT_TIMEOUT = Timeouts().beat


class BeatClock(ManualClock):
    """An unanswered heartbeat is one whose timeout runs."""

    def __init__(self) -> None:
        super().__init__()
        self._unanswered = 0

    async def sleep(self, seconds: float) -> None:
        """See :meth:`ManualClock.sleep`."""
        is_of_a_beat = seconds == BEAT_TIMEOUT
        self._unanswered += is_of_a_beat
        try:
            await super().sleep(seconds)
        finally:
            self._unanswered -= is_of_a_beat

    async def advance_and_answer(self, seconds: float) -> None:
        """Advance the time, then wait for the responses: the clock sends heartbeats, sockets deliver responses."""
        await self.advance(seconds)
        await eventually(lambda: not self._unanswered)


class LoopClock:
    """A registration loop's view of a manual clock, which shows whether the loop waits for its next step.

    A call in progress does not depend on the manual time: heartbeats get a timeout that the clock never reaches.
    """

    TIMEOUTS = Timeouts(beat=1e6)

    def __init__(self, clock: ManualClock) -> None:
        self.monotonic, self.utc_now = clock.monotonic, clock.utc_now
        self._sleep = clock.sleep
        self._waits = 0

    @property
    def is_waiting(self) -> bool:
        """Whether no call is in progress."""
        return self._waits > 0

    async def sleep(self, seconds: float) -> None:
        """See :meth:`ManualClock.sleep`."""
        is_wait = seconds != self.TIMEOUTS.beat
        self._waits += is_wait
        try:
            await self._sleep(seconds)
        finally:
            self._waits -= is_wait
