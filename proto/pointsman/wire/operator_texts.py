"""Texts for operators: permissions, times, events, outages, reasons. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp

from pointsman.names import PERM_READ, PERM_WRITE, printable
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2
from pointsman.wire.json_document import enum_name
from pointsman.wire.outage_timeline import Outage, TimelineEvent
from pointsman.wire.wire_time import seconds_of

MAX_SHOWN_QUEUES = 16
"""Logical queues of one broker that are listed."""

_EVENTS: Mapping[str, str] = {
    "REGISTERED": "registered",
    "REREGISTERED": "re-registered",
    "ROLE_CHANGED": "registered at another position of its group",
    "ADDRESS_CHANGED": "registered at another address",
    "RESTARTED": "registered by a new process",
    "REJECTED": "another broker's registration with the same identity was rejected",
    "ADDRESS_CONFLICT": "another registration has its address too, and both send heartbeats",
    "EXPIRED": "expired",
    "PROBE_FAILED": "its probe failed",
    "UNREGISTERED": "unregistered",
    "PROTECTED": "protected by the guard",
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
    "BROKER_DATA_CHANGED": "an operator changed what brokers hold",
    "NAMESRV_STARTED": "this name server started",
    "NAMESRV_STOPPED": "this name server stopped",
}
_POLLED: Mapping[str, str] = {
    "REGISTERED": "the name server lists it now",
    "REREGISTERED": "listed with another zone",
    "ROLE_CHANGED": "listed at another position of its group",
    "ADDRESS_CHANGED": "listed at another address",
    "EXPIRED": "the name server no longer lists it",
    "UNREGISTERED": "another position of its group has its address",
    "CHECKPOINT": "listed when this watch of the name server began",
    "NAMESRV_STARTED": "the observer began to watch this name server",
    "NAMESRV_STOPPED": "the observer no longer watches this name server",
}
"""Events of a name server that is observed by polling: what a response showed."""
POLLED = "observe"
"""``source`` in the detail of such an event."""
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
    "SUPERSEDED": "another identity registered its address",
    "STATE_VERSION": "its state version is lower",
    "ADMIN": "by an operator",
    "INCARNATION": "by a new process of the broker",
    "DATA_VERSION": "by another version of the broker's topics",
    "TIME_OVER": "the time limit set by an operator has passed",
    "LIMIT": "on beyond guard.limit_seconds; check the cluster",
}
_OTHER_REASONS: Mapping[tuple[str, str], str] = {
    ("PROBE_FAILED", "PROBE"): "weak evidence, the probe or the network may have failed",
    ("PROBE_FAILED", "REFUSED"): "strong evidence, the broker refuses to serve",
    ("RECOVERED", "PROBE"): "its probe passes again",
    ("PERM_CHANGED", "PROBE"): "its probe failed and passes again",
    ("PERM_CHANGED", "SHUTDOWN"): "the broker was stopped",
    ("GUARD_ON", "SHARE"): "too many brokers were lost at the same time",
    ("GUARD_OFF", "SHARE"): "enough brokers are up again",
}
"""By event and reason, where the reason has another meaning for the event."""


_EARLIER_RUNS: Mapping[str, str] = {
    "OFF": "its history is off or not read at the start: events since this start only",
    "READING": "still reading the history: earlier events may be missing",
    "FAILED": "the history could not be read to its end: earlier events may be missing",
}
HANGS: Mapping[str, str] = {
    "stream": "stream open without heartbeats: its agent hangs, or its machine is frozen or cut off; check the agent",
    "connection": "connection open without heartbeats: the broker hangs, or its machine is frozen or cut off",
}
"""By detail of an event with the value ``open``: what silence on an open stream of an agent, or on the connection of a
RocketMQ broker that registers itself, means."""


def hang_text(detail: Mapping[str, object]) -> str:
    """Explain silence on an open stream; empty if there was none."""
    return next((text for name, text in HANGS.items() if detail.get(name) == "open"), "")


def utc_of(timestamp: Timestamp) -> datetime:
    """Convert a timestamp to UTC."""
    return timestamp.ToDatetime(UTC)


def moment_text(at: datetime) -> str:
    """Render a UTC time for scripts, with milliseconds."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def perm_text(perm: int) -> str:
    """Show permission bits as ``rw``, ``r``, ``w`` or ``-``."""
    return ("r" if perm & PERM_READ else "") + ("w" if perm & PERM_WRITE else "") or "-"


def logical_queues_text(mapping: broker_pb2.StaticTopicMapping) -> str:
    """Show the queues of a static topic on one broker as ``logical>physical``, of very many the first."""
    pairs = list(zip(mapping.logical_queue_ids, mapping.physical_queue_ids, strict=False))
    shown = " ".join(f"{logical}>{physical}" for logical, physical in pairs[:MAX_SHOWN_QUEUES])
    more = f" and {len(pairs) - MAX_SHOWN_QUEUES} more" if len(pairs) > MAX_SHOWN_QUEUES else ""
    return shown + more or "-"


