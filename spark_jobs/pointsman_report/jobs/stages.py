"""The stages after the first; each reads the tables of earlier stages and stages its own.

`run_liveness`: up and down intervals of brokers, merged over the name servers, and the name servers' coverage.
`run_flapping`: incidents, penalty, class and rank of brokers, and the state for the next day.
`run_topics`: topics and queues over time, topics at risk; then topics affected by incidents.
`run_health`: health of clusters, heartbeats and queues; then queues that need action.
"""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pointsman_report.jobs.history_reading import Work
from pointsman_report.parallel import run_parallel
from pointsman_report.schemas import INSTANCE
from pointsman_report.transforms import utc_days
from pointsman_report.transforms.broker_facts import broker_changes, broker_facts, ordered_facts
from pointsman_report.transforms.broker_intervals import (
    availability,
    broker_intervals,
    broker_state,
    partial_views,
    state_at_day_end,
)
from pointsman_report.transforms.cluster_health import cluster_health
from pointsman_report.transforms.flap_classes import causes, flapped_days, flapping, moments, seen_days
from pointsman_report.transforms.flap_penalty import (
    charges,
    penalties,
    penalty_days,
    running_sums,
    scored_days,
    sign_rows,
    signs,
    without_blind,
)
from pointsman_report.transforms.flap_ranking import broker_days, flap_ranking, longest_stable, state_changes
from pointsman_report.transforms.heartbeat_histograms import beats, heartbeat_histogram, heartbeat_punctuality
from pointsman_report.transforms.hot_queues import hot_groups, key_skew, too_many_queues
from pointsman_report.transforms.incidents import incidents, members, outages, places, rolling_outages, rolling_restarts
from pointsman_report.transforms.namesrv_days import namesrv_days, observer_clocks
from pointsman_report.transforms.observer_periods import blind_periods, guard_periods, maintenance_windows
from pointsman_report.transforms.opinions import any_missing, at_day_end, opinions, rare_events, stated, with_losses
from pointsman_report.transforms.outage_causes import (
    downs,
    early_rows,
    fact_rows,
    incident_causes,
    near_rows,
    outage_causes,
    outage_signals,
    outages_with_facts,
    recovery_facts,
)
from pointsman_report.transforms.queue_reports import group_lag, queue_reports, queue_stats, topic_load
from pointsman_report.transforms.topic_holdings import blast_radius, holdings, holdings_at_risk, topics_at_risk
from pointsman_report.transforms.topic_intervals import statements, topic_churn, topic_intervals
from pointsman_report.transforms.vote_sweep import sweep, votes

_BROKER_DAY = ["dt", *INSTANCE]


def run_liveness(work: Work) -> None:
    """Stage the tables of `schemas.liveness_tables` that are not staged before or after.

    Intermediate: ``rare_events``, ``opinions`` and ``steps``.
    """
    rare = work.warehouse.materialize("rare_events", rare_events(work.warehouse.staged("registration_events")))
    run_parallel(lambda: _intervals(work, rare), lambda: _facts(work, rare))


