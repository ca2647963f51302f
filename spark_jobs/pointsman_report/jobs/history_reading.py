"""Before the stages: typed rows from raw history, the days to compute, and the name servers' monitoring windows.

`day_range`: the requested days, earlier days with late rows, and later days that continue from them. A day whose rows
ended in a hole that only the next day's rows show is computed again, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

from pointsman_report import __version__
from pointsman_report.io import History, Warehouse, days_from, files_that_may_hold
from pointsman_report.io.ledger import Window, most_by_name
from pointsman_report.jobs.intake import Taken, counted, take
from pointsman_report.parameters import Parameters
from pointsman_report.report_errors import ReportError
from pointsman_report.schemas import WAREHOUSE_VERSION
from pointsman_report.schemas.history_tables import COMPUTED_DAYS, INGESTED_FILES, QUARANTINE, REGISTRATION_EVENTS
from pointsman_report.schemas.liveness_tables import OBSERVER_WINDOWS
from pointsman_report.transforms.observer_windows import observer_windows, unseen_holes

Progress = Callable[[str], None]
TABLES_READ = (REGISTRATION_EVENTS, QUARANTINE, INGESTED_FILES, COMPUTED_DAYS, OBSERVER_WINDOWS)
"""The tables that `read_history` stages; all others are those of the stages."""
LATE_DAYS = 7
"""Days before a nightly run whose late rows are accepted, and days after an old one that are recomputed."""


@dataclass(frozen=True, slots=True)
class Work:
    """The days to compute, input and output."""

    history: History
    warehouse: Warehouse
    first_day: date
    last_day: date
    parameters: Parameters
    log: Progress
    accept_late: bool = False
    """Accept late rows of the days before too, and compute from the first day with late rows."""
    reread: bool = False
    """Drop the stored history rows of these days and read only the raw files."""

    @property
    def day_before(self) -> date:
        return self.first_day - timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Computed:
    """How a day was computed."""

    rows: int
    """Number of history rows it was computed from."""
    made_by: tuple[str, ...] = ()
    """Version of the code, and the parameters."""


@dataclass(frozen=True, slots=True)
class DayRange:
    """The days of a run."""

    first_day: date
    last_day: date
    late_days: tuple[date, ...]
    """Days before the requested ones that have more rows now than when they were computed, or end in a hole that the
    rows of the next day show."""
    stale_after: date | None
    """The days after this one continue from a state that has changed since, and are too many to be recomputed."""


def day_range(
    first_day: date,
    last_day: date,
    *,
    rows: Mapping[date, int],
    computed: Mapping[date, Computed],
    made_by: tuple[str, ...],
    accept_late: bool,
    reread: bool,
    ends_in_hole: Callable[[date], bool] = lambda _: False,
) -> DayRange:
    """Decide which days to compute. ``rows``: row counts of the warehouse after this run, by day; ``made_by``: as in
    `Computed`; ``ends_in_hole``: whether the rows after a computed day show a hole at its end that it does not have.

    Raises:
        ReportError: a day has fewer rows than when it was computed.
    """
    back_to = first_day - timedelta(days=LATE_DAYS) if accept_late else first_day
    late = tuple(day for day in sorted(computed) if back_to <= day < first_day and _has_more_rows(day, rows, computed))
    begin = min((*late, first_day))
    while back_to < begin and begin - timedelta(days=1) in computed and ends_in_hole(begin - timedelta(days=1)):
        begin -= timedelta(days=1)
        late = (begin, *late)
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
        _reject_fewer_rows(begin, end, rows, computed)
    return DayRange(begin, end, late, stale_after)


def _has_more_rows(day: date, rows: Mapping[date, int], computed: Mapping[date, Computed]) -> bool:
    return rows.get(day, 0) > computed[day].rows


def _changes(day: date, rows: Mapping[date, int], computed: Mapping[date, Computed], made_by: tuple[str, ...]) -> bool:
    return computed.get(day) != Computed(rows.get(day, 0), made_by)


def _reject_fewer_rows(
    first_day: date, last_day: date, rows: Mapping[date, int], computed: Mapping[date, Computed]
) -> None:
    for day, before in sorted(computed.items()):
        if first_day <= day <= last_day and rows.get(day, 0) < before.rows:
            raise ReportError(
                f"{day} was computed from {before.rows} rows, of which registration_events has {rows.get(day, 0)} now: "
                "compact dropped heartbeats, so recomputing the day would lose data; if the raw history still exists, "
                "backfill with --reread"
            )


@dataclass(frozen=True, slots=True)
class Read:
    """Result of reading the history."""

    work: Work
    """The requested work, extended to all days to compute."""
    files: int
    files_read: int
    rows_ahead: int
    rows_too_late: int
    rows_misdated: int
    days: DayRange
    rows: dict[date, int]


def read_history(work: Work) -> Read:
    """Stage `TABLES_READ`, and determine the days to compute."""
    computed = _computed(work)
    window = _window(work)
    reread = frozenset(days_from(work.first_day, work.last_day)) if work.reread else frozenset[date]()
    taken = take(work.history, work.warehouse, window, reread=reread, log=work.log)
    rows = _rows(work, window, max((*computed, work.last_day)))
    days = day_range(
        work.first_day,
        work.last_day,
        rows=rows,
        computed=computed,
        made_by=made_by(work.parameters),
        accept_late=work.accept_late,
        reread=work.reread,
        ends_in_hole=lambda day: _ends_in_hole(work, day),
    )
    _log_days(work, days)
    wider = replace(work, first_day=days.first_day, last_day=days.last_day)
    _stage_computed_days(wider, rows)
    _observer_windows(wider)
    return Read(wider, *_of_files(work, taken), days, rows)


def made_by(parameters: Parameters) -> tuple[str, str]:
    """Return the code version and the parameters as stored in `COMPUTED_DAYS`."""
    # The presentation of the report does not affect the tables.
    computing = {name: section for name, section in parameters.as_dict().items() if name != "report"}
    return __version__, json.dumps(computing, sort_keys=True)


def _window(work: Work) -> Window:
    back = LATE_DAYS if work.accept_late else 0
    latest = max(work.last_day + timedelta(days=1), datetime.now(tz=UTC).date() + timedelta(days=1))
    return Window(work.first_day - timedelta(days=back), latest)


def _computed(work: Work) -> dict[date, Computed]:
    """The computed days that a run may affect."""
    since = work.first_day - timedelta(days=LATE_DAYS)
    known = [day for day in work.warehouse.computed_days() if day >= since]
    if not known:
        return {}
    days = work.warehouse.read(COMPUTED_DAYS, first_day=since, last_day=max(known))
    return {row["dt"]: Computed(row["rows"], (row["code_version"], row["parameters"])) for row in days.collect()}


def _rows(work: Work, window: Window, last_computed: date) -> dict[date, int]:
    last_day = min(last_computed, work.last_day + timedelta(days=LATE_DAYS))
    first_day = min(window.first_day, work.first_day)
    events = work.warehouse.rows_after_run(REGISTRATION_EVENTS, first_day=first_day, last_day=last_day)
    return counted(events)


def _ends_in_hole(work: Work, day: date) -> bool:
    """Whether the first rows after a day show a hole that its ``observer_windows`` lack."""
    after = day + timedelta(days=1)
    held = work.warehouse.rows_after_run(REGISTRATION_EVENTS, first_day=day, last_day=after)
    windows = work.warehouse.read(OBSERVER_WINDOWS, first_day=day, last_day=day)
    return not unseen_holes(held, windows, day=day).isEmpty()


def _of_files(work: Work, taken: Taken) -> tuple[int, int, int, int, int]:
    """The number of files that may have rows of the days, of files read, and of rows skipped in the former by any
    run."""
    files = files_that_may_hold(taken.files, first_day=work.first_day)
    entries = taken.entries_of(files)
    ahead, late, misdated = (most_by_name(entries, count) for count in ("ahead_rows", "late_rows", "misdated_rows"))
    return len(files), len(taken.read), ahead, late, misdated


def _log_days(work: Work, days: DayRange) -> None:
    if days.late_days:
        work.log(f"late rows of {_listed(days.late_days)}: recomputing from {days.first_day}")
        work.log("the report pages of those days are unchanged: backfill a day to rewrite its page")
    if days.last_day > work.last_day:
        work.log(f"the days to {days.last_day} continue from these: recomputing them too")
    if days.stale_after:
        work.log(f"the days after {days.stale_after} were computed from an older state: backfill them too")


def _listed(days: Iterable[date]) -> str:
    return ", ".join(day.isoformat() for day in days)


def _stage_computed_days(work: Work, counts: Mapping[date, int]) -> None:
    days, before = days_from(work.first_day, work.last_day), work.warehouse.computed_days()
    made = made_by(work.parameters)
    rows = [
        (day, counts.get(day, 0), WAREHOUSE_VERSION, *made, day > days[0] or day - timedelta(days=1) in before)
        for day in days
    ]
    work.warehouse.stage(COMPUTED_DAYS, work.warehouse.rows(rows, COMPUTED_DAYS.schema))


def _observer_windows(work: Work) -> None:
    warehouse, days = work.warehouse, {"first_day": work.first_day, "last_day": work.last_day}
    warehouse.show(**days)
    before = warehouse.read(OBSERVER_WINDOWS, first_day=work.day_before, last_day=work.day_before)
    near = warehouse.rows_after_run(
        REGISTRATION_EVENTS, first_day=work.first_day, last_day=work.last_day + timedelta(days=1)
    )
    events = warehouse.staged(REGISTRATION_EVENTS)
    warehouse.stage(OBSERVER_WINDOWS, observer_windows(events, near, before, **days))
