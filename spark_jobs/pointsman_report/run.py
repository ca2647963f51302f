"""The result of a run, made by the jobs and shown in the report."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True, slots=True)
class Run:
    """Statistics of a run.

    ``files``, ``rows_ahead``, ``rows_too_late`` and ``rows_misdated`` are the same when the days are computed again;
    ``files_read``, ``late_days`` and the days beyond those requested depend on the run.
    """

    files: int
    """History files that may have rows of the days."""
    continues_yesterday: bool
    ends_before: date | None
    """If the day before is missing: the last earlier day in the warehouse."""
    rows_ahead: int
    """Rows dated in the future."""
    rows_too_late: int = 0
    """Rows that arrived after their day was computed, too late for it to be recomputed."""
    rows_misdated: int = 0
    """Skipped rows that are days older than their folder."""
    stale_after: date | None = None
    """The days after this one continue from a state that has changed since: they should be recomputed."""
    files_read: int = 0
    """Number of these files that had not been read before."""
    late_days: tuple[date, ...] = ()
    """Days before the requested ones that got late rows and were recomputed."""
    first_day: date | None = None
    last_day: date | None = None
    """The days computed: the requested ones, and those added because of late rows and changes."""
