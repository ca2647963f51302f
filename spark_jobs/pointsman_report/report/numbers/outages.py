"""Outages of the span: those of the listed brokers one by one, and all of them as distributions.

Distributions come as counts in steps of a tenth of a decade, so that a report of a hundred thousand outages is no
longer than one of ten.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.report.numbers.rows import Key, Row, collect, key, only, without
from pointsman_report.report.span import Span
from pointsman_report.report.wording import rfc3339
from pointsman_report.schemas import INSTANCE

MOST_OUTAGES = 5_000
MOST_OUTAGES_A_BROKER = 200
STEPS_A_DECADE = 10


def listed_downs(warehouse: Warehouse, span: Span, brokers: list[Key]) -> dict[Key, list[Row]]:
    """Down intervals of these brokers that touch the span, by broker, in order; the longest where there are many."""
    if not brokers:
        return {}
    downs = only(span.whole_intervals(warehouse).filter(F.col("state") == "down"), brokers).select(
        *INSTANCE,
        F.unix_micros("start_at").alias("start"),
        F.unix_micros("end_at").alias("end"),
        F.unix_micros("last_sign_of_life_at").alias("sign"),
        *("start_censored", "end_censored", "continues", "observers", "event", "planned"),
        F.coalesce("reason", "event").alias("reason"),
    )
    longest = Window.partitionBy(*INSTANCE, "planned").orderBy((F.col("start") - F.col("end")), "start")
    few = downs.withColumn("place", F.row_number().over(longest)).filter(F.col("place") <= MOST_OUTAGES_A_BROKER)
    few = few.orderBy("place", *INSTANCE, "planned").limit(MOST_OUTAGES)
    few = few.join(_causes(warehouse, span, brokers), on=[*INSTANCE, "start"], how="left")
    by_broker: dict[Key, list[Row]] = {}
    for row in sorted(collect(few), key=lambda row: (row["start"], row["end"])):
        by_broker.setdefault(key(row), []).append(_told(row))
    return by_broker


def _causes(warehouse: Warehouse, span: Span, brokers: list[Key]) -> DataFrame:
    """Why each outage was, as of the last of its days."""
    rows = only(span.touched(warehouse, "outage_causes"), brokers)
    names = ("cause", "evidence", "incident_id", "rolling_restart_id")
    by_outage = rows.groupBy(*INSTANCE, F.unix_micros("start_at").alias("start"))
    # What the outage belongs to is known on the day it began.
    return by_outage.agg(
        *(F.max_by(name, "dt").alias(name) for name in names[:2]),
        *(F.max(name).alias(name) for name in names[2:]),
    )


def _told(row: Row) -> Row:
    return {
        "start_at": rfc3339(row["start"]),
        "end_at": rfc3339(row["end"]),
        "seconds": (row["end"] - row["start"]) / 1e6,
        "event": row["event"],
        "reason": row["reason"],
        "start_censored": row["start_censored"],
        "end_censored": row["end_censored"],
        "continues": row["continues"],
        "observers": row["observers"],
        "last_sign_of_life_at": rfc3339(row["sign"]),
        "planned": row["planned"],
        **{name: row[name] for name in ("cause", "evidence", "incident_id", "rolling_restart_id")},
    }


def downs_by_broker(warehouse: Warehouse, span: Span, brokers: list[Key]) -> dict[Key, Row]:
    """How many outages and leaves touch the span, and for which reasons, of each of these brokers."""
    if not brokers:
        return {}
    downs = only(span.whole_intervals(warehouse).filter(F.col("state") == "down"), brokers)
    reason = F.coalesce("reason", "event").alias("reason")
    counted: dict[Key, Row] = {}
    for row in collect(downs.groupBy(*INSTANCE, "planned", reason).agg(F.count("*").alias("downs"))):
        entry = counted.setdefault(key(row), {"outages": 0, "leaves": 0, "reasons": {}})
        entry["leaves" if row["planned"] else "outages"] += row["downs"]
        if not row["planned"]:
            entry["reasons"][row["reason"] or "unknown"] = row["downs"]
    return {which: entry | {"reasons": dict(sorted(entry["reasons"].items()))} for which, entry in counted.items()}


def distributions(warehouse: Warehouse, span: Span) -> dict[str, Any]:
    """Lengths of the outages that ended with both ends seen, and how long it took to see that a broker was gone."""
    outages = span.whole_intervals(warehouse).filter((F.col("state") == "down") & ~F.col("planned"))
    start, end = F.unix_micros("start_at"), F.unix_micros("end_at")
    both_ends = ~F.col("start_censored") & ~F.col("end_censored")
    sign = F.unix_micros("last_sign_of_life_at")
    noticed = span.holds("start_at") & ~F.col("continues") & ~F.col("start_censored") & (start >= sign)
    measured = outages.select(
        both_ends.alias("both_ends"),
        F.when(both_ends, (end - start) / 1e6).alias("outage_seconds"),
        F.when(noticed, (start - sign) / 1e6).alias("detection_seconds"),
    )
    names = ("outage_seconds", "detection_seconds")
    censored = F.count(F.when(~F.col("both_ends"), 1)).alias("censored_outages")
    (all_,) = collect(measured.agg(*(_summary(name).alias(name) for name in names), censored))
    told = {name: _distribution(all_[name], measured.select(F.col(name).alias("seconds"))) for name in names}
    return told | {"censored_outages": all_["censored_outages"]}


def _summary(name: str) -> Column:
    quantiles = F.percentile(name, F.array(*map(F.lit, (0.5, 0.95, 0.99)))).alias("quantiles")
    return F.struct(F.count(name).alias("count"), F.min(name).alias("min"), F.max(name).alias("max"), quantiles)


def _distribution(summed: Row, rows: DataFrame) -> Row:
    p50, p95, p99 = summed["quantiles"] or (None, None, None)
    told = without(summed, "quantiles") | {"p50": p50, "p95": p95, "p99": p99, "steps": []}
    if not summed["count"]:
        return told
    steps = rows.filter(F.col("seconds").isNotNull()).groupBy(_up_to().alias("step")).agg(F.count("*").alias("count"))
    counts = [{"up_to_seconds": _edge(row["step"]), "count": row["count"]} for row in collect(steps.orderBy("step"))]
    return told | {"steps": counts}


def _up_to() -> Column:
    # Milliseconds are the least that a history tells apart.
    return F.ceil(F.log10(F.greatest("seconds", F.lit(0.001))) * STEPS_A_DECADE - 1e-9)


def _edge(step: int) -> float:
    return float(f"{10 ** (step / STEPS_A_DECADE):.3g}")
