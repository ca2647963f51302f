"""Which code, which tables and which parameters the days behind the report were computed with."""

from __future__ import annotations

import json
from datetime import date, timedelta
from typing import Any

from pointsman_report.io import Warehouse
from pointsman_report.parameters import Parameters
from pointsman_report.report.numbers.rows import Row, collect
from pointsman_report.report.numbers.trend import DAYS
from pointsman_report.report.span import Span


def computed_days(warehouse: Warehouse, span: Span, parameters: Parameters) -> dict[str, Any]:
    """Of the days of the trend: who computed them, and which hold more rows now than they were computed from."""
    first = min(span.first_utc_day, span.last_day - timedelta(days=DAYS - 1))
    days = warehouse.read("computed_days", first_day=first, last_day=span.last_utc_day)
    rows = sorted(collect(days), key=lambda row: row["dt"])
    groups: dict[tuple[Any, ...], list[str]] = {}
    for row in rows:
        groups.setdefault((row["code_version"], row["warehouse_version"]), []).append(row["dt"].isoformat())
    return {
        "by": [
            {"code_version": code, "warehouse_version": version, "days": len(of), "first": of[0], "last": of[-1]}
            for (code, version), of in groups.items()
        ],
        "other_parameters": [row["dt"].isoformat() for row in rows if _differs(row["parameters"], parameters)],
        "stale": _stale(warehouse, span, rows),
    }


def _differs(text: str | None, parameters: Parameters) -> bool:
    """Compare what days are computed with; how a report is told changes no table."""
    try:
        used = json.loads(text or "")
    except ValueError:
        return True
    mine = json.loads(json.dumps(parameters.as_dict()))
    return any(used.get(name) != value for name, value in mine.items() if name != "report")


def _stale(warehouse: Warehouse, span: Span, rows: list[Row]) -> list[str]:
    if not rows:
        return []
    held = warehouse.read("registration_events", first_day=rows[0]["dt"], last_day=span.last_utc_day)
    counts = {row["dt"]: row["count"] for row in collect(held.groupBy("dt").count())}
    return with_more_rows(rows, counts)


def with_more_rows(rows: list[Row], held: dict[date, int]) -> list[str]:
    """Fewer are no reason to compute a day anew: old beats go when a warehouse is compacted."""
    return [row["dt"].isoformat() for row in rows if held.get(row["dt"], 0) > row["rows"]]
