"""What the tables say of each broker over the span, when the days read are the days of the tables."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.report.classes import UNWATCHED, WORST_FIRST
from pointsman_report.report.numbers.rows import total_seconds
from pointsman_report.report.span import Span
from pointsman_report.schemas import INSTANCE

FLAPPING_NOW = ("flapping", "chronic")

# Whoever was watched on one of the days is what it was on that day.
_RANKED = (*(name for name in WORST_FIRST if name != UNWATCHED), UNWATCHED)


def scored(warehouse: Warehouse, span: Span) -> DataFrame:
    """Sum up ``flapping``: its worst class, its counts, its penalty."""
    return summed(span.named(warehouse, "flapping"))


def summed(flapping: DataFrame) -> DataFrame:
    rank = F.array_position(F.array(*map(F.lit, _RANKED)), F.col("class"))
    days = flapping.withColumn("order", rank)
    caused = F.when(F.col("cause").isNotNull(), F.col("dt"))
    return days.groupBy(*INSTANCE).agg(
        F.min_by("class", "order").alias("class"),
        F.sum("down_count").alias("down_count"),
        F.sum("sign_count").alias("sign_count"),
        F.coalesce(F.sum("incident_downs"), F.lit(0)).alias("incident_downs"),
        F.sum("charged_points").alias("charged_points"),
        F.min_by("penalty_start", "dt").alias("penalty_start"),
        F.max("penalty_max").alias("penalty_max"),
        F.max_by("penalty_end", "dt").alias("penalty_end"),
        F.max("flapped_days").alias("flapped_days"),
        F.max_by("flagged", "dt").alias("flagged"),
        F.max("percent_state_change").alias("percent_state_change"),
        F.max("longest_stable_seconds").alias("longest_stable_seconds"),
        F.max_by("cause", caused).alias("cause"),
        F.max_by("cause_says", caused).alias("cause_says"),
    )


def lived(warehouse: Warehouse, span: Span) -> DataFrame:
    """Sum up ``availability``."""
    return (
        span.named(warehouse, "availability")
        .groupBy(*INSTANCE)
        .agg(
            *map(total_seconds, ("up_seconds", "down_seconds", "planned_seconds")),
            F.sum("repaired").alias("repaired"),
            total_seconds("repair_seconds"),
            F.max("longest_outage_seconds").alias("longest_outage_seconds"),
        )
    )


def worst_first() -> tuple[Column, ...]:
    """Order brokers: by class, where the flapping and the chronic stand together, then by score."""
    place = F.array_position(F.array(*map(F.lit, WORST_FIRST)), F.col("class"))
    unknown = F.when(place == 0, F.lit(len(WORST_FIRST) + 1)).otherwise(place)
    by_score = (F.col(name).desc_nulls_last() for name in ("penalty_max", "down_count", "down_seconds"))
    return (F.greatest(unknown, F.lit(WORST_FIRST.index("flapping") + 1)), *by_score, *map(F.col, INSTANCE))
