"""The third stage: incidents, what brokers are charged for, their class and rank, and the state for the next day."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pointsman_report.jobs.work import Work
from pointsman_report.schemas import INSTANCE
from pointsman_report.together import together
from pointsman_report.transforms import utc_days
from pointsman_report.transforms.broker_intervals import broker_state, state_at_day_end
from pointsman_report.transforms.flap_classes import causes, flapped_days, flapping, moments, seen_days
from pointsman_report.transforms.flap_penalty import (
    charges,
    heard_well,
    penalties,
    penalty_days,
    running_sums,
    scored_days,
    sign_rows,
    signs,
)
from pointsman_report.transforms.flap_ranking import broker_days, flap_ranking, longest_stable, state_changes
from pointsman_report.transforms.incidents import incidents, members, outages, places, rolling_outages, rolling_restarts
from pointsman_report.transforms.observer_periods import guard_periods
from pointsman_report.transforms.opinions import at_day_end
from pointsman_report.transforms.outage_causes import (
    downs,
    early_rows,
    fact_rows,
    how_it_went,
    incident_causes,
    near_rows,
    outage_causes,
    outages_with_facts,
    what_came_back,
)

_BROKER_DAY = ["dt", *INSTANCE]


def run(work: Work) -> None:
    """Stage the tables of `schemas.flapping`, and ``broker_state``."""
    in_incidents, at_end, states, _ = together(
        lambda: _incidents(work), lambda: _at_day_end(work), lambda: _state_changes(work), lambda: _guard_periods(work)
    )
    days_known = _days_known(work, in_incidents, at_end, states)
    together(lambda: _classes(work, days_known), lambda: _state(work, days_known))


def _incidents(work: Work) -> DataFrame:
    """Stage ``incidents``, ``rolling_restarts`` and ``outage_causes``; return the outages that belong to incidents."""
    warehouse = work.warehouse
    intervals, available, facts = map(warehouse.staged, ("broker_intervals", "availability", "broker_facts"))
    where = places(available, facts)
    found = warehouse.aside("members", members(outages(intervals), where, parameters=work.parameters.incidents))
    causes = _outage_causes(work, found)
    warehouse.stage("incidents", incidents(found, where, incident_causes(causes)))
    return found


def _outage_causes(work: Work, in_incidents: DataFrame) -> DataFrame:
    warehouse = work.warehouse
    intervals = warehouse.staged("broker_intervals").unionByName(_day_before(work, "broker_intervals"))
    events = fact_rows(warehouse.set_aside("rare_events"))
    before = fact_rows(early_rows(_day_before(work, "registration_events"), work.first_day))
    near = warehouse.aside("near_outages", near_rows(events.unionByName(before), downs(intervals)))
    yesterday = _day_before(work, "outage_causes")
    rows = warehouse.aside(
        "outages_with_facts",
        outages_with_facts(
            intervals, how_it_went(near), what_came_back(near), in_incidents, yesterday, first_day=work.first_day
        ),
    )
    rolling = warehouse.aside("rolling", rolling_outages(rows, parameters=work.parameters.incidents))
    warehouse.stage("rolling_restarts", rolling_restarts(rolling))
    return warehouse.stage("outage_causes", outage_causes(rows, rolling))


def _guard_periods(work: Work) -> DataFrame:
    rare, windows = work.warehouse.set_aside("rare_events"), work.warehouse.staged("observer_windows")
    yesterday = _day_before(work, "guard_periods")
    span = {"first_day": work.first_day, "last_day": work.last_day}
    return work.warehouse.stage("guard_periods", guard_periods(rare, windows, yesterday, **span))


def _at_day_end(work: Work) -> DataFrame:
    steps = work.warehouse.set_aside("steps")
    return work.warehouse.aside("at_day_end", state_at_day_end(steps, last_day=work.last_day))


def _state_changes(work: Work) -> DataFrame:
    """Nagios' percentage, and the longest stable time, of each broker's day."""
    intervals = work.warehouse.staged("broker_intervals")
    since_yesterday = intervals.unionByName(_day_before(work, "broker_intervals"))
    span = {"first_day": work.first_day, "last_day": work.last_day}
    changes = state_changes(since_yesterday, **span, parameters=work.parameters.ranking)
    return work.warehouse.aside("states", changes.join(longest_stable(intervals), on=_BROKER_DAY, how="full"))


def _days_known(work: Work, in_incidents: DataFrame, at_end: DataFrame, states: DataFrame) -> DataFrame:
    """Stage ``flap_charges`` and return all that is known of each broker's day."""
    warehouse, parameters = work.warehouse, work.parameters.flapping
    state = _day_before(work, "broker_state")
    available = warehouse.staged("availability")
    known = at_end.select(*_BROKER_DAY)
    sums = warehouse.aside("sums", running_sums(_charged(work, in_incidents), parameters=parameters))
    starts = warehouse.aside("starts", penalty_days(sums, known, state, parameters=parameters))
    charged = warehouse.stage("flap_charges", penalties(sums, starts))
    per_day = warehouse.aside("scored_days", scored_days(charged, starts, state, parameters=parameters))
    days_known = (
        at_end.join(flapped_days(per_day, state), on=_BROKER_DAY, how="inner")
        .join(seen_days(known, available, state), on=_BROKER_DAY, how="inner")
        .join(_of_day(work, in_incidents, states), on=_BROKER_DAY, how="left")
    )
    return warehouse.aside("days_known", days_known)


