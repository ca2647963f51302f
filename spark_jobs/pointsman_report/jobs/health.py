"""The last stage: how well clusters, heartbeats and queues did."""

from __future__ import annotations

from datetime import timedelta

from pointsman_report.jobs.work import Work
from pointsman_report.together import together
from pointsman_report.transforms.cluster_health import cluster_health
from pointsman_report.transforms.heartbeat_histograms import beats, heartbeat_histogram, heartbeat_punctuality
from pointsman_report.transforms.hot_queues import hot_groups, key_skew, too_many_queues
from pointsman_report.transforms.queue_reports import group_lag, queue_reports, queue_stats, topic_load


def run(work: Work) -> None:
    """Stage the tables of `schemas.health` but ``hot_queues``; aside: ``beats`` and ``queue_reports``."""
    together(lambda: _heartbeats(work), lambda: _queues(work), lambda: _clusters(work))


def _heartbeats(work: Work) -> None:
    warehouse = work.warehouse
    events, clocks = map(warehouse.staged, ("registration_events", "observer_clocks"))
    counted = warehouse.aside("beats", beats(events, clocks))
    warehouse.stage("heartbeat_punctuality", heartbeat_punctuality(counted))
    warehouse.stage("heartbeat_histogram", heartbeat_histogram(counted))


def _queues(work: Work) -> None:
    warehouse = work.warehouse
    reports = warehouse.aside("queue_reports", queue_reports(warehouse.staged("registration_events")))
    together(
        lambda: warehouse.stage("queue_stats", queue_stats(reports)),
        lambda: warehouse.stage("topic_load", topic_load(reports)),
        lambda: warehouse.stage("group_lag", group_lag(reports)),
    )


def run_hot_queues(work: Work) -> None:
    """Stage ``hot_queues``, which needs `run` and the topics."""
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
