"""What is carried from a day to the next, so that a day can be computed alone."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.liveness import BROKER_STATE, OPINION
from pointsman_report.transforms import days


def broker_state(days_known: DataFrame, opinions_at_day_end: DataFrame) -> DataFrame:
    """Each known broker at each day's end."""
    held = days_known.join(opinions_at_day_end, on=["dt", *INSTANCE], how="left")
    state = held.withColumns(
        {
            "opinions": F.coalesce("opinions", F.array().cast(f"array<{OPINION.simpleString()}>")),
            "penalty": F.col("penalty_end"),
            "penalty_at": F.timestamp_micros(days.ends(F.col("dt"))),
        }
    )
    return state.select(*BROKER_STATE.fieldNames())
