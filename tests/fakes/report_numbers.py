"""The numbers of a report in which all is well, to be changed in one place."""

from __future__ import annotations

from typing import Any

from pointsman_report.parameters import Parameters
from pointsman_report.report.classes import CAUSES, WORST_FIRST, meanings

NONE: dict[str, Any] = {"rows": [], "in_all": 0, "left_out": 0}


def a_broker(name: str = "a", **change: Any) -> dict[str, Any]:
    told = {
        "cluster": "c",
        "broker_name": name,
        "broker_id": 0,
        "class": "healthy",
        "cause": None,
        "cause_says": None,
        "ranking": None,
        "penalty_start": 0.0,
        "penalty_max": 0.0,
        "down_count": 0,
        "incident_downs": 0,
        "longest_outage_seconds": None,
        "mttr_seconds": None,
        "mtbf_seconds": None,
        "availability": 1.0,
        "percent_state_change": None,
        "censored": 0,
        "reasons": {},
        "outages": [],
        "outages_left_out": 0,
        "first_seen_on": "2026-03-02",
        "owner": None,
        "zone": None,
        "host": None,
        "broker_version": None,
    }
    return told | change


def a_cluster(name: str = "c", **change: Any) -> dict[str, Any]:
    told = {
        "cluster": name,
        "brokers": 1,
        "availability": 1.0,
        "up_seconds": 86_400.0,
        "down_seconds": 0.0,
        "planned_seconds": 0.0,
        "outages": 0,
        "incident_downs": 0,
        "flapping": 0,
        "by_class": dict.fromkeys(WORST_FIRST, 0) | {"healthy": 1},
        "slo": 0.999,
        "slo_days": 30,
        "budget_seconds": 2_592.0,
        "budget_left_seconds": 2_592.0,
        "mttr_seconds": None,
        "mtbf_seconds": None,
        "outages_per_broker_day": 0.0,
        "outages_per_broker_day_low": 0.0,
        "outages_per_broker_day_high": 3.0,
    }
    return told | change


def calm_numbers(**change: dict[str, Any]) -> dict[str, Any]:
    """Each keyword changes the section of its name."""
    numbers: dict[str, Any] = {
        "date": "2026-03-05",
        "from": "2026-03-05",
        "to": "2026-03-05",
        "code_version": "0.0",
        "interval": {
            "from_at": "2026-03-05T00:00:00.000Z",
            "to_at": "2026-03-06T00:00:00.000Z",
            "hours": 24.0,
            "timezone": "UTC",
            "from_offset": "+00:00",
            "to_offset": "+00:00",
            "utc_days": ["2026-03-05", "2026-03-05"],
        },
        "coverage": {"seconds": 86_400.0, "span_seconds": 86_400, "is_short": False},
        "headline": {
            "brokers_seen": 1,
            "flapping_count": 0,
            "flapping": {"now": 0, "day_before": 0, "seven_days": 0},
            "outages": 0,
            "incident_downs": 0,
            "availability": 1.0,
            "up_seconds": 86_400.0,
            "down_seconds": 0.0,
            "by_class": dict.fromkeys(WORST_FIRST, 0) | {"healthy": 1},
            "new": {"count": 0, "brokers": []},
            "gone": {"count": 0, "brokers": []},
            "clusters": [a_cluster()],
            "clusters_left_out": 0,
            "no_data": False,
            "findings": [],
            "notices": [],
        },
        "findings": [],
        "brokers": [a_broker()],
        "incidents": NONE | {"outages": 0, "drawn": []},
        "rolling_restarts": NONE | {"unplanned": 0},
        "guard_periods": dict(NONE),
        "topics_at_risk": NONE | {"by_worst": {}, "unwritable": 0, "unwritable_seconds": 0.0},
        "topic_churn": NONE,
        "punctuality": NONE | {"histogram": [], "clocks": NONE},
        "outages": {name: _none_measured() for name in ("outage_seconds", "detection_seconds")}
        | {"censored_outages": 0},
        "transitions": {"step_seconds": 3_600, "columns": 24, "rows": []},
        "name_servers": {"nodes": NONE, "clocks": [], "partial_views": NONE | {"brokers": 0}},
        "changes": NONE | {"by_what": [], "versions": []},
        "queues": {"hot": NONE | {"by_kind": {}}, "behind": NONE, "groups": NONE, "topics": NONE},
        "trend": {"days": [], "seven_days": {}, "thirty_days": {}},
        "computed": {"by": [], "other_parameters": [], "stale": []},
        "observers": [],
        "completeness": {
            "files": 1,
            "last_day": "2026-03-05",
            "warehouse_ends_on": None,
            "rows": 9,
            "days_without_rows": [],
            "unwatched_clusters": {},
            "stopped_before": None,
            "sources": {},
            "fell_silent": None,
            "rows_arrived": 1.0,
            "rows_missing": 0,
            "rows_ahead": 0,
            "rows_misdated": 0,
            "rows_too_late": 0,
            "stale_after": None,
            "unreadable_files": [],
            "unreadable_files_in_all": 0,
            "quarantined_lines": 0,
            "quarantined": [],
            "unknown_events": {},
            "continues_day_before": True,
            "watched_seconds": 86_400.0,
            "span_seconds": 86_400,
            "lives": 0,
        },
        "parameters": Parameters().as_dict(),
        "classes": meanings(Parameters().flapping),
        "causes": CAUSES,
    }
    for name, of_section in change.items():
        numbers[name] = numbers[name] | of_section
    return numbers


def _none_measured() -> dict[str, Any]:
    return {"count": 0, "min": None, "max": None, "p50": None, "p95": None, "p99": None, "steps": []}
