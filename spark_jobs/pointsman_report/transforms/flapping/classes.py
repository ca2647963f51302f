"""The class of each broker on each day, and the numbers that it follows from.

The first that holds, of: dead, chronic, flapping, unseen, retired, unwatched, degraded, new, healthy (`meanings` in
the report says what each is).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.parameters import FlapParameters
from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.flapping import FLAPPING
from pointsman_report.transforms import days

UNSEEN_DAYS = 7
"""A broker that nobody had an opinion of for longer leaves the tables of the day; its state is kept."""


def seen_days(known: DataFrame, availability: DataFrame, yesterday: DataFrame) -> DataFrame:
    """Add ``first_seen_on``, ``last_seen_on`` and ``history_began_on`` to each known broker and day."""
    seen = availability.select("dt", *INSTANCE, F.col("dt").alias("seen_on"))
    carried = yesterday.select(
        *INSTANCE, F.col("first_seen_on").alias("carried_first"), F.col("last_seen_on").alias("carried_last")
    )
    dated = known.join(seen, on=["dt", *INSTANCE], how="left").join(carried, on=list(INSTANCE), how="left")
    story = Window.partitionBy(*INSTANCE).orderBy("dt").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    first = F.coalesce("carried_first", F.min("dt").over(story))
    last = F.coalesce(F.last("seen_on", ignorenulls=True).over(story), "carried_last", first)
    each = dated.select("dt", *INSTANCE, first.alias("first_seen_on"), last.alias("last_seen_on"))
    began = each.groupBy("dt").agg(F.min("first_seen_on").alias("history_began_on"))
    return each.join(F.broadcast(began), on="dt", how="inner")


def flapped_days(scored: DataFrame, yesterday: DataFrame) -> DataFrame:
    """Add ``flapped_on``: the days among the last seven on which a charge took the penalty over the threshold."""
    carried = yesterday.select(*INSTANCE, F.explode("flapped_on").alias("dt")).withColumn("raised", F.lit(True))
    both = scored.select("dt", *INSTANCE, "raised").unionByName(carried)
    week = Window.partitionBy(*INSTANCE).orderBy(F.unix_date("dt")).rangeBetween(-6, Window.currentRow)
    counted = both.withColumn(
        "flapped_on", F.sort_array(F.collect_list(F.when(F.col("raised"), F.col("dt"))).over(week))
    )
    return scored.join(counted.drop("raised"), on=["dt", *INSTANCE], how="inner")


def flapping(days_known: DataFrame, blind_periods: DataFrame, *, parameters: FlapParameters) -> DataFrame:
    """Class each broker and day of `days_known`, which joins all that is known of a broker's day."""
    # Name servers of another cluster say nothing of this one; one that knows a neighbour would know this broker too.
    watched = days_known.groupBy("dt", "cluster").agg(F.max(F.col("current").isNotNull()).alias("watched_at_end"))
    # Unless its guard was on: then it knows of those alone that registered anew.
    guarded = blind_periods.filter(F.col("open") & F.col("cluster").isNotNull()).select("dt", "cluster").distinct()
    watched = watched.join(guarded, on=["dt", "cluster"], how="left_anti")
    joined = days_known.join(watched, on=["dt", "cluster"], how="left").fillna({"watched_at_end": False})
    recent = joined.filter(F.datediff("dt", "last_seen_on") <= UNSEEN_DAYS).withColumn(
        "flapped_days", F.size("flapped_on")
    )
    outages, in_incidents = (F.coalesce(name, F.lit(0)) for name in ("outages", "incident_downs"))
    classed = recent.withColumns(
        {
            "class": _class(parameters),
            "down_count": outages,
            "incident_downs": in_incidents,
            "sign_count": F.col("charge_count") - (outages - in_incidents),
            "percent_state_change": F.coalesce("percent_state_change", F.lit(0.0)),
        }
    )
    return classed.select(*FLAPPING.fieldNames())


def _class(parameters: FlapParameters) -> Column:
    open_since = days.ends(F.col("dt")) - F.unix_micros("current.start_at")
    long_ago = open_since > int(parameters.dead_after_hours * 3_600 * days.SECOND)
    away = F.col("current.state") == "down"
    unknown = F.col("current").isNull() & F.col("watched_at_end")
    return (
        F.when(away & ~F.col("current.planned") & long_ago, "dead")
        .when(F.col("flapped_days") >= parameters.chronic_days, "chronic")
        .when(F.col("raised") | F.col("flagged_start"), "flapping")
        .when(unknown & (F.col("last_state") != "left"), "unseen")
        .when((away & F.col("current.planned") & long_ago) | (unknown & (F.col("last_state") == "left")), "retired")
        .when(~F.coalesce(F.col("watched_seconds") > 0, F.lit(False)), "unwatched")
        .when((F.col("down_seconds") > 0) | (F.col("charged_points") >= parameters.degraded_points), "degraded")
        .when((F.col("first_seen_on") == F.col("dt")) & (F.col("history_began_on") < F.col("dt")), "new")
        .otherwise("healthy")
    )