def _classes(work: Work, days_known: DataFrame) -> None:
    """Stage ``flapping`` and ``flap_ranking``."""
    blind = work.warehouse.staged("blind_periods")
    work.warehouse.stage("flapping", flapping(days_known, blind, parameters=work.parameters.flapping))
    _ranking(work)


def _state(work: Work, days_known: DataFrame) -> None:
    """Stage ``broker_state``."""
    said = work.warehouse.set_aside("opinions")
    ends = at_day_end(said, first_day=work.first_day, last_day=work.last_day)
    work.warehouse.stage("broker_state", broker_state(days_known, ends))


def _charged(work: Work, in_incidents: DataFrame) -> DataFrame:
    parameters, intervals = work.parameters.flapping, work.warehouse.staged("broker_intervals")
    rows = sign_rows(work.warehouse.staged("registration_events"))
    # Spark passes over the files' parts that hold only earlier rows.
    last_slot = utc_days.start_of(work.first_day) - int(parameters.same_sign_seconds * utc_days.SECOND)
    late = F.col("event_at") >= F.timestamp_micros(F.lit(last_slot))
    before = sign_rows(_day_before(work, "registration_events").filter(late))
    blind = work.warehouse.staged("blind_periods").unionByName(_day_before(work, "blind_periods"))
    heard = heard_well(rows.unionByName(before), blind)
    seen = signs(heard, first_day=work.first_day, last_day=work.last_day, parameters=parameters)
    windows = work.warehouse.staged("maintenance_windows").unionByName(_day_before(work, "maintenance_windows"))
    return charges(outages(intervals), in_incidents, intervals, seen, windows, parameters=parameters)


def _of_day(work: Work, in_incidents: DataFrame, states: DataFrame) -> DataFrame:
    """What else is known of each broker that was watched on a day."""
    tables = ("availability", "broker_intervals", "flap_charges", "broker_changes", "partial_views", "outage_causes")
    available, intervals, charged, changes, views, known = map(work.warehouse.staged, tables)
    watched = F.col("up_seconds") + F.col("down_seconds") + F.col("planned_seconds")
    happened = moments(outages(intervals), charged, intervals, changes)
    facts = (
        in_incidents.groupBy(*_BROKER_DAY).agg(F.count("*").alias("incident_downs")),
        states,
        causes(happened, views, known),
    )
    told = available.select(*_BROKER_DAY, "outages", "down_seconds", watched.alias("watched_seconds"))
    for fact in facts:
        told = told.join(fact, on=_BROKER_DAY, how="left")
    return told


def _ranking(work: Work) -> None:
    """Stage ``flap_ranking``."""
    warehouse, parameters = work.warehouse, work.parameters.ranking
    before = {"first_day": work.first_day - timedelta(days=parameters.days - 1), "last_day": work.day_before}
    available, classed = (
        warehouse.read(table, **before).unionByName(warehouse.staged(table)) for table in ("availability", "flapping")
    )
    ranked = flap_ranking(
        broker_days(available, classed), first_day=work.first_day, last_day=work.last_day, parameters=parameters
    )
    warehouse.stage("flap_ranking", ranked)


def _day_before(work: Work, table: str) -> DataFrame:
    return work.warehouse.read(table, first_day=work.day_before, last_day=work.day_before)
