"""From raw history to every table of a range of days, in one pass however long the range."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.files import RawFile
from spark_jobs.io import History, Warehouse
from spark_jobs.parameters import FlapParameters
from spark_jobs.schemas import INSTANCE
from spark_jobs.transforms import ingest
from spark_jobs.transforms.availability import availability
from spark_jobs.transforms.broker_state import broker_state
from spark_jobs.transforms.charges import charges
from spark_jobs.transforms.flapping import flapped_days, flapping, seen_days
from spark_jobs.transforms.intervals import broker_intervals, state_at_day_end
from spark_jobs.transforms.observers import observer_windows
from spark_jobs.transforms.opinions import at_day_end, opinions
from spark_jobs.transforms.penalty import penalties, penalty_days, running_sums, scored_days
from spark_jobs.transforms.sweep import sweep

MOST_READS = 3
"""How often the history is read anew when a file of it was packed or removed meanwhile."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Run:
    """What a run read and continued."""

    files: int
    continues_yesterday: bool
    ends_before: date | None
    """Where the days before this one were missing: the last day that the warehouse holds before them."""
    rows_ahead: int
    """Rows dated later than they can have been written."""


class _Stages:
    """Says what is being done and how long the last thing took."""

    def __init__(self, say: Progress) -> None:
        self._say = say
        self._since = time.monotonic()

    def done(self, what: str) -> None:
        now = time.monotonic()
        self._say(f"{now - self._since:6.1f} s  {what}")
        self._since = now


def compute(
    history: History,
    warehouse: Warehouse,
    *,
    first_day: date,
    last_day: date,
    parameters: FlapParameters,
    say: Progress,
) -> Run:
    """Compute and publish every table of the days first..last, continuing from the day before if it is there."""
    stages = _Stages(say)
    day_before = first_day - timedelta(days=1)
    state = warehouse.read("broker_state", first_day=day_before, last_day=day_before)
    windows_before = warehouse.read("observer_windows", first_day=day_before, last_day=day_before)
    try:
        files, parsed = _read(history, warehouse, first_day=first_day)
        events = warehouse.stage(
            "registration_events", ingest.registration_events(parsed, first_day=first_day, last_day=last_day)
        )
        warehouse.stage("quarantine", ingest.quarantine(parsed, first_day=first_day, last_day=last_day))
        heard = ingest.heard(parsed, first_day=first_day, last_day=last_day)
        ahead = ingest.rows_ahead(parsed, last_day=last_day, now=datetime.now(tz=UTC)).count()
        windows = warehouse.stage(
            "observer_windows",
            observer_windows(events, heard, windows_before, first_day=first_day, last_day=last_day),
        )
        stages.done(f"read {len(files)} files of history")

        said = warehouse.aside("opinions", opinions(events, windows, state, first_day=first_day))
        steps = warehouse.aside("steps", sweep(said, state, first_day=first_day))
        intervals = warehouse.stage("broker_intervals", broker_intervals(steps, first_day=first_day, last_day=last_day))
        available = warehouse.stage("availability", availability(intervals))
        stages.done("intervals of every broker, merged over the name servers")

        at_end = warehouse.aside("at_day_end", state_at_day_end(steps, last_day=last_day))
        known = at_end.select("dt", *INSTANCE)
        charged = charges(events, intervals, parameters=parameters)
        sums = warehouse.aside("sums", running_sums(charged, parameters=parameters))
        starts = warehouse.aside("starts", penalty_days(sums, known, state, parameters=parameters))
        scored = warehouse.aside("scored", penalties(sums, starts, parameters=parameters))
        warehouse.stage("flap_charges", scored)
        per_day = warehouse.aside("scored_days", scored_days(scored, starts, state, parameters=parameters))
        watched = F.col("up_seconds") + F.col("down_seconds") + F.col("planned_seconds")
        of_day = available.select("dt", *INSTANCE, "outages", "down_seconds", watched.alias("watched_seconds"))
        days_known = (
            at_end.join(flapped_days(per_day, state), on=["dt", *INSTANCE], how="inner")
            .join(seen_days(known, available, state), on=["dt", *INSTANCE], how="inner")
            .join(of_day, on=["dt", *INSTANCE], how="left")
        )
        days_known = warehouse.aside("days_known", days_known)
        warehouse.stage("flapping", flapping(days_known, parameters=parameters))
        ends = at_day_end(said, first_day=first_day, last_day=last_day)
        warehouse.stage("broker_state", broker_state(days_known, ends))
        stages.done("flap score, and the state for the next day")
        warehouse.publish(first_day=first_day, last_day=last_day)
        stages.done("tables published")
    except BaseException:
        warehouse.discard()
        raise
    continues = warehouse.has("broker_state", day_before)
    ends_before = None if continues else warehouse.last_day_before(first_day)
    return Run(files=len(files), continues_yesterday=continues, ends_before=ends_before, rows_ahead=ahead)


def _read(history: History, warehouse: Warehouse, *, first_day: date) -> tuple[list[RawFile], DataFrame]:
    """List and read the history; once more when a name server packed a file between the two."""
    for reads in range(1, MOST_READS + 1):
        files = history.files(first_day=first_day)
        try:
            return files, warehouse.aside("parsed", ingest.parsed_lines(history.lines(files)))
        except Exception:
            if reads == MOST_READS or not history.any_gone(files):
                raise
    raise AssertionError("unreachable")
