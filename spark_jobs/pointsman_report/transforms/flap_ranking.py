"""The slow track and Nagios' percentage, computed in addition to the penalty.

`flap_ranking`: the slow track: each broker's outages of the last days compared with its cluster's other brokers.

The rate of the others excludes the broker itself, so that a flapping broker does not raise its own baseline. It
includes one extra outage, so that a cluster without outages proves little. Outages of incidents are not counted. The
number of outliers in a cluster is limited by the false discovery rate (Benjamini and Hochberg).

`state_changes`: Nagios' percentage of state changes.

The state is sampled on a grid that begins at midnight; of the last 21 samples each of the 20 steps that changed weighs
0.75 (the oldest) to 1.25 (the newest), and their sum over 20 is the percentage (base/flapping.c of Nagios Core). Down
is an outage; planned shutdowns and time without monitoring change nothing. An outage between two samples is not seen.
The first samples of a day also use the last twenty steps of the day before. Only samples with a change are computed,
because the percentage is highest there.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.parameters import RankingParameters
from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.flapping_tables import FLAP_RANKING
from pointsman_report.transforms import utc_days
from pointsman_report.transforms.broker_intervals import is_outage
from pointsman_report.transforms.false_discoveries import with_discoveries
from pointsman_report.transforms.poisson import upper_tail

_CLUSTER = ("dt", "cluster")
MANY_DAYS = 16
"""Divided by day alone, this number of days is spread evenly, and need not be divided again to be written by day."""
STEPS = 20
OLDEST, NEWEST = 0.75, 1.25

_BROKER = ("dt", *INSTANCE)


def broker_days(availability: DataFrame, flapping: DataFrame) -> DataFrame:
    """``watched_us`` and ``outages`` (without those of incidents) of each broker and day.

    One row per broker and day; key: ``dt``, instance.
    """
    downs = flapping.filter(F.col("incident_downs") > 0).select("dt", *INSTANCE, "incident_downs")
    watched = F.round((F.col("up_seconds") + F.col("down_seconds")) * utc_days.SECOND).cast("long")
    own = F.col("outages") - F.coalesce("incident_downs", F.lit(0))
    # Divided by broker alone, as the sums over days need it.
    joined = availability.repartition(*INSTANCE).join(downs, on=[*INSTANCE, "dt"], how="left")
    return joined.select("dt", *INSTANCE, watched.alias("watched_us"), own.alias("outages"))


def flap_ranking(
    broker_days: DataFrame, *, first_day: date, last_day: date, parameters: RankingParameters
) -> DataFrame:
    """Rank the brokers of each day from first to last; ``broker_days`` also has the days before.

    Outliers come first, then the least likely by chance, then the highest rate.

    One row per broker and day; key: ``dt``, instance.
    """
    last = utc_days.lit_day(last_day)
    reached = utc_days.days_between(
        F.greatest("dt", utc_days.lit_day(first_day)), F.least(F.date_add("dt", parameters.days - 1), last)
    )
    held = broker_days.select("dt").distinct().select(F.explode(reached).alias("dt"))
    days_held = held.groupBy("dt").agg(F.count("*").alias("days"))
    summed = _sums_of_last_days(broker_days, days=parameters.days, last_day=last_day)
    watched = summed.filter((F.col("dt") >= utc_days.lit_day(first_day)) & (F.col("watched_us") > 0))
    if (last_day - first_day).days >= MANY_DAYS:
        watched = watched.repartition("dt")
    rated = _rated(watched).join(F.broadcast(days_held), on="dt", how="inner")
    order = (F.desc("rate_per_day"), "broker_name", "broker_id")
    outliers = with_discoveries(rated, "outlier", family=_CLUSTER, order=order, rate=parameters.false_discovery_rate)
    # Outliers have the smallest values: the order of the discoveries, so that rows are sorted once.
    worst_first = Window.partitionBy(*_CLUSTER).orderBy(F.asc_nulls_last("p_value"), *order)
    ranked = outliers.withColumn("rank", F.row_number().over(worst_first).cast("long"))
    return ranked.select(*FLAP_RANKING.columns)


def _sums_of_last_days(broker_days: DataFrame, *, days: int, last_day: date) -> DataFrame:
    """The sums of each day and the ``days`` - 1 before it, for days without monitoring too.

    One row per broker and day; key: ``dt``, instance.
    """
    last = utc_days.lit_day(last_day)
    next_day = F.lead("dt").over(Window.partitionBy(*INSTANCE).orderBy("dt"))
    until = F.coalesce(F.date_sub(next_day, 1), last)
    followed = broker_days.withColumn("until", until)
    each = followed.select("*", F.explode(utc_days.days_between(F.col("dt"), F.col("until"))).alias("day"))
    week = Window.partitionBy(*INSTANCE).orderBy("day").rowsBetween(1 - days, Window.currentRow)
    sums = (
        F.sum(F.when(F.col("day") == F.col("dt"), F.col(name)).otherwise(F.lit(0))).over(week).alias(name)
        for name in ("watched_us", "outages")
    )
    return each.select(F.col("day").alias("dt"), *INSTANCE, *sums)


def with_outliers(ranked: DataFrame, *, false_discovery_rate: float) -> DataFrame:
    """Add ``outlier`` by the ``p_value`` of the brokers of each cluster and day.

    One row per broker and day; key: ``dt``, instance.
    """
    order = ("broker_name", "broker_id")
    return with_discoveries(ranked, "outlier", family=_CLUSTER, order=order, rate=false_discovery_rate)


def _rated(summed: DataFrame) -> DataFrame:
    cluster = Window.partitionBy(*_CLUSTER)
    others_us = F.sum("watched_us").over(cluster) - F.col("watched_us")
    others = F.sum("outages").over(cluster) - F.col("outages")
    own_days, others_days = (
        F.col("watched_us") / F.lit(utc_days.DAY),
        F.nullif(others_us, F.lit(0)) / F.lit(utc_days.DAY),
    )
    rates = summed.withColumns(
        {
            "watched_days": own_days,
            "rate_per_day": F.col("outages") / own_days,
            "cluster_rate_per_day": (others + 1) / others_days,
        }
    )
    return rates.withColumns(
        {
            "ratio": F.col("rate_per_day") / F.col("cluster_rate_per_day"),
            "p_value": upper_tail(F.col("outages"), F.col("cluster_rate_per_day") * F.col("watched_days")),
        }
    )


def state_changes(intervals: DataFrame, *, first_day: date, last_day: date, parameters: RankingParameters) -> DataFrame:
    """``percent_state_change`` of each broker and day that has a change in reach; ``intervals`` from the day before.

    One row per broker and day; key: ``dt``, instance.
    """
    grid = int(parameters.grid_seconds * utc_days.SECOND)
    changes = _changes(
        _bad_samples(_within_reach(intervals, first_day, last_day, grid), grid), -(-utc_days.DAY // grid)
    )
    # The day's first sample includes changes before midnight.
    at_midnight = changes.select(*_BROKER).distinct().select(*_BROKER, F.lit(0).alias("sample"), F.lit(0).alias("n"))
    sampled_at = changes.unionByName(at_midnight)
    last_steps = Window.partitionBy(*_BROKER).orderBy("sample").rangeBetween(-(STEPS - 1), Window.currentRow)
    n, ages = F.sum("n").over(last_steps), F.sum(F.col("n") * F.col("sample")).over(last_steps)
    older = n * F.col("sample") - ages
    slope = (NEWEST - OLDEST) / (STEPS - 1)
    percent = (n * F.lit(NEWEST) - older * F.lit(slope)) * (100.0 / STEPS)
    scored = sampled_at.withColumn("percent", percent).filter(F.col("sample") >= 0)
    return scored.groupBy(*_BROKER).agg(F.max("percent").alias("percent_state_change"))


def _within_reach(intervals: DataFrame, first_day: date, last_day: date, grid: int) -> DataFrame:
    """The intervals of each day, and those of the day before that ended within reach of its first sample."""
    rows = intervals.select(
        *_BROKER,
        is_outage().alias("bad"),
        "open",
        F.unix_micros("start_at").alias("start"),
        F.unix_micros("end_at").alias("end"),
    )
    late = rows.filter(~F.col("open") & (F.col("end") >= utc_days.ends(F.col("dt")) - STEPS * grid))
    both = rows.unionByName(late.withColumn("dt", F.date_add("dt", 1)))
    return both.filter(F.col("dt").between(utc_days.lit_day(first_day), utc_days.lit_day(last_day)))


def _bad_samples(intervals: DataFrame, grid: int) -> DataFrame:
    """Ranges of samples with the broker down: from ``from_sample`` up to, not including, ``to_sample``."""
    timeline = Window.partitionBy(*_BROKER).orderBy("start", "end", "open")
    until = F.coalesce(F.lead("start").over(timeline), utc_days.ends(F.col("dt")))

    def first_sample_from(at: str) -> Column:
        return F.ceil((F.col(at) - utc_days.starts(F.col("dt"))) / grid)

    ranges = intervals.withColumn("until", until).filter("bad")
    sampled = ranges.select(
        *_BROKER, first_sample_from("start").alias("from_sample"), first_sample_from("until").alias("to_sample")
    )
    return sampled.filter(F.col("to_sample") > F.col("from_sample"))


def _changes(bad: DataFrame, samples: int) -> DataFrame:
    """The samples that differ from the one before."""
    timeline = Window.partitionBy(*_BROKER).orderBy("from_sample")
    falls = F.coalesce(F.lag("to_sample").over(timeline) < F.col("from_sample"), F.lit(True))
    rises = F.coalesce(F.lead("from_sample").over(timeline) > F.col("to_sample"), F.lit(True))
    both = F.array(F.when(falls, F.col("from_sample")), F.when(rises, F.col("to_sample")))
    changed = bad.withColumn("both", both).select(*_BROKER, F.explode("both").alias("sample"))
    in_reach = F.col("sample").between(-(STEPS - 1), samples - 1)
    return changed.filter(in_reach).select(*_BROKER, F.col("sample").cast("int").alias("sample"), F.lit(1).alias("n"))
