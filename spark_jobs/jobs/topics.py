"""The fourth stage: which topic had which queues where, and which were at risk."""

from __future__ import annotations

from spark_jobs.jobs.work import Work
from spark_jobs.transforms.topics.at_risk import topics_at_risk
from spark_jobs.transforms.topics.blast_radius import blast_radius
from spark_jobs.transforms.topics.churn import topic_churn
from spark_jobs.transforms.topics.holdings import holdings, holdings_at_risk
from spark_jobs.transforms.topics.intervals import topic_intervals
from spark_jobs.transforms.topics.statements import statements


def run(work: Work) -> None:
    """Stage ``topic_intervals``, ``topic_churn``, ``topics_at_risk`` and ``blast_radius``."""
    warehouse, span = work.warehouse, {"first_day": work.first_day, "last_day": work.last_day}
    yesterday = warehouse.read("topic_intervals", first_day=work.day_before, last_day=work.day_before)
    carried = yesterday.filter("open")
    events, brokers = warehouse.staged("registration_events"), warehouse.staged("broker_intervals")
    told = warehouse.aside("statements", statements(events, carried, brokers, **span))
    held = warehouse.stage("topic_intervals", topic_intervals(events, told, carried, **span))
    warehouse.stage("topic_churn", topic_churn(held))
    doubtful = warehouse.aside("holdings", holdings(held, brokers))
    at_risk = warehouse.aside("holdings_at_risk", holdings_at_risk(doubtful, brokers))
    warehouse.stage("topics_at_risk", topics_at_risk(at_risk))
    warehouse.stage("blast_radius", blast_radius(warehouse.staged("incidents"), held, at_risk))
