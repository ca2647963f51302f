"""The times in which more brokers of one host, zone or cluster fell than chance brings.

How many brokers fall within a time from each outage on is a running sum: an outage counts for every window that could
begin in the time before it, back to the same broker's outage before, so that no broker counts twice. That is one sort
for a scope's day, however many brokers it has.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.parameters import IncidentParameters
from spark_jobs.transforms import days
from spark_jobs.transforms.flapping.fullest import fullest_windows
from spark_jobs.transforms.flapping.places import SCOPE

_PARTS = 1_000_000_000
"""Expectations are summed as whole numbers: a sum of floats would depend on the order of the rows."""


def bursts(outages: DataFrame, *, parameters: IncidentParameters) -> DataFrame:
    """The windows of each scope and day, ``from_us`` to ``to_us``, and the ``bound`` of brokers that chance brings.

    ``outages`` has the columns of `SCOPE`, a broker and ``at``. Windows of one scope do not overlap. What a window
    holds may turn out to be below the bound.
    """
    counted = _counted(outages, width(parameters))
    scope = Window.partitionBy(*SCOPE)
    by_chance = F.sum("share").over(scope) / F.lit(float(_PARTS))
    bounded = counted.select(
        *SCOPE, "at", "fallen", _bound(by_chance, F.size(F.collect_set("slot").over(scope)), parameters).alias("bound")
    )
    began = bounded.filter(is_more_than_chance(F.col("fallen"), F.col("bound"), parameters))
    start = F.struct("at", "fallen")
    by_scope = began.groupBy(*SCOPE).agg(
        F.max("bound").alias("bound"), F.sort_array(F.collect_set(start)).alias("starts")
    )
    windows = fullest_windows(F.col("starts"), width(parameters))
    return by_scope.select(*SCOPE, "bound", F.inline(windows))


def width(parameters: IncidentParameters) -> int:
    """Microseconds from the first outage of a window to the last that it may hold."""
    return int(parameters.within_seconds * days.SECOND)


def is_more_than_chance(brokers: Column, bound: Column, parameters: IncidentParameters) -> Column:
    return (brokers >= parameters.brokers) & (brokers > bound)


def _counted(outages: DataFrame, within: int) -> DataFrame:
    """Give each outage how many brokers had ``fallen`` by ``within`` after it, itself included."""
    broker = Window.partitionBy(*SCOPE, "broker_name", "broker_id")
    before = F.lag("at").over(broker.orderBy("at"))
    often = F.count("*").over(broker)
    # A broker that falls so often falls in so many of all windows; each of its outages takes its part of that.
    share = (F.lit(1.0) - F.exp(-often * F.lit(within / days.DAY))) / often * _PARTS
    measured = outages.select(
        *SCOPE,
        "at",
        F.greatest(F.col("at") - within, before + 1).alias("counts_from"),
        F.round(share).cast("long").alias("share"),
        F.floor((F.col("at") - days.starts(F.col("dt"))) / within).alias("slot"),
    )
    points = F.array(
        F.struct(F.col("counts_from").alias("point"), F.lit(1).alias("gain"), F.lit(False).alias("is_outage")),
        F.struct(F.col("at").alias("point"), F.lit(0).alias("gain"), F.lit(True).alias("is_outage")),
        F.struct((F.col("at") + 1).alias("point"), F.lit(-1).alias("gain"), F.lit(False).alias("is_outage")),
    )
    moments = measured.select(*SCOPE, "at", "share", "slot", F.inline(points))
    to_here = Window.partitionBy(*SCOPE).orderBy("point").rangeBetween(Window.unboundedPreceding, Window.currentRow)
    return moments.withColumn("fallen", F.sum("gain").over(to_here)).filter("is_outage")


def _bound(by_count: Column, taken_slots: Column, parameters: IncidentParameters) -> Column:
    """How many brokers chance brings into a window, and so many standard deviations more.

    The mean counts a burst with all its brokers; the share of times without any outage counts it once, but says nothing
    when there is none. The smaller of the two holds for both.
    """
    taken = taken_slots / F.lit(days.DAY / width(parameters))
    by_empty = F.when(taken < 1, -F.log1p(-taken))
    mean = F.least(by_count, by_empty)
    return mean + F.lit(float(parameters.sigmas)) * F.sqrt(mean)
