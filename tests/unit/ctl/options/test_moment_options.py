"""Moments in the past, as they are given on the command line."""

from __future__ import annotations

from datetime import UTC, datetime

import click
import pytest

from pointsman_ctl.options.moment_options import read_moment

NOW = datetime(2026, 11, 28, 2, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-27T03:12Z", datetime(2026, 11, 27, 3, 12, tzinfo=UTC)),
        ("2026-11-27T04:12:30.5+01:00", datetime(2026, 11, 27, 3, 12, 30, 500_000, tzinfo=UTC)),
        ("2026-11-27 03:12", datetime(2026, 11, 27, 3, 12, tzinfo=UTC)),
        ("02:12", datetime(2026, 11, 28, 2, 12, tzinfo=UTC)),
        ("03:12", datetime(2026, 11, 27, 3, 12, tzinfo=UTC)),
        ("90m", datetime(2026, 11, 28, 1, 0, tzinfo=UTC)),
        ("2d", datetime(2026, 11, 26, 2, 30, tzinfo=UTC)),
    ],
)
def test_times_of_the_day_are_the_last_ones_and_all_are_utc(text: str, moment: datetime) -> None:
    assert read_moment(text, now=NOW) == moment


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-27", "25:00", "90", "2026-11-28T02:31Z", "0m"])
def test_what_is_not_a_time_or_in_the_future_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        read_moment(text, now=NOW)
