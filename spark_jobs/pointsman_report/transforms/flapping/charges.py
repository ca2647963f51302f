"""What each broker is charged for: its own outages, polite stops that were soon over, and signs of trouble.

Outages come from the merged intervals, so each is charged once. One that belongs to an incident is charged to that and
not to the broker. Nothing that happens in a maintenance window is charged.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pointsman_report.parameters import FlapParameters
from pointsman_report.schemas import INSTANCE
from pointsman_report.transforms import days

_COLUMNS = ("dt", *INSTANCE, "at", "cause", "points")


def charges(
    outages: DataFrame,
    members: DataFrame,
    intervals: DataFrame,
    signs: DataFrame,
    windows: DataFrame,
    *,
    parameters: FlapParameters,
) -> DataFrame:
    """Columns: ``dt``, instance, ``at`` (microseconds), ``cause``, ``points``.

    ``members`` are the outages of incidents; ``windows`` those of the day before as well. An outage's rows
    state whether it was planned; the rest is compared with the windows of all nodes.
    """
    own = outages.join(members.select("dt", *INSTANCE, "at").distinct(), on=["dt", *INSTANCE, "at"], how="left_anti")
    charged = own.withColumns({"cause": F.col("event"), "points": F.lit(float(parameters.points_outage))})
    rest = _quick_shutdowns(intervals, parameters).unionByName(signs.withColumn("began", F.col("at")))
    return charged.select(*_COLUMNS).unionByName(_outside_of(windows, rest).select(*_COLUMNS))


def _outside_of(windows: DataFrame, rows: DataFrame) -> DataFrame:
    """Drop the rows that ``began`` in a window of their broker or cluster."""
    open_windows = windows.select(
        F.col("cluster").alias("of_cluster"),
        F.col("broker_name").alias("of_broker"),
        F.unix_micros("from_at").alias("from_us"),
        F.unix_micros("to_at").alias("to_us"),
    )
    is_of = (F.col("cluster") == F.col("of_cluster")) & F.coalesce(
        F.col("of_broker") == F.col("broker_name"), F.lit(True)
    )
    began_in = (F.col("began") >= F.col("from_us")) & (F.col("began") < F.col("to_us"))
    return rows.join(F.broadcast(open_windows), is_of & began_in, "left_anti")


def _quick_shutdowns(intervals: DataFrame, parameters: FlapParameters) -> DataFrame:
    length = F.unix_micros("end_at") - F.unix_micros("start_at")
    back = intervals.filter(F.col("planned") & (F.col("reason") == "SHUTDOWN") & ~F.col("end_censored"))
    quick = back.filter(length <= int(parameters.shutdown_return_seconds * days.SECOND))
    return quick.withColumns(
        {
            "began": F.unix_micros("start_at"),
            "at": F.unix_micros("end_at"),
            "cause": F.lit("SHUTDOWN"),
            "points": F.lit(float(parameters.points_shutdown)),
        }
    ).select(*_COLUMNS, "began")
