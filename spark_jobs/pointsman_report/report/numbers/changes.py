"""What brokers said anew of themselves within the span."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.report.numbers.rows import collect, listed, micros, with_times, worst
from pointsman_report.report.span import Span
from pointsman_report.schemas import INSTANCE

MOST_CHANGES = 200
MOST_STEPS = 20

INCARNATION = "incarnation"


def changes(warehouse: Warehouse, span: Span) -> dict[str, Any]:
    """Counts by kind, the new versions as steps, and one by one what is not just a restart."""
    rows = span.touched(warehouse, "broker_changes").filter(span.holds("changed_at"))
    brokers = F.count_distinct(*INSTANCE).alias("brokers")
    counts = collect(rows.groupBy("what").agg(F.count("*").alias("changes"), brokers).orderBy("what"))
    versions = rows.filter(F.col("what") == "version").groupBy("before", "after")
    steps = versions.agg(brokers, F.min(F.unix_micros("changed_at")).alias("first_at"))
    told = rows.filter(F.col("what") != INCARNATION).select(*INSTANCE, *micros("changed_at"), "what", "before", "after")
    few = worst(told, MOST_CHANGES, "changed_at", *INSTANCE, "what") if counts else []
    upgraded = steps.orderBy(F.col("brokers").desc(), "before", "after").limit(MOST_STEPS)
    return listed(with_times(few, "changed_at")) | {
        "by_what": counts,
        "versions": with_times(collect(upgraded), "first_at") if counts else [],
    }
