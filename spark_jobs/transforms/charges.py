"""What each broker is charged for, once, however many observers saw it.

Outages come from the merged intervals. Signs come from the rows: the same sign seen by several observers is charged as
often as the observer that saw it most often saw it, within a slot of time for signs that repeat, within a day for
those that name what is new (an incarnation, an address).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.parameters import FlapParameters
from spark_jobs.schemas import INSTANCE, OBSERVER
from spark_jobs.transforms import days
from spark_jobs.transforms.availability import began_on_its_day, is_outage

_COLUMNS = ("dt", *INSTANCE, "at", "cause", "points")


def charges(events: DataFrame, intervals: DataFrame, *, parameters: FlapParameters) -> DataFrame:
    """Columns: ``dt``, instance, ``at`` (microseconds), ``cause``, ``points``."""
    return (
        _outages(intervals, parameters)
        .unionByName(_quick_shutdowns(intervals, parameters))
        .unionByName(_signs(events, parameters))
    )


def _outages(intervals: DataFrame, parameters: FlapParameters) -> DataFrame:
    began = intervals.filter(is_outage() & began_on_its_day())
    return began.withColumns(
        {"at": F.unix_micros("start_at"), "cause": F.col("event"), "points": F.lit(parameters.points_outage)}
    ).select(*_COLUMNS)


def _quick_shutdowns(intervals: DataFrame, parameters: FlapParameters) -> DataFrame:
    length = F.unix_micros("end_at") - F.unix_micros("start_at")
    back = intervals.filter(F.col("planned") & (F.col("reason") == "SHUTDOWN") & ~F.col("end_censored"))
    quick = back.filter(length <= int(parameters.shutdown_return_seconds * days.SECOND))
    return quick.withColumns(
        {"at": F.unix_micros("end_at"), "cause": F.lit("SHUTDOWN"), "points": F.lit(parameters.points_shutdown)}
    ).select(*_COLUMNS)


def _signs(events: DataFrame, parameters: FlapParameters) -> DataFrame:
    named = events.filter(F.col("broker_name").isNotNull())
    at = F.unix_micros("event_at")
    slot = F.floor(at / int(parameters.same_sign_seconds * days.SECOND)).cast("string")
    points, same = _points(parameters), _same(slot)
    signs = named.withColumns({"at": at, "cause": F.col("event"), "points": points, "same": same})
    charged = signs.filter(F.col("points").isNotNull())
    sign = ("dt", *INSTANCE, "cause", "same")
    by_observer = Window.partitionBy(*sign, *OBSERVER).orderBy("at", "seq")
    numbered = charged.withColumn("nth", F.row_number().over(by_observer))
    once = numbered.groupBy(*sign, "nth").agg(F.min("at").alias("at"), F.first("points").alias("points"))
    return once.select(*_COLUMNS)


def _points(parameters: FlapParameters) -> Column:
    event = F.col("event")
    # RECOVERED after a failed probe ends an outage that was charged already.
    suspected = (event == "RECOVERED") & (F.col("reason") == "HEARTBEAT")
    return (
        F.when(event == "RESTARTED", parameters.points_restarted)
        .when(event.isin("ADDRESS_CHANGED", "ROLE_CHANGED"), parameters.points_moved)
        .when(suspected, parameters.points_suspected)
        .when(event == "LATE_HEARTBEAT", parameters.points_late)
        .cast("double")
    )


def _same(slot: Column) -> Column:
    """What makes two observers' rows of one event the same sign."""
    event = F.col("event")
    what_is_new = F.when(event == "RESTARTED", F.col("incarnation")).when(
        event.isin("ADDRESS_CHANGED", "ROLE_CHANGED"), F.col("broker_addr")
    )
    return F.coalesce(what_is_new, slot)
