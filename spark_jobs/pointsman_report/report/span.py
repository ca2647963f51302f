"""The days of a report: local days of a time zone, from tables of UTC days.

A local day lasts from local midnight to local midnight: 23, 24 or 25 hours. Rows with a time (outages, charges,
changes) are cut to it. Values that exist only per UTC day (quantiles, seconds of a topic) are taken from the UTC day of
the same date.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.report.formatting import LocalTime, micros, rfc3339
from pointsman_report.transforms.utc_days import SECOND, end_of, start_of

_UTC = ZoneInfo("UTC")

Window = tuple[int, int]
"""First and last microsecond of a plot."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The period of a report: its start and end, in UTC and in its time zone."""

    from_at: str
    to_at: str
    hours: float
    timezone: str
    from_offset: str
    to_offset: str
    utc_days: tuple[date, date]
    """The first and the last UTC day that it overlaps."""

    @property
    def time(self) -> LocalTime:
        return LocalTime(ZoneInfo(self.timezone))

    @property
    def window(self) -> Window:
        return micros(self.from_at), micros(self.to_at)


@dataclass(frozen=True, slots=True)
class Span:
    """Local days first..last; no table reaches beyond ``now_us``, the time of the report (None: long after the
    days)."""

    first_day: date
    last_day: date
    zone: ZoneInfo = _UTC
    now_us: int | None = None

    @property
    def from_us(self) -> int:
        return _local_midnight(self.first_day, self.zone)

    @property
    def to_us(self) -> int:
        return _local_midnight(self.last_day + timedelta(days=1), self.zone)

    @property
    def first_utc_day(self) -> date:
        return _utc_day(self.from_us)

    @property
    def last_utc_day(self) -> date:
        """The last UTC day that it overlaps and that has begun."""
        last = _utc_day(self.to_us - 1)
        return last if self.now_us is None else max(self.first_utc_day, min(last, _utc_day(self.now_us)))

    @property
    def is_whole_utc_days(self) -> bool:
        """Whether the report's days are whole UTC days, as in the tables."""
        return self.from_us == start_of(self.first_day) and self.to_us == end_of(self.last_day)

    @property
    def is_over(self) -> bool:
        return self.now_us is None or self.now_us >= self.to_us

    @property
    def seconds(self) -> int:
        return (self.to_us - self.from_us) // SECOND

    @property
    def interval(self) -> Interval:
        return Interval(
            from_at=rfc3339(self.from_us),
            to_at=rfc3339(self.to_us),
            hours=(self.to_us - self.from_us) / 3_600e6,
            timezone=self.zone.key,
            from_offset=self._offset(self.from_us),
            to_offset=self._offset(self.to_us),
            utc_days=(self.first_utc_day, self.last_utc_day),
        )

    def _offset(self, microseconds: int) -> str:
        """The zone's offset from UTC at an instant."""
        return datetime.fromtimestamp(microseconds // SECOND, tz=self.zone).isoformat()[19:]

    def touched(self, warehouse: Warehouse, table: str) -> DataFrame:
        """Rows of every UTC day that the span overlaps."""
        return warehouse.read(table, first_day=self.first_utc_day, last_day=self.last_utc_day)

    def named(self, warehouse: Warehouse, table: str) -> DataFrame:
        """Rows of the UTC days of the same dates."""
        return warehouse.read(table, first_day=self.first_day, last_day=self.last_day)

    def back(self, warehouse: Warehouse, table: str, *, days: int) -> DataFrame:
        """Rows of this number of UTC days, ending with the span's last date."""
        return warehouse.read(table, first_day=self.last_day - timedelta(days=days - 1), last_day=self.last_day)

    def holds(self, instant: str) -> Column:
        """Whether a timestamp column is in the span."""
        return F.unix_micros(instant).between(self.from_us, self.to_us - 1)

    def cut(self, start: str, end: str) -> Column:
        """The part of an interval inside the span, microseconds."""
        within = F.least(F.unix_micros(end), F.lit(self.to_us)) - F.greatest(F.unix_micros(start), F.lit(self.from_us))
        return F.greatest(within, F.lit(0).cast("long"))

    def whole_intervals(self, warehouse: Warehouse) -> DataFrame:
        """Each row of ``broker_intervals`` that overlaps the span, once."""
        intervals = self.touched(warehouse, "broker_intervals")
        once = intervals.filter(~F.col("open") | (F.col("dt") == F.lit(self.last_utc_day)))
        if self.is_whole_utc_days:
            return once
        touches = (F.unix_micros("start_at") < self.to_us) & (F.unix_micros("end_at") > self.from_us)
        return once.filter(touches)


def _local_midnight(day: date, zone: ZoneInfo) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()) * SECOND


def _utc_day(microseconds: int) -> date:
    return datetime.fromtimestamp(microseconds // SECOND, tz=UTC).date()
