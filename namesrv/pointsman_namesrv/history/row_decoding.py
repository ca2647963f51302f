"""Convert a row of the history back to its event: the reverse of :mod:`pointsman_namesrv.history.row`.

Rows with topics are not decoded: their content is large, and no reader of events needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime

from pointsman_namesrv.core.events import BrokerFacts, Event, EventKind
from pointsman_namesrv.core.model import BrokerIdentity, DataVersion, GroupKey, Reason
from pointsman_namesrv.core.replica_state import Phase, ReplicaState
from pointsman_namesrv.history.row import SCHEMA_VERSION, Record


class RowInvalid(ValueError):
    """A row that is not one of this program and its schema version."""


def to_record(row: Mapping[str, object], *, run: int) -> Record:
    """Return the record of a row that the run ``run`` wrote. Raises RowInvalid."""
    try:
        if row["schema_version"] != SCHEMA_VERSION:
            raise RowInvalid(f"has schema version {row['schema_version']!r}, not {SCHEMA_VERSION}")
        return Record(
            event=_event(row),
            event_at=datetime.fromisoformat(_text(row, "event_at")),
            uptime_ms=_number(row, "uptime_ms"),
            seq=_number(row, "seq"),
            run=run,
            boot_id=_name(row, "boot_id"),
            node=_name(row, "node"),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RowInvalid(str(error)) from error


def _event(row: Mapping[str, object]) -> Event:
    reason = None if row["reason"] is None else Reason(_text(row, "reason"))
    detail = row["detail"]
    if not isinstance(detail, dict):
        raise RowInvalid("detail is not an object")
    broker = None if row["state"] is None else _broker(row, reason)
    group = None
    if broker is None and row["cluster"] is not None:
        group = GroupKey(_name(row, "cluster"), "" if row["broker_name"] is None else _name(row, "broker_name"))
    interval = row["interval_ms"]
    return Event(
        kind=EventKind(_text(row, "event")),
        reason=reason,
        broker=broker,
        group=group,
        interval=None if interval is None else _number(row, "interval_ms") / 1000,
        detail=detail,
    )


def _broker(row: Mapping[str, object], reason: Reason | None) -> BrokerFacts:
    identity = BrokerIdentity(
        _name(row, "cluster"), _name(row, "broker_name"), _number(row, "broker_id"), _name(row, "broker_addr")
    )
    version = row["data_version"]
    return BrokerFacts(
        identity,
        None if row["generation"] is None else int(_text(row, "generation")),
        None if row["incarnation"] is None else _text(row, "incarnation"),
        _name(row, "zone"),
        _name(row, "host"),
        _name(row, "broker_version"),
        None if version is None else DataVersion(*map(int, _text(row, "data_version").split("."))),
        ReplicaState(Phase(_text(row, "state")), reason, row["planned"] is True),
        None if row["since_ms"] is None else _number(row, "since_ms") / 1000,
    )


def _text(row: Mapping[str, object], field: str) -> str:
    value = row[field]
    if not isinstance(value, str):
        raise RowInvalid(f"{field} is not a string")
    return value


def _name(row: Mapping[str, object], field: str) -> str:
    return sys.intern(_text(row, field))  # one object for all rows with it


def _number(row: Mapping[str, object], field: str) -> int:
    value = row[field]
    if not isinstance(value, int):
        raise RowInvalid(f"{field} is not an integer")
    return value
