"""What the plots show beyond the numbers: intervals, transitions and charges of the worst brokers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.report.numbers.rows import Key, Row, collect, key, only
from pointsman_report.report.span import Span
from pointsman_report.report.wording import micros
from pointsman_report.schemas import INSTANCE

MOST_TIMELINES = 40
MOST_BARS_A_BROKER = 4_000
MOST_HEATED = 30
CURVES = 5
MOST_POINTS_A_CURVE = 1_000
"""No plot has more pixels in a line."""
HOUR_US = 3_600_000_000
MOST_HOURS = 75


@dataclass(frozen=True, slots=True)
class Drawn:
    """Intervals of the worst brokers; of those with the highest penalty, the highest charge of each pixel."""

    intervals: list[Row]
    charges: list[Row]


def drawn(warehouse: Warehouse, span: Span, numbers: dict[str, Any]) -> Drawn:
    """Collect what the plots need, for the worst brokers only."""
    shown = [key(broker) for broker in numbers["brokers"][:MOST_TIMELINES]]
    scored = [key(broker) for broker in most_charged(numbers)]
    intervals = span.whole_intervals(warehouse).select(
        *INSTANCE, "state", "planned", F.unix_micros("start_at").alias("start"), F.unix_micros("end_at").alias("end")
    )
    bars = only(intervals, shown).limit(MOST_TIMELINES * MOST_BARS_A_BROKER) if shown else None
    found = sorted(collect(bars), key=lambda row: (*key(row), row["start"], row["end"])) if bars else []
    points = _points(warehouse, span, scored, window_of(numbers, found)) if scored and found else []
    return Drawn(intervals=found, charges=sorted(points, key=lambda row: (row["at"], *key(row))))


def _points(warehouse: Warehouse, span: Span, brokers: list[Key], window: tuple[int, int]) -> list[Row]:
    charges = only(span.touched(warehouse, "flap_charges").filter(span.holds("charged_at")), brokers)
    at = F.unix_micros("charged_at")
    pixel = max(1, (window[1] - window[0]) // MOST_POINTS_A_CURVE)
    highest = F.max(F.struct("penalty", at.alias("at"))).alias("highest")
    thinned = charges.groupBy(*INSTANCE, F.floor(at / F.lit(pixel)).alias("pixel")).agg(highest)
    return collect(thinned.select(*INSTANCE, "highest.at", "highest.penalty"))


def window_of(numbers: dict[str, Any], intervals: list[Row]) -> tuple[int, int]:
    """Return the part of the days that the plots show: all of it, or what was recorded of it if that is much less."""
    first, last = micros(numbers["interval"]["from_at"]), micros(numbers["interval"]["to_at"])
    begin = max(first, min(row["start"] for row in intervals))
    end = min(last, max(row["end"] for row in intervals))
    margin = max((end - begin) // 50, 1_000_000)
    return max(first, begin - margin), min(last, end + margin)


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
