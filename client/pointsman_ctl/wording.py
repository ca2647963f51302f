"""Texts for operators: permissions, times, failures, events. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import grpc

from pointsman.v1 import admin_service_pb2, broker_pb2
from pointsman.wire.names import PERM_READ, PERM_WRITE
from pointsman_client.errors import NameServerFailedError
from pointsman_client.rpc.wire_time import seconds_of
from pointsman_ctl.timeline import Outage, TimelineEvent

NO_GRPC = "no gRPC there: is it the port of the metrics, or of something else?"
OLDER_SERVER = "this name server does not know that call: it is older than this pointsmanctl"

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
    if "parsing HTTP/2" in failure.message:
        return NO_GRPC
    if "before receiving SETTINGS" in failure.message:
        return "connected, but no answer: is it hung?"
    if failure.status is grpc.StatusCode.UNIMPLEMENTED:
        return OLDER_SERVER
    return printable(failure.message) or failure.status.name


def is_out_of_reach(failure: NameServerFailedError) -> bool:
    """Whether nobody may be there: it did not answer at all, rather than with an error of its own."""
    words = failure_words(failure)
    return words in {"no answer in time", "connection refused", "its name cannot be resolved"}


def node_state_words(state: broker_pb2.NodeState.ValueType) -> str:
    """Name what a node may be asked; a state that is newer than this program is a number."""
    if state == broker_pb2.NODE_STATE_UNSPECIFIED:
        return "UNKNOWN"
    known = state in broker_pb2.NodeState.values()
    return broker_pb2.NodeState.Name(state).removeprefix("NODE_STATE_") if known else str(state)


def guard_mode_words(mode: admin_service_pb2.GuardMode.ValueType) -> str:
    """Name what a guard was told; a mode that is newer than this program is a number."""
    known = mode in admin_service_pb2.GuardMode.values()
    return admin_service_pb2.GuardMode.Name(mode).removeprefix("GUARD_MODE_") if known else str(mode)


def guard_words(guard: admin_service_pb2.GuardStatus) -> str:
    """Describe the guard of a cluster in one line."""
    words = f"GUARD of {guard.cluster} is {guard_mode_words(guard.mode)}"
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


def change_words(step: TimelineEvent) -> str:
    """Describe what an event changed in the routes; empty where it changed nothing and the replica is UP."""
    if step.ended is not None:
        entered = "entered" if step.ended.is_first else "back in"
        return f"{entered} the routes after {outage_words(step.ended)}"
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


def outage_words(outage: Outage) -> str:
    """Describe an outage that is over: its length, whether the process is another one, what of it was planned."""
    words = duration_words(outage.seconds or 0.0)
    if not outage.is_begin_known:
        words = f"at least {words}"
    if outage.has_new_process is not None:
        words += " (new process)" if outage.has_new_process else " (same process)"
    if outage.is_planned:
        return f"{words}, planned"
    return words + (f", {duration_words(outage.planned_seconds)} of it planned" if outage.planned_seconds else "")


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
