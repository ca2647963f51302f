"""All facts about each broker's days, with the days on which nothing happens in one row.

A span is a run of days of a broker, from ``dt`` to ``last_on``: a single day with facts, or days without any, on which
everything that is carried stays as it is or follows from the number of days. What needs the days before is computed on
spans, of which there are few; `known_days` makes the days of them.
"""

from __future__ import annotations

from datetime import date
from functools import partial, reduce

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from pointsman_report.parameters import FlapParameters
from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.liveness_tables import OPINION
from pointsman_report.transforms import utc_days
from pointsman_report.transforms.flap_penalty import flags_of_day, penalties_of_day

_BROKER_DAY = ("dt", *INSTANCE)
_WEEK = 6
"""Days before a day with which it is a week."""


def _timeline() -> WindowSpec:
    return Window.partitionBy(*INSTANCE).orderBy("dt")


def _to_here() -> WindowSpec:
    return _timeline().rowsBetween(Window.unboundedPreceding, Window.currentRow)


def _before() -> WindowSpec:
    return _timeline().rowsBetween(Window.unboundedPreceding, -1)


def spans(held: DataFrame, *facts: DataFrame, last_day: date) -> DataFrame:
    """Return the columns of all facts, each of which has at most one row per broker and day, and those of ``held``.

    ``held`` has the states of `broker_intervals.held_states`: a broker has one from its first row on, and facts of
    earlier days are dropped.

    One row per span; key: ``dt``, instance.
    """
    parts = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), (held, *facts))
    # The day after one with facts begins a span, too.
    follows = F.when(F.col("dt") < utc_days.lit_day(last_day), F.array("dt", F.date_add("dt", 1)))
    on = parts.select("*", F.posexplode(F.coalesce(follows, F.array("dt"))).alias("later", "on")).drop("dt")
    of_day = [
        F.first(F.when(F.col("later") == 0, F.col(name)), ignorenulls=True).alias(name)
        for name in parts.columns
        if name not in _BROKER_DAY
    ]
    rows = _in_tasks(on.withColumnRenamed("on", "dt")).groupBy(*_BROKER_DAY).agg(*of_day)
    last_on = F.coalesce(F.date_sub(F.lead("dt").over(_timeline()), 1), utc_days.lit_day(last_day))
    state = F.last("held", ignorenulls=True).over(_to_here())
    known = rows.withColumns({"last_on": last_on, "held": state}).filter(F.col("held").isNotNull())
    return known.select("*", "held.*").drop("held")


def _in_tasks(rows: DataFrame) -> DataFrame:
    """Divide few rows, of which many will be made, among all tasks: Spark would give them to one."""
    return rows.repartition(int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1), *INSTANCE)


def with_whole_days(days: DataFrame) -> DataFrame:
    """Fill in the columns of `day_sums` of spans that the interval ``current`` covers; ``seen_on`` is the last day.

    ``days``: spans with ``current``, the interval at their ends. One row per row given; key: ``dt``, instance.
    """
    whole = F.unix_micros("current.start_at") < utc_days.starts(F.col("dt"))
    is_down = (F.col("current.state") == "down") & ~F.col("current.planned")
    length = F.lit(utc_days.DAY / utc_days.SECOND)
    values = {
        "seen_on": F.col("last_on"),
        "outages": F.lit(0).cast("long"),
        "down_seconds": F.when(is_down, length).otherwise(F.lit(0.0)),
        "watched_seconds": length,
        "longest_stable_seconds": length,
    }
    return days.withColumns({name: F.when(whole, value).otherwise(F.col(name)) for name, value in values.items()})


def with_opinions(days: DataFrame) -> DataFrame:
    """Fill in ``opinions``, which ``days`` has on the days on which they turn (`opinions.turns_at_day_end`).

    ``days`` has all spans of a broker. One row per row given; key: ``dt``, instance.
    """
    none = F.array().cast(f"array<{OPINION.simpleString()}>")
    opinions = F.last("opinions", ignorenulls=True).over(_to_here())
    return days.withColumn("opinions", F.coalesce(opinions, none))


def seen_before(days: DataFrame) -> DataFrame:
    """Add ``first_seen_on``, and ``seen_before``, the last day before the span on which the broker was seen.

    ``days`` has all spans of a broker, ``seen_on`` the last day of those on which it was seen; ``carried_first`` and
    ``carried_last`` are those of the day before the first.

    One row per row given; key: ``dt``, instance.
    """
    dates = {
        "first_seen_on": F.coalesce("carried_first", F.min("dt").over(_to_here())),
        "seen_before": F.coalesce(F.last("seen_on", ignorenulls=True).over(_before()), "carried_last"),
    }
    return days.withColumns(dates).drop("carried_first", "carried_last")


def flapped_before(days: DataFrame) -> DataFrame:
    """Add ``flapped_on``: the days of the week up to ``dt`` on which a charge took the penalty over the threshold.

    ``days`` has all spans of a broker, with ``raised``; ``carried_flapped`` are the days before the first.

    One row per row given; key: ``dt``, instance.
    """
    week = Window.partitionBy(*INSTANCE).orderBy(F.unix_date("dt")).rangeBetween(-_WEEK, Window.currentRow)
    raised = F.collect_list(F.when(F.col("raised"), F.col("dt"))).over(week)
    carried = F.coalesce("carried_flapped", F.array().cast("array<date>"))
    return days.withColumn("flapped_on", F.sort_array(F.concat(carried, raised))).drop("carried_flapped")


def known_days(spans: DataFrame, *, parameters: FlapParameters) -> DataFrame:
    """All facts about each broker's day. ``spans`` have the columns that this module and `flap_penalty` add.

    One row per known broker and day; key: ``dt``, instance.
    """
    days = _in_tasks(spans).withColumnRenamed("dt", "first_on")
    each = days.select("*", F.explode(utc_days.days_between(F.col("first_on"), F.col("last_on"))).alias("dt"))
    seen = F.when(F.col("seen_on").isNotNull(), F.col("dt"))
    recent = F.filter("flapped_on", lambda day: day >= F.date_sub("dt", _WEEK))
    values: dict[str, Column] = {
        "last_seen_on": F.coalesce(seen, "seen_before", "first_seen_on"),
        "flapped_on": recent,
    }
    penalised = each.withColumns(values).withColumns(penalties_of_day(parameters))
    return penalised.withColumns(flags_of_day(parameters))
