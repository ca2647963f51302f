"""How a report writes a number, a time, a broker."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from typing import Any

NOTHING = "\N{EN DASH}"


def percent(share: float | None, *, digits: int = 3) -> str:
    """A share as a percentage; never rounded up to 100 % when something is missing."""
    if share is None:
        return NOTHING
    if share >= 1:
        return "100 %"
    scale = 10**digits
    return f"{math.floor(share * 100 * scale) / scale:.{digits}f} %"


def duration(seconds: float | None) -> str:
    """Two units at most, as a person says it."""
    if seconds is None:
        return NOTHING
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, name, part, part_name in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit:
            rest = whole % unit // part
            return f"{whole // unit} {name}" + (f" {rest} {part_name}" if rest else "")
    return f"{whole} s"


def label(broker: dict[str, Any]) -> str:
    """A broker's name on one line of a page, a plot or a terminal."""
    return printable(f"{broker['cluster']}/{broker['broker_name']}/{broker['broker_id']}")


def printable(text: str) -> str:
    """Replace control characters, line ends among them, by a visible sign."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)


def rfc3339(microseconds: int | None) -> str | None:
    """UTC with milliseconds, as the history writes it."""
    if microseconds is None:
        return None
    moment = datetime.fromtimestamp(microseconds // 1_000_000, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{microseconds % 1_000_000 // 1_000:03d}Z"


def report_folder(first_day: date, last_day: date) -> str:
    """Name a report's folder within a warehouse."""
    return f"dt={first_day}" if first_day == last_day else f"from={first_day}_to={last_day}"
