"""Times as they come over the wire, in seconds and UTC. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp


def seconds_of(duration: Duration) -> float:
    """Read a length of time."""
    return duration.seconds + duration.nanos / 1e9


def utc_of(timestamp: Timestamp) -> datetime:
    """Read a moment."""
    return timestamp.ToDatetime(UTC)


def utc_text(timestamp: Timestamp) -> str:
    """Render a moment as the history does: RFC 3339 in UTC, milliseconds."""
    return moment_text(utc_of(timestamp))


def moment_text(at: datetime) -> str:
    """Render a UTC moment as :func:`utc_text` does."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
