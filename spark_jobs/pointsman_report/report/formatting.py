"""Formatting of numbers, times and broker names in a report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import overload
from zoneinfo import ZoneInfo

from pointsman.names import printable

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NO_VALUE = "\N{EN DASH}"
BRIEF_SECONDS = 10


def percent(share: float | None, *, digits: int = 3) -> str:
    """A share as a percentage; never rounded up to 100 % when something is missing."""
    if share is None:
        return NO_VALUE
    if share >= 1:
        return "100 %"
    scale = 10**digits
    # A share such as 0.9993 is slightly less in binary; a difference far below the last digit must not round it down.
    parts = math.floor(round(share * 100 * scale, 6))
    return f"{min(parts, 100 * scale - 1) / scale:.{digits}f} %"


def coarse_percent(share: float | None, *, is_short: bool) -> str:
    """A share of a day as a percentage, with one decimal if the report covers less than an hour."""
    return percent(share, digits=1) if is_short else percent(share)


def objective(share: float | None) -> str:
    """An availability objective, as it was set."""
    return NO_VALUE if share is None else f"{100 * share:.10g} %"


def outage_duration(seconds: float | None) -> str:
    """The duration of an outage: below ten seconds with milliseconds."""
    return f"{seconds:.3f} s" if is_brief(seconds) and seconds else duration(seconds)


def is_brief(seconds: float | None) -> bool:
    """Whether an outage is so short that its times are shown with milliseconds."""
    return seconds is not None and 0 <= seconds < BRIEF_SECONDS


def duration(seconds: float | None) -> str:
    """A duration in at most two units."""
    if seconds is None:
        return NO_VALUE
    if seconds < 0:
        return f"\N{MINUS SIGN}{duration(-seconds)}"
    if seconds == 0:
        return "0 s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, name, part, part_name in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit:
            rest = whole % unit // part
            return f"{whole // unit} {name}" + (f" {rest} {part_name}" if rest else "")
    return f"{whole} s"


def milliseconds(value: float | None) -> str:
    """A time between heartbeats: below ten seconds in milliseconds."""
    if value is None:
        return NO_VALUE
    return f"{value:,.0f} ms" if value < 10_000 else duration(value / 1_000)


def number(value: float | None, *, digits: int = 0) -> str:
    """A count or a rate, with thousands separators."""
    return NO_VALUE if value is None else f"{value:,.{digits}f}"


def ahead_or_behind(seconds: float) -> str:
    """A clock offset, such as ``1 min 5 s ahead``."""
    return f"{duration(abs(seconds))} {'ahead' if seconds > 0 else 'behind'}"


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """``1 outage``, ``2 outages``."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def some(names: Sequence[object], *, of: int | None = None, most: int = 5) -> str:
    """List the first few, and the number of the others."""
    rest = (len(names) if of is None else of) - min(len(names), most)
    return ", ".join(map(str, names[:most])) + (f" and {rest:,} more" if rest > 0 else "")


def broker_label(cluster: str, broker_name: str, broker_id: int) -> str:
    """A broker's name on one line of a page, a plot or a terminal."""
    return printable(f"{cluster}/{broker_name}/{broker_id}")


@overload
def rfc3339(microseconds: int) -> str: ...
@overload
def rfc3339(microseconds: None) -> None: ...
@overload
def rfc3339(microseconds: int | None) -> str | None: ...


def rfc3339(microseconds: int | None) -> str | None:
    """A UTC time with milliseconds, as in the history."""
    if microseconds is None:
        return None
    moment = datetime.fromtimestamp(microseconds // 1_000_000, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{microseconds % 1_000_000 // 1_000:03d}Z"


def micros(text: str) -> int:
    """Parse an RFC 3339 time to microseconds."""
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)


def report_folder(first_day: date, last_day: date) -> str:
    """The name of a report's folder in a warehouse."""
    return f"dt={first_day}" if first_day == last_day else f"from={first_day}_to={last_day}"


@dataclass(frozen=True, slots=True)
class LocalTime:
    """Times in the time zone of the report."""

    zone: ZoneInfo

    def moment(self, text: str) -> datetime:
        """Parse a UTC time and convert it to the zone."""
        return datetime.fromisoformat(text).astimezone(self.zone)

    def day_and_time(self, text: str | None, *, brief: bool = False) -> tuple[str, str]:
        """The day, and the time; ``brief``: with milliseconds."""
        if text is None:
            return "", NO_VALUE
        moment = self.moment(text)
        fraction = f".{moment.microsecond // 1_000:03d}" if brief else ""
        return f"{moment:%Y-%m-%d}", f"{moment:%H:%M:%S}{fraction}"

    def plain(self, text: str | None) -> str:
        return " ".join(self.day_and_time(text)).strip()

    def clock(self, text: str | None) -> str:
        """Hours and minutes, with the zone's name: a finding's time."""
        return NO_VALUE if text is None else f"{self.moment(text):%Y-%m-%d %H:%M} {self.zone.key}"
