"""From an event to a row of the history (design, section 6; the public format, schema version 1)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from namesrv.core.events import Event

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Record:
    """An event with when and in which order it happened."""

    event: Event
    event_at: datetime
    uptime_ms: int
    seq: int
    """Counts from 1 in each boot, taken before the queue: a gap is lost data."""


def to_row(record: Record, *, node: str, boot_id: str) -> dict[str, object]:
    """The row as a JSON object. Fields without meaning for the event are null."""
    event, broker = record.event, record.event.broker
    return {
        "schema_version": SCHEMA_VERSION,
        "event_at": record.event_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "uptime_ms": record.uptime_ms,
        "event": event.kind.value,
        "reason": event.reason.value if event.reason is not None else None,
        "node": node,
        "boot_id": boot_id,
        "seq": record.seq,
        "cluster": broker.identity.cluster if broker else None,
        "broker_name": broker.identity.broker_name if broker else None,
        "broker_id": broker.identity.broker_id if broker else None,
        "broker_addr": broker.identity.addr if broker else None,
        "zone": broker.zone if broker else None,
        "host": broker.host if broker else None,
        "incarnation": broker.incarnation if broker else None,
        # A number of 64 bits: as text, for readers whose numbers are doubles.
        "generation": str(broker.generation) if broker else None,
        "broker_version": broker.broker_version if broker else None,
        "data_version": str(broker.data_version) if broker else None,
        "interval_ms": None if event.interval is None else round(event.interval * 1000),
        "detail": dict(event.detail),
    }


def to_line(record: Record, *, node: str, boot_id: str) -> bytes:
    """The row as one line of a file."""
    return json.dumps(to_row(record, node=node, boot_id=boot_id), ensure_ascii=False).encode() + b"\n"