def duration_text(seconds: float) -> str:
    """Show a duration with its two largest units."""
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


def rate_text(per_second: float) -> str:
    """Show a rate; small ones with a decimal place."""
    return f"{per_second:.0f}" if per_second >= 10 or per_second == 0 else f"{per_second:.1f}"


def time_text(at: datetime) -> str:
    """Show a UTC time with milliseconds."""
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03}"


def guard_text(guard: admin.GuardStatus) -> str:
    """Describe the guard of a cluster in one line."""
    text = f"GUARD of {guard.cluster} is {enum_name(guard, 'mode')}"
    if guard.active:
        text += f", active for {duration_text(seconds_of(guard.active_for))}"
    if guard.HasField("mode_remaining"):
        text += f", AUTO resumes in {duration_text(seconds_of(guard.mode_remaining))}"
    return text + (f": {printable(guard.reason)}" if guard.reason else "")


def reason_text(status: broker_pb2.BrokerStatus) -> str:
    """Name why a replica is not UP, and whether it is planned."""
    return (printable(status.reason) or "-") + (", planned" if status.planned else "")


def evidence_text(health: broker_pb2.BrokerHealth) -> str:
    """Describe the evidence of a failing probe; unspecified evidence is weak."""
    return f"{'strong' if health.evidence == broker_pb2.PROBE_EVIDENCE_STRONG else 'weak'} evidence"


def explanation(event: str, reason: str, source: object = "") -> str:
    """Explain an event and its reason; empty for an unknown event. ``source``: of its detail."""
    text = (_POLLED if source == POLLED else _EVENTS).get(event, "")
    why = _OTHER_REASONS.get((event, reason)) or _REASONS.get(reason, "")
    return f"{text}: {why}" if text and why else text


def earlier_runs_text(earlier_runs: str) -> str:
    """Explain what is missing of the time before a name server's start; empty if nothing is."""
    return _EARLIER_RUNS.get(earlier_runs, "")


def reading_text(info: admin.GetNodeInfoResponse) -> str:
    """Return that a name server still reads its history, so that lists may not be complete; empty if it does not."""
    is_reading = info.earlier_runs == admin.EARLIER_RUNS_READING
    return "still reading the history: departed brokers and penalties may be missing" if is_reading else ""


def uptime_text(info: admin.GetNodeInfoResponse) -> str:
    """Show the time since the start of a name server; ``-``: unknown, of one that is observed."""
    return duration_text(seconds_of(info.uptime)) if info.HasField("uptime") else "-"


def detail_text(detail: Mapping[str, object]) -> str:
    """Show the details of an event as ``name value, ...``."""
    return ", ".join(f"{name.replace('_', ' ')} {_value_text(value)}" for name, value in sorted(detail.items()))


def setting_text(value: object) -> str:
    """Show the value of a setting, as the history records it: of an object its fields; ``-``: none."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return printable(value)
    return detail_text(value) if isinstance(value, Mapping) else _value_text(value)


def _value_text(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, Mapping):
        return f"({detail_text(value)})"
    if isinstance(value, (list, tuple)):
        return " ".join(_value_text(item) for item in value) or "none"
    return printable(str(value)) or "none"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: ``1 broker``, ``2 brokers``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def names_text(names: Sequence[str], *, most: int = 3, separator: str = ", ") -> str:
    """Return the first names, and how many more there are."""
    listed = separator.join(names[:most])
    return f"{listed} and {len(names) - most} more" if len(names) > most else listed


def change_text(step: TimelineEvent) -> str:
    """Describe the effect of an event on the routes; empty if none and the replica is UP."""
    if step.ended is not None:
        entered = "entered" if step.ended.is_first else "back in"
        return f"{entered} the routes after {outage_text(step.ended)}"
    planned = ", planned" if step.event.planned else ""
    match (step.was_routed, step.is_routed):
        case (True, False):
            return f"left the routes{planned}"
        case (False, False):
            return f"still not in the routes{planned}"
        case (None, False):
            return f"not in the routes{planned}"
        case (None, True) if step.event.event == "REGISTERED":
            return "entered the routes"
        case (_, True) if step.event.state != "UP":
            return "still in the routes"
    return ""


def outage_text(outage: Outage) -> str:
    """Describe an outage that ended: its duration, new or same process, and its planned part."""
    text = duration_text(outage.seconds or 0.0)
    if not outage.is_begin_known:
        text = f"at least {text}"
    if outage.has_new_process is not None:
        text += " (new process)" if outage.has_new_process else " (same process)"
    if outage.is_planned:
        return f"{text}, planned"
    return text + (f", {duration_text(outage.planned_seconds)} of it planned" if outage.planned_seconds else "")
