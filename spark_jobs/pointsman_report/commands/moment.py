"""An instant as a person writes it: with an offset, or by the clock of the report's time zone."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo

from pointsman_report.commands.command import UsageError

HELP = "2026-11-20T03:12Z, 2026-11-20T03:12+01:00, '2026-11-20 03:12' (by --timezone), 03:12 (the last time it was)"


def written(text: str) -> datetime | time:
    """Read what was written; what has no offset gets its zone later, by `instant`."""
    for read in (datetime.fromisoformat, time.fromisoformat):
        try:
            moment: datetime | time = read(text)
        except ValueError:
            continue
        if isinstance(moment, time) or len(text) > len("YYYY-MM-DD"):
            return moment
    raise argparse.ArgumentTypeError(f"{text!r} is no time; such are {HELP}")


def instant(moment: datetime | time, zone: ZoneInfo, *, now: datetime) -> datetime:
    """Give what was written its place in time, in UTC.

    Raises:
        UsageError: the zone's clock never showed that time.
    """
    if isinstance(moment, time):
        return _last_time(moment, zone, now=now)
    if moment.tzinfo is not None:
        return moment.astimezone(UTC)
    return _placed(moment, zone)


def _placed(moment: datetime, zone: tzinfo) -> datetime:
    placed = moment.replace(tzinfo=zone).astimezone(UTC)
    if placed.astimezone(zone).replace(tzinfo=None) != moment:
        raise UsageError(f"--at {moment}: the clocks of {zone} were put forward over that time")
    return placed


def _last_time(clock: time, zone: ZoneInfo, *, now: datetime) -> datetime:
    where = clock.tzinfo or zone
    today = datetime.combine(now.astimezone(where).date(), clock.replace(tzinfo=None))
    is_over = today.replace(tzinfo=where) <= now
    return _placed(today if is_over else today - timedelta(days=1), where)
