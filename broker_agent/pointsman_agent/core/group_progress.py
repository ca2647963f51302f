"""How consumer groups advance in their queues: rates, and queues that stand still or fall behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from pointsman_agent.core.measured_queue_stats import GroupLoad, falls_behind
from pointsman_agent.core.member_readings import QueueReport
from pointsman_agent.core.offsets import OffsetKey

LONG_CALL_SECONDS = 60.0
"""A queue is stuck if a listener call has run for longer: its offset cannot pass the message."""
STILL_SECONDS = 120.0
"""A queue is stuck if its offset has not moved for longer although there are unread messages."""
READER_SECONDS = 60.0
"""Time in which the member that took over a queue reports it, and reads on."""


class Standing(Enum):
    """What is wrong with a group's queue."""

    STUCK_CALL = "stuck_call"
    STUCK_OFFSET = "stuck_offset"
    BEHIND = "behind"
    NO_READER = "no_reader"
    """No member reports that it reads the queue, which has unread messages."""


class Progress(NamedTuple):
    """The course of a committed offset, at the last measurement."""

    commit_rate: float | None
    """Messages per second by which it rose since the measurement before; None: there was none."""
    unread_since: float | None
    """Since when there have been unread messages at this offset, monotonic seconds; None: there are none."""

    def still_for(self, *, now: float) -> float | None:
        """Return for how many seconds it has not moved although there were unread messages; None: it moves.

        None also after one measurement, and while the broker cannot be measured after one in which it moved.
        """
        return now - self.unread_since if self.commit_rate == 0 and self.unread_since is not None else None


@dataclass(slots=True)
class _Course:
    at: float
    committed: int
    progress: Progress
    round: int


class ProgressMeter:
    """Measures committed offsets in rounds: :meth:`take` for each, then :meth:`end_round`."""

    def __init__(self) -> None:
        self._courses: dict[OffsetKey, _Course] = {}
        self._round = 0
        self.loads: Mapping[str, GroupLoad] = {}
        """What each group has to read, at the last measurement. Replaced as a whole."""

    def take(self, key: OffsetKey, committed: int, *, max_offset: int, now: float) -> Progress:
        """Record an offset in a queue that ends at ``max_offset``, and return its course.

        An offset that went back was reset and starts again.
        """
        course, unread_since = self._courses.get(key), now if max_offset > committed else None
        if course is None or committed < course.committed:
            progress = Progress(None, unread_since)
        elif committed > course.committed:
            progress = Progress((committed - course.committed) / max(now - course.at, 0.001), unread_since)
        else:
            before = course.progress.unread_since
            progress = Progress(0.0, unread_since if unread_since is None or before is None else before)
        self._courses[key] = _Course(now, committed, progress, self._round)
        return progress

    def end_round(self, loads: Mapping[str, GroupLoad]) -> None:
        """Record the loads, and drop offsets not recorded since the last call: expired, or their queue is gone."""
        self.loads = loads
        for key in [key for key, course in self._courses.items() if course.round != self._round]:
            del self._courses[key]
        self._round += 1

    def of(self, key: OffsetKey) -> Progress | None:
        """Return the course of an offset; None: it was not measured yet."""
        course = self._courses.get(key)
        return None if course is None else course.progress


def standing(
    report: QueueReport | None,
    progress: Progress | None,
    *,
    lag: int | None,
    put_rate: float,
    all_report: bool,
    now: float,
) -> Standing | None:
    """Return what is wrong with a group's queue, the worst first; None: nothing is known.

    ``report``: of the member that reads it; None: no member reports that. ``all_report``: whether every member reports
    what it reads, so that such a queue has no reader. ``lag``: unread messages; None: not known.
    """
    call = None if report is None else report.oldest_call(now=now)
    if call is not None and call > LONG_CALL_SECONDS:
        return Standing.STUCK_CALL
    if not lag or progress is None or (report is not None and report.reading.is_waiting):
        return None
    still_for = progress.still_for(now=now) or 0.0
    if report is None and all_report and still_for > READER_SECONDS:
        return Standing.NO_READER
    if still_for > STILL_SECONDS:
        return Standing.STUCK_OFFSET
    if progress.commit_rate is not None and falls_behind(lag, put_rate=put_rate, commit_rate=progress.commit_rate):
        return Standing.BEHIND
    return None
