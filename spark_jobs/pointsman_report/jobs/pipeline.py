"""Compute every table of a range of days from raw history, in one pass."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

from pyspark.sql import DataFrame

from pointsman_report.jobs import history_reading
from pointsman_report.jobs.history_reading import Work
from pointsman_report.jobs.stage_graph import Before, Context, Intermediate, Part, Since, Stage
from pointsman_report.jobs.stages import STAGES
from pointsman_report.parallel import run_ordered
from pointsman_report.run import Run
from pointsman_report.schemas import Table

MAX_STAGES = 8
"""Stages that run in parallel: most of them are small queries."""
SLOWEST = 5
"""Number of stages whose durations are logged."""


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
        run_stages(STAGES, read.work, done=done)
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


def run_stages(parts: Sequence[Part], work: Work, *, done: Callable[[str], None] = lambda _: None) -> None:
    """Run each stage as soon as its inputs are written, and stage its table or keep its intermediate rows.

    Tables that none of these stages writes must be staged. ``done`` is called with the title of each finished part.
    """
    part_of = {stage.writes: part.title for part in parts for stage in part.stages}
    stages = {stage.writes: stage for part in parts for stage in part.stages}
    unfinished = Counter(part_of.values())
    running = _Running(work)

    def finished(name: Table | Intermediate) -> None:
        unfinished[part_of[name]] -= 1
        if not unfinished[part_of[name]]:
            done(part_of[name])

    seconds = run_ordered(
        {name: partial(running.run, stage) for name, stage in stages.items()},
        {name: [each for each in stage.inputs if each in stages] for name, stage in stages.items()},
        most=MAX_STAGES,
        done=finished,
    )
    slowest = sorted(seconds, key=seconds.__getitem__, reverse=True)[:SLOWEST]
    if slowest:
        work.log(f"          slowest stages: {', '.join(f'{name} {seconds[name]:.1f} s' for name in slowest)}")


class _Running:
    """Runs stages, and has the rows that they wrote."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._written: dict[str, DataFrame] = {}

    def run(self, stage: Stage) -> float:
        """Write the rows of a stage, and return the seconds it took."""
        began = time.monotonic()
        work, name = self._work, stage.writes
        checkpoint = partial(work.warehouse.materialize, f"{name}_checkpoint")
        context = Context(work.first_day, work.last_day, work.parameters, checkpoint)
        rows = stage.compute(context, *map(self._rows, stage.reads))
        write = work.warehouse.stage if isinstance(name, Table) else work.warehouse.materialize
        self._written[name] = write(name, rows)
        return time.monotonic() - began

    def _rows(self, read: Table | Intermediate | Before) -> DataFrame:
        work = self._work
        if isinstance(read, Before):
            since = work.first_day - timedelta(days=read.days(work.parameters))
            before = work.warehouse.read(read.table, first_day=since, last_day=work.day_before)
            return before.unionByName(self._rows(read.table)) if isinstance(read, Since) else before
        if read not in self._written:
            self._written[read] = work.warehouse.staged(read)
        return self._written[read]
