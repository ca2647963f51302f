"""Words for people: permissions, times, failures, events. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import grpc

from pointsman.v1 import admin_service_pb2, broker_pb2
from pointsman.wire.names import PERM_READ, PERM_WRITE
from pointsman_client.errors import NameServerFailedError
from pointsman_client.rpc.wire_time import seconds_of

NO_GRPC = "no gRPC there: is it the port of the metrics, or of something else?"
OLDER_SERVER = "this name server does not know that call: it is older than this pointsmanctl"

_EXPLANATIONS: Mapping[tuple[str, ...], str] = {
    ("REGISTERED", ""): "entered the routes",
    ("REREGISTERED", ""): "registered again while known",
    ("REREGISTERED", "SNAPSHOT"): "known from before this name server's restart, and now heard again",
    ("ROLE_CHANGED", ""): "took another place in its group",
    ("ADDRESS_CHANGED", ""): "is at another address",
    ("RESTARTED", ""): "its process is a new one, without an outage",
    ("REJECTED", ""): "a registration was refused: another broker holds the identity",
    ("EXPIRED", ""): "left the routes",
    ("EXPIRED", "SILENCE"): "left the routes: silent for longer than its expiry",
    ("EXPIRED", "STREAM_BROKEN"): "left the routes: its connection broke and it was not back within the grace",
    ("PROBE_FAILED", ""): "left the routes: its agent lives, the broker does not answer the probe",
    ("PROBE_FAILED", "PROBE", "registration"): "registered, and not in the routes: "
    "its agent lives, the broker does not answer the probe",
    ("UNREGISTERED", ""): "left",
    ("UNREGISTERED", "SHUTDOWN"): "left politely: it shut down",
    ("UNREGISTERED", "DRAIN"): "left politely: it is drained",
    ("UNREGISTERED", "REMOVED_FROM_CONFIG"): "left politely: its agent's configuration names it no more",
    ("UNREGISTERED", "SUPERSEDED"): "was replaced by a newer claim on its identity",
    ("UNREGISTERED", "ADMIN"): "was removed by an operator",
    ("UNREGISTERED", "MAINTENANCE"): "left within an announced maintenance window: no outage",
    ("UNREGISTERED", "MAINTENANCE", "registration"): "registered within an announced maintenance window, "
    "and not in the routes: the broker does not answer the probe",
    ("SUSPECTED", ""): "still routed, marked suspect",
    ("SUSPECTED", "SILENCE"): "still routed, marked suspect: two beats are missing",
    ("SUSPECTED", "STREAM_BROKEN"): "still routed, marked suspect: its connection broke",
    ("SUSPECTED", "PROBE"): "still routed: it fails its probe, and the guard keeps it",
    ("RECOVERED", ""): "is well again",
    ("RECOVERED", "HEARTBEAT"): "is well again: it was heard",
    ("RECOVERED", "PROBE"): "is well again: it answers the probe",
    ("LATE_HEARTBEAT", ""): "a beat came later than one and a half intervals",
    ("HEARTBEAT", ""): "a beat",
    ("HEARTBEATS", ""): "its beats of the last minutes, counted",
    ("TOPICS", ""): "brought another set of topics",
    ("CHECKPOINT", ""): "as it stood",
    ("CHECKPOINT", "DAY"): "as it stood when the day began",
    ("CHECKPOINT", "START"): "as it stood when this name server started",
    ("PERM_CHANGED", ""): "the write permission of its topics changed",
    ("PERM_CHANGED", "ADMIN"): "an operator changed the write permission of its topics",
    ("PERM_CHANGED", "INCARNATION"): "may be written again: its process is a new one",
    ("TOPIC_DELETED", ""): "an operator deleted a topic of it",
    ("GUARD_ON", ""): "the guard of its cluster keeps brokers in the routes",
    ("GUARD_ON", "SHARE"): "the guard of its cluster keeps brokers: too many are lost at once",
    ("GUARD_ON", "LIMIT"): "the guard of its cluster is on for longer than its limit: somebody must look",
    ("GUARD_ON", "ADMIN"): "an operator told the guard of its cluster to hold: it keeps brokers",
    ("GUARD_ON", "ADMIN", "AUTO"): "an operator let the guard of its cluster work by itself again: it keeps brokers",
    ("GUARD_OFF", ""): "the guard of its cluster keeps nobody any more",
    ("GUARD_OFF", "SHARE"): "the guard of its cluster is off: enough brokers are well again",
    ("GUARD_OFF", "TIME_OVER"): "the time of what the guard of its cluster was told is over: it works by itself again",
    ("GUARD_OFF", "ADMIN"): "an operator told the guard of its cluster something: it keeps nobody now",
    ("GUARD_OFF", "ADMIN", "AUTO"): "an operator let the guard of its cluster work by itself again",
    ("GUARD_OFF", "ADMIN", "OFF"): "an operator told the guard of its cluster to keep nobody",
    ("GUARD_OFF", "ADMIN", "HOLD"): "an operator told the guard of its cluster to hold: there was nobody to keep",
    ("MAINTENANCE_ON", ""): "a maintenance window opened: whoever leaves in it is no outage",
    ("MAINTENANCE_OFF", ""): "a maintenance window ended",
    ("MAINTENANCE_OFF", "ADMIN"): "an operator ended a maintenance window",
    ("MAINTENANCE_OFF", "TIME_OVER"): "a maintenance window is over",
    ("KV_CHANGED", ""): "the KV configuration changed",
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
    """Say how the guard of a cluster stands, as one line."""
    words = f"GUARD of {guard.cluster} is {guard_mode_words(guard.mode)}"
    if guard.active:
        words += f" and keeps brokers, for {duration_words(seconds_of(guard.active_for))}"
    if guard.HasField("mode_remaining"):
        words += f", AUTO again in {duration_words(seconds_of(guard.mode_remaining))}"
    return words + (f": {printable(guard.reason)}" if guard.reason else "")


def explanation(event: str, reason: str, detail: Mapping[str, object] | None = None) -> str:
    """Say what an event means; empty for one that this version does not know.

    A third word tells apart what an event can mean with one reason: what a guard was told, or that the broker was not
    in the routes before either.
    """
    detail = detail or {}
    word = "registration" if "registration" in detail else str(detail.get("mode", ""))
    keys = ((event, reason, word), (event, reason), (event, ""))
    return next((_EXPLANATIONS[key] for key in keys if key in _EXPLANATIONS), "")


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
