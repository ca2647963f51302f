"""UTC days and microseconds: the two scales all transforms compute in.

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
    """Microseconds at which a UTC day begins."""
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * SECOND


def end_of(day: date) -> int:
    """Microseconds at which the next UTC day begins."""
    return start_of(day) + DAY


def day_of(instant: Column) -> Column:
    """UTC day an instant in microseconds belongs to; midnight belongs to the day it begins."""
    return F.date_from_unix_date(F.floor(instant / DAY).cast("int"))


def starts(day: Column) -> Column:
    """Microseconds at which a day column's day begins."""
    return F.unix_date(day).cast("long") * F.lit(DAY)


def ends(day: Column) -> Column:
    """Microseconds at which a day column's next day begins."""
    return starts(day) + F.lit(DAY)


def days_between(first: Column, last: Column) -> Column:
    """Array of the days first..last, both included; empty when last is before first."""
    # sequence() would count downwards instead.
    return F.when(last >= first, F.sequence(first, last)).otherwise(F.array().cast("array<date>"))


def lit_day(day: date) -> Column:
    return F.lit(day.isoformat()).cast("date")


def seconds(microseconds: Column) -> Column:
    return microseconds / F.lit(float(SECOND))
