"""Convert an event to its rows of the history (design, section 6; the public format, schema version 2)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from pointsman_namesrv.core.events import Event
from pointsman_namesrv.history import topic_rows

SCHEMA_VERSION = 2

RECORD_BYTES = 1_000
ENTRY_BYTES = 120
"""Estimated memory of a record, and of each topic or fact in it; rather more than less."""
SHARED_ENTRY_BYTES = 30
"""A full set is the core's own table, and uses memory only if the core replaces it while the row waits."""


@dataclass(frozen=True, slots=True)
class Record:
    """An event with its time and sequence number."""

    event: Event
    event_at: datetime
    uptime_ms: int
    seq: int
    """Number of the record's first row. Rows count from 1 in each run, before the queue: a gap is lost data."""
    rows: int = 1
    """Number of its rows, numbered from ``seq`` on."""
    run: int = 0
    """The run that recorded it: 0 this one, -1 the one before it, and so on."""
    boot_id: str = ""
    """Names that run in the history; empty: this one."""
    node: str = ""
    """Of a row that was read back: the name server that recorded it."""

    @property
    def order(self) -> tuple[int, int]:
        """Return its place among all records: clocks may be set back, runs and numbers are not."""
        return self.run, self.seq


def row_count(event: Event) -> int:
    """Return the number of rows of an event."""
    return 1 if event.topics is None else topic_rows.row_count(event.topics)


def weight(event: Event) -> int:
    """Return the estimated memory of a queued event, in bytes, without walking over its topics."""
    texts = sum(len(fact) for fact in event.detail.values() if isinstance(fact, str))
    inner = sum(_entries(fact) for fact in event.detail.values() if isinstance(fact, Mapping | list | tuple))
    size = RECORD_BYTES + ENTRY_BYTES * (len(event.detail) + inner) + texts
    if event.topics is not None:
        each = ENTRY_BYTES if event.topics.base is not None else SHARED_ENTRY_BYTES
        size += each * topic_rows.entry_count(event.topics)
    return size


def to_rows(record: Record, *, node: str, boot_id: str) -> Iterator[dict[str, object]]:
    """Return the rows as JSON objects. Fields without meaning for the event are null."""
    event = record.event
    if event.topics is None:
        yield _row(record, event.detail, record.seq, node, boot_id)
        return
    for seq, part in enumerate(topic_rows.spread(event.topics), record.seq):
        yield _row(record, {**event.detail, **part}, seq, node, boot_id)


def to_lines(record: Record, *, node: str, boot_id: str) -> Iterator[bytes]:
    """Return the rows as lines of a file."""
    for row in to_rows(record, node=node, boot_id=boot_id):
        yield json.dumps(row, ensure_ascii=False).encode() + b"\n"


def _entries(facts: Mapping[str, object] | list[object] | tuple[object, ...]) -> int:
    within = () if isinstance(facts, Mapping) else (len(fact) for fact in facts if isinstance(fact, Mapping))
    return len(facts) + sum(within)


def _row(record: Record, detail: Mapping[str, object], seq: int, node: str, boot_id: str) -> dict[str, object]:
    event, broker = record.event, record.event.broker
    group = broker.identity.group_key if broker else event.group
    return {
        "schema_version": SCHEMA_VERSION,
        "event_at": record.event_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "uptime_ms": record.uptime_ms,
        "event": event.kind.value,
        "reason": event.reason.value if event.reason is not None else None,
        "node": node,
        "boot_id": boot_id,
        "seq": seq,
        "cluster": (group.cluster or None) if group else None,
        "broker_name": (group.broker_name or None) if group else None,
        "broker_id": broker.identity.broker_id if broker else None,
        "broker_addr": broker.identity.addr if broker else None,
        "zone": broker.zone if broker else None,
        "host": broker.host if broker else None,
        "incarnation": broker.incarnation if broker else None,
        # A 64-bit number: as a string, for readers whose numbers are doubles.
        "generation": _text(broker.generation) if broker else None,
        "broker_version": broker.broker_version if broker else None,
        "data_version": _text(broker.data_version) if broker else None,
        "interval_ms": _millis(event.interval),
        "state": broker.state.phase.value if broker else None,
        "since_ms": _millis(broker.state_for) if broker else None,
        "planned": broker.state.planned if broker else None,
        "detail": dict(detail),
    }


def _text(value: object | None) -> str | None:
    return None if value is None else str(value)


def _millis(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
