"""The decayed penalty of each broker after each charge: exact, with the ceiling, without a loop over the charges.

With x = P * 2^(t/H) decay vanishes: a charge adds a = points * 2^(t/H), and the ceiling c = ceiling * 2^(t/H) cuts, so
x_i = min(c_i, x_(i-1) + a_i). Unrolled: x_i = S_i + min(x_0, min over j <= i of (c_j - S_j)) with S the running sum of
a. That is two running aggregates, so a broker with very many charges costs a sort and no more. Time starts anew each
midnight, which keeps 2^(t/H) small; from day to day a fold carries P, because each day needs the one before.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from pointsman_report.parameters import FlapParameters
from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.flapping import FLAP_CHARGES
from pointsman_report.transforms import days


def _story() -> WindowSpec:
    return Window.partitionBy("dt", *INSTANCE).orderBy("at", "points", "cause")


def _to_here() -> WindowSpec:
    return _story().rowsBetween(Window.unboundedPreceding, Window.currentRow)


def running_sums(charges: DataFrame, *, parameters: FlapParameters) -> DataFrame:
    """Add to each charge S (``total``), the least c - S so far (``room``) and 2^(-t/H) (``decay``)."""
    half_lives = (F.col("at") - days.starts(F.col("dt"))) / F.lit(parameters.half_life_minutes * 60 * days.SECOND)
    grown = charges.withColumn("growth", F.pow(F.lit(2.0), half_lives))
    totalled = grown.withColumn("total", F.sum(F.col("points") * F.col("growth")).over(_to_here()))
    room = F.min(F.lit(parameters.ceiling) * F.col("growth") - F.col("total")).over(_to_here())
    so_far = F.sum("points").over(_to_here())
    return totalled.withColumns({"room": room, "decay": F.lit(1.0) / F.col("growth"), "points_so_far": so_far})


def penalty_days(sums: DataFrame, known: DataFrame, yesterday: DataFrame, *, parameters: FlapParameters) -> DataFrame:
    """Fold each broker's days: ``penalty_start`` and ``penalty_end``, ``charge_count``, ``charged_points``.

    ``known`` has ``dt`` and the instance, every day from a broker's first; ``yesterday`` is the broker state of the day
    before.
    """
    by_day = sums.groupBy("dt", *INSTANCE).agg(
        F.max("total").alias("total"),
        F.min("room").alias("room"),
        F.count("*").alias("charge_count"),
        F.max("points_so_far").alias("charged_points"),
    )
    # Without a charge the ceiling leaves all the room that a penalty can need.
    dense = known.join(by_day, on=["dt", *INSTANCE], how="left").fillna(
        {"total": 0.0, "room": parameters.ceiling, "charge_count": 0, "charged_points": 0.0}
    )
    day = F.struct("dt", "total", "room", "charge_count", "charged_points")
    brokers = dense.groupBy(*INSTANCE).agg(F.sort_array(F.collect_list(day)).alias("days"))
    carried = yesterday.select(*INSTANCE, "penalty")
    overnight = 2.0 ** (-24 * 60 / parameters.half_life_minutes)
    folded = brokers.join(carried, on=list(INSTANCE), how="left").withColumn("days", _fold(overnight))
    return folded.select(*INSTANCE, F.inline("days"))


def penalties(sums: DataFrame, starts: DataFrame) -> DataFrame:
    """The table ``flap_charges``: each charge with the penalty after it."""
    scored = sums.join(starts.select("dt", *INSTANCE, "penalty_start"), on=["dt", *INSTANCE], how="inner")
    after = (F.col("total") + F.least("penalty_start", "room")) * F.col("decay")
    # Rounded, so that three times 1000 is 3000 to the comparison with a threshold too.
    charged = scored.withColumns({"charged_at": F.timestamp_micros("at"), "penalty": F.round(after, 6)})
    return charged.select(*FLAP_CHARGES.fieldNames())


def scored_days(
    flap_charges: DataFrame, starts: DataFrame, yesterday: DataFrame, *, parameters: FlapParameters
) -> DataFrame:
    """Add to each broker's day ``penalty_max``, ``raised``, ``flagged_start`` and ``flagged`` (at the day's end)."""
    charged = flap_charges.withColumns(
        {"raised": F.col("penalty") > parameters.suppress_above, "mark": mark(parameters)}
    )
    by_day = charged.groupBy("dt", *INSTANCE).agg(
        F.max("penalty").alias("highest"),
        F.max("raised").alias("raised"),
        F.max_by("mark", F.when(F.col("mark").isNotNull(), F.struct("charged_at", "points", "cause"))).alias(
            "last_mark"
        ),
    )
    carried = yesterday.select(*INSTANCE, F.col("flagged").alias("flagged_yesterday"))
    scored = starts.join(by_day, on=["dt", *INSTANCE], how="left").join(carried, on=list(INSTANCE), how="left")
    at_end = F.when(F.col("penalty_end") < parameters.reuse_below, F.lit(False)).otherwise(F.col("last_mark"))
    story = Window.partitionBy(*INSTANCE).orderBy("dt")
    to_here = story.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before = story.rowsBetween(Window.unboundedPreceding, -1)
    flagged_yesterday = F.coalesce("flagged_yesterday", F.lit(False))
    return scored.withColumn("mark", at_end).select(
        "dt",
        *INSTANCE,
        "charge_count",
        "charged_points",
        "penalty_start",
        F.greatest("penalty_start", F.coalesce("highest", F.lit(0.0))).alias("penalty_max"),
        "penalty_end",
        F.coalesce("raised", F.lit(False)).alias("raised"),
        F.coalesce(F.last("mark", ignorenulls=True).over(before), flagged_yesterday).alias("flagged_start"),
        F.coalesce(F.last("mark", ignorenulls=True).over(to_here), flagged_yesterday).alias("flagged"),
    )


def mark(parameters: FlapParameters) -> Column:
    """Of a charge: true where the flag went up, false where it had come down before, else null."""
    # Where the ceiling cut, the penalty raised the flag and what it was before does not matter.
    before = F.round(F.col("penalty") - F.col("points"), 6)
    raised, cleared = F.col("penalty") > parameters.suppress_above, before < parameters.reuse_below
    return F.when(raised, F.lit(True)).when(cleared, F.lit(False))


def _fold(overnight: float) -> Column:
    """An array of days with the penalty carried through them, by a higher-order function (no Python in the loop)."""
    shape = "array<struct<dt:date,charge_count:bigint,charged_points:double,penalty_start:double,penalty_end:double>>"
    begin = F.struct(F.coalesce("penalty", F.lit(0.0)).alias("penalty"), F.array().cast(shape).alias("days"))

    def step(so_far: Column, day: Column) -> Column:
        end = (day["total"] + F.least(so_far["penalty"], day["room"])) * F.lit(overnight)
        scored = F.struct(
            day["dt"].alias("dt"),
            day["charge_count"].alias("charge_count"),
            day["charged_points"].alias("charged_points"),
            so_far["penalty"].alias("penalty_start"),
            end.alias("penalty_end"),
        )
        return F.struct(end.alias("penalty"), F.concat(so_far["days"], F.array(scored)).alias("days"))

    return F.aggregate("days", begin, step, lambda so_far: so_far["days"])
