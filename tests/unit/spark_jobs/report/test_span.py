"""The days of a report's zone, over UTC days."""

from __future__ import annotations

from datetime import date
from zoneinfo import ZoneInfo

import pytest

from pointsman_report.report.formatting import micros, rfc3339
from pointsman_report.report.span import Span


def span(day: str, zone: str, *, now: str | None = None) -> Span:
    one = date.fromisoformat(day)
    return Span(one, one, ZoneInfo(zone), now_us=None if now is None else micros(now))


@pytest.mark.parametrize(
    ("day", "zone", "from_at", "hours", "utc_days"),
    [
        ("2026-03-02", "UTC", "2026-03-02T00:00:00.000Z", 24, ("2026-03-02", "2026-03-02")),
        ("2026-03-29", "Europe/Berlin", "2026-03-28T23:00:00.000Z", 23, ("2026-03-28", "2026-03-29")),
        ("2026-10-25", "Europe/Berlin", "2026-10-24T22:00:00.000Z", 25, ("2026-10-24", "2026-10-25")),
        ("2026-03-02", "America/New_York", "2026-03-02T05:00:00.000Z", 24, ("2026-03-02", "2026-03-03")),
        ("2026-03-02", "Pacific/Kiritimati", "2026-03-01T10:00:00.000Z", 24, ("2026-03-01", "2026-03-02")),
        ("2026-04-24", "Africa/Cairo", "2026-04-23T22:00:00.000Z", 23, ("2026-04-23", "2026-04-24")),
        ("2026-03-02", "Asia/Kathmandu", "2026-03-01T18:15:00.000Z", 24, ("2026-03-01", "2026-03-02")),
    ],
)
def test_a_local_day_lasts_from_midnight_to_midnight(
    day: str, zone: str, from_at: str, hours: int, utc_days: tuple[str, str]
) -> None:
    local = span(day, zone)

    assert rfc3339(local.from_us) == from_at
    assert local.seconds == hours * 3_600
    assert (str(local.first_utc_day), str(local.last_utc_day)) == utc_days
    assert local.is_whole_utc_days == (zone == "UTC")


def test_london_in_winter_reads_the_days_of_the_tables_and_in_summer_it_does_not() -> None:
    assert span("2026-01-15", "Europe/London").is_whole_utc_days
    assert not span("2026-07-15", "Europe/London").is_whole_utc_days


def test_a_utc_day_that_has_not_begun_is_not_read() -> None:
    evening = span("2026-03-02", "America/New_York", now="2026-03-02T23:00:00Z")
    after_midnight = span("2026-03-02", "America/New_York", now="2026-03-03T05:00:00Z")

    assert evening.last_utc_day == date(2026, 3, 2)
    assert not evening.is_over
    assert after_midnight.last_utc_day == date(2026, 3, 3)
    assert after_midnight.is_over


def test_offsets_are_those_of_both_ends() -> None:
    spring = span("2026-03-29", "Europe/Berlin")

    assert (spring.interval.from_offset, spring.interval.to_offset) == ("+01:00", "+02:00")
