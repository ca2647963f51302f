"""Which days a run computes: those asked for, those before that got late rows, those after that continue from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta

from pointsman_report.errors import ReportError

LATE_DAYS = 7
"""How far back a night takes late rows, and how far forward a change of an old day is carried."""


@dataclass(frozen=True, slots=True)
class Computed:
    """What is known of a day that was computed."""

    rows: int
    """Rows of history that it was computed from."""
    made_by: tuple[str, ...] = ()
    """Version of the code, and the parameters."""


@dataclass(frozen=True, slots=True)
class DayRange:
    """The days of a run."""

    first_day: date
    last_day: date
    late_days: tuple[date, ...]
    """Days before those asked for that hold more rows now than they were computed from."""
    stale_after: date | None
    """The days after this one continue from a state that has changed since, and are too many to be computed too."""


def day_range(
    first_day: date,
    last_day: date,
    *,
    rows: Mapping[date, int],
    computed: Mapping[date, Computed],
    made_by: tuple[str, ...],
    looks_back: bool,
    reread: bool,
) -> DayRange:
    """Decide what is computed. ``rows`` is what the warehouse will hold of each day, ``made_by`` is as in `Computed`.

    Raises:
        ReportError: a day lost rows since it was computed.
    """
    back_to = first_day - timedelta(days=LATE_DAYS) if looks_back else first_day
    late = tuple(day for day in sorted(computed) if back_to <= day < first_day and _grew(day, rows, computed))
    begin = min((*late, first_day))
    own = [begin + timedelta(days=n) for n in range((last_day - begin).days + 1)]
    changes = reread or any(_changes(day, rows, computed, made_by) for day in own)
    latest = max(computed, default=last_day)
    end, stale_after = last_day, None
    if changes and latest > last_day:
        if (latest - last_day).days <= LATE_DAYS:
            end = latest
        else:
            stale_after = last_day
    if not reread:
        _refuse_if_shrunk(begin, end, rows, computed)
    return DayRange(begin, end, late, stale_after)


def _grew(day: date, rows: Mapping[date, int], computed: Mapping[date, Computed]) -> bool:
    return rows.get(day, 0) > computed[day].rows


def _changes(day: date, rows: Mapping[date, int], computed: Mapping[date, Computed], made_by: tuple[str, ...]) -> bool:
    return computed.get(day) != Computed(rows.get(day, 0), made_by)


def _refuse_if_shrunk(
    first_day: date, last_day: date, rows: Mapping[date, int], computed: Mapping[date, Computed]
) -> None:
    for day, before in sorted(computed.items()):
        if first_day <= day <= last_day and rows.get(day, 0) < before.rows:
            raise ReportError(
                f"registration_events of {day} holds {rows.get(day, 0)} rows and was computed from {before.rows}: "
                "compact dropped heartbeats, and to compute it anew would lose what they said; backfill with --reread "
                "if the raw history is still there"
            )
