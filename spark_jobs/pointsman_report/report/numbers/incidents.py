"""Incidents and rolling restarts that began in the span, with what incidents did to topics."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.report.numbers.rows import collect, listed, micros, with_times, worst
from pointsman_report.report.span import Span

MOST_INCIDENTS = 200
MOST_DRAWN = 2_000
MOST_MEMBERS = 20

_DRAWN = ("from_at", "brokers", "scope")
_BLAST = ("topics_hit", "topics_unwritable", "unwritable_seconds", "topics")


def incidents(warehouse: Warehouse, span: Span) -> dict[str, Any]:
    """The largest first, each with the first of its members."""
    rows = span.touched(warehouse, "incidents").filter(span.holds("from_at"))
    blast = span.touched(warehouse, "blast_radius").select("dt", "incident_id", *_BLAST)
    told = rows.join(blast, on=["dt", "incident_id"], how="left").select(
        "incident_id",
        *("cluster", "scope", "scope_name", "brokers", "known_brokers", "down_seconds", "cause", "evidence", *_BLAST),
        *micros("from_at", "to_at", "back_at"),
        F.transform(
            F.slice("members", 1, MOST_MEMBERS),
            lambda member: F.struct(member["broker_name"].alias("broker_name"), member["broker_id"].alias("broker_id")),
        ).alias("members"),
    )
    few = worst(told, MOST_INCIDENTS, F.col("brokers").desc(), "from_at", "incident_id")
    found = listed(with_times(few, "from_at", "to_at", "back_at"))
    shown = [row | {"members_left_out": max(0, row["brokers"] - len(row["members"]))} for row in found["rows"]]
    if found["left_out"]:
        (summed,) = collect(rows.agg(F.sum("brokers").alias("outages")))
        return found | {"rows": shown, "outages": summed["outages"], "drawn": _drawn(warehouse, span)}
    points = [{name: row[name] for name in _DRAWN} for row in shown]
    return found | {"rows": shown, "outages": sum(row["brokers"] for row in shown), "drawn": points}


def rolling_restarts(warehouse: Warehouse, span: Span) -> dict[str, Any]:
    """The largest first, each with the first of its members in order of time."""
    rows = span.touched(warehouse, "rolling_restarts").filter(span.holds("from_at"))
    known = rows.select(
        *("rolling_restart_id", "cluster", "brokers", "unplanned", "version_before", "version_after", "down_seconds"),
        *micros("from_at", "to_at", "back_at"),
        F.transform(
            F.slice("members", 1, MOST_MEMBERS),
            lambda member: F.struct(member["broker_name"].alias("broker_name"), member["broker_id"].alias("broker_id")),
        ).alias("members"),
    )
    few = worst(known, MOST_INCIDENTS, F.col("brokers").desc(), "from_at", "rolling_restart_id")
    found = listed(with_times(few, "from_at", "to_at", "back_at"))
    unplanned = 0
    if few:
        (summed,) = collect(rows.agg(F.coalesce(F.sum("unplanned"), F.lit(0)).alias("unplanned")))
        unplanned = summed["unplanned"]
    return found | {"unplanned": unplanned}


def _drawn(warehouse: Warehouse, span: Span) -> list[dict[str, Any]]:
    rows = span.touched(warehouse, "incidents").filter(span.holds("from_at"))
    points = rows.select(*micros("from_at"), "brokers", "scope", "incident_id")
    few = collect(points.orderBy(F.col("brokers").desc(), "from_at", "incident_id").limit(MOST_DRAWN))
    return [{name: row[name] for name in _DRAWN} for row in with_times(few, "from_at")]
