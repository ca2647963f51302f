"""Texts for operators: permissions, times, events, reasons. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp

from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2
from pointsman.wire.json_document import enum_name
from pointsman.wire.names import PERM_READ, PERM_WRITE
from pointsman.wire.wire_time import seconds_of

_EVENTS: Mapping[str, str] = {
    "REGISTERED": "registered",
    "REREGISTERED": "re-registered",
    "ROLE_CHANGED": "registered at another position of its group",
    "ADDRESS_CHANGED": "registered at another address",
    "RESTARTED": "registered by a new process",
    "REJECTED": "the registration of another broker for its identity was rejected",
    "EXPIRED": "expired",
    "PROBE_FAILED": "its probe failed",
    "UNREGISTERED": "unregistered",
    "PROTECTED": "the guard keeps it",
    "SUSPECTED": "suspect",
    "RECOVERED": "recovered",
    "LATE_HEARTBEAT": "a heartbeat was more than half an interval late",
    "CHECKPOINT": "its state in the snapshot when this name server started",
    "PERM_CHANGED": "the write permission of its topics changed",
    "TOPIC_DELETED": "a topic of its group was deleted",
    "GUARD_ON": "the guard of its cluster is on",
    "GUARD_OFF": "the guard of its cluster is off",
    "MAINTENANCE_ON": "a maintenance window opened: departures are planned",
    "MAINTENANCE_OFF": "a maintenance window closed",
}
_REASONS: Mapping[str, str] = {
    "SILENCE": "heartbeats are missing",
    "STREAM_BROKEN": "its stream broke",
    "PROBE": "its probe fails on weak evidence",
    "REFUSED": "its probe fails on strong evidence",
    "HEARTBEAT": "heartbeat received",
    "SNAPSHOT": "first heartbeat since this name server started",
    "SHUTDOWN": "planned shutdown",
    "DRAIN": "drained",
    "REMOVED_FROM_CONFIG": "removed from the configuration of its agent",
    "SUPERSEDED": "its address registered elsewhere",
    "STATE_VERSION": "its state version is lower",
    "ADMIN": "by an operator",
    "INCARNATION": "by a new process of the broker",
    "DATA_VERSION": "by another version of the broker's topics",
    "TIME_OVER": "the time that an operator set is over",
    "LIMIT": "on beyond guard.limit_seconds; check the cluster",
}
_OTHER_REASONS: Mapping[tuple[str, str], str] = {
    ("PROBE_FAILED", "PROBE"): "weak evidence, the fault may lie with the probe or the network",
    ("PROBE_FAILED", "REFUSED"): "strong evidence, the broker refuses to serve",
    ("RECOVERED", "PROBE"): "its probe passes again",
    ("PERM_CHANGED", "PROBE"): "its probe failed and passes again",
    ("PERM_CHANGED", "SHUTDOWN"): "the broker was stopped",
    ("GUARD_ON", "SHARE"): "too many brokers are lost at the same time",
    ("GUARD_OFF", "SHARE"): "enough brokers are up again",
}
"""By event and reason, where a reason means something else."""


def utc_of(timestamp: Timestamp) -> datetime:
    """Read a moment."""
    return timestamp.ToDatetime(UTC)


def moment_text(at: datetime) -> str:
    """Render a UTC moment for scripts, to the millisecond."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


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


def guard_words(guard: admin.GuardStatus) -> str:
    """Describe the guard of a cluster in one line."""
    words = f"GUARD of {guard.cluster} is {enum_name(guard, 'mode')}"
    if guard.active:
        words += f", active for {duration_words(seconds_of(guard.active_for))}"
    if guard.HasField("mode_remaining"):
        words += f", AUTO resumes in {duration_words(seconds_of(guard.mode_remaining))}"
    return words + (f": {printable(guard.reason)}" if guard.reason else "")


def reason_words(status: broker_pb2.BrokerStatus) -> str:
    """Name why a replica is not UP, and whether it is planned."""
    return (printable(status.reason) or "-") + (", planned" if status.planned else "")


def evidence_words(health: broker_pb2.BrokerHealth) -> str:
    """Describe how much a failing probe proves; evidence that is not stated is weak."""
    return f"{'strong' if health.evidence == broker_pb2.PROBE_EVIDENCE_STRONG else 'weak'} evidence"


def explanation(event: str, reason: str) -> str:
    """Explain an event and its reason; empty for an event that this version does not know."""
    text = _EVENTS.get(event, "")
    why = _OTHER_REASONS.get((event, reason)) or _REASONS.get(reason, "")
    return f"{text}: {why}" if text and why else text


def detail_words(detail: Mapping[str, object]) -> str:
    """Show an event's further facts as ``name value, ...``."""
    return ", ".join(f"{name.replace('_', ' ')} {_value_words(value)}" for name, value in sorted(detail.items()))


def printable(text: str) -> str:
    """Replace what could steer a terminal; texts come from brokers that anybody may have registered."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def _value_words(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, Mapping):
        return f"({detail_words(value)})"
    if isinstance(value, (list, tuple)):
        return " ".join(_value_words(item) for item in value) or "none"
    return printable(str(value)) or "none"


def counted(count: int, noun: str) -> str:
    """Show a number of things: ``1 broker``, ``2 brokers``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
