"""How often the membership of each group changed lately. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pointsman.queue_findings import STORM_WINDOW_SECONDS

MOST = 100
"""Changes that are counted per group; there may be more."""
HOUR = 3_600.0


class ChangeCounts(NamedTuple):
    """Number of changes of one group."""

    lately: int
    """In the last :data:`STORM_WINDOW_SECONDS`, ten minutes."""
    in_hour: int


NO_CHANGES = ChangeCounts(0, 0)


class MembershipChanges:
    """Counts the changes that members were notified of in the last hour."""

    def __init__(self) -> None:
        self._times: dict[str, deque[float]] = {}

    def note(self, groups: Iterable[str], *, now: float) -> None:
        """Count one change of each group."""
        for group in groups:
            self._times.setdefault(group, deque(maxlen=MOST)).append(now)

    def counts(self, *, now: float) -> Mapping[str, ChangeCounts]:
        """Return the number of changes by group; groups without any are forgotten."""
        for group, times in list(self._times.items()):
            while times and times[0] <= now - HOUR:
                times.popleft()
            if not times:
                del self._times[group]
        begin = now - STORM_WINDOW_SECONDS
        return {
            group: ChangeCounts(sum(time > begin for time in times), len(times)) for group, times in self._times.items()
        }
