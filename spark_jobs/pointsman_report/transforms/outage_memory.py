"""The long memory of each broker's outages, and the forecast of those in its next 30 days.

The weight of a day falls by half in each half-life. Outages in incidents count, unlike in the
ranking of the week: on a real trace, machines that failed together did so again.

Brokers are ranked by ``recurrence``, where n outages of one day count as the square root of n (the transformation that
gives counts a stable variance): a burst is one problem. Neither is divided by monitored time, because a high rate over
few days proves little.

The forecast is the gamma-Poisson model of empirical Bayes (Clayton and Kaldor, Biometrics 43, 1987), with decayed
counts as in Harvey and Fernandes (Journal of Business & Economic Statistics 7, 1989). Before any outage of a broker is
known, its rate is gamma distributed, with the rate m of its cluster as its mean and the weight of k monitored days.
With A remembered outages in W remembered days its mean is

    rate = (A + k m) / (W + k)

and the number of outages in 30 days is negative binomial with the mean 30 rate and the size A + k m. Real outages come
in bursts, so this interval is too narrow. Its variance is therefore at least the mean times the dispersion (Pearson's:
the sum of squared errors over the sum of the means) of the cluster's forecasts that ended in the last `CHECKED_DAYS`
nights.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.parameters import MemoryParameters
from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.memory_tables import BROKER_MEMORY, FORECAST_CHECKS
from pointsman_report.transforms import utc_days
from pointsman_report.transforms.negative_binomial import quantiles

FORECAST_DAYS = 30
CHECKED_DAYS = 90
"""Number of nights whose checks give the dispersion."""
LOW, HIGH = 0.05, 0.95
"""The interval of the forecast: at least 90 % of the probability is in it."""

_BROKER_DAY = ("dt", *INSTANCE)
_CARRIED = ("monitored_days", "outages", "days_sum", "outages_sum", "recurrence_sum")


def memory_sums(
    availability: DataFrame, memory: DataFrame, *, first_day: date, last_day: date, parameters: MemoryParameters
) -> DataFrame:
    """The columns of ``broker_memory`` that follow from the broker's days alone.

    ``availability`` has the days first..last; ``memory`` the rows of ``broker_memory`` of earlier days.

    One row per remembered broker and day; key: ``dt``, instance.
    """
    timeline = Window.partitionBy(*INSTANCE).orderBy("dt")
    absent = F.datediff("seen_on", F.lag("seen_on").over(timeline)) - 1
    begins = F.when(F.coalesce(absent > parameters.absent_days, F.lit(True)), F.col("dt"))
    here = Window.unboundedPreceding, Window.currentRow
    begun = F.last(F.coalesce("since_on", begins), ignorenulls=True).over(timeline.rowsBetween(*here))
    both = _monitored(availability).unionByName(_carried(memory, first_day), allowMissingColumns=True)
    next_day = F.coalesce(F.date_sub(F.lead("dt").over(timeline), 1), utc_days.lit_day(last_day))
    dated = both.withColumns({"since_on": begun, "next_day": next_day})
    growth, rank_growth = _weights(parameters, F.col("dt"))
    added = {
        "monitored_days": F.lit(1).cast("long"),
        "outages": F.col("new_outages"),
        "days_sum": F.col("watched") * growth,
        "outages_sum": F.col("new_outages") * growth,
        "recurrence_sum": F.sqrt("new_outages") * rank_growth,
    }
    so_far = Window.partitionBy(*INSTANCE, "since_on").orderBy("dt").rowsBetween(*here)
    sums = {name: F.sum(F.coalesce(name, more)).over(so_far) for name, more in added.items()}
    until = F.least("next_day", F.date_add("seen_on", parameters.absent_days))
    # Also the days without monitoring that follow.
    days = utc_days.days_between(F.greatest("dt", utc_days.lit_day(first_day)), until)
    held = dated.withColumns(sums | {"days": days}).drop("dt").withColumn("dt", F.explode("days"))
    grown, rank_grown = _weights(parameters, F.col("dt"))
    return held.select(
        "dt",
        *INSTANCE,
        "since_on",
        "seen_on",
        *_CARRIED,
        (F.col("days_sum") / grown).alias("remembered_days"),
        (F.col("outages_sum") / grown).alias("remembered_outages"),
        (F.col("recurrence_sum") / rank_grown).alias("recurrence"),
    )


def _monitored(availability: DataFrame) -> DataFrame:
    watched = (F.col("up_seconds") + F.col("down_seconds")) / F.lit(86_400.0)
    days = availability.select(
        "dt", *INSTANCE, F.col("dt").alias("seen_on"), watched.alias("watched"), F.col("outages").alias("new_outages")
    )
    return days.filter("watched > 0")


def _carried(memory: DataFrame, first_day: date) -> DataFrame:
    """The rows of the day before."""
    day_before = memory.filter(F.col("dt") == F.date_sub(utc_days.lit_day(first_day), 1))
    return day_before.select("dt", *INSTANCE, "since_on", "seen_on", *_CARRIED)


def _weights(parameters: MemoryParameters, day: Column) -> list[Column]:
    """How much more a day counts than ``since_on``, for rates and for the rank.

    With growing weights a night only adds to a sum, so it is the same sum, to the last digit, as in one pass.
    """
    age = F.datediff(day, "since_on")
    half_lives = (parameters.half_life_days, parameters.rank_half_life_days)
    return [F.pow(F.lit(2.0), age / F.lit(float(half_life))) for half_life in half_lives]


def broker_memory(
    sums: DataFrame, memory: DataFrame, checks: DataFrame, *, last_day: date, parameters: MemoryParameters
) -> DataFrame:
    """Add the rates, the forecast and its interval to `memory_sums`.

    ``memory`` and ``checks`` have the rows of ``broker_memory`` and ``forecast_checks`` of earlier days.

    One row per remembered broker and day; key: ``dt``, instance.
    """
    rated = _rated(sums, parameters)
    columns = ("dt", *INSTANCE, "monitored_days", "outages", "expected")
    compared = _compared(rated.select(*columns), memory.select(*columns), last_day=last_day)
    errors = compared.groupBy("dt", "cluster").agg(*_errors())
    days = sums.select("dt", "cluster").distinct()
    dispersed = rated.join(F.broadcast(_dispersion(days, errors, checks)), on=["dt", "cluster"], how="inner")
    size = F.least("size", F.try_divide(F.col("expected"), F.col("dispersion") - 1))
    interval = quantiles(F.col("expected"), size, low=LOW, high=HIGH)
    return dispersed.withColumn("interval", interval).select(
        *(F.col(f"interval.{name}") if name in {"low", "high"} else F.col(name) for name in BROKER_MEMORY.columns)
    )


def _rated(sums: DataFrame, parameters: MemoryParameters) -> DataFrame:
    """Add the rates, ``expected``, and ``size``, the number of outages that it is based on."""
    days, outages = (_millionths(name) / 1e6 for name in ("remembered_days", "remembered_outages"))
    clusters = sums.groupBy("dt", "cluster").agg(F.try_divide(outages + 1, days).alias("cluster_rate_per_day"))
    prior = F.lit(float(parameters.prior_days))
    size = F.col("remembered_outages") + prior * F.col("cluster_rate_per_day")
    rate = size / (F.col("remembered_days") + prior)
    return sums.join(F.broadcast(clusters), on=["dt", "cluster"], how="inner").withColumns(
        {
            "rate_per_day": rate,
            "ratio": rate / F.col("cluster_rate_per_day"),
            "expected": rate * FORECAST_DAYS,
            "size": size,
        }
    )


def _dispersion(days: DataFrame, errors: DataFrame, checks: DataFrame) -> DataFrame:
    """``dispersion`` of each cluster and day, from the errors of the run's days and the ``checks`` of earlier ones."""
    known = errors.unionByName(checks.select("dt", "cluster", "expected", "squared_error"))
    nights = Window.partitionBy("cluster").orderBy(F.unix_date("dt")).rangeBetween(1 - CHECKED_DAYS, 0)
    squared, mean = (_millionths(name).over(nights) for name in ("squared_error", "expected"))
    dispersion = F.greatest(F.lit(1.0), F.coalesce(F.try_divide(squared, mean), F.lit(1.0)))
    return days.join(known, on=["dt", "cluster"], how="full").select("dt", "cluster", dispersion.alias("dispersion"))


