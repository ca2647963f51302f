"""The fourth stage: which topic had which queues where, and which were at risk."""

from __future__ import annotations

from pyspark.sql import DataFrame

from pointsman_report.jobs.work import Work
from pointsman_report.together import together
from pointsman_report.transforms.topic_holdings import blast_radius, holdings, holdings_at_risk, topics_at_risk
from pointsman_report.transforms.topic_intervals import statements, topic_churn, topic_intervals


def run(work: Work) -> None:
    """Stage ``topic_intervals``, ``topic_churn`` and ``topics_at_risk``; aside: ``holdings_at_risk``."""
    warehouse, span = work.warehouse, {"first_day": work.first_day, "last_day": work.last_day}
    yesterday = warehouse.read("topic_intervals", first_day=work.day_before, last_day=work.day_before)
    carried = yesterday.filter("open")
    events, brokers = warehouse.staged("registration_events"), warehouse.staged("broker_intervals")
    told = warehouse.aside("statements", statements(events, carried, brokers, **span))
    held = warehouse.stage("topic_intervals", topic_intervals(events, told, carried, **span))
    together(lambda: warehouse.stage("topic_churn", topic_churn(held)), lambda: _at_risk(work, held))


def run_blast_radius(work: Work) -> None:
    """Stage ``blast_radius``, which needs `run` and the incidents."""
    warehouse = work.warehouse
    found, held = warehouse.staged("incidents"), warehouse.staged("topic_intervals")
    warehouse.stage("blast_radius", blast_radius(found, held, warehouse.set_aside("holdings_at_risk")))


def _at_risk(work: Work, held: DataFrame) -> DataFrame:
    warehouse, brokers = work.warehouse, work.warehouse.staged("broker_intervals")
    doubtful = warehouse.aside("holdings", holdings(held, brokers))
    at_risk = warehouse.aside("holdings_at_risk", holdings_at_risk(doubtful, brokers))
    return warehouse.stage("topics_at_risk", topics_at_risk(at_risk))
