"""The result of computing days, which the jobs make and the report shows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True, slots=True)
class Run:
    """What a run read, computed and continued.

    ``files``, ``rows_ahead``, ``rows_too_late`` and ``rows_misdated`` say the same when the days are computed again;
    ``files_read``, ``late_days`` and the days computed beyond those asked for are of this run alone.
    """

    files: int
    """Files of history that may hold the days."""
    continues_yesterday: bool
    ends_before: date | None
    """Where the days before this one were missing: the last day that the warehouse holds before them."""
    rows_ahead: int
    """Rows dated later than they can have been written."""
    rows_too_late: int = 0
    """Rows that came after their day was computed, and too late for that day to be computed anew."""
    rows_misdated: int = 0
    """Rows left aside that are days older than the folder they lie in."""
    stale_after: date | None = None
    """The days after this one continue from a state that has changed since: they should be computed anew."""
    files_read: int = 0
    """Of the files those that had not been read before."""
    late_days: tuple[date, ...] = ()
    """Days before those asked for that got late rows, and were computed anew."""
    first_day: date | None = None
    last_day: date | None = None
    """What was computed: the days asked for, and what late rows and changes made of them."""
