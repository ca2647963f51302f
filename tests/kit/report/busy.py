"""A report with every table and every note, to be read for their texts: each figure is 1."""

from __future__ import annotations

from datetime import date
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from pointsman_report.report.contents import Finding, Report
from pointsman_report.report.sections.availability_trend import ClusterDay, TrendDay, TrendSum
from pointsman_report.report.sections.broker_changes import Change, ChangeCount, NewVersion
from pointsman_report.report.sections.headline import Named
from pointsman_report.report.sections.heartbeat_times import AgentClock, Beats, BeatsUpTo
from pointsman_report.report.sections.incident_list import (
    GuardPeriod,
    Incident,
    IncidentPoint,
    Member,
    RollingRestart,
)
from pointsman_report.report.sections.long_memory import Remembered, WeeklyPattern
from pointsman_report.report.sections.name_server_record import Node, NodeClock, PartialView, PartialViews
from pointsman_report.report.sections.outage_lengths import Distribution, Outage, OutageLengths, Step
from pointsman_report.report.sections.planned_work import MaintenanceWindow
from pointsman_report.report.sections.queue_advice import BusyTopic, GroupLag, HotQueue, HotQueues
from pointsman_report.report.sections.report_basis import ComputedBy, Quarantined
from pointsman_report.report.sections.topic_risk import ChangedTopic, TopicAtRisk
from pointsman_report.report.sections.watch_gaps import NameServerRun
from pointsman_report.report.sections.worst_brokers import Ranking
from pointsman_report.report.span import Span
from pointsman_report.report.table_rows import Listing
from tests.kit.report.contents import DAY, TIME, a_broker, a_cluster, a_row, calm_report

R = TypeVar("R")

BERLIN = ZoneInfo("Europe/Berlin")
DAY_BEFORE = date(2026, 3, 4)


def _one(kind: type[R], /, **given: Any) -> dict[str, Any]:
    """One row of two."""
    return {"rows": [a_row(kind, **given)], "in_all": 2, "left_out": 1}


def busy_report() -> Report:
    because = {"cause": "network", "evidence": "fell silent together"}
    members = [Member("broker-a", 1)]
    change = {"before": "1.0", "after": "2.0"}
    said = {"says": "one member is slow", "cure": "restart it", "kind": "falling_behind"}
    day = {"clusters": {"orders": ClusterDay(0.5, 0.999)}}
    measured = a_row(Distribution, steps=[Step(1.0, 2), Step(79.4, 1)])
    known = {"owner": "web team", "cause_says": "fell silent together", "reasons": {"SILENCE": 1}}
    outage = a_row(Outage, seconds=9.0, reason="SILENCE", incident_id="host-3", **because)
    ranking = a_row(Ranking, outlier=True)
    return calm_report(
        interval=Span(DAY, DAY, BERLIN).interval,
        headline={
            "new": Named(1, ["orders/new/0"]),
            "gone": Named(1, ["orders/gone/0"]),
            "clusters": [a_cluster("orders", availability=0.5, budget_left_seconds=-9.0), a_cluster("payments")],
            "clusters_left_out": 1,
            "notices": ["the clocks changed"],
        },
        brokers=[
            a_broker(
                "ill",
                class_="flapping",
                **known,
                cause="network",
                ranking=ranking,
                censored=1,
                outages=[outage],
                leaves=[a_row(Outage, reason="UNREGISTERED", cause=None, rolling_restart_id=None)],
                down_seconds=9.0,
            ),
            a_broker("odd", class_="degraded", **known),
        ],
        memory=_one(Remembered, since_on=DAY_BEFORE.isoformat()) | {"days": 31, "forecasts": 2, "held": 1},
        weekly_patterns=_one(WeeklyPattern),
        incidents=_one(
            Incident,
            incident_id="host-3",
            scope="host",
            scope_name="host-3",
            members=members,
            topics=["payments"],
            **because,
        )
        | {"drawn": [IncidentPoint(TIME, 3, "host")] * 3},
        rolling_restarts=_one(RollingRestart, members=members, version_before="1.0", version_after="2.0"),
        guard_periods=_one(GuardPeriod, open=False, nodes=["ns1", "ns2"], modes=["AUTO"]),
        maintenance_windows=_one(MaintenanceWindow, open=False, nodes=["ns1"], until_at=TIME),
        topics_at_risk=_one(TopicAtRisk, worst="no_master") | {"unwritable": 1, "unwritable_seconds": 1.0},
        topic_churn=_one(ChangedTopic),
        punctuality=_one(Beats) | {"histogram": [BeatsUpTo(1_000, 7)], "clocks": Listing(**_one(AgentClock))},
        outages=OutageLengths(measured, measured, censored_outages=1),
        name_servers={
            "nodes": Listing(**_one(Node)),
            "clocks": [a_row(NodeClock)],
            "partial_views": PartialViews(**_one(PartialView, seen_up_by=["ns1"], seen_down_by=["ns2"])),
        },
        changes=_one(Change, what="version", **change)
        | {"by_what": [a_row(ChangeCount, what="version")], "versions": [a_row(NewVersion, **change)]},
        queues={
            "hot": HotQueues(**_one(HotQueue, consumer_group="billing", **said)),
            "groups": Listing(**_one(GroupLag, consumer_group="billing")),
            "topics": Listing(**_one(BusyTopic)),
        },
        trend={"days": [a_row(TrendDay, date=date.isoformat(), **day) for date in (DAY_BEFORE, DAY)]}
        | dict.fromkeys(("seven_days", "thirty_days"), a_row(TrendSum, availability=0.5)),
        computed={
            "by": [a_row(ComputedBy, code_version="1.0", first=DAY_BEFORE, last=DAY)],
            "other_parameters": [DAY_BEFORE],
        },
        completeness={
            "rows_ahead": 1,
            "unknown_events": {"BROKER_MOVED": 1},
            "continues_day_before": False,
            "quarantined": [a_row(Quarantined, reason="not JSON", first_file="ns1/a.jsonl")],
            "lives": 2,
        },
        observers=[a_row(NameServerRun, boot_id="boot-1", open=False)],
        findings=[Finding("incident", "1 incident", do="see host-3", see="incidents")],
    )
