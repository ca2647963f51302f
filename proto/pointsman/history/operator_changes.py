"""What operators changed, from rows of the history: the setting, its old and new value, and the command that undoes it.

A row of an operator has ``detail.by``. Those of earlier releases have no ``detail.before``: then the old value is not
known, except where the change itself names it.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pointsman import address_list
from pointsman.history.row_format import Row, detail_of

CHANGES = frozenset(
    {
        *("KV_CHANGED", "PERM_CHANGED", "TOPIC_DELETED", "GUARD_ON", "GUARD_OFF"),
        *("MAINTENANCE_ON", "MAINTENANCE_OFF", "NAMESRV_DRAINING", "UNREGISTERED", "BROKER_DATA_CHANGED"),
    }
)
"""Events that an operator may cause."""
ORDER_TOPIC_NAMESPACE = "ORDER_TOPIC_CONFIG"


@dataclass(frozen=True, slots=True)
class OperatorChange:
    """One change; of a value that is too long or hidden the history has ``length`` and ``sha256``."""

    event_at: str
    """RFC 3339, UTC."""
    boot_id: str
    seq: int
    event: str
    cluster: str | None
    broker_name: str | None
    broker_id: int | None
    what: str
    """The setting that changed."""
    by: str
    claimed_by: str | None
    """Who the request says that its author is, if that differs from the authenticated ``by``."""
    after: Any
    """The new value; None: there is none."""
    before: Any
    """The old value; None: there was none, or it is not known."""
    is_before_known: bool
    undo: str | None
    """The command that restores the old value; None: there is none, or the old value is not known."""

    def as_dict(self) -> dict[str, Any]:
        """Return the change as JSON."""
        return {
            "event_at": self.event_at,
            "boot_id": self.boot_id,
            "seq": self.seq,
            "event": self.event,
            "cluster": self.cluster,
            "broker_name": self.broker_name,
            "broker_id": self.broker_id,
            "what": self.what,
            "by": self.by,
            "claimed_by": self.claimed_by,
            "after": self.after,
            "before": self.before,
            "before_known": self.is_before_known,
            "undo": self.undo,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> OperatorChange:
        """Read what `as_dict` returns."""
        facts = {name: value for name, value in document.items() if name != "before_known"}
        return cls(**facts, is_before_known=document["before_known"])


def operator_change(row: Row) -> OperatorChange | None:
    """Return the change that a row records; None if no operator caused it."""
    detail = detail_of(row)
    by = detail.get("by")
    if row["event"] not in CHANGES or not isinstance(by, str):
        return None
    what, after, before, undo = _described(row, detail)
    claimed = detail.get("claimed_by")
    return OperatorChange(
        event_at=row["event_at"],
        boot_id=row["boot_id"],
        seq=row["seq"],
        event=row["event"],
        cluster=row["cluster"],
        broker_name=row["broker_name"],
        broker_id=row["broker_id"],
        what=what,
        by=by,
        claimed_by=claimed if isinstance(claimed, str) else None,
        after=after,
        before=None if before is _UNKNOWN else before,
        is_before_known=before is not _UNKNOWN,
        undo=undo,
    )


_UNKNOWN: Any = object()


def _described(row: Row, detail: Mapping[str, Any]) -> tuple[str, Any, Any, str | None]:
    """Return the setting, its new and old value, and the command that undoes the change."""
    before = detail.get("before", _UNKNOWN)
    cluster, name = row["cluster"] or "", row["broker_name"] or ""
    match row["event"]:
        case "KV_CHANGED":
            namespace, key = str(detail.get("namespace")), str(detail.get("key"))
            what = f"order topic {key}" if namespace == ORDER_TOPIC_NAMESPACE else f"key {key} of {namespace}"
            undo = None if detail.get("followed") is True else _undo_kv(namespace, key, before)
            return what, detail.get("value"), before, undo
        case "PERM_CHANGED":
            writable = detail.get("writable") is True
            command = "wipe-write-perm" if writable else "add-write-perm"
            return (
                "write permission",
                writable,
                not writable,
                _command(command, arguments=[name], options={"--cluster": cluster}),
            )
        case "GUARD_ON" | "GUARD_OFF":
            after = {key: detail[key] for key in ("mode", "seconds") if key in detail}
            return "guard", after, before, _undo_guard(cluster, before)
        case "MAINTENANCE_ON" | "MAINTENANCE_OFF":
            is_on = row["event"] == "MAINTENANCE_ON"
            window = {key: detail[key] for key in ("seconds", "note") if key in detail}
            target = f"{cluster}/{name}" if name else cluster
            return "maintenance window", window if is_on else None, before, _undo_maintenance(target, before)
        case "NAMESRV_DRAINING":
            draining = detail.get("draining") is True
            return "drain", draining, not draining, _command("drain", *(["--undo"] if draining else []))
        case "TOPIC_DELETED":
            return f"topic {detail.get('topic')}", None, _UNKNOWN, None
        case "BROKER_DATA_CHANGED":
            undo = detail.get("undo")
            return str(detail.get("what")), detail.get("after"), before, undo if isinstance(undo, str) else None
        case _:
            return "registration", None, _UNKNOWN, None


def _command(*words: str, arguments: Sequence[str] = (), options: Mapping[str, str] | None = None) -> str:
    """Return a command; arguments and values of options that begin with a dash are written so that they are none."""
    given = options or {}
    if any(each.startswith("-") for each in (*arguments, *given.values())):
        joined = (f"{name}={value}" for name, value in given.items())
        return shlex.join(("pointsmanctl", *words, *joined, *(["--", *arguments] if arguments else [])))
    return shlex.join(("pointsmanctl", *words, *arguments, *(each for option in given.items() for each in option)))


def _undo_kv(namespace: str, key: str, before: object) -> str | None:
    is_order = namespace == ORDER_TOPIC_NAMESPACE
    unit = address_list.unit_of(key) if namespace == address_list.NAMESPACE else None
    if unit is not None and isinstance(before, str):
        addrs = address_list.to_addrs(before)
        return _command("nsaddr", "set", arguments=addrs, options={"--unit": unit} if unit else {})
    if before is None:
        if is_order:
            return _command("order-topic", "remove", arguments=[key])
        return _command("kv", "delete", arguments=[namespace, key])
    if not isinstance(before, str):
        return None
    if is_order:
        return _command("order-topic", "set", arguments=[key, before])
    return _command("kv", "put", arguments=[namespace, key, before])


def _undo_guard(cluster: str, before: object) -> str | None:
    if not isinstance(before, Mapping) or not isinstance(before.get("mode"), str):
        return None
    return _command("guard", before["mode"].lower(), options={"--cluster": cluster, **_for(before)})


def _undo_maintenance(target: str, before: object) -> str | None:
    if before is None:
        return _command("maintenance", "off", arguments=[target])
    if not isinstance(before, Mapping) or not _for(before):
        return None
    note = before.get("note")
    options = _for(before) | ({"--note": note} if isinstance(note, str) else {})
    return _command("maintenance", "on", arguments=[target], options=options)


def _for(before: Mapping[str, object]) -> dict[str, str]:
    """Return the option for the time that was left when the change was made."""
    seconds = before.get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0:
        return {}
    return {"--for": f"{math.ceil(seconds)}s"}