def _intervals(work: Work, rare: DataFrame) -> None:
    warehouse, days = work.warehouse, {"first_day": work.first_day, "last_day": work.last_day}
    events, windows = warehouse.staged("registration_events"), warehouse.staged("observer_windows")
    state, blind_before, maintenance_before = (
        warehouse.read(table, first_day=work.day_before, last_day=work.day_before)
        for table in ("broker_state", "blind_periods", "maintenance_windows")
    )
    blind, _ = run_parallel(
        lambda: warehouse.stage("blind_periods", blind_periods(rare, windows, blind_before, **days)),
        lambda: warehouse.stage("maintenance_windows", maintenance_windows(rare, maintenance_before, **days)),
    )
    rows = stated(rare, events, windows, state)
    if any_missing(windows, state):
        rows = with_losses(warehouse.materialize("stated", rows), rare, windows)
    held = warehouse.materialize("opinions", opinions(rows, windows))
    cast = warehouse.materialize("votes", votes(held, blind))
    steps = warehouse.materialize("steps", sweep(cast, state, first_day=work.first_day))
    run_parallel(
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
    facts = warehouse.materialize("ordered_facts", ordered_facts(rare, facts_before))
    run_parallel(
        lambda: warehouse.stage("broker_facts", broker_facts(facts, **days)),
        lambda: warehouse.stage("broker_changes", broker_changes(facts, rare)),
        lambda: warehouse.stage("observer_clocks", observer_clocks(warehouse.staged("registration_events"))),
    )


def run_flapping(work: Work) -> None:
    """Stage the tables of `schemas.flapping`, and ``broker_state``."""
    in_incidents, at_end, states, _ = run_parallel(
        lambda: _incidents(work), lambda: _at_day_end(work), lambda: _state_changes(work), lambda: _guard_periods(work)
    )
    days_known = _days_known(work, in_incidents, at_end, states)
    run_parallel(lambda: _classes(work, days_known), lambda: _state(work, days_known))


def _incidents(work: Work) -> DataFrame:
    """Stage ``incidents``, ``rolling_restarts`` and ``outage_causes``; return the outages that belong to incidents."""
    warehouse = work.warehouse
    intervals, available, facts = map(warehouse.staged, ("broker_intervals", "availability", "broker_facts"))
    where = places(available, facts)
    found = warehouse.materialize("members", members(outages(intervals), where, parameters=work.parameters.incidents))
    causes = _outage_causes(work, found)
    warehouse.stage("incidents", incidents(found, where, incident_causes(causes)))
    return found


def _outage_causes(work: Work, in_incidents: DataFrame) -> DataFrame:
    warehouse = work.warehouse
    intervals = warehouse.staged("broker_intervals").unionByName(_day_before(work, "broker_intervals"))
    events = fact_rows(warehouse.materialized("rare_events"))
    before = fact_rows(early_rows(_day_before(work, "registration_events"), work.first_day))
    near = warehouse.materialize("near_outages", near_rows(events.unionByName(before), downs(intervals)))
    yesterday = _day_before(work, "outage_causes")
    rows = warehouse.materialize(
        "outages_with_facts",
        outages_with_facts(
            intervals, outage_signals(near), recovery_facts(near), in_incidents, yesterday, first_day=work.first_day
        ),
    )
    rolling = warehouse.materialize("rolling", rolling_outages(rows, parameters=work.parameters.incidents))
    warehouse.stage("rolling_restarts", rolling_restarts(rolling))
    return warehouse.stage("outage_causes", outage_causes(rows, rolling))


def _guard_periods(work: Work) -> DataFrame:
    rare, windows = work.warehouse.materialized("rare_events"), work.warehouse.staged("observer_windows")
    yesterday = _day_before(work, "guard_periods")
    span = {"first_day": work.first_day, "last_day": work.last_day}
    return work.warehouse.stage("guard_periods", guard_periods(rare, windows, yesterday, **span))


def _at_day_end(work: Work) -> DataFrame:
    steps = work.warehouse.materialized("steps")
    return work.warehouse.materialize("at_day_end", state_at_day_end(steps, last_day=work.last_day))


def _state_changes(work: Work) -> DataFrame:
    """Nagios' percentage, and the longest stable time, of each broker's day."""
    intervals = work.warehouse.staged("broker_intervals")
    since_yesterday = intervals.unionByName(_day_before(work, "broker_intervals"))
    span = {"first_day": work.first_day, "last_day": work.last_day}
    changes = state_changes(since_yesterday, **span, parameters=work.parameters.ranking)
    return work.warehouse.materialize("states", changes.join(longest_stable(intervals), on=_BROKER_DAY, how="full"))


def _days_known(work: Work, in_incidents: DataFrame, at_end: DataFrame, states: DataFrame) -> DataFrame:
    """Stage ``flap_charges`` and return all facts about each broker's day."""
    warehouse, parameters = work.warehouse, work.parameters.flapping
    state = _day_before(work, "broker_state")
    available = warehouse.staged("availability")
    known = at_end.select(*_BROKER_DAY)
    sums = warehouse.materialize("sums", running_sums(_charged(work, in_incidents), parameters=parameters))
    starts = warehouse.materialize("starts", penalty_days(sums, known, state, parameters=parameters))
    charged = warehouse.stage("flap_charges", penalties(sums, starts))
    per_day = warehouse.materialize("scored_days", scored_days(charged, starts, state, parameters=parameters))
    days_known = (
        at_end.join(flapped_days(per_day, state), on=_BROKER_DAY, how="inner")
        .join(seen_days(known, available, state), on=_BROKER_DAY, how="inner")
        .join(_of_day(work, in_incidents, states), on=_BROKER_DAY, how="left")
    )
    return warehouse.materialize("days_known", days_known)


def _classes(work: Work, days_known: DataFrame) -> None:
    """Stage ``flapping`` and ``flap_ranking``."""
    blind = work.warehouse.staged("blind_periods")
    work.warehouse.stage("flapping", flapping(days_known, blind, parameters=work.parameters.flapping))
    _ranking(work)


def _state(work: Work, days_known: DataFrame) -> None:
    """Stage ``broker_state``."""
    held = work.warehouse.materialized("opinions")
    ends = at_day_end(held, first_day=work.first_day, last_day=work.last_day)
    work.warehouse.stage("broker_state", broker_state(days_known, ends))


def _charged(work: Work, in_incidents: DataFrame) -> DataFrame:
    parameters, intervals = work.parameters.flapping, work.warehouse.staged("broker_intervals")
    rows = sign_rows(work.warehouse.staged("registration_events"))
    # Spark skips the parts of files with only earlier rows.
    last_slot = utc_days.start_of(work.first_day) - int(parameters.same_sign_seconds * utc_days.SECOND)
    late = F.col("event_at") >= F.timestamp_micros(F.lit(last_slot))
    before = sign_rows(_day_before(work, "registration_events").filter(late))
    blind = work.warehouse.staged("blind_periods").unionByName(_day_before(work, "blind_periods"))
    reliable = without_blind(rows.unionByName(before), blind)
    seen = signs(reliable, first_day=work.first_day, last_day=work.last_day, parameters=parameters)
    windows = work.warehouse.staged("maintenance_windows").unionByName(_day_before(work, "maintenance_windows"))
    return charges(outages(intervals), in_incidents, intervals, seen, windows, parameters=parameters)


def _of_day(work: Work, in_incidents: DataFrame, states: DataFrame) -> DataFrame:
    """Further facts about each broker monitored on a day."""
    tables = ("availability", "broker_intervals", "flap_charges", "broker_changes", "partial_views", "outage_causes")
    available, intervals, charged, changes, views, known = map(work.warehouse.staged, tables)
    watched = F.col("up_seconds") + F.col("down_seconds") + F.col("planned_seconds")
    happened = moments(outages(intervals), charged, intervals, changes)
    facts = (
        in_incidents.groupBy(*_BROKER_DAY).agg(F.count("*").alias("incident_downs")),
        states,
        causes(happened, views, known),
    )
    joined = available.select(*_BROKER_DAY, "outages", "down_seconds", watched.alias("watched_seconds"))
    for fact in facts:
        joined = joined.join(fact, on=_BROKER_DAY, how="left")
    return joined


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


def run_topics(work: Work) -> None:
    """Stage ``topic_intervals``, ``topic_churn`` and ``topics_at_risk``; intermediate: ``holdings_at_risk``."""
    warehouse, span = work.warehouse, {"first_day": work.first_day, "last_day": work.last_day}
    yesterday = warehouse.read("topic_intervals", first_day=work.day_before, last_day=work.day_before)
    carried = yesterday.filter("open")
    events, brokers = warehouse.staged("registration_events"), warehouse.staged("broker_intervals")
    recorded = warehouse.materialize("statements", statements(events, carried, brokers, **span))
    held = warehouse.stage("topic_intervals", topic_intervals(events, recorded, carried, **span))
    run_parallel(lambda: warehouse.stage("topic_churn", topic_churn(held)), lambda: _at_risk(work, held))


def run_blast_radius(work: Work) -> None:
    """Stage ``blast_radius``, which needs `run_topics` and the incidents."""
    warehouse = work.warehouse
    found, held = warehouse.staged("incidents"), warehouse.staged("topic_intervals")
    warehouse.stage("blast_radius", blast_radius(found, held, warehouse.materialized("holdings_at_risk")))


def _at_risk(work: Work, held: DataFrame) -> DataFrame:
    warehouse, brokers = work.warehouse, work.warehouse.staged("broker_intervals")
    doubtful = warehouse.materialize("holdings", holdings(held, brokers))
    at_risk = warehouse.materialize("holdings_at_risk", holdings_at_risk(doubtful, brokers))
    return warehouse.stage("topics_at_risk", topics_at_risk(at_risk))


def run_health(work: Work) -> None:
    """Stage the tables of `schemas.health` but ``hot_queues``; intermediate: ``beats`` and ``queue_reports``."""
    run_parallel(lambda: _heartbeats(work), lambda: _queues(work), lambda: _clusters(work))


def _heartbeats(work: Work) -> None:
    warehouse = work.warehouse
    events, clocks = map(warehouse.staged, ("registration_events", "observer_clocks"))
    counted = warehouse.materialize("beats", beats(events, clocks))
    warehouse.stage("heartbeat_punctuality", heartbeat_punctuality(counted))
    warehouse.stage("heartbeat_histogram", heartbeat_histogram(counted))


def _queues(work: Work) -> None:
    warehouse = work.warehouse
    reports = warehouse.materialize("queue_reports", queue_reports(warehouse.staged("registration_events")))
    run_parallel(
        lambda: warehouse.stage("queue_stats", queue_stats(reports)),
        lambda: warehouse.stage("topic_load", topic_load(reports)),
        lambda: warehouse.stage("group_lag", group_lag(reports)),
    )


def run_hot_queues(work: Work) -> None:
    """Stage ``hot_queues``, which needs `run_health` and the topics."""
    warehouse, parameters = work.warehouse, work.parameters.health
    topics, groups, registered = map(warehouse.staged, ("topic_load", "group_lag", "topic_intervals"))
    hot = (
        key_skew(topics, parameters=parameters)
        .unionByName(too_many_queues(topics, parameters=parameters))
        .unionByName(hot_groups(groups, topics, registered, parameters=parameters))
    )
    warehouse.stage("hot_queues", hot)


def _clusters(work: Work) -> None:
    warehouse, parameters = work.warehouse, work.parameters.health
    since = work.first_day - timedelta(days=parameters.slo_days - 1)
    before = warehouse.read("availability", first_day=since, last_day=work.day_before)
    available = before.unionByName(warehouse.staged("availability"))
    warehouse.stage("cluster_health", cluster_health(available, first_day=work.first_day, parameters=parameters))
