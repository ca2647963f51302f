"""Compute every table of a range of days from raw history, in one pass."""

from __future__ import annotations

import time
from datetime import timedelta
from functools import partial

from pointsman_report.io import days_from
from pointsman_report.jobs import history_reading, stages
from pointsman_report.jobs.history_reading import Read, Work, made_by
from pointsman_report.parallel import run_parallel
from pointsman_report.run import Run
from pointsman_report.schemas import WAREHOUSE_VERSION
from pointsman_report.schemas.history_tables import COMPUTED_DAYS

STAGES = (
    ((stages.run_liveness,), "intervals of every broker, merged over the name servers"),
    (
        (stages.run_flapping, stages.run_topics, stages.run_health),
        "flap score and the state for the next day, topics, health",
    ),
    ((stages.run_blast_radius, stages.run_hot_queues), "topics affected by incidents, queues that need action"),
)
"""The stages of a line are independent of each other."""


def compute(work: Work) -> Run:
    """Compute and publish every table of the days, continuing from the day before if it is in the warehouse."""
    warehouse, since = work.warehouse, time.monotonic()

    def done(what: str) -> None:
        nonlocal since
        now = time.monotonic()
        work.log(f"{now - since:6.1f} s  {what}")
        since = now

    try:
        read = history_reading.read_history(work)
        done(f"read {read.files_read} history files, {read.files - read.files_read} were read before")
        for stages, what in STAGES:
            run_parallel(*(partial(stage, read.work) for stage in stages))
            done(what)
        _stage_computed_days(read)
        warehouse.publish(first_day=read.days.first_day, last_day=read.days.last_day)
        done("tables published")
    except BaseException:  # clean-up that raises again
        warehouse.discard()
        raise
    continues = work.day_before in warehouse.computed_days()
    return Run(
        files=read.files,
        continues_yesterday=continues,
        ends_before=None if continues else warehouse.last_day_before(work.first_day),
        rows_ahead=read.rows_ahead,
        rows_too_late=read.rows_too_late,
        rows_misdated=read.rows_misdated,
        stale_after=read.days.stale_after,
        files_read=read.files_read,
        late_days=read.days.late_days,
        first_day=read.days.first_day,
        last_day=read.days.last_day,
    )


def _stage_computed_days(read: Read) -> None:
    warehouse, days = read.work.warehouse, days_from(read.days.first_day, read.days.last_day)
    before = warehouse.computed_days()
    rows = [
        (
            day,
            read.rows.get(day, 0),
            WAREHOUSE_VERSION,
            *made_by(read.work.parameters),
            day > days[0] or day - timedelta(days=1) in before,
        )
        for day in days
    ]
    warehouse.stage("computed_days", warehouse.rows(rows, COMPUTED_DAYS))
