"""The numbers of a report, read from the published tables; page, JSON and terminal show these and no others.

A module for each section. What is collected is bounded: the worst of each kind, and how many the rest are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pointsman_report.io import Warehouse
from pointsman_report.jobs.pipeline import Run
from pointsman_report.parameters import Parameters
from pointsman_report.report.classes import CAUSES, meanings
from pointsman_report.report.findings import findings, notices
from pointsman_report.report.numbers.brokers import broker_rows, listed_brokers
from pointsman_report.report.numbers.changes import changes
from pointsman_report.report.numbers.completeness import completeness
from pointsman_report.report.numbers.computed import computed_days
from pointsman_report.report.numbers.coverage import coverage, without_rates
from pointsman_report.report.numbers.drawn import Drawn, drawn, transitions
from pointsman_report.report.numbers.guards import guard_periods
from pointsman_report.report.numbers.headline import headline
from pointsman_report.report.numbers.incidents import incidents, rolling_restarts
from pointsman_report.report.numbers.name_servers import name_servers
from pointsman_report.report.numbers.outages import distributions
from pointsman_report.report.numbers.punctuality import punctuality
from pointsman_report.report.numbers.queues import queues
from pointsman_report.report.numbers.topics import topic_churn, topics_at_risk
from pointsman_report.report.numbers.trend import trend
from pointsman_report.report.span import Span
from pointsman_report.report.wording import rfc3339
from pointsman_report.together import together

__all__ = ["REPORT_VERSION", "Drawn", "Numbers", "Span", "drawn", "report_numbers"]

REPORT_VERSION = 3

Numbers = dict[str, Any]


def report_numbers(warehouse: Warehouse, span: Span, *, parameters: Parameters, run: Run, version: str) -> Numbers:
    """Collect everything a report says about the days."""
    rows = broker_rows(warehouse, span, parameters=parameters.flapping).persist()
    try:
        top = headline(warehouse, span, rows)
        brokers = listed_brokers(warehouse, span, rows, in_all=top["brokers_seen"])
    finally:
        rows.unpersist()
    sections: dict[str, Callable[[], Any]] = {
        "incidents": lambda: incidents(warehouse, span),
        "rolling_restarts": lambda: rolling_restarts(warehouse, span),
        "guard_periods": lambda: guard_periods(warehouse, span),
        "topics_at_risk": lambda: topics_at_risk(warehouse, span),
        "topic_churn": lambda: topic_churn(warehouse, span),
        "punctuality": lambda: punctuality(warehouse, span, parameters=parameters.health),
        "outages": lambda: distributions(warehouse, span),
        "transitions": lambda: transitions(warehouse, span, brokers),
        "name_servers": lambda: name_servers(warehouse, span),
        "changes": lambda: changes(warehouse, span),
        "queues": lambda: queues(warehouse, span),
        "trend": lambda: trend(warehouse, span),
        "computed": lambda: computed_days(warehouse, span, parameters),
        "completeness": lambda: completeness(warehouse, span, run),
    }
    found = dict(zip(sections, together(*sections.values()), strict=True))
    data = found.pop("completeness")
    numbers: Numbers = {
        "report_version": REPORT_VERSION,
        "date": span.last_day.isoformat(),
        "from": span.first_day.isoformat(),
        "to": span.last_day.isoformat(),
        "interval": _interval(span),
        "coverage": coverage(data),
        "code_version": version,
        "headline": top | {"no_data": data["rows"] == 0},
        "brokers": brokers,
        "brokers_left_out": top["brokers_seen"] - len(brokers),
        **found,
        "observers": data.pop("observers"),
        "completeness": data,
        "parameters": parameters.as_dict(),
        "classes": meanings(parameters.flapping),
        "causes": dict(CAUSES),
    }
    if numbers["coverage"]["is_short"]:
        without_rates(numbers)
    to_do = findings(numbers)
    numbers["headline"]["findings"] = [finding.text for finding in to_do]
    numbers["headline"]["notices"] = notices(numbers)
    numbers["findings"] = [finding.as_dict() for finding in to_do]
    return numbers


def _interval(span: Span) -> dict[str, Any]:
    return {
        "from_at": rfc3339(span.from_us),
        "to_at": rfc3339(span.to_us),
        "hours": (span.to_us - span.from_us) / 3_600e6,
        "timezone": span.zone.key,
        "from_offset": span.offset(span.from_us),
        "to_offset": span.offset(span.to_us),
        "utc_days": [span.first_utc_day.isoformat(), span.last_utc_day.isoformat()],
    }
