"""The second stage: who was up and down when, merged over the name servers, and how well those watched."""

from __future__ import annotations

from pyspark.sql import DataFrame

from pointsman_report.jobs.work import Work
from pointsman_report.together import together
from pointsman_report.transforms.broker_facts import broker_changes, broker_facts, told_facts
from pointsman_report.transforms.broker_intervals import availability, broker_intervals, partial_views
from pointsman_report.transforms.namesrv_days import namesrv_days, observer_clocks
from pointsman_report.transforms.observer_periods import blind_periods, maintenance_windows
from pointsman_report.transforms.opinions import any_missing, opinions, rare_events, stated, with_losses
from pointsman_report.transforms.vote_sweep import sweep, votes


def run(work: Work) -> None:
    """Stage the tables of `schemas.liveness` that are not staged before or after.

    Aside: ``rare_events``, ``opinions`` and ``steps``.
    """
    rare = work.warehouse.aside("rare_events", rare_events(work.warehouse.staged("registration_events")))
    together(lambda: _intervals(work, rare), lambda: _facts(work, rare))


def _intervals(work: Work, rare: DataFrame) -> None:
    warehouse, days = work.warehouse, {"first_day": work.first_day, "last_day": work.last_day}
    events, windows = warehouse.staged("registration_events"), warehouse.staged("observer_windows")
    state, blind_before, maintenance_before = (
        warehouse.read(table, first_day=work.day_before, last_day=work.day_before)
        for table in ("broker_state", "blind_periods", "maintenance_windows")
    )
    blind, _ = together(
        lambda: warehouse.stage("blind_periods", blind_periods(rare, windows, blind_before, **days)),
        lambda: warehouse.stage("maintenance_windows", maintenance_windows(rare, maintenance_before, **days)),
    )
    rows = stated(rare, events, windows, state)
    if any_missing(windows, state):
        rows = with_losses(warehouse.aside("stated", rows), rare, windows)
    said = warehouse.aside("opinions", opinions(rows, windows))
    cast = warehouse.aside("votes", votes(said, blind))
    steps = warehouse.aside("steps", sweep(cast, state, first_day=work.first_day))
    together(
        lambda: _availability(work, steps),
        lambda: warehouse.stage("partial_views", partial_views(steps, cast, last_day=work.last_day)),
        lambda: warehouse.stage("namesrv_days", namesrv_days(rare, windows, blind)),
    )


def _availability(work: Work, steps: DataFrame) -> DataFrame:
    found = broker_intervals(steps, first_day=work.first_day, last_day=work.last_day)
    return work.warehouse.stage("availability", availability(work.warehouse.stage("broker_intervals", found)))


def _facts(work: Work, rare: DataFrame) -> None:
    warehouse, days = work.warehouse, {"first_day": work.first_day, "last_day": work.last_day}
    facts_before = warehouse.read("broker_facts", first_day=work.day_before, last_day=work.day_before)
    told = warehouse.aside("told_facts", told_facts(rare, facts_before))
    together(
        lambda: warehouse.stage("broker_facts", broker_facts(told, **days)),
        lambda: warehouse.stage("broker_changes", broker_changes(told, rare)),
        lambda: warehouse.stage("observer_clocks", observer_clocks(warehouse.staged("registration_events"))),
    )
