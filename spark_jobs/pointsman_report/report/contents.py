"""What a report contains, section by section; the source of the page, the JSON, the terminal summary and the
metrics."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from datetime import date
from typing import TypeAlias

from pointsman_report.parameters import Parameters
from pointsman_report.report.broker_plots import Transitions
from pointsman_report.report.formatting import some
from pointsman_report.report.sections.availability_trend import Trend
from pointsman_report.report.sections.broker_changes import Changes
from pointsman_report.report.sections.headline import Headline
from pointsman_report.report.sections.heartbeat_times import Punctuality
from pointsman_report.report.sections.incident_list import GuardPeriod, Incidents, RollingRestarts
from pointsman_report.report.sections.long_memory import Memory, WeeklyPattern
from pointsman_report.report.sections.name_server_record import NameServers
from pointsman_report.report.sections.outage_lengths import OutageLengths
from pointsman_report.report.sections.planned_work import MaintenanceWindow
from pointsman_report.report.sections.queue_advice import Queues
from pointsman_report.report.sections.report_basis import Completeness, ComputedDays, Coverage
from pointsman_report.report.sections.topic_risk import ChangedTopic, TopicsAtRisk
from pointsman_report.report.sections.watch_gaps import NameServerRun
from pointsman_report.report.sections.worst_brokers import Broker
from pointsman_report.report.span import Interval
from pointsman_report.report.table_rows import Listing

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that needs attention; ``see`` is the section of the page with the details."""

    kind: str
    text: str
    do: str
    see: str


@dataclass(frozen=True, slots=True)
class Report:
    """The content of ``report.json``: a field for each key, with a trailing underscore for names that Python
    reserves."""

    report_version: int
    date_: date
    from_: date
    to: date
    interval: Interval
    coverage: Coverage
    code_version: str
    headline: Headline
    brokers: list[Broker]
    brokers_left_out: int
    memory: Memory
    weekly_patterns: Listing[WeeklyPattern]
    incidents: Incidents
    rolling_restarts: RollingRestarts
    guard_periods: Listing[GuardPeriod]
    maintenance_windows: Listing[MaintenanceWindow]
    topics_at_risk: TopicsAtRisk
    topic_churn: Listing[ChangedTopic]
    punctuality: Punctuality
    outages: OutageLengths
    transitions: Transitions
    name_servers: NameServers
    changes: Changes
    queues: Queues
    trend: Trend
    computed: ComputedDays
    observers: list[NameServerRun]
    completeness: Completeness
    parameters: Parameters
    classes: dict[str, str]
    causes: dict[str, str]
    findings: list[Finding]

    @property
    def days(self) -> str:
        """The day or the range of days, as text."""
        return f"{self.to}" if self.from_ == self.to else f"{self.from_} to {self.to}"

    @property
    def fleet(self) -> str:
        """The configured name of the fleet, else the names of its first clusters."""
        clusters = [cluster.cluster for cluster in self.headline.clusters]
        named = some(clusters, of=len(clusters) + self.headline.clusters_left_out, most=3)
        return self.parameters.report.fleet or named

    def as_dict(self) -> dict[str, Json]:
        return _fields(self)


def _fields(value: object) -> dict[str, Json]:
    fields = dataclasses.fields(value)  # type: ignore[arg-type]  # callers pass dataclasses
    return {field.name.rstrip("_"): _json(getattr(value, field.name)) for field in fields}


def _json(value: object) -> Json:
    """Convert dates to ISO 8601, and numbers that JSON does not support to null."""
    match value:
        case date():
            return value.isoformat()
        case dict():
            return {str(name): _json(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_json(inner) for inner in value]
        case float():
            return value if math.isfinite(value) else None
        case Parameters():
            return _json(value.as_dict())
        case None | bool() | int() | str():
            return value
        case _:
            return _fields(value)
