"""Rolling restarts: brokers of a cluster that went down one after another, each back before the next.

Only outages that restarted the broker count: another process or version came back, or it left by a planned shutdown.
Not part of a run are a broker that goes twice in it, which flaps, and an outage that begins before the last one is over
or lasts over several others: it is another matter, and does not end the run. Outages of an incident belong to that.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.parameters import IncidentParameters
from pointsman_report.schemas.flapping import ROLLING_RESTARTS
from pointsman_report.transforms import days
from pointsman_report.transforms.flapping.outage_facts import NEW, SAME

_CLUSTER = ("dt", "cluster")
_STORY = (*_CLUSTER, "version")

LONGEST_RESTART = 900 * days.SECOND
"""A broker that is away for longer is not one step of a rolling restart; the next one does not wait for it."""


def rolling_outages(rows: DataFrame, *, parameters: IncidentParameters) -> DataFrame:
    """The outages that are part of a rolling restart, with its ``rolling_restart_id``; of `outages_with_facts`."""
    is_restart = (F.col("process") == NEW) | F.col("version_after").isNotNull()
    left = F.col("planned") & F.coalesce(F.col("process") != SAME, F.lit(True))
    is_whole = F.col("end_us").isNotNull() & (F.col("start_at") == F.col("began_at"))
    began = is_whole & (F.to_date("start_at") == F.col("dt")) & F.col("incident_id").isNull()
    quick = F.col("end_us") - F.col("start_us") <= LONGEST_RESTART
    # Those that get the same version are one deploy, whatever else is restarted meanwhile.
    candidates = rows.filter(began & quick & F.coalesce(is_restart | left, F.lit(False))).withColumn(
        "version", F.coalesce("version_after", F.lit(""))
    )
    # First all that are near each other, then without those that flap in it, in runs of one after another.
    near = _runs(candidates, _is_near(parameters))
    of_run = Window.partitionBy(*_STORY, "run", "broker_name", "broker_id")
    once = near.withColumn("times", F.count("*").over(of_run)).filter("times = 1").drop("run", "times")
    runs = _runs(_one_after_another(once), _is_near(parameters))
    run = Window.partitionBy(*_STORY, "run")
    began_at = F.date_format(F.timestamp_micros(F.min("start_us").over(run)), "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")
    brokers = F.count("*").over(run)
    named = runs.withColumns(
        {
            "brokers": brokers,
            "rolling_restart_id": F.concat_ws("/", "cluster", began_at, F.nullif(F.col("version"), F.lit(""))),
        }
    )
    # An outage of a run is one of another broker each: those that flap are gone.
    return named.filter(F.col("brokers") >= parameters.brokers).drop("run", "brokers", "version")


def rolling_restarts(members: DataFrame) -> DataFrame:
    """Sum up each rolling restart of `rolling_outages`."""
    end_at = F.timestamp_micros("end_us")
    member = F.struct("start_at", end_at.alias("end_at"), "broker_name", "broker_id", "planned")
    unplanned = ~F.col("planned")
    length = F.col("end_us") - F.col("start_us")
    summed = members.groupBy(*_CLUSTER, "rolling_restart_id").agg(
        F.min("start_at").alias("from_at"),
        F.max("start_at").alias("to_at"),
        F.max(end_at).alias("back_at"),
        F.count("*").alias("brokers"),
        F.count(F.when(unplanned, 1)).alias("unplanned"),
        F.mode("version_before").alias("version_before"),
        F.mode("version_after").alias("version_after"),
        days.seconds(F.coalesce(F.sum(F.when(unplanned, length)), F.lit(0))).alias("down_seconds"),
        F.sort_array(F.collect_list(member)).alias("members"),
    )
    return summed.select(*ROLLING_RESTARTS.fieldNames())


def _is_near(parameters: IncidentParameters) -> Column:
    gap = int(parameters.rolling_gap_seconds * days.SECOND)
    return (F.col("start_us") - F.col("back_before") <= gap) & F.lit(gap > 0)


def _one_after_another(rows: DataFrame) -> DataFrame:
    """Drop the outages that are not a step: those that last over several others, then those that overlap the last."""
    story = Window.partitionBy(*_STORY).orderBy("start_us", "broker_name", "broker_id")
    lasting = F.coalesce(F.lead("start_us", 2).over(story) < F.col("end_us"), F.lit(False))
    steps = rows.withColumn("lasting", lasting).filter(~F.col("lasting")).drop("lasting")
    overlaps = F.coalesce(F.col("start_us") < F.lag("end_us").over(story), F.lit(False))
    return steps.withColumn("overlaps", overlaps).filter(~F.col("overlaps")).drop("overlaps")


def _runs(rows: DataFrame, continues: Column) -> DataFrame:
    """Number the runs of each cluster's day and new version: a new one begins where ``continues`` does not hold.

    ``back_before``: when all that began before were back.
    """
    story = Window.partitionBy(*_STORY).orderBy("start_us", "broker_name", "broker_id")
    before = story.rowsBetween(Window.unboundedPreceding, -1)
    to_here = story.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    dated = rows.withColumn("back_before", F.max("end_us").over(before))
    begins = ~F.coalesce(continues, F.lit(False))
    return dated.withColumn("run", F.sum(begins.cast("long")).over(to_here)).drop("back_before")
