"""Builds raw history: the rows of name servers, and their files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

Row = dict[str, Any]

MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)
"""The start of the day that most tests are about."""


def moment(seconds: float, *, day: int = 0) -> datetime:
    """Seconds after the midnight that begins the tests' day, or a day further on."""
    return MIDNIGHT + timedelta(days=day, seconds=seconds)


def broker(name: str, *, cluster: str = "c1", broker_id: int = 0) -> Row:
    return {
        "cluster": cluster,
        "broker_name": name,
        "broker_id": broker_id,
        "broker_addr": f"{name}:{6379 + broker_id}",
    }


STATE_AFTER = {
    **dict.fromkeys(("REGISTERED", "REREGISTERED", "ROLE_CHANGED", "ADDRESS_CHANGED", "RESTARTED", "RECOVERED"), "UP"),
    **dict.fromkeys(("EXPIRED", "UNREGISTERED"), "GONE"),
    "PROBE_FAILED": "OUT",
    "PROTECTED": "PROTECTED",
    "SUSPECTED": "SUSPECT",
}
REPEATS_STATE = ("LATE_HEARTBEAT", "HEARTBEAT", "HEARTBEATS", "QUEUE_STATS", "TOPICS", "CHECKPOINT")


@dataclass
class NameServer:
    """One life of a name server, writing numbered rows."""

    node: str = "ns1:9876"
    boot_id: str = "b1"
    began_at: datetime = MIDNIGHT
    rows: list[Row] = field(default_factory=list)
    lost: int = 0
    _states: dict[tuple[str, str, int], tuple[str, datetime | None]] = field(default_factory=dict)

    def say(self, event: str, at: datetime, about: Row | None = None, **fields: Any) -> Row:
        """Write a row; ``about`` is a `broker`."""
        row: Row = {
            "schema_version": 2,
            "event_at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "uptime_ms": int((at - self.began_at).total_seconds() * 1000),
            "event": event,
            "node": self.node,
            "boot_id": self.boot_id,
            "seq": len(self.rows) + self.lost + 1,
            "detail": {},
        } | (about or {})
        row |= fields
        row = self._state(row, at) | row
        self.rows.append(row)
        return row

    def _state(self, row: Row, at: datetime) -> Row:
        """The state of the replica at a name server; a row may override it."""
        if row.get("broker_id") is None or row["event"] not in (*STATE_AFTER, *REPEATS_STATE):
            return {}
        key = (row["cluster"], row["broker_name"], row["broker_id"])
        first = "PROVISIONAL" if row.get("reason") == "START" else "UP"
        known, since = self._states.get(key, (first, None))
        state = row.get("state") or STATE_AFTER.get(row["event"], known)
        if state != known or (since is None and row["event"] in STATE_AFTER):
            since = None if row.get("reason") in {"START", "SNAPSHOT"} else at
        self._states[key] = (state, since)
        since_ms = None if since is None else round((at - since).total_seconds() * 1_000)
        return {"state": state, "since_ms": since_ms, "planned": row["event"] == "UNREGISTERED"}

    def lose(self, event: str, at: datetime, about: Row | None = None, **fields: Any) -> None:
        """Number a row that does not arrive."""
        self.rows.remove(self.say(event, at, about, **fields))
        self.lost += 1

    def start(self, at: datetime | None = None) -> NameServer:
        self.began_at = at or self.began_at
        self.say("NAMESRV_STARTED", self.began_at)
        self.say("NAMESRV_READY", self.began_at)
        return self

    def outage(self, about: Row, at: datetime, *, until: datetime | None, reason: str = "SILENCE") -> None:
        self.say("EXPIRED", at, about, reason=reason, interval_ms=2_000)
        if until is not None:
            self.say("REGISTERED", until, about)

    def stop(self, at: datetime) -> None:
        self.say("NAMESRV_STOPPED", at)


def write_history(directory: Path, rows: Iterable[Row], *, packed: bool = False, one_file_a_day: bool = False) -> Path:
    """Write rows as a name server would: a file for each observer and day, packed as several members of a gzip."""
    files: dict[Path, list[str]] = {}
    for row in rows:
        folder = directory / "raw" / f"dt={row['event_at'][:10]}"
        name = "all-1.jsonl" if one_file_a_day else f"{row['node']}-{row['boot_id']}-1.jsonl"
        files.setdefault(folder / name, []).append(json.dumps(row))
    for path, lines in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        content = "".join(f"{line}\n" for line in lines)
        if packed:
            members = content[: len(content) // 2], content[len(content) // 2 :]
            packed_bytes = b"".join(gzip.compress(member.encode()) for member in members)
            path.with_suffix(".jsonl.gz").write_bytes(packed_bytes)
        else:
            path.write_text(content, encoding="utf-8")
    return directory
