"""The history of one topic: the rows of the brokers that had it, and the runs of the name servers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from pointsman.history.row_format import NOT_ROUTED, Row, detail_of, moment_of
from pointsman.history.topic_selection import ROW_FIELDS, ObserverRows, TopicRows

Group = tuple[str, str]
"""A cluster and a broker name."""
Queues = tuple[int, int, int]
"""Read queues, write queues, permission."""

TOLERANCE = timedelta(milliseconds=10)
"""Two rows may differ by this on when a state began."""
SILENT_AFTER = timedelta(seconds=150)
"""A name server writes a row every minute."""
SILENT_INTERVALS = 3
"""A silence longer than this number of NAMESRV_ALIVE intervals means that the run recorded nothing."""


@dataclass(frozen=True, slots=True)
class Set:
    """The entry of the topic in a TOPICS row."""

    part: int
    parts: int
    full: bool
    base: str | None
    queues: Queues | None
    removed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow:
    """One row of history."""

    at: datetime
    event: str
    node: str
    boot_id: str
    seq: int
    reason: str | None = None
    cluster: str | None = None
    broker_name: str | None = None
    broker_id: int | None = None
    broker_addr: str | None = None
    incarnation: str | None = None
    data_version: str | None = None
    interval_ms: int | None = None
    state: str | None = None
    since_ms: int | None = None
    planned: bool | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
    set: Set | None = None

    @property
    def group(self) -> Group:
        return self.cluster or "", self.broker_name or ""

    @property
    def is_routed(self) -> bool:
        """Whether the row's replica is routed."""
        return self.state not in NOT_ROUTED

    @property
    def state_since(self) -> datetime | None:
        """When the replica's state began; None if lost in a restart of the name server."""
        return None if self.since_ms is None else self.at - timedelta(milliseconds=self.since_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerRun:
    """One run of one name server, from its rows up to a moment."""

    node: str
    boot_id: str
    first_at: datetime
    last_at: datetime
    """Time of the last row up to that moment."""
    continues: bool
    """Whether it wrote rows after that moment."""
    missing: int = 0
    """Number of missing rows up to that moment."""
    hole_from_at: datetime | None = None
    hole_to_at: datetime | None = None
    """If the moment is in a hole: the last row before it and the first after it."""
    silent: bool = False
    """Whether it wrote no rows in that hole."""
    started_at: datetime | None = None
    ready_at: datetime | None = None
    draining_at: datetime | None = None
    stopped_at: datetime | None = None

    def watched(self, at: datetime) -> bool:
        """Whether it was running at that moment."""
        if self.first_at > at or (self.stopped_at is not None and self.stopped_at <= at):
            return False
        return self.continues or at - self.last_at <= SILENT_AFTER

    def knows(self, last: HistoryRow, following: HistoryRow | None) -> bool:
        """Whether the state in the last row about a replica before that moment is known to have lasted, by the row that
        follows, as in the report's tables (``transforms.opinions``)."""
        if self.hole_from_at is None or self.hole_to_at is None:
            return True
        if self.silent or following is None or self.hole_from_at.date() < self.hole_to_at.date():
            return False
        agrees = (last.is_routed, bool(last.planned)) == (following.is_routed, bool(following.planned))
        since = following.state_since
        reaches = since is not None and since <= self.hole_from_at + TOLERANCE
        return agrees and reaches and following.event not in {"PROBE_FAILED", "PROTECTED"}

    def state(self, at: datetime) -> str:
        """WARMING, READY or DRAINING."""
        if self.started_at is not None and (self.ready_at is None or self.ready_at > at):
            return "WARMING"
        return "DRAINING" if self.draining_at is not None and self.draining_at <= at else "READY"


@dataclass(frozen=True, slots=True)
class TopicHistory:
    """The rows of a topic's brokers, and the runs of name servers."""

    runs: list[NameServerRun]
    rows: list[HistoryRow]
    """By time; those of each run in order."""
    last_row_at: datetime | None
    """Time of the last row read, of any broker; None if nothing was read."""


class ComputedWindows(Protocol):
    """What is known of a run from elsewhere, such as the tables of computed days."""

    def holes(self, each: ObserverRows) -> set[tuple[int, int]] | None:
        """Return the first and last missing number of each hole of the run; None if they are not known."""

    def alive_seconds(self, each: ObserverRows) -> float | None:
        """Return the interval of its NAMESRV_ALIVE rows; None if it is not known."""


class NoWindows:
    """Nothing but the rows is known."""

    def holes(self, _each: ObserverRows) -> None:
        """Return None: every missing number is a lost row."""

    def alive_seconds(self, _each: ObserverRows) -> None:
        """Return None: only NAMESRV_STARTED states the interval."""


def topic_history_of(found: TopicRows, windows: ComputedWindows | None = None) -> TopicHistory:
    """Return the rows of a topic's brokers by time, and the name servers that were running at the moment."""
    windows = windows or NoWindows()
    rows = sorted(map(_history_row, found.rows), key=lambda row: (row.at, row.node, row.boot_id, row.seq))
    of_name_servers: dict[tuple[str, str], list[HistoryRow]] = defaultdict(list)
    for row in rows:
        if row.event.startswith("NAMESRV_"):
            of_name_servers[row.node, row.boot_id].append(row)
    runs = [_run(each, of_name_servers[each.node, each.boot_id], windows) for each in found.observers if each.rows]
    return TopicHistory(
        sorted(runs, key=lambda run: (run.node, run.first_at, run.boot_id)),
        rows,
        None if not found.observers else moment_of(max(each.end_us for each in found.observers)),
    )


def _run(each: ObserverRows, own: list[HistoryRow], windows: ComputedWindows) -> NameServerRun:
    """The run of a name server up to the moment, from its counts and its NAMESRV rows."""

    def first_of(event: str) -> datetime | None:
        return min((row.at for row in own if row.event == event), default=None)

    assert each.first_seq is not None and each.last_seq is not None and each.last_us is not None  # noqa: PT018, S101
    missing = each.last_seq - each.first_seq + 1 - each.rows
    holes = windows.holes(each)
    if holes is not None:
        listed = sum(to_seq - from_seq + 1 for from_seq, to_seq in holes if from_seq < each.last_seq)
        # Rows may have arrived after the windows were computed.
        missing = min(missing, listed)
    stated = [_seconds(row.detail.get("alive_seconds")) for row in own if row.event == "NAMESRV_STARTED"]
    alive_seconds = max((seconds for seconds in stated if seconds is not None), default=None)
    if alive_seconds is None:
        alive_seconds = windows.alive_seconds(each)
    is_silent = _is_silence(each, alive_seconds)
    is_hole = is_silent or _lost_rows_after(each, holes)
    last_at, next_at = moment_of(each.last_us), None if each.next_us is None else moment_of(each.next_us)
    return NameServerRun(
        node=each.node,
        boot_id=each.boot_id,
        first_at=moment_of(each.first_us),
        last_at=last_at,
        continues=next_at is not None,
        missing=missing,
        hole_from_at=last_at if is_hole else None,
        hole_to_at=next_at if is_hole else None,
        silent=is_silent,
        started_at=first_of("NAMESRV_STARTED"),
        ready_at=first_of("NAMESRV_READY"),
        draining_at=first_of("NAMESRV_DRAINING"),
        stopped_at=first_of("NAMESRV_STOPPED"),
    )


def _lost_rows_after(each: ObserverRows, holes: set[tuple[int, int]] | None) -> bool:
    """Whether rows between the moment and the next row never arrived."""
    if each.last_seq is None or each.next_seq is None or each.next_seq <= each.last_seq + 1:
        return False
    return holes is None or any(each.last_seq < from_seq < each.next_seq for from_seq, _ in holes)


def _is_silence(each: ObserverRows, alive_seconds: float | None) -> bool:
    """Whether the run recorded nothing around the moment; as the report's ``transforms.observer_windows``."""
    if each.last_us is None or each.last_seq is None or each.next_us is None or each.next_seq is None:
        return False
    if not alive_seconds:
        return False
    rows = each.next_seq - each.last_seq
    return each.next_us - each.last_us > rows * round(alive_seconds * 1_000_000) * SILENT_INTERVALS


def _seconds(value: object) -> float | None:
    try:
        return float(str(value))
    except ValueError:
        return None


def _history_row(row: Row) -> HistoryRow:
    facts = {name: row[name] for name in ROW_FIELDS}
    return HistoryRow(at=moment_of(row["at"]), detail=detail_of(row), set=_set(row["entry"]), **facts)


def _set(entry: Mapping[str, Any] | None) -> Set | None:
    if entry is None or entry["full"] is None or None in (entry["part"], entry["parts"]):
        return None
    queues = entry["queues"]
    usable = queues is not None and len(queues) >= 3 and None not in queues[:3]
    return Set(**{**entry, "queues": tuple(queues[:3]) if usable else None})
