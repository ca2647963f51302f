"""What the plots show beyond the numbers: intervals, transitions and charges of the worst brokers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F

from spark_jobs.io import Warehouse
from spark_jobs.report.numbers.rows import Row, collect, key, only
from spark_jobs.report.span import Span
from spark_jobs.schemas import INSTANCE

MOST_TIMELINES = 40
MOST_BARS_A_BROKER = 4_000
MOST_HEATED = 30
CURVES = 5
HOUR_US = 3_600_000_000
MOST_HOURS = 75


@dataclass(frozen=True, slots=True)
class Drawn:
    """Intervals of the worst brokers, charges of those with the highest penalty."""

    intervals: list[Row]
    charges: list[Row]


def drawn(warehouse: Warehouse, span: Span, numbers: dict[str, Any]) -> Drawn:
    """Collect what the plots need, for the worst brokers only."""
    shown = [key(broker) for broker in numbers["brokers"][:MOST_TIMELINES]]
    scored = [key(broker) for broker in most_charged(numbers)]
    intervals = span.whole_intervals(warehouse).select(
        *INSTANCE, "state", "planned", F.unix_micros("start_at").alias("start"), F.unix_micros("end_at").alias("end")
    )
    charges = span.touched(warehouse, "flap_charges").filter(span.holds("charged_at"))
    points = charges.select(*INSTANCE, F.unix_micros("charged_at").alias("at"), "cause", "points", "penalty")
    bars = only(intervals, shown).limit(MOST_TIMELINES * MOST_BARS_A_BROKER) if shown else None
    return Drawn(
        intervals=sorted(collect(bars), key=lambda row: (*key(row), row["start"], row["end"])) if bars else [],
        charges=sorted(collect(only(points, scored)), key=lambda row: (row["at"], row["penalty"])) if scored else [],
    )


def most_charged(numbers: dict[str, Any]) -> list[Row]:
    """Brokers whose penalty is worth a curve, the highest first."""
    by_penalty = sorted(numbers["brokers"], key=lambda broker: -float(broker["penalty_max"]))
    return [broker for broker in by_penalty[:CURVES] if broker["penalty_max"] >= 1]


def transitions(warehouse: Warehouse, span: Span, brokers: list[Row]) -> dict[str, Any]:
    """How often each of the worst brokers went down, by hour of the span (by day, if it has many)."""
    hours = -(-(span.to_us - span.from_us) // HOUR_US)
    step = HOUR_US if hours <= MOST_HOURS else 24 * HOUR_US
    columns = -(-(span.to_us - span.from_us) // step)
    some = [key(broker) for broker in brokers if broker["down_count"]][:MOST_HEATED]
    if not some:
        return {"step_seconds": step // 1_000_000, "columns": columns, "rows": []}
    downs = only(span.whole_intervals(warehouse), some).filter(
        (F.col("state") == "down") & ~F.col("continues") & ~F.col("planned") & span.holds("start_at")
    )
    slot = F.floor((F.unix_micros("start_at") - F.lit(span.from_us)) / F.lit(step)).cast("int")
    found: dict[Any, list[int]] = {which: [0] * columns for which in some}
    for row in collect(downs.groupBy(*INSTANCE, slot.alias("slot")).agg(F.count("*").alias("downs"))):
        found[key(row)][row["slot"]] = row["downs"]
    return {
        "step_seconds": step // 1_000_000,
        "columns": columns,
        "rows": [dict(zip(INSTANCE, which, strict=True)) | {"downs": counts} for which, counts in found.items()],
    }
