"""Instants as operators write them."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from click import BadParameter, UsageError

from pointsman_report.commands.arguments import instant, moment

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def read(text: str, zone: ZoneInfo = BERLIN, *, now: datetime = NOW) -> datetime:
    return instant(moment(text), zone, now=now)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        pytest.param("2026-11-20T03:12Z", "2026-11-20T03:12:00", id="utc"),
        pytest.param("2026-11-20T03:12:07.5+05:30", "2026-11-19T21:42:07.500000", id="an-offset"),
        pytest.param("2026-11-20 03:12", "2026-11-20T02:12:00", id="by-the-zones-clock"),
        pytest.param("2026-07-20T03:12", "2026-07-20T01:12:00", id="in-summer"),
        pytest.param("03:12", "2026-11-21T02:12:00", id="earlier-today"),
        pytest.param("13:30", "2026-11-20T12:30:00", id="later-than-now-is-yesterday"),
        pytest.param("03:12Z", "2026-11-21T03:12:00", id="a-clock-with-an-offset"),
        pytest.param("2026-10-25 02:30", "2026-10-25T00:30:00", id="of-an-hour-that-was-twice-the-first"),
    ],
)
def test_a_time_is_read_in_its_zone(text: str, meant: str) -> None:
    assert read(text) == datetime.fromisoformat(meant).replace(tzinfo=UTC)
    assert read(text).tzinfo is UTC


def test_a_time_skipped_by_daylight_saving_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--at 2026-03-29 02:30:00: this time does not exist in Europe/Berlin"):
        read("2026-03-29 02:30")


@pytest.mark.parametrize("now", ["2026-03-29T12:00Z", "2026-03-29T23:00Z"])
def test_a_clock_time_skipped_on_its_last_day_is_refused(now: str) -> None:
    with pytest.raises(UsageError, match=r"--at 2026-03-29 02:30:00: this time does not exist in Europe/Berlin"):
        read("02:30", now=datetime.fromisoformat(now))


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-20", "25:00", "2026-11-31T03:12"])
def test_an_invalid_time_is_rejected_with_examples(text: str) -> None:
    with pytest.raises(BadParameter, match=r"use e\.g\. 2026-11-20T03:12Z"):
        moment(text)
