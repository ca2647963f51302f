"""Days of a range, and the folders they lie in."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, timedelta

_PARTITION = re.compile(r"dt=(\d{4}-\d{2}-\d{2})")


def days_from(first_day: date, last_day: date) -> list[date]:
    return [first_day + timedelta(days=n) for n in range((last_day - first_day).days + 1)]


def partition(day: date) -> str:
    return f"dt={day.isoformat()}"


def partition_days(names: Iterable[str]) -> set[date]:
    """Days that folder names stand for; other names are passed over."""
    return {date.fromisoformat(found[1]) for name in names if (found := _PARTITION.fullmatch(name))}
