"""Collect a report from the published tables.

The size is bounded: each section has its worst entries, and the number of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from pointsman_report.io import Warehouse
from pointsman_report.parallel import run_parallel
from pointsman_report.parameters import Parameters
from pointsman_report.report.contents import Report
from pointsman_report.report.findings import findings, notices
from pointsman_report.report.meanings import CAUSES, meanings
from pointsman_report.report.sections.availability_trend import trend
from pointsman_report.report.sections.broker_changes import changes
from pointsman_report.report.sections.broker_scores import broker_rows
from pointsman_report.report.sections.broker_states import transitions
from pointsman_report.report.sections.headline import headline
from pointsman_report.report.sections.heartbeat_times import punctuality
from pointsman_report.report.sections.incident_list import guard_periods, incidents, rolling_restarts
from pointsman_report.report.sections.long_memory import memory, weekly_patterns
from pointsman_report.report.sections.name_server_record import name_servers
from pointsman_report.report.sections.outage_lengths import outage_lengths
from pointsman_report.report.sections.planned_work import maintenance_windows
from pointsman_report.report.sections.queue_advice import queues
from pointsman_report.report.sections.report_basis import completeness, computed_days
from pointsman_report.report.sections.topic_risk import topic_churn, topics_at_risk
from pointsman_report.report.sections.worst_brokers import listed_brokers
from pointsman_report.report.span import Span
from pointsman_report.run import Run

REPORT_VERSION = 3


def collect_report(warehouse: Warehouse, span: Span, *, parameters: Parameters, run: Run, version: str) -> Report:
    """Collect all sections of a report; ``version`` is the code's version."""
    rows = broker_rows(warehouse, span, parameters=parameters.flapping).persist()
    try:
        top = headline(warehouse, span, rows)
        brokers = listed_brokers(warehouse, span, rows, in_all=top.brokers_seen)
    finally:
        rows.unpersist()
    # One independent function for each field of the report; the last one fills two fields.
    sections: dict[str, Callable[[], Any]] = {
        "memory": partial(memory, warehouse, span),
        "weekly_patterns": partial(weekly_patterns, warehouse, span),
        "incidents": partial(incidents, warehouse, span),
        "rolling_restarts": partial(rolling_restarts, warehouse, span),
        "guard_periods": partial(guard_periods, warehouse, span),
        "maintenance_windows": partial(maintenance_windows, warehouse, span),
        "topics_at_risk": partial(topics_at_risk, warehouse, span),
        "topic_churn": partial(topic_churn, warehouse, span),
        "punctuality": partial(punctuality, warehouse, span, parameters=parameters.health),
        "outages": partial(outage_lengths, warehouse, span),
        "transitions": partial(transitions, warehouse, span, brokers),
        "name_servers": partial(name_servers, warehouse, span),
        "changes": partial(changes, warehouse, span),
        "queues": partial(queues, warehouse, span),
        "trend": partial(trend, warehouse, span),
        "computed": partial(computed_days, warehouse, span, parameters),
        "completeness": partial(completeness, warehouse, span, run),
    }
    found = dict(zip(sections, run_parallel(*sections.values()), strict=True))
    found["completeness"], found["observers"] = data, _ = found["completeness"]
    if data.coverage.is_short:
        top = replace(top, clusters=[cluster.without_rates() for cluster in top.clusters])
        brokers = [broker.without_rates() for broker in brokers]
    report = Report(
        report_version=REPORT_VERSION,
        date_=span.last_day,
        from_=span.first_day,
        to=span.last_day,
        interval=span.interval,
        coverage=data.coverage,
        code_version=version,
        headline=replace(top, no_data=data.rows == 0),
        brokers=brokers,
        brokers_left_out=top.brokers_seen - len(brokers),
        **found,
        parameters=parameters,
        classes=meanings(parameters.flapping),
        causes=CAUSES,
        findings=[],
    )
    return with_findings(report)


def with_findings(report: Report) -> Report:
    """Add the findings from the other sections, and the notices."""
    found = findings(report)
    texts = [finding.text for finding in found]
    return replace(report, findings=found, headline=replace(report.headline, findings=texts, notices=notices(report)))
