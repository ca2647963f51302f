"""Which brokers a set of parameters flags over some days, from what the days' tables recorded.

The penalty is recomputed from the recorded charges, with the points that the parameters give to their causes. It starts
early enough for any older penalty to have decayed. Charges of incidents are not recorded, and the rules that make a
charge or an incident stay as they were.
"""

from __future__ import annotations

import math
from datetime import date

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pointsman_report.parameters import FlapParameters, RankingParameters
from pointsman_report.schemas import INSTANCE
from pointsman_report.transforms import utc_days
from pointsman_report.transforms.flap_ranking import with_outliers

METHODS = ("penalty", "percent", "count", "slow")
"""Detectors: the decayed penalty, Nagios' percentage, the number of outages, the slow track."""

NEGLIGIBLE_POINTS = 0.001
"""Penalty points; fewer make no difference to a flag."""


def flagged_by_day(flapping: DataFrame, ranking: DataFrame, *, parameters: RankingParameters) -> DataFrame:
    """Count the days on which each other method flags a broker: ``percent_days``, ``count_days``, ...

    One row per broker; key: instance.
    """
    own = F.col("down_count") - F.coalesce("incident_downs", F.lit(0))
    percent = F.coalesce(F.col("percent_state_change") >= parameters.percent_high, F.lit(False))
    no = F.lit(False)
    seen = flapping.select(
        *INSTANCE, percent.alias("percent"), (own >= parameters.count_at_least).alias("count"), no.alias("slow")
    )
    ranked = with_outliers(ranking.drop("outlier"), false_discovery_rate=parameters.false_discovery_rate)
    slow = ranked.select(*INSTANCE, no.alias("percent"), no.alias("count"), F.col("outlier").alias("slow"))
    counted = seen.unionByName(slow).groupBy(*INSTANCE)
    return counted.agg(*(F.count(F.when(F.col(name), 1)).alias(f"{name}_days") for name in METHODS[1:]))


def flagged_by_penalty(charges: DataFrame, *, first_day: date, last_day: date, parameters: FlapParameters) -> DataFrame:
    """Return ``penalty_times`` (rises above the threshold) and ``penalty_seconds`` (time until reuse) of each broker.

    ``charges``: the table ``flap_charges`` from `days_to_decay` days before the first.

    One row per broker with charges; key: instance.
    """
    charge = F.struct(F.unix_micros("charged_at").alias("at"), _points(parameters).alias("points"), "cause")
    brokers = charges.groupBy(*INSTANCE).agg(F.sort_array(F.collect_list(charge)).alias("charges"))
    replayed = brokers.withColumn("replayed", _replayed(first_day, last_day, parameters))
    return replayed.select(
        *INSTANCE, F.col("replayed.times").alias("penalty_times"), F.col("replayed.seconds").alias("penalty_seconds")
    )


def days_to_decay(parameters: FlapParameters) -> int:
    """Days without a charge after which the highest penalty has decayed."""
    half_lives = math.log2(max(2.0, parameters.ceiling / NEGLIGIBLE_POINTS))
    return math.ceil(half_lives * parameters.half_life_minutes / (24 * 60))


def _points(parameters: FlapParameters) -> Column:
    by_cause = {
        "RESTARTED": parameters.points_restarted,
        "ADDRESS_CHANGED": parameters.points_moved,
        "ROLE_CHANGED": parameters.points_moved,
        "RECOVERED": parameters.points_suspected,
        "LATE_HEARTBEAT": parameters.points_late,
        "SHUTDOWN": parameters.points_shutdown,
    }
    points = F.lit(float(parameters.points_outage))
    for cause, given in by_cause.items():
        points = F.when(F.col("cause") == cause, F.lit(float(given))).otherwise(points)
    return points


def _replayed(first_day: date, last_day: date, parameters: FlapParameters) -> Column:
    half_life = parameters.half_life_minutes * 60 * utc_days.SECOND
    state = "struct<penalty:double,at:bigint,on:boolean,times:bigint,seconds:double>"
    begin = F.lit(None).cast(state)

    def seconds_until(so_far: Column, at: Column) -> Column:
        clear = F.log2(so_far["penalty"] / F.lit(float(parameters.reuse_below))) * half_life
        until = F.least(at.cast("double"), so_far["at"] + clear)
        since = F.greatest(so_far["at"], F.lit(utc_days.start_of(first_day)))
        more = F.greatest(until - since, F.lit(0.0)) / utc_days.SECOND
        return so_far["seconds"] + F.when(so_far["on"], more).otherwise(F.lit(0.0))

    def step(so_far: Column, charge: Column) -> Column:
        at, penalty = charge["at"], so_far["penalty"]
        decayed = F.coalesce(penalty * F.pow(F.lit(2.0), (so_far["at"] - at) / half_life), F.lit(0.0))
        held = F.coalesce(so_far["on"], F.lit(False)) & (F.round(decayed, 6) >= parameters.reuse_below)
        after = F.least(decayed + charge["points"], F.lit(float(parameters.ceiling)))
        above = F.round(after, 6) > parameters.suppress_above
        rose = above & ~held & (at >= utc_days.start_of(first_day))
        return F.struct(
            after.alias("penalty"),
            at.alias("at"),
            (held | above).alias("on"),
            (F.coalesce(so_far["times"], F.lit(0)) + rose.cast("bigint")).alias("times"),
            F.coalesce(seconds_until(so_far, at), F.lit(0.0)).alias("seconds"),
        ).cast(state)

    def finish(so_far: Column) -> Column:
        seconds = seconds_until(so_far, F.lit(utc_days.end_of(last_day)))
        return F.struct(so_far["times"].alias("times"), F.round(seconds, 3).alias("seconds"))

    return F.aggregate("charges", begin, step, finish)