def forecast_checks(memory: DataFrame, memory_before: DataFrame, *, last_day: date) -> DataFrame:
    """Compare the forecasts of 30 days before with the outages since; ``memory_before`` are those of earlier days.

    One row per cluster and day on which forecasts ended; key: ``dt``, ``cluster``.
    """
    held = F.col("counted").between(F.col("forecast.low"), F.col("forecast.high"))
    columns = ("dt", *INSTANCE, "monitored_days", "outages", "expected", "low", "high")
    return (
        _compared(memory.select(*columns), memory_before.select(*columns), last_day=last_day)
        .groupBy("dt", "cluster")
        .agg(
            F.count("*").alias("forecasts"),
            F.count(F.when(held, 1)).alias("held"),
            F.sum("counted").alias("outages"),
            *_errors(),
        )
        .select(*FORECAST_CHECKS.columns)
    )


def _compared(rows: DataFrame, before: DataFrame, *, last_day: date) -> DataFrame:
    """Add ``forecast``, the row of 30 days before, and ``counted``, the outages since.

    Only of brokers monitored on each of these days: others had less time to fail.
    """
    values = F.struct(*(name for name in rows.columns if name not in _BROKER_DAY))
    reach = F.date_sub(utc_days.lit_day(last_day), FORECAST_DAYS)
    earlier = before.filter(F.col("dt") <= reach).withColumn("is_earlier", F.lit(True))
    both = rows.withColumn("is_earlier", F.lit(False)).unionByName(earlier)
    # One sort instead of a join of the rows with themselves.
    timeline = Window.partitionBy(*INSTANCE).orderBy(F.unix_date("dt"))
    that_day = F.first(values).over(timeline.rangeBetween(-FORECAST_DAYS, -FORECAST_DAYS))
    joined = both.withColumn("forecast", that_day).filter(~F.col("is_earlier"))
    whole = F.col("monitored_days") - F.col("forecast.monitored_days") == FORECAST_DAYS
    return joined.filter(whole & F.col("forecast.expected").isNotNull()).withColumn(
        "counted", F.col("outages") - F.col("forecast.outages")
    )


def _errors() -> tuple[Column, Column]:
    """The sums of the forecasts and of their squared errors, of `_compared` rows."""
    expected = F.col("forecast.expected")
    error = F.col("counted") - expected
    return (
        (_millionths(expected) / 1e6).alias("expected"),
        (_millionths(error * error) / 1e6).alias("squared_error"),
    )


def _millionths(column: Column | str) -> Column:
    """A sum of whole millionths: a sum of floats would depend on the order of the rows."""
    return F.sum(F.round((F.col(column) if isinstance(column, str) else column) * 1e6).cast("long"))
