"""Scores of each broker over the span: class, counts, penalty, time up and down.

If the days of the report are UTC days, the tables are summed. Otherwise outages, time and penalty are cut to the local
day, and the class is that of the UTC day of the same date (or of the other overlapping day, for a broker known only
there). The classes flapping, degraded and healthy are decided from the cut values.
"""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.parameters import FlapParameters
from pointsman_report.report.meanings import UNWATCHED, WORST_FIRST
from pointsman_report.report.span import Span
from pointsman_report.report.table_rows import total_seconds
from pointsman_report.schemas import INSTANCE
from pointsman_report.transforms.broker_intervals import is_outage
from pointsman_report.transforms.utc_days import SECOND, seconds, start_of

FLAPPING_NOW = ("flapping", "chronic")

# A broker monitored on one of the days has the class of that day.
_RANKED = (*(name for name in WORST_FIRST if name != UNWATCHED), UNWATCHED)
_RANKING = ("outages", "days", "rate_per_day", "cluster_rate_per_day", "ratio", "p_value", "outlier", "rank")
_CUT = ("down_count", "sign_count", "incident_downs", "charged_points", "penalty_start", "penalty_max", "penalty_end")


def broker_rows(warehouse: Warehouse, span: Span, *, parameters: FlapParameters) -> DataFrame:
    """Return one row for each broker in the tables of the span."""
    if span.is_whole_utc_days:
        times = _whole_day_times(warehouse, span)
        scores = _summed(span.named(warehouse, "flapping"))
    else:
        times = cut_times(warehouse, span)
        scores = _cut_scores(warehouse, span, times, parameters=parameters)
        times = times.drop("cut_downs")
    day = span.last_day
    ranking = warehouse.read("flap_ranking", first_day=day, last_day=day)
    ranked = ranking.select(*INSTANCE, F.struct(*_RANKING).alias("ranking"))
    return scores.join(times, on=list(INSTANCE), how="left").join(ranked, on=list(INSTANCE), how="left")


def worst_first() -> tuple[Column, ...]:
    """Order brokers by class (flapping and chronic together), then by score."""
    place = F.array_position(F.array(*map(F.lit, WORST_FIRST)), F.col("class"))
    unknown = F.when(place == 0, F.lit(len(WORST_FIRST) + 1)).otherwise(place)
    by_score = (F.col(name).desc_nulls_last() for name in ("penalty_max", "down_count", "down_seconds"))
    return (F.greatest(unknown, F.lit(WORST_FIRST.index("flapping") + 1)), *by_score, *map(F.col, INSTANCE))


def _summed(flapping: DataFrame) -> DataFrame:
    """The worst class, the counts and the penalty of each broker over days of ``flapping``."""
    rank = F.array_position(F.array(*map(F.lit, _RANKED)), F.col("class"))
    days = flapping.withColumn("order", rank)
    caused = F.when(F.col("cause").isNotNull(), F.col("dt"))
    return days.groupBy(*INSTANCE).agg(
        F.min_by("class", "order").alias("class"),
        F.sum("down_count").alias("down_count"),
        F.sum("sign_count").alias("sign_count"),
        F.coalesce(F.sum("incident_downs"), F.lit(0)).alias("incident_downs"),
        F.sum("charged_points").alias("charged_points"),
        F.min_by("penalty_start", "dt").alias("penalty_start"),
        F.max("penalty_max").alias("penalty_max"),
        F.max_by("penalty_end", "dt").alias("penalty_end"),
        F.max("flapped_days").alias("flapped_days"),
        F.max_by("flagged", "dt").alias("flagged"),
        F.max("percent_state_change").alias("percent_state_change"),
        F.max("longest_stable_seconds").alias("longest_stable_seconds"),
        F.max_by("cause", caused).alias("cause"),
        F.max_by("cause_says", caused).alias("cause_says"),
    )


def _whole_day_times(warehouse: Warehouse, span: Span) -> DataFrame:
    """Sum ``availability`` by broker."""
    return (
        span.named(warehouse, "availability")
        .groupBy(*INSTANCE)
        .agg(
            *map(total_seconds, ("up_seconds", "down_seconds", "planned_seconds")),
            F.sum("repaired").alias("repaired"),
            total_seconds("repair_seconds"),
            F.max("longest_outage_seconds").alias("longest_outage_seconds"),
        )
    )


def cut_times(warehouse: Warehouse, span: Span) -> DataFrame:
    """Up, down and planned time of each broker within the span, from ``broker_intervals``."""
    whole = F.unix_micros("end_at") - F.unix_micros("start_at")
    cut = span.cut("start_at", "end_at")
    outage = is_outage()
    ended_here = F.unix_micros("end_at").between(span.from_us + 1, span.to_us)
    repaired = outage & ~F.col("start_censored") & ~F.col("end_censored") & ended_here
    return (
        span.whole_intervals(warehouse)
        .groupBy(*INSTANCE)
        .agg(
            _seconds_where(F.col("state") == "up", cut).alias("up_seconds"),
            _seconds_where(outage, cut).alias("down_seconds"),
            _seconds_where(F.col("planned"), cut).alias("planned_seconds"),
            F.count(F.when(repaired, 1)).alias("repaired"),
            _seconds_where(repaired, whole).alias("repair_seconds"),
            seconds(F.max(F.when(outage, whole))).alias("longest_outage_seconds"),
            F.count(F.when(outage & ~F.col("continues") & span.holds("start_at"), 1)).alias("cut_downs"),
        )
    )


