"""The public format of a history row, and which lines are rows of it. The report's Spark jobs have the same rules."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import NoneType
from typing import Any

Row = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

SCHEMA_VERSION = 2
FIELDS: Mapping[str, str] = {
    "schema_version": "int",
    "event_at": "text",
    "uptime_ms": "long",
    "event": "text",
    "reason": "text",
    "node": "text",
    "boot_id": "text",
    "seq": "long",
    "cluster": "text",
    "broker_name": "text",
    "broker_id": "long",
    "broker_addr": "text",
    "zone": "text",
    "host": "text",
    "incarnation": "text",
    "generation": "text",
    "broker_version": "text",
    "data_version": "text",
    "interval_ms": "long",
    "state": "text",
    "since_ms": "long",
    "planned": "bool",
    "detail": "text",
}
"""The fields of a row and their types; ``registration_event.schema.json`` of the report describes each."""

REQUIRED = ("schema_version", "event_at", "event", "node", "boot_id", "seq")
ABOUT_A_REPLICA = (
    *("REGISTERED", "REREGISTERED", "ROLE_CHANGED", "ADDRESS_CHANGED", "RESTARTED", "RECOVERED"),
    *("EXPIRED", "PROBE_FAILED", "UNREGISTERED", "PROTECTED", "SUSPECTED"),
    *("LATE_HEARTBEAT", "HEARTBEAT", "HEARTBEATS", "QUEUE_STATS"),
)
MAY_BE_ABOUT_ONE = ("CHECKPOINT", "TOPICS")
STATES = ("PROVISIONAL", "UP", "SUSPECT", "PROTECTED", "OUT", "GONE")
NOT_ROUTED = frozenset({"OUT", "GONE"})
"""States of a registered replica with a failing probe, and of a removed one."""

ROUTINE = ("HEARTBEAT", "HEARTBEATS", "QUEUE_STATS", "NAMESRV_ALIVE", "KV_CHANGED", "BROKER_DATA_CHANGED")
"""Events that do not affect routes. They show that a run continues, so they are counted but not returned."""
REPEATED = ("CHECKPOINT", "TOPICS")
"""Events that repeat or complete what other rows about a broker say."""

ROW_TIME = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:\d{2})$"
EVENT = "^[A-Z_]+$"

_TIME, _EVENT = re.compile(ROW_TIME), re.compile(EVENT)
_SPACE = " \t\r\n"
_NO_FIELDS = dict.fromkeys(FIELDS)
_INTEGERS, _LONGS, _FLAGS, _TEXTS = (
    tuple(name for name, kind in FIELDS.items() if kind == wanted) for wanted in ("int", "long", "bool", "text")
)


def good_row(line: str) -> Row | None:
    """Return the row of a line, with its day ``dt`` and its time ``at`` (microseconds since 1970).

    None if the line is not a history row. ``detail`` is an object if the line has one.
    """
    text = line.strip(_SPACE)
    if not text.startswith("{"):
        return None
    try:
        row: Row = _NO_FIELDS | json.loads(text)
    except (ValueError, RecursionError):
        return None
    return row if _is_typed(row) and _is_good(row) else None


def as_text(value: object) -> str:
    """Return a value of JSON as the text that Spark makes of it."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def detail_of(row: Row) -> dict[str, Any]:
    """Return the detail of a row as an object; empty if it is none."""
    found = row["detail"]
    try:
        found = json.loads(found) if isinstance(found, str) else found
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def moment_of(value: int) -> datetime:
    """Return the time of microseconds since 1970."""
    return EPOCH + timedelta(microseconds=value)


def microseconds(moment: datetime) -> int:
    """Return microseconds since 1970."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def _is_typed(row: Row) -> bool:
    for names, bound in ((_INTEGERS, 2**31), (_LONGS, 2**63)):
        for name in names:
            value = row[name]
            if value is not None and (type(value) is not int or not -bound <= value < bound):
                return False
    for name in _FLAGS:
        if type(row[name]) not in (bool, NoneType):
            return False
    for name in _TEXTS:
        value = row[name]
        # Few rows of a kind need their detail as text.
        if value is not None and type(value) is not str and name != "detail":
            row[name] = as_text(value)
    return True


def _is_good(row: Row) -> bool:
    """Whether a typed row is one of history; adds ``dt`` and ``at``."""
    if None in (row[name] for name in REQUIRED) or row["schema_version"] != SCHEMA_VERSION or row["seq"] < 1:
        return False
    at, event = _moment(row["event_at"]), row["event"]
    if at is None or not _EVENT.fullmatch(event):
        return False
    about_one = event in ABOUT_A_REPLICA
    if about_one and any(row[name] is None for name in ("cluster", "broker_name", "broker_id")):
        return False
    has_state = about_one or (event in MAY_BE_ABOUT_ONE and row["broker_id"] is not None)
    if has_state and row["state"] not in STATES:
        return False
    row["dt"], row["at"] = at.date(), microseconds(at)
    return True


def _moment(text: str) -> datetime | None:
    if not _TIME.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
