"""The times in which more brokers of one host, zone or cluster were down at the same moment than chance explains.

A sweep over time: each outage counts from its start until it ends, and for `within_seconds` at most, so that a broker
that has been down for hours is not part of what happens now. An outage shorter than `tolerance_seconds` counts for that
long, because sweeps notice the outages of one moment that much apart. The cost is that of sorting each
scope's day.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.parameters import IncidentParameters
from pointsman_report.transforms import days
from pointsman_report.transforms.flapping.places import SCOPE

_OUTAGE = ("broker_name", "broker_id", "at")


def episodes(outages: DataFrame, *, parameters: IncidentParameters) -> DataFrame:
    """The outages that belong to an episode, with its start ``from_us``; ``bound`` and ``usual`` of its scope's day.

    ``outages`` has the columns of `SCOPE`, a broker, ``at`` and ``down_us``; all its columns are kept. An episode is a
    time during which enough brokers of the scope are down; an outage that touches two belongs to the first. ``bound``:
    the most brokers that chance brings down at one moment; ``usual``: how many it often brings.
    """
    moments = _moments(_counted(outages, parameters))
    scope = Window.partitionBy(*SCOPE)
    by_count = F.sum("gain_us").over(scope) / F.lit(float(days.DAY))
    by_union = F.sum("busy_us").over(scope) / F.lit(float(days.DAY))
    bounded = moments.withColumn("mean", _mean(by_count, by_union)).withColumns(
        {"bound": _above_mean(parameters.sigmas), "usual": _above_mean(1.0)}
    )
    high = is_more_than_chance(F.col("down"), F.col("bound"), parameters)
    story = scope.orderBy("point", "gain")
    so_far = story.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rose = bounded.withColumn("high", high).withColumn("was_high", F.lag("high", 1, False).over(story))
    sank = F.last(F.when(~F.col("high") & F.col("was_high"), F.col("point")), ignorenulls=True).over(so_far)
    # Where the number sinks for no longer than sweeps differ, it is one episode.
    is_another = F.coalesce(F.col("point") - sank > _microseconds(parameters.tolerance_seconds), F.lit(True))
    rises = F.col("high") & ~F.col("was_high")
    begun = rose.withColumn("begins", F.when(rises & is_another, F.col("point")))
    current = F.last("begins", ignorenulls=True).over(so_far)
    numbered = begun.withColumn("current", current).withColumn("rise", F.when(rises, F.struct("point", "current")))
    # Sorted once more, backwards: a frame that ends with the partition would cost the square of its rows.
    backwards = scope.orderBy(F.desc("point"), F.desc("gain")).rowsBetween(Window.unboundedPreceding, -1)
    ahead = numbered.withColumn("next_rise", F.last("rise", ignorenulls=True).over(backwards))
    is_down_then = F.col("next_rise.point") < F.col("until")
    reached = F.when(F.col("high"), F.col("current")).when(is_down_then, F.col("next_rise.current"))
    placed = ahead.withColumn("from_us", reached).filter((F.col("gain") > 0) & F.col("from_us").isNotNull())
    return placed.select(*outages.columns, "from_us", "bound", "usual")


def is_more_than_chance(brokers: Column, bound: Column, parameters: IncidentParameters) -> Column:
    return (brokers >= parameters.brokers) & (brokers > bound)


def _microseconds(seconds: float) -> int:
    return int(seconds * days.SECOND)


def _counted(outages: DataFrame, parameters: IncidentParameters) -> DataFrame:
    """Add ``until``: up to when an outage counts; never beyond the next one of the same broker."""
    tolerance, within = map(_microseconds, (parameters.tolerance_seconds, parameters.within_seconds))
    broker = Window.partitionBy(*SCOPE, "broker_name", "broker_id").orderBy("at")
    lasts = F.least(F.greatest("down_us", F.lit(tolerance)), F.lit(within))
    # least() skips the null of a broker's last outage.
    return outages.withColumn("until", F.least(F.col("at") + lasts, F.lead("at").over(broker)))


def _moments(counted: DataFrame) -> DataFrame:
    """Two rows for each outage, its start and its end, with the brokers ``down`` from that ``point`` on.

    ``gain_us``: how long the outage counts. ``busy_us``: until the next point, where any broker is down.
    """
    points = F.array(
        F.struct(F.col("at").alias("point"), F.lit(1).alias("gain")),
        F.struct(F.col("until").alias("point"), F.lit(-1).alias("gain")),
    )
    moments = counted.select("*", F.inline(points))
    scope = Window.partitionBy(*SCOPE)
    # By range: all that begins and ends at one instant counts together, so that a broker that is back when the next
    # goes is not down together with it.
    to_here = scope.orderBy("point").rangeBetween(Window.unboundedPreceding, Window.currentRow)
    down = moments.withColumn("down", F.sum("gain").over(to_here))
    until_next = F.coalesce(F.lead("point").over(scope.orderBy("point", "gain")) - F.col("point"), F.lit(0))
    return down.withColumns(
        {
            "busy_us": F.when(F.col("down") > 0, until_next).otherwise(F.lit(0)),
            "gain_us": F.when(F.col("gain") > 0, F.col("until") - F.col("at")).otherwise(F.lit(0)),
        }
    )


def _mean(by_count: Column, by_union: Column) -> Column:
    """The mean number of brokers down at one moment.

    By count it includes an incident with all its brokers; by the share of time with no broker down it includes it once,
    but says nothing when there is none. The smaller of the two holds for both.
    """
    by_empty = F.when(by_union < 1, -F.log1p(-by_union))
    return F.least(by_count, by_empty)


def _above_mean(sigmas: float) -> Column:
    return F.col("mean") + F.lit(float(sigmas)) * F.sqrt("mean")
