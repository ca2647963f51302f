"""The first stage: from raw history to typed rows, which days to compute, and when the name servers watched."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

from pointsman_report import __version__
from pointsman_report.io import days_from, files_that_may_hold
from pointsman_report.jobs.day_range import LATE_DAYS, Computed, DayRange, day_range
from pointsman_report.jobs.intake import Taken, counted, take
from pointsman_report.jobs.ledger import Window, most_by_name
from pointsman_report.jobs.work import Work
from pointsman_report.parameters import Parameters
from pointsman_report.transforms import history_rows
from pointsman_report.transforms.observer_windows import observer_windows


@dataclass(frozen=True, slots=True)
class Read:
    """What was read, and what is to be computed."""

    work: Work
    """That which was asked for, with the days that are computed."""
    files: int
    files_read: int
    rows_ahead: int
    rows_too_late: int
    rows_misdated: int
    days: DayRange
    rows: dict[date, int]


def run(work: Work) -> Read:
    """Stage ``registration_events``, ``quarantine``, ``ingested_files`` and ``observer_windows``."""
    computed = _computed(work)
    window = _window(work)
    reread = frozenset(days_from(work.first_day, work.last_day)) if work.reread else frozenset[date]()
    taken = take(work.history, work.warehouse, window, reread=reread, say=work.say)
    rows = _rows(work, window, max((*computed, work.last_day)))
    days = day_range(
        work.first_day,
        work.last_day,
        rows=rows,
        computed=computed,
        made_by=made_by(work.parameters),
        looks_back=work.looks_back,
        reread=work.reread,
    )
    _say(work, days)
    wider = replace(work, first_day=days.first_day, last_day=days.last_day)
    _observer_windows(wider)
    return Read(wider, *_of_files(work, taken), days, rows)


def made_by(parameters: Parameters) -> tuple[str, str]:
    """What stands in ``computed_days`` of the code and the parameters that computed a day."""
    # How a report is told changes no table.
    computing = {name: section for name, section in parameters.as_dict().items() if name != "report"}
    return __version__, json.dumps(computing, sort_keys=True)


def _window(work: Work) -> Window:
    back = LATE_DAYS if work.looks_back else 0
    latest = max(work.last_day + timedelta(days=1), datetime.now(tz=UTC).date() + timedelta(days=1))
    return Window(work.first_day - timedelta(days=back), latest)


def _computed(work: Work) -> dict[date, Computed]:
    """Every day that was computed, of those that a run may touch and later."""
    since = work.first_day - timedelta(days=LATE_DAYS)
    known = [day for day in work.warehouse.computed_days() if day >= since]
    if not known:
        return {}
    days = work.warehouse.read("computed_days", first_day=since, last_day=max(known))
    return {row["dt"]: Computed(row["rows"], (row["code_version"], row["parameters"])) for row in days.collect()}


def _rows(work: Work, window: Window, last_computed: date) -> dict[date, int]:
    last_day = min(last_computed, work.last_day + timedelta(days=LATE_DAYS))
    first_day = min(window.first_day, work.first_day)
    events = work.warehouse.as_will_be("registration_events", first_day=first_day, last_day=last_day)
    return counted(events)


def _of_files(work: Work, taken: Taken) -> tuple[int, int, int, int, int]:
    """Files that may hold the days, files read, and the rows of the former that were left aside, however long ago."""
    files = files_that_may_hold(taken.files, first_day=work.first_day)
    entries = taken.entries_of(files)
    ahead, late, misdated = (most_by_name(entries, count) for count in ("ahead_rows", "late_rows", "misdated_rows"))
    return len(files), len(taken.read), ahead, late, misdated


def _say(work: Work, days: DayRange) -> None:
    if days.late_days:
        work.say(f"late rows of {_listed(days.late_days)}: computed anew from {days.first_day}")
        work.say("the pages of those days are as they were: backfill of a day writes its page anew")
    if days.last_day > work.last_day:
        work.say(f"the days to {days.last_day} continue from these: computed anew too")
    if days.stale_after:
        work.say(f"the days after {days.stale_after} were computed from another state: backfill them too")


def _listed(days: Iterable[date]) -> str:
    return ", ".join(day.isoformat() for day in days)


def _observer_windows(work: Work) -> None:
    warehouse, days = work.warehouse, {"first_day": work.first_day, "last_day": work.last_day}
    warehouse.show(**days)
    before = warehouse.read("observer_windows", first_day=work.day_before, last_day=work.day_before)
    near = warehouse.as_will_be(
        "registration_events", first_day=work.first_day, last_day=work.last_day + timedelta(days=1)
    )
    events = warehouse.staged("registration_events")
    warehouse.stage("observer_windows", observer_windows(events, history_rows.heard(near), before, **days))
