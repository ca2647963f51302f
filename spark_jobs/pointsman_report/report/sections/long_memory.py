"""Brokers ranked by the long memory of their outages, with forecasts and how earlier ones did; and weekly patterns."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.report.section import Section, first, section
from pointsman_report.report.span import Span
from pointsman_report.report.table_rows import Instance, Listing, collect, ratio, worst
from pointsman_report.schemas import INSTANCE
from pointsman_report.transforms.outage_memory import FORECAST_DAYS, HIGH, LOW
from pointsman_report.transforms.weekly_patterns import LEAST_WEEKS, WEEKS

MAX_REMEMBERED = 100
MAX_PATTERNS = 100
SHOWN = 10
MIN_DAYS = 30
"""With fewer remembered days the page has only their number."""
CHECKED_NIGHTS = 30
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, slots=True)
class Remembered(Instance):
    """A row of ``broker_memory``."""

    since_on: str
    outages: int
    remembered_outages: float
    recurrence: float
    ratio: float | None
    expected: float | None
    low: int | None
    high: int | None


@dataclass(frozen=True, slots=True)
class Memory(Listing[Remembered]):
    """Brokers with outages, those that fail most often first.

    ``days``: remembered days. ``forecasts``: those that ended in the last 30 nights; ``held``: how many of them had the
    number of outages in their interval.
    """

    days: int = 0
    forecasts: int = 0
    held: int = 0

    @property
    def held_share(self) -> float | None:
        return ratio(self.held, self.forecasts)


@dataclass(frozen=True, slots=True)
class WeeklyPattern(Instance):
    """A row of ``weekly_patterns``; hours are UTC."""

    weekday: int
    hour: int
    weeks: int
    outages: int
    p_value: float

    @property
    def slot(self) -> str:
        return f"{WEEKDAYS[self.weekday]} {self.hour:02}:00"


def memory(warehouse: Warehouse, span: Span) -> Memory:
    """Read what is remembered at the end of the last day."""
    day = span.last_day
    rows = warehouse.read("broker_memory", first_day=day, last_day=day)
    columns = ("remembered_outages", "recurrence", "ratio", "expected", "low", "high")
    failed = rows.filter(F.col("outages") > 0).select(
        *INSTANCE, F.col("since_on").cast("string").alias("since_on"), "outages", *columns
    )
    found = worst(Remembered, failed, MAX_REMEMBERED, F.col("recurrence").desc(), *INSTANCE)
    checks = span.back(warehouse, "forecast_checks", days=CHECKED_NIGHTS).select("forecasts", "held")
    days = rows.select((F.datediff("dt", "since_on") + 1).alias("days"))
    (sums,) = collect(
        checks.unionByName(days, allowMissingColumns=True)
        .agg(F.sum("forecasts"), F.sum("held"), F.max("days"))
        .toDF("forecasts", "held", "days")
    )
    return Memory(found.rows, found.in_all, found.left_out, **{name: value or 0 for name, value in sums.items()})


def weekly_patterns(warehouse: Warehouse, span: Span) -> Listing[WeeklyPattern]:
    """Read the patterns of the four weeks that end with the last day, the least likely first."""
    day = span.last_day
    rows = warehouse.read("weekly_patterns", first_day=day, last_day=day)
    slot = ("weekday", "hour")
    listed = rows.select(*INSTANCE, *slot, "weeks", "outages", "p_value")
    return worst(WeeklyPattern, listed, MAX_PATTERNS, "p_value", *INSTANCE, *slot)


def memory_section(found: Memory) -> Section | None:
    """Return the section; None if no outage is remembered."""
    if not found.rows:
        return None
    listed = first(found, "brokers", "report.json or the table broker_memory", most=SHOWN)
    interval = f"{round((HIGH - LOW) * 100)} %"
    return section(
        "memory",
        "Outages to expect",
        found=found,
        listed=listed if found.days >= MIN_DAYS else None,
        horizon=FORECAST_DAYS,
        min_days=MIN_DAYS,
        nights=CHECKED_NIGHTS,
        interval=interval,
    )


def weekly_section(found: Listing[WeeklyPattern], *, false_discovery_rate: float) -> Section | None:
    """Return the section; None without a pattern."""
    listed = first(found, "patterns", "report.json or the table weekly_patterns")
    if not listed.rows:
        return None
    return section(
        "weekly",
        "Weekly patterns",
        listed=listed,
        least=LEAST_WEEKS,
        weeks=WEEKS,
        false_share=f"{false_discovery_rate * 100:g} %",
    )
