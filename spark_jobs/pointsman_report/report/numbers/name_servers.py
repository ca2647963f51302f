"""The name servers' own record: what the report rests on, and what was their fault and not a broker's."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.report.numbers.rows import Row, collect, listed, micros, total_seconds, with_times, worst
from pointsman_report.report.span import Span
from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.liveness import NAMESRV_DAYS
from pointsman_report.transforms.days import seconds

MOST_NODES = 50
MOST_VIEWS = 50
LONG_VIEW_SECONDS = 60

_HIGHEST = ("warm_up_seconds_max",)


def name_servers(warehouse: Warehouse, span: Span) -> dict[str, Any]:
    """Each node's days summed up, its clock, and the times in which they disagreed."""
    summed = [name for name in NAMESRV_DAYS.fieldNames() if name not in ("dt", "node", *_HIGHEST)]
    days = span.named(warehouse, "namesrv_days").groupBy("node")
    sums = (total_seconds(name) if name.endswith("_seconds") else F.sum(name).alias(name) for name in summed)
    nodes = days.agg(*sums, *(F.max(name).alias(name) for name in _HIGHEST))
    return {
        "nodes": listed(worst(nodes, MOST_NODES, "node")),
        "clocks": _clocks(warehouse, span),
        "partial_views": _partial_views(warehouse, span),
    }


def _clocks(warehouse: Warehouse, span: Span) -> list[Row]:
    """Each node's clock on its worst day."""
    rows = span.named(warehouse, "observer_clocks")
    off = F.struct(F.abs("offset_seconds"), "dt")
    nodes = rows.groupBy("node").agg(
        F.max_by("offset_seconds", off).alias("offset_seconds"),
        F.sum("samples").alias("samples"),
        F.max("stepped_seconds").alias("stepped_seconds"),
    )
    return collect(nodes.orderBy(F.abs("offset_seconds").desc_nulls_last(), "node").limit(MOST_NODES))


def _partial_views(warehouse: Warehouse, span: Span) -> Row:
    """Times of more than a minute in which some saw a broker up and others down, the longest first."""
    views = span.touched(warehouse, "partial_views").withColumn("cut", span.cut("from_at", "to_at"))
    views = views.withColumn("seconds", seconds(F.col("cut"))).filter(F.col("seconds") > LONG_VIEW_SECONDS)
    told = views.select(*INSTANCE, *micros("from_at", "to_at"), "seconds", "seen_up_by", "seen_down_by")
    few = worst(told, MOST_VIEWS, F.col("seconds").desc(), "from_at", *INSTANCE)
    brokers = told.select(*INSTANCE).distinct().count() if few else 0
    return listed(with_times(few, "from_at", "to_at")) | {"brokers": brokers}
