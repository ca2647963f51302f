"""How an answer writes a moment: for programs in UTC, for people in their zone."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo


def rfc3339(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def said_at(moment: datetime, zone: ZoneInfo, *, day: bool = False) -> str:
    """To the second; with the day and the zone's name where a line begins with it."""
    local = moment.astimezone(zone)
    return f"{local:%Y-%m-%d %H:%M:%S %Z}" if day else f"{local:%d %b %H:%M:%S}"
