"""Moments in the past: options and how they are read."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from typing import TypeVar

import click

from pointsman_ctl.options.command_options import read_duration

CommandT = TypeVar("CommandT", bound=Callable[..., object])
FORMS = "2026-11-27T03:12Z, 2026-11-27T04:12+01:00, 03:12 (UTC, its last occurrence) or 90m (ago)"
LONGEST_AGO = "3650d"
_AGO = re.compile(r"[0-9]+[smhd]")


def read_moment(text: str, *, now: datetime) -> datetime:
    """Read a time as UTC; without an offset it is UTC. Raises click.BadParameter, also for a time in the future."""
    if _AGO.fullmatch(text):
        return now - timedelta(seconds=read_duration(text, longest=LONGEST_AGO))
    found = _clock(text, now) or _time(text)
    if found is None:
        raise click.BadParameter(f"invalid time {text!r}: use {FORMS}")
    if found > now:
        raise click.BadParameter(f"{text!r} is in the future")
    return found


def _clock(text: str, now: datetime) -> datetime | None:
    try:
        clock = time.fromisoformat(text)
    except ValueError:
        return None
    today = datetime.combine(now.date(), clock, tzinfo=clock.tzinfo or UTC).astimezone(UTC)
    return today if today <= now else today - timedelta(days=1)


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    if len(text) <= len("YYYY-MM-DD"):
        return None
    return found.replace(tzinfo=found.tzinfo or UTC).astimezone(UTC)


def moment_option(name: str, *, help: str) -> Callable[[CommandT], CommandT]:  # noqa: A002  # click's word
    """Return an option for a moment, passed as datetime or None."""

    def read(_ctx: click.Context, _param: click.Parameter, value: str | None) -> datetime | None:
        return None if value is None else read_moment(value, now=datetime.now(UTC))

    return click.option(name, callback=read, metavar="TIME", help=help)


at_option = moment_option("--at", help=f"As it was at this time, e.g. {FORMS}.")
