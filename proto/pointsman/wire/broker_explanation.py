"""Why a broker is in its state, line by line: of ``pointsmanctl why`` and of the name server's pages. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from google.protobuf.json_format import MessageToDict

from pointsman.names import printable
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2
from pointsman.wire.json_document import Document, enum_name
from pointsman.wire.operator_texts import (
    HANGS,
    POLLED,
    change_text,
    detail_text,
    duration_text,
    evidence_text,
    explanation,
    hang_text,
    moment_text,
    outage_text,
    reason_text,
    time_text,
    utc_of,
)
from pointsman.wire.outage_timeline import Outage, Position, TimelineEvent
from pointsman.wire.wire_time import seconds_of

Fact = tuple[str, str]
"""A name and its text."""


UNKNOWN_BY_POLLING = "unknown, as stream and probe: an observer only sees what the name server lists"


def silence_text(status: broker_pb2.BrokerStatus) -> str:
    """Show the time since the last heartbeat; ``-``: unknown."""
    return "-" if status.observed else duration_text(seconds_of(status.silence))


def position_of_status(status: broker_pb2.BrokerStatus) -> Position:
    """Return the replica that a status is about."""
    return status.identity.cluster, status.identity.broker_name, status.identity.broker_id


def since_text(status: broker_pb2.BrokerStatus) -> str:
    """Show for how long a replica has been in its state."""
    return f"for {duration_text(seconds_of(status.state_for))}" if status.HasField("state_for") else "since unknown"


def replica_facts(
    status: broker_pb2.BrokerStatus, outage: Outage | None, guard: admin.GuardStatus | None, now: datetime
) -> Iterator[Fact]:
    """Explain the state of a registered replica: rule, evidence, its latest outage, what operators set.

    ``guard``: that of its cluster. ``now``: UTC, for the length of an outage that lasts.
    """
    yield "rule", printable(status.rule) or "unknown"
    if status.reason:
        yield "reason", reason_text(status)
    if not status.observed:
        ago, every, expiry = (
            duration_text(seconds_of(each)) for each in (status.silence, status.heartbeat_interval, status.expiry)
        )
        yield "heartbeat", f"{ago} ago; sent every {every}, expires after {expiry}"
        yield "stream", _stream_text(status)
        yield "probe", _probe_text(status.health)
    else:
        yield "heartbeat", UNKNOWN_BY_POLLING
    yield from outage_facts(outage, now)
    if status.state == broker_pb2.BROKER_STATE_PROTECTED and guard is not None:
        active = f"active for {duration_text(seconds_of(guard.active_for))}" if guard.active else "no longer active"
        counts = f"{guard.lost} lost, {guard.up} up, baseline {guard.baseline}"
        yield "guard", f"{enum_name(guard, 'mode')}, {active}: {counts}"
    if status.in_maintenance:
        yield "window", "maintenance window is open"
    for other in status.also_at_addr:
        name = printable(f"{other.cluster}/{other.broker_name} {other.broker_id}")
        yield "conflict", f"{name} is registered at this address too"


def gone_since(event: admin.BrokerEvent) -> datetime:
    """Return since when a replica is gone, by its last event."""
    detail = MessageToDict(event.detail)
    absent = detail.get("absent_seconds") or (seconds_of(event.state_for) if event.HasField("state_for") else 0.0)
    return utc_of(event.event_at) - timedelta(seconds=float(absent))


def gone_facts(event: admin.BrokerEvent, outage: Outage | None, now: datetime) -> Iterator[Fact]:
    """Explain why a replica is gone, by its last event."""
    detail = MessageToDict(event.detail)
    planned = ", planned" if event.planned else ""
    # The event itself may be older than what the server read back.
    kind, reason = ("EXPIRED", str(detail["gone_reason"])) if "gone_reason" in detail else (event.event, event.reason)
    if detail.get("source") == POLLED:
        yield "reason", explanation(event.event, event.reason, POLLED) + planned
    else:
        yield "reason", f"{printable(kind)} {printable(reason)}{planned}"
    if detail.get("outlived_window"):
        yield "window", f"its maintenance window ended at {time_text(utc_of(event.event_at))} (UTC)"
    if hang := hang_text(detail):
        yield "stream", hang
    yield from outage_facts(outage, now)


def event_sentence(step: TimelineEvent) -> str:
    """Explain one event of a timeline, and its effect on the routes."""
    event, detail = step.event, MessageToDict(step.event.detail)
    hang = hang_text(detail)
    detail = {name: value for name, value in detail.items() if not (hang and name in HANGS)}
    silence = f"last heartbeat {duration_text(seconds_of(event.interval))} before" if event.HasField("interval") else ""
    source = detail.pop("source", "")
    parts = (explanation(event.event, event.reason, source), change_text(step), silence, hang, detail_text(detail))
    return "; ".join(part for part in parts if part)


def _stream_text(status: broker_pb2.BrokerStatus) -> str:
    if not status.stream_open:
        return "broken" if status.reason == "STREAM_BROKEN" else "not open"
    return HANGS["connection" if status.self_registered else "stream"] if status.reason == "SILENCE" else "open"


def outage_facts(outage: Outage | None, now: datetime) -> Iterator[Fact]:
    """Explain the latest outage of a replica, if it had one. ``now``: UTC, for the length of one that lasts."""
    if outage is None:
        return
    if outage.ended_at is not None:
        yield "outage", f"{outage_text(outage)}; back at {time_text(outage.ended_at)} (UTC)"
        return
    before, least = ("", "") if outage.is_begin_known else ("before ", "at least ")
    planned = "planned" if outage.is_planned else "unplanned"
    if outage.planned_seconds and not outage.is_planned:
        planned += f" after the first {duration_text(outage.planned_seconds)}"
    lasts = duration_text(max(0.0, (now - outage.began_at).total_seconds()))
    yield "outage", f"for {least}{lasts}, since {before}{time_text(outage.began_at)} (UTC), {planned}"


def _probe_text(health: broker_pb2.BrokerHealth) -> str:
    if health.status == broker_pb2.PROBE_STATUS_UNSPECIFIED:
        return "none"
    text = enum_name(health, "status").lower()
    if health.status == broker_pb2.PROBE_STATUS_FAILING:
        text += f", {evidence_text(health)}"
        if health.HasField("ever_passed"):
            text += ", passed before" if health.ever_passed else ", never passed"
    return text + (f": {printable(health.detail)}" if health.detail else "")


def outage_reason(outage: Outage) -> str:
    """Explain why an outage began; empty: unknown."""
    event = outage.began_with
    if event is None:
        return ""
    detail = MessageToDict(event.detail)
    found = (
        explanation(event.event, event.reason, detail.get("source")),
        hang_text(detail),
        printable(str(detail.get("probe", ""))),
    )
    return ": ".join(filter(None, found))


def outage_document(outage: Outage) -> Document:
    """Render an outage as JSON."""
    cluster, broker_name, broker_id = outage.position
    return {
        "cluster": cluster,
        "brokerName": broker_name,
        "brokerId": broker_id,
        "beganAt": moment_text(outage.began_at),
        "beginKnown": outage.is_begin_known,
        "endedAt": moment_text(outage.ended_at) if outage.ended_at else None,
        "seconds": outage.seconds,
        "planned": outage.is_planned,
        "plannedSeconds": outage.planned_seconds,
        "newProcess": outage.has_new_process,
    }
