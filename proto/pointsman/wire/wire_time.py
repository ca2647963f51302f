"""Durations from the wire, in seconds. Pure."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration


def seconds_of(duration: Duration) -> float:
    """Convert a duration."""
    return duration.seconds + duration.nanos / 1e9
