"""UTC days and microseconds: the two units of time in all transforms.

Inside a transform an instant is a ``long`` of microseconds since 1970, because differences of timestamps are not
numbers in Spark; a table holds timestamps again.
"""

from __future__ import annotations

from datetime import UTC, date, datetime

from pyspark.sql import Column
from pyspark.sql import functions as F

SECOND = 1_000_000
DAY = 86_400 * SECOND


def start_of(day: date) -> int:
    """Start of a UTC day, microseconds."""
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * SECOND


def end_of(day: date) -> int:
    """End of a UTC day, microseconds."""
    return start_of(day) + DAY


def day_of(instant: Column) -> Column:
    """The UTC day of an instant in microseconds; midnight belongs to the day that it begins."""
    return F.date_from_unix_date(F.floor(instant / DAY).cast("int"))


def starts(day: Column) -> Column:
    """Start of the day in a day column, microseconds."""
    return F.unix_date(day).cast("long") * F.lit(DAY)


def ends(day: Column) -> Column:
    """End of the day in a day column, microseconds."""
    return starts(day) + F.lit(DAY)


def days_between(first: Column, last: Column) -> Column:
    """Array of the days first..last, both included; empty when last is before first."""
    # sequence() would count downwards instead.
    return F.when(last >= first, F.sequence(first, last)).otherwise(F.array().cast("array<date>"))


def lit_day(day: date) -> Column:
    """A day as a column."""
    return F.lit(day.isoformat()).cast("date")


def seconds(microseconds: Column) -> Column:
    """Convert microseconds to seconds."""
    return microseconds / F.lit(float(SECOND))
