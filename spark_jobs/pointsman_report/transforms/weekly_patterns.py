"""Brokers that go down at the same hour of the same weekday, week after week.

A slot is an hour of a weekday, in UTC: 168 in a week. The four weeks that end with a day have 672 hours. If outages of
a broker began in h of them, spread at random, the number of weeks in which a slot has one is hypergeometric: h of 672
hours are drawn, and 4 of these are the slot's. `p_value` is the probability of at least the observed number of weeks.
Given h it needs no rate, so a broker that fails often has no smaller one. A broker that is remembered for less than
four weeks has fewer hours.

All slots of all brokers with at least three such hours are tested, together for the fleet and each day; those with
outages in fewer than `LEAST_WEEKS` weeks count as tests with the value 1. The share of false patterns is limited
(Benjamini and Hochberg).
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pointsman_report.parameters import MemoryParameters
from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.memory_tables import WEEKLY_PATTERNS
from pointsman_report.transforms import utc_days
from pointsman_report.transforms.broker_intervals import began_on_its_day, is_outage
from pointsman_report.transforms.false_discoveries import with_discoveries

WEEKS = 4
DAYS = 7 * WEEKS
LEAST_WEEKS = 3
SLOTS = 7 * 24

_BROKER_DAY = ("dt", *INSTANCE)
_SLOT = ("weekday", "hour")


def weekly_patterns(
    intervals: DataFrame, memory: DataFrame, *, first_day: date, last_day: date, parameters: MemoryParameters
) -> DataFrame:
    """Find the patterns of each day from first to last; ``intervals`` also has the 27 days before.

    ``memory`` has the rows of ``broker_memory`` of the days.

    One row per broker, slot and day; key: ``dt``, instance, ``weekday``, ``hour``.
    """
    hours = _outage_hours(intervals).withColumn("weekday", F.weekday("dt")).withColumnRenamed("dt", "began_on")
    reached = utc_days.days_between(
        F.greatest("began_on", utc_days.lit_day(first_day)),
        F.least(F.date_add("began_on", DAYS - 1), utc_days.lit_day(last_day)),
    )
    spread = hours.withColumn("dt", F.explode(reached))
    # Each hour of a slot is in another week.
    slots = spread.groupBy(*_BROKER_DAY, *_SLOT).agg(
        F.count("*").alias("weeks"), F.sum("outages").alias("outages"), F.min("began_on").alias("first_on")
    )
    brokers = slots.groupBy(*_BROKER_DAY).agg(F.sum("weeks").alias("outage_hours"), F.min("first_on").alias("first_on"))
    several = brokers.filter(F.col("outage_hours") >= LEAST_WEEKS)
    tested = several.groupBy("dt").agg((F.count("*") * SLOTS).alias("tested"))
    # The memory of a warehouse of an earlier release begins later than its intervals.
    known_from = F.least("since_on", "first_on")
    remembered = F.least(F.lit(DAYS), F.datediff("dt", known_from) + 1)
    repeated = (
        slots.filter(F.col("weeks") >= LEAST_WEEKS)
        .drop("first_on")
        .join(several, on=list(_BROKER_DAY), how="inner")
        .join(F.broadcast(tested), on="dt", how="inner")
        .join(memory.select(*_BROKER_DAY, "since_on"), on=list(_BROKER_DAY), how="inner")
        .withColumn("p_value", p_value(F.col("weeks"), F.col("outage_hours"), remembered * 24))
    )
    found = with_discoveries(
        repeated,
        "found",
        family=("dt",),
        order=(*INSTANCE, *_SLOT),
        rate=parameters.false_discovery_rate,
        tested=F.col("tested"),
    )
    return found.filter("found").select(*WEEKLY_PATTERNS.columns)


def p_value(weeks: Column, outage_hours: Column, hours: Column) -> Column:
    """The probability that at least this number of weeks (3 or 4) have one of the outage hours in the slot."""

    def falling(count: Column, factors: int) -> Column:
        product = count.cast("double")
        for n in range(1, factors):
            product = product * (count - n)
        return product

    four = falling(outage_hours, 4)
    three = F.lit(4.0) * falling(outage_hours, 3) * (hours - outage_hours)
    return F.when(weeks >= WEEKS, four).otherwise(three + four) / falling(hours, 4)


def _outage_hours(intervals: DataFrame) -> DataFrame:
    began = intervals.filter(is_outage() & began_on_its_day())
    hour = F.floor((F.unix_micros("start_at") - utc_days.starts(F.col("dt"))) / (3_600 * utc_days.SECOND)).cast("int")
    return began.groupBy(*_BROKER_DAY, hour.alias("hour")).agg(F.count("*").alias("outages"))