def _cut_scores(warehouse: Warehouse, span: Span, times: DataFrame, *, parameters: FlapParameters) -> DataFrame:
    """Like `_summed`, with values cut to the span."""
    named = _summed(_classed(warehouse, span, times))
    kept = [name for name in named.columns if name not in _CUT]
    seen = times.select(*INSTANCE, "cut_downs", F.col("down_seconds").alias("cut_down_seconds"))
    both = (
        named.select(*kept)
        .join(_penalties(warehouse, span, parameters=parameters), on=list(INSTANCE), how="left")
        .join(_incident_downs(warehouse, span), on=list(INSTANCE), how="left")
        .join(seen, on=list(INSTANCE), how="left")
        .fillna(0, subset=["incident_downs", "charges", "cut_downs", "cut_down_seconds"])
        .fillna(0.0, subset=["charged_points", "penalty_start", "penalty_max", "penalty_end"])
        .fillna(value=False, subset=["flagged_start"])
    )
    charged_downs = F.greatest(F.col("cut_downs") - F.col("incident_downs"), F.lit(0))
    signs = F.greatest(F.col("charges") - charged_downs, F.lit(0))
    return both.withColumns(
        {"class": _class(parameters), "down_count": F.col("cut_downs"), "sign_count": signs}
    ).select(*named.columns)


def _classed(warehouse: Warehouse, span: Span, times: DataFrame) -> DataFrame:
    """Rows of ``flapping`` of the same dates, and of the other overlapping UTC days for brokers known only there."""
    named = span.named(warehouse, "flapping")
    seen_here = times.filter("up_seconds + down_seconds > 0")
    others = span.touched(warehouse, "flapping").join(named, on=list(INSTANCE), how="left_anti")
    return named.unionByName(others.join(seen_here, on=list(INSTANCE), how="left_semi"))


def _penalties(warehouse: Warehouse, span: Span, *, parameters: FlapParameters) -> DataFrame:
    """Each broker's penalty at the span's start and end, and its highest within."""
    half_life = parameters.half_life_minutes * 60 * SECOND

    def decayed(penalty: Column, microseconds: Column) -> Column:
        return penalty * F.pow(F.lit(2.0), -microseconds / F.lit(half_life))

    at = F.unix_micros("charged_at")
    before, within = at < span.from_us, span.holds("charged_at")
    last = F.struct(at.alias("at"), "penalty")
    charged = (
        span.touched(warehouse, "flap_charges")
        .groupBy(*INSTANCE)
        .agg(
            F.max(F.when(before, last)).alias("last_before"),
            F.max(F.when(within, last)).alias("last_within"),
            F.max(F.when(within, F.col("penalty"))).alias("highest"),
            F.sum(F.when(within, F.col("points"))).alias("charged_points"),
            F.count(F.when(within, 1)).alias("charges"),
            F.max(before & (F.col("penalty") > parameters.suppress_above)).alias("raised_before"),
        )
    )
    begun = span.touched(warehouse, "flapping").filter(F.col("dt") == F.lit(span.first_utc_day))
    eve = span.first_utc_day - timedelta(days=1)
    flagged = warehouse.read("flapping", first_day=eve, last_day=eve).select(
        *INSTANCE, F.col("flagged").alias("flagged_before")
    )
    day_start = F.lit(start_of(span.first_utc_day)).cast("long")
    start, end = F.lit(span.from_us).cast("long"), F.lit(span.to_us).cast("long")
    carried = decayed(F.coalesce("penalty_at_midnight", F.lit(0.0)), start - day_start)
    at_start = F.coalesce(decayed(F.col("last_before.penalty"), start - F.col("last_before.at")), carried)
    at_end = F.coalesce(
        decayed(F.col("last_within.penalty"), end - F.col("last_within.at")),
        decayed(F.col("penalty_start"), end - start),
    )
    was_flagged = F.coalesce("raised_before", F.lit(False)) | F.coalesce("flagged_before", F.lit(False))
    return (
        begun.select(*INSTANCE, F.col("penalty_start").alias("penalty_at_midnight"))
        .join(charged, on=list(INSTANCE), how="full")
        .join(flagged, on=list(INSTANCE), how="left")
        .withColumn("penalty_start", at_start)
        .select(
            *INSTANCE,
            *("charged_points", "charges", "penalty_start"),
            F.greatest("penalty_start", "highest").alias("penalty_max"),
            at_end.alias("penalty_end"),
            (was_flagged & (F.col("penalty_start") >= parameters.reuse_below)).alias("flagged_start"),
        )
    )


def _incident_downs(warehouse: Warehouse, span: Span) -> DataFrame:
    members = span.touched(warehouse, "incidents").select("cluster", F.explode("members").alias("member"))
    flat = members.select("cluster", "member.broker_name", "member.broker_id", "member.start_at")
    return flat.filter(span.holds("start_at")).groupBy(*INSTANCE).agg(F.count("*").alias("incident_downs"))


def _class(parameters: FlapParameters) -> Column:
    named = F.col("class")
    flaps = (F.col("penalty_max") > parameters.suppress_above) | F.col("flagged_start")
    degraded = (F.col("cut_down_seconds") > 0) | (F.col("charged_points") >= parameters.degraded_points)
    decided_here = named.isin("flapping", "degraded", "healthy")
    return (
        F.when((decided_here | (named == "new")) & flaps, "flapping")
        .when((decided_here | (named == "new")) & degraded, "degraded")
        .when(decided_here, "healthy")
        .otherwise(named)
    )


def _seconds_where(condition: Column, microseconds: Column) -> Column:
    return seconds(F.coalesce(F.sum(F.when(condition, microseconds)), F.lit(0)))
