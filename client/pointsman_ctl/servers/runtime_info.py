"""What a RocketMQ broker reports of itself (``KVTable``, request code 28). Pure.

Names and texts are RocketMQ's, and each version has its own: a value that is missing or is not as expected is not
known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from pointsman.rocketmq.bodies import read_object, to_object

MAX_MILLIS = 253_402_300_799_000
"""The end of the year 9999."""


def read_runtime_info(body: bytes) -> dict[str, str]:
    """Read every value. Raises BadBodyError."""
    table = to_object(read_object(body).get("table"), "table")
    return {name: str(value) for name, value in sorted(table.items())}


@dataclass(frozen=True, slots=True)
class RuntimeInfo:
    """The values that are shown; None: not known."""

    version: str | None
    started_at: datetime | None
    put_rate: float | None
    """Messages per second, over the last ten seconds."""
    get_rate: float | None
    disk_ratio: float | None
    """Used share of the disk with the commit log, 0 to 1."""
    puts_today: int | None


def runtime_of(values: Mapping[str, str]) -> RuntimeInfo:
    """Return what is shown of a broker's values."""
    now, morning = _whole(values.get("msgPutTotalTodayNow")), _whole(values.get("msgPutTotalTodayMorning"))
    started = _whole(values.get("bootTimestamp"))
    return RuntimeInfo(
        version=values.get("brokerVersionDesc", "").removeprefix("V").replace("_", ".") or None,
        started_at=None if started is None or started > MAX_MILLIS else datetime.fromtimestamp(started / 1_000, UTC),
        put_rate=_first(values.get("putTps")),
        get_rate=_first(values.get("getTotalTps")),
        disk_ratio=_first(values.get("commitLogDiskRatio")),
        puts_today=None if now is None or morning is None else max(0, now - morning),
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else None


def _first(text: str | None) -> float | None:
    """Return the first number: rates are those of the last 10, 60 and 600 seconds."""
    words = (text or "").split()
    if not words or not words[0].isascii():
        return None
    try:
        value = float(words[0])
    except ValueError:
        return None
    return value if 0.0 <= value < 1e15 else None
