"""What each broker is charged for: its own outages, polite stops that were soon over, and signs of trouble.

Outages come from the merged intervals, so each is charged once. One that belongs to an incident is charged to that and
not to the broker.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.parameters import FlapParameters
from spark_jobs.schemas import INSTANCE
from spark_jobs.transforms import days

_COLUMNS = ("dt", *INSTANCE, "at", "cause", "points")


def charges(
    outages: DataFrame, members: DataFrame, intervals: DataFrame, signs: DataFrame, *, parameters: FlapParameters
) -> DataFrame:
    """Columns: ``dt``, instance, ``at`` (microseconds), ``cause``, ``points``; ``members`` are those of incidents."""
    own = outages.join(members.select("dt", *INSTANCE, "at").distinct(), on=["dt", *INSTANCE, "at"], how="left_anti")
    charged = own.withColumns({"cause": F.col("event"), "points": F.lit(float(parameters.points_outage))})
    return charged.select(*_COLUMNS).unionByName(_quick_shutdowns(intervals, parameters)).unionByName(signs)


def _quick_shutdowns(intervals: DataFrame, parameters: FlapParameters) -> DataFrame:
    length = F.unix_micros("end_at") - F.unix_micros("start_at")
    back = intervals.filter(F.col("planned") & (F.col("reason") == "SHUTDOWN") & ~F.col("end_censored"))
    quick = back.filter(length <= int(parameters.shutdown_return_seconds * days.SECOND))
    return quick.withColumns(
        {
            "at": F.unix_micros("end_at"),
            "cause": F.lit("SHUTDOWN"),
            "points": F.lit(float(parameters.points_shutdown)),
        }
    ).select(*_COLUMNS)
