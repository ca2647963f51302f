"""Parser of ``namesrv.log`` (RocketMQ 4.9 and 5.x) for lines about brokers.

The pattern is that of RocketMQ's own logback files, ``%d{yyy-MM-dd HH:mm:ss,GMT+8} %p %t - %m%n``: whole seconds, no
spaces in the thread's name. A line without a date belongs to a stack trace.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from enum import Enum, auto
from pathlib import Path
from typing import IO
from zoneinfo import ZoneInfo

from pointsman_report.report_errors import ReportError

MAX_LINE_BYTES = 64 * 1024
"""Longer lines are truncated."""

_DATED = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?\d*\s+[A-Z]+\s+(\S+) - (.*)", re.DOTALL)
_OFFSET = re.compile(r"(?:GMT|UTC)?([+-])(\d{1,2})(?::?(\d\d))?")
_OF_BROKER = (
    r"(?:BrokerIdentityInfo \[clusterName=(?P<cluster>[^,\]]*), brokerAddr=(?P<addr>[^\]\s]+)\]|(?P<old>[^\s,]+:\d+))"
)


class LogFileError(ReportError):
    """A log that cannot be opened or unpacked; the message names the file and the reason."""


class Kind(Enum):
    """The kind of a line."""

    BOOT = auto()
    """The name server has started."""
    STOPPING = auto()
    """It shuts down; connections that it closes are not outages."""
    STARTING = auto()
    """From the thread ``main``, which logs only before the name server has started."""
    REGISTERED = auto()
    REMOVED = auto()
    """Removed from the tables; other lines of that second have the reason (5.x), or it unregistered (4.9)."""
    EXPIRED = auto()
    """Expired; in 4.9 this line is also the removal."""
    DISCONNECTED = auto()
    """A connection ended; in 5.x the line does not name the broker."""
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class LogLine:
    """A dated line."""

    at: datetime
    kind: Kind
    cluster: str | None = None
    """None: not in the line."""
    addr: str | None = None
    is_old: bool = False
    """Whether it has the format of 4.9."""


_RULES: tuple[tuple[Kind, str, re.Pattern[str]], ...] = (
    (Kind.BOOT, "The Name Server boot success", re.compile(r".*")),
    (Kind.STOPPING, "shutdown hook was invoked", re.compile(r".*")),
    (Kind.REGISTERED, "new broker registered, ", re.compile(_OF_BROKER + r"(?: .*)?")),
    (Kind.REMOVED, "unregisterBroker, remove from brokerLiveTable OK, ", re.compile(_OF_BROKER)),
    (Kind.EXPIRED, "The broker channel expired, ", re.compile(_OF_BROKER + r" \d+ms")),
    (Kind.DISCONNECTED, "the broker's channel destroyed, submit the unregister request", re.compile(r".*")),
    (Kind.DISCONNECTED, "the broker's channel destroyed, ", re.compile(_OF_BROKER + ", clean it's data structure.*")),
)
_EVENTS_THREAD = "NettyEventExecutor"


def zone_of(text: str) -> tzinfo:
    """Parse a time zone: ``GMT+8`` and ``+08:00`` as in Java (east of Greenwich), or an IANA name.

    Raises:
        ValueError: it is not a time zone.
    """
    if found := _OFFSET.fullmatch(text.strip()):
        sign, hours, minutes = found.groups()
        offset = timedelta(hours=int(hours), minutes=int(minutes or 0))
        if offset < timedelta(hours=24):
            return timezone(-offset if sign == "-" else offset)
    try:
        return ZoneInfo(text)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"{text!r} is not a time zone such as GMT+8, +08:00 or Asia/Shanghai") from None


def raw_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a plain or gzipped file, each cut to `MAX_LINE_BYTES`.

    Raises:
        LogFileError: it cannot be read to its end; earlier lines were yielded.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            yield from _bounded(file)
    except (OSError, EOFError, zlib.error) as error:
        raise LogFileError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def _bounded(file: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
    is_rest = False
    while part := file.readline(MAX_LINE_BYTES):
        if not is_rest:
            yield part
        is_rest = not part.endswith(b"\n")


def parse(line: bytes, zone: tzinfo) -> LogLine | None:
    """Parse a line; None for one without a date.

    Raises:
        ValueError: it begins like a line about a broker but does not match; or the date does not exist.
    """
    found = _DATED.fullmatch(line.decode(errors="replace").rstrip("\r\n"))
    if found is None:
        return None
    day, time, fraction, thread, message = found.groups()
    at = datetime.fromisoformat(f"{day}T{time}.{(fraction or '0').ljust(6, '0')}").replace(tzinfo=zone).astimezone(UTC)
    for kind, begins, pattern in _RULES:
        if message.startswith(begins):
            return _of_kind(kind, at, thread, pattern.fullmatch(message, len(begins)), message)
    return LogLine(at, Kind.STARTING if thread == "main" else Kind.OTHER)


def _of_kind(kind: Kind, at: datetime, thread: str, found: re.Match[str] | None, message: str) -> LogLine:
    if found is None:
        raise ValueError(f"cannot be read: {message[:120]!r}")
    named = found.groupdict()
    addr = named.get("addr") or named.get("old")
    # A 5.x name server logs the same text when it expires a broker: another line names that broker.
    if kind is Kind.DISCONNECTED and addr is None and thread != _EVENTS_THREAD:
        kind = Kind.OTHER
    return LogLine(at, kind, named.get("cluster"), addr, is_old=bool(named.get("old")))
