"""A report without problems, to be changed in one place, and rows of its sections."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import date
from typing import Any, TypeVar

from pointsman_report.parameters import Parameters
from pointsman_report.report.broker_plots import Transitions
from pointsman_report.report.contents import Report
from pointsman_report.report.meanings import CAUSES, WORST_FIRST, meanings
from pointsman_report.report.sections.availability_trend import Trend, TrendSum
from pointsman_report.report.sections.broker_changes import Changes
from pointsman_report.report.sections.headline import Cluster, FlappingCounts, Headline, Named
from pointsman_report.report.sections.heartbeat_times import Punctuality
from pointsman_report.report.sections.incident_list import Incidents, RollingRestarts
from pointsman_report.report.sections.long_memory import Memory
from pointsman_report.report.sections.name_server_record import NameServers
from pointsman_report.report.sections.outage_lengths import Distribution, OutageLengths
from pointsman_report.report.sections.queue_advice import Queues
from pointsman_report.report.sections.report_basis import Completeness, ComputedDays, Coverage
from pointsman_report.report.sections.topic_risk import TopicsAtRisk
from pointsman_report.report.sections.worst_brokers import Broker
from pointsman_report.report.span import Span
from pointsman_report.report.table_rows import Listing

R = TypeVar("R")

DAY = date(2026, 3, 5)
TIME = "2026-03-05T10:00:00.000Z"
_NAMES = {"cluster": "orders", "broker_name": "broker-a", "node": "ns1", "topic": "payments"}


def a_row(kind: type[R], /, **given: Any) -> R:
    """A row of a section; a column that is not given is 1."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # of a dataclass
    assert set(given) <= set(names), given
    unknown = {name: _NAMES.get(name, TIME if name.endswith("_at") else 1) for name in names}
    return kind(**unknown | given)


def a_broker(name: str = "a", **change: Any) -> Broker:
    nothing: dict[str, Any] = {field.name: None for field in fields(Broker) if "None" in str(field.type)}
    counts = dict.fromkeys(("down_count", "incident_downs", "sign_count", "flapped_days", "repaired", "censored"), 0)
    seconds = dict.fromkeys(("penalty_start", "penalty_max", "penalty_end", "down_seconds", "planned_seconds"), 0.0)
    known = {"cluster": "c", "broker_name": name, "broker_id": 0, "class_": "healthy", "flagged": False}
    known |= {"availability": 1.0, "up_seconds": 86_400.0, "first_seen_on": "2026-03-02"}
    return Broker(**nothing | counts | seconds | known | change)


def a_cluster(name: str = "c", **change: Any) -> Cluster:
    known = Cluster(
        cluster=name,
        brokers=1,
        outages=0,
        incident_downs=0,
        up_seconds=86_400.0,
        down_seconds=0.0,
        planned_seconds=0.0,
        availability=1.0,
        flapping=0,
        by_class=dict.fromkeys(WORST_FIRST, 0) | {"healthy": 1},
        slo=0.999,
        slo_days=30,
        budget_seconds=2_592.0,
        budget_left_seconds=2_592.0,
        outages_per_broker_day=0.0,
        outages_per_broker_day_low=0.0,
        outages_per_broker_day_high=3.0,
    )
    return replace(known, **change)


def calm_report(**change: Any) -> Report:
    """Each keyword changes the section of its name: single fields, or all of it."""
    report = Report(
        report_version=3,
        date_=DAY,
        from_=DAY,
        to=DAY,
        interval=Span(DAY, DAY).interval,
        coverage=Coverage(seconds=86_400.0, span_seconds=86_400, is_short=False),
        code_version="0.0",
        headline=Headline(
            brokers_seen=1,
            flapping_count=0,
            flapping=FlappingCounts(now=0, day_before=0, seven_days=0),
            outages=0,
            incident_downs=0,
            availability=1.0,
            up_seconds=86_400.0,
            down_seconds=0.0,
            by_class=dict.fromkeys(WORST_FIRST, 0) | {"healthy": 1},
            new=Named(),
            gone=Named(),
            clusters=[a_cluster()],
            clusters_left_out=0,
        ),
        brokers=[a_broker()],
        brokers_left_out=0,
        memory=Memory(),
        weekly_patterns=Listing(),
        incidents=Incidents(),
        rolling_restarts=RollingRestarts(),
        guard_periods=Listing(),
        maintenance_windows=Listing(),
        topics_at_risk=TopicsAtRisk(),
        topic_churn=Listing(),
        punctuality=Punctuality(),
        outages=OutageLengths(Distribution(), Distribution(), censored_outages=0),
        transitions=Transitions(step_seconds=3_600, columns=24, rows=[]),
        name_servers=NameServers(),
        changes=Changes(),
        queues=Queues(),
        trend=Trend([], *[TrendSum(0, None, 0.0, 0, 0, 0)] * 2),
        computed=ComputedDays(),
        observers=[],
        completeness=_complete(),
        parameters=Parameters(),
        classes=meanings(Parameters().flapping),
        causes=CAUSES,
        findings=[],
    )
    sections = {
        name: replace(getattr(report, name), **of_section) if isinstance(of_section, dict) else of_section
        for name, of_section in change.items()
    }
    return replace(report, **sections)


def _complete() -> Completeness:
    none = dict.fromkeys(("rows_missing", "rows_ahead", "rows_too_late", "rows_misdated", "quarantined_lines"), 0)
    return Completeness(
        **none,
        files=1,
        last_day=DAY,
        rows=9,
        rows_arrived=1.0,
        stale_after=None,
        unreadable_files=[],
        unreadable_files_in_all=0,
        quarantined=[],
        events={},
        unknown_events={},
        days_without_rows=[],
        watched_seconds=86_400.0,
        span_seconds=86_400,
        continues_day_before=True,
        warehouse_ends_on=None,
        unwatched_clusters={},
        stopped_before=None,
        sources={},
        fell_silent=None,
        lives=0,
    )
