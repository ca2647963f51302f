"""Words for people: permissions, times, failures, events. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import grpc

from pointsman.wire.names import PERM_READ, PERM_WRITE
from pointsman_client.errors import NameServerFailedError

_EXPLANATIONS = {
    ("REGISTERED", ""): "entered the routes",
    ("REREGISTERED", ""): "registered again while known",
    ("ROLE_CHANGED", ""): "took another place in its group",
    ("ADDRESS_CHANGED", ""): "is at another address",
    ("RESTARTED", ""): "its process is a new one, without an outage",
    ("REJECTED", ""): "a registration was refused: another broker holds the identity",
    ("EXPIRED", ""): "left the routes",
    ("EXPIRED", "SILENCE"): "left the routes: silent for longer than its expiry",
    ("EXPIRED", "STREAM_BROKEN"): "left the routes: its connection broke and it was not back within the grace",
    ("PROBE_FAILED", ""): "left the routes: its agent lives, the broker does not answer the probe",
    ("UNREGISTERED", ""): "left",
    ("UNREGISTERED", "SHUTDOWN"): "left politely: it shut down",
    ("UNREGISTERED", "DRAIN"): "left politely: it is drained",
    ("UNREGISTERED", "REMOVED_FROM_CONFIG"): "left politely: its agent's configuration names it no more",
    ("UNREGISTERED", "SUPERSEDED"): "was replaced by a newer claim on its identity",
    ("UNREGISTERED", "ADMIN"): "was removed by an operator",
    ("SUSPECTED", ""): "still routed, marked suspect",
    ("SUSPECTED", "SILENCE"): "still routed, marked suspect: two beats are missing",
    ("SUSPECTED", "STREAM_BROKEN"): "still routed, marked suspect: its connection broke",
    ("RECOVERED", ""): "is well again",
    ("RECOVERED", "HEARTBEAT"): "is well again: it was heard",
    ("RECOVERED", "PROBE"): "is well again: it answers the probe",
    ("LATE_HEARTBEAT", ""): "a beat came later than one and a half intervals",
}


def perm_words(perm: int) -> str:
    """Show permission bits as ``rw``, ``r``, ``w`` or ``-``."""
    return ("r" if perm & PERM_READ else "") + ("w" if perm & PERM_WRITE else "") or "-"


def duration_words(seconds: float) -> str:
    """Show a length of time with the two units that matter."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 120:
        return f"{seconds:.1f}s"
    minutes, whole_seconds = divmod(int(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    days, hours_left = divmod(hours, 24)
    if hours < 1:
        return f"{minutes}m {whole_seconds:02}s"
    return f"{hours}h {minutes_left:02}m" if days < 1 else f"{days}d {hours_left:02}h"


def time_words(at: datetime) -> str:
    """Show a UTC moment to the millisecond."""
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03}"


def failure_words(failure: NameServerFailedError) -> str:
    """Say in few words why a name server did not answer."""
    if failure.status is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "no answer in time"
    if "Connection refused" in failure.message:
        return "connection refused"
    if "resolving" in failure.message or "DNS" in failure.message:
        return "its name cannot be resolved"
    if failure.status is grpc.StatusCode.UNIMPLEMENTED:
        return "is no name server, or an older one"
    return printable(failure.message) or failure.status.name


def explanation(event: str, reason: str) -> str:
    """Say what an event means; empty for one that this version does not know."""
    return _EXPLANATIONS.get((event, reason)) or _EXPLANATIONS.get((event, ""), "")


def detail_words(detail: Mapping[str, object]) -> str:
    """Show an event's further facts as ``name value, ...``."""
    return ", ".join(f"{name.replace('_', ' ')} {_value_words(value)}" for name, value in sorted(detail.items()))


def printable(text: str) -> str:
    """Replace what could steer a terminal; texts come from brokers that anybody may have registered."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def _value_words(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, Mapping):
        return f"({detail_words(value)})"
    if isinstance(value, (list, tuple)):
        return " ".join(_value_words(item) for item in value) or "none"
    return printable(str(value)) or "none"
