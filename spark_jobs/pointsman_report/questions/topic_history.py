"""The history rows of one topic: only those of the brokers that had it.

They are read from a warehouse, or directly from the name servers' files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pointsman_report.io import History, Warehouse
from pointsman_report.schemas import OBSERVER
from pointsman_report.schemas.table_types import BOOL, INT, TEXT, struct
from pointsman_report.transforms import history_rows
from pointsman_report.transforms.observer_windows import MAX_GAPS, has_missing_rows, is_silence

Group = tuple[str, str]
"""A cluster and a broker name."""
Queues = tuple[int, int, int]
"""Read queues, write queues, permission."""

NOT_ROUTED = frozenset({"OUT", "GONE"})
"""States of a registered replica with a failing probe, and of a removed one."""

TOLERANCE = timedelta(milliseconds=10)
"""Two rows may differ by this on when a state began."""
SILENT_AFTER = timedelta(seconds=150)
"""A name server writes a row every minute."""
_TOPICS = struct(
    part=INT,
    parts=INT,
    full=BOOL,
    base=TEXT,
    topics=T.MapType(TEXT, T.ArrayType(T.IntegerType())),
    removed=T.ArrayType(TEXT),
)
ROUTINE = ("HEARTBEAT", "HEARTBEATS", "QUEUE_STATS", "NAMESRV_ALIVE", "KV_CHANGED")
"""Rows that do not affect routes. They show that a run continues, so they are counted but not collected."""
_FIELDS = (
    "event",
    "reason",
    "node",
    "boot_id",
    "seq",
    "cluster",
    "broker_name",
    "broker_id",
    "broker_addr",
    "incarnation",
    "data_version",
    "interval_ms",
    "state",
    "since_ms",
    "planned",
)


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
        follows, as in the tables (`transforms.opinions`)."""
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


def topic_history_of(
    events: DataFrame,
    topic: str,
    *,
    at: datetime,
    until: datetime,
    cluster: str | None,
    windows: DataFrame | None = None,
) -> TopicHistory:
    """Collect the rows of a topic's brokers up to ``until``, and the name servers running at ``at``.

    ``windows``: the days' ``observer_windows``, which distinguish lost rows from those dropped by ``compact``.
    """
    lean = _lean(events.filter(F.col("event_at") <= F.lit(until)), topic).persist()
    try:
        runs = [row.asDict() for row in _runs(lean, windows, at=at).collect()]
        rows = [_history_row(row.asDict(recursive=True)) for row in _rows(lean, cluster).collect()]
    finally:
        lean.unpersist()
    ends = [run.pop("end_at") for run in runs]
    begun = [_run(run) for run in runs if run["last_at"] is not None]
    return TopicHistory(
        sorted(begun, key=lambda run: (run.node, run.first_at, run.boot_id)),
        sorted(rows, key=lambda row: (row.at, row.node, row.boot_id, row.seq)),
        moment_of(max(ends, default=None)),
    )


def days_before(at: datetime) -> tuple[date, date]:
    """The days to read: each day begins with a checkpoint, but a name server may have been down then."""
    day = at.astimezone(UTC).date()
    return day - timedelta(days=1), day


def _lean(events: DataFrame, topic: str) -> DataFrame:
    """Rows without the entries of other topics."""
    is_set = F.col("event") == "TOPICS"
    at = F.unix_micros("event_at").alias("at")
    # As a generator: a detail is long, and would otherwise be parsed once per field.
    parsed = F.inline(F.array(F.when(is_set, F.from_json("detail", _TOPICS))))
    rows = events.select(at, *_FIELDS, "detail", parsed)
    entry = F.struct(
        "part",
        "parts",
        "full",
        "base",
        F.try_element_at("topics", F.lit(topic)).alias("queues"),
        F.coalesce(F.array_contains("removed", topic), F.lit(False)).alias("removed"),
    )
    no_text = is_set | F.col("event").isin(*ROUTINE)
    return rows.select(
        "at", *_FIELDS, F.when(~no_text, F.col("detail")).alias("detail"), F.when(is_set, entry).alias("entry")
    )


def _runs(lean: DataFrame, windows: DataFrame | None, *, at: datetime) -> DataFrame:
    up_to_moment = F.col("at") <= F.lit(microseconds(at))

    def first_of(event: str) -> Column:
        return F.min(F.when(F.col("event") == event, F.col("at")))

    seqs = F.when(up_to_moment, F.col("seq"))
    stated = F.get_json_object("detail", "$.alive_seconds").try_cast("double")
    runs = lean.groupBy(*OBSERVER).agg(
        F.min_by(F.struct("at", "seq"), F.when(~up_to_moment, F.col("seq"))).alias("next"),
        F.max(F.when(F.col("event") == "NAMESRV_STARTED", stated)).alias("alive_seconds"),
        F.min("at").alias("first_at"),
        F.max(F.when(up_to_moment, F.col("at"))).alias("last_at"),
        F.max("at").alias("end_at"),
        F.bool_or(~up_to_moment).alias("continues"),
        (F.max(seqs) - F.min(seqs) + 1 - F.count(seqs)).alias("missing"),
        F.max(seqs).alias("last_seq"),
        first_of("NAMESRV_STARTED").alias("started_at"),
        first_of("NAMESRV_READY").alias("ready_at"),
        first_of("NAMESRV_DRAINING").alias("draining_at"),
        first_of("NAMESRV_STOPPED").alias("stopped_at"),
    )
    known = runs.withColumn("is_listed", F.lit(True)) if windows is None else _without_dropped(runs, windows)
    return _with_hole(known).drop("last_seq", "next", "alive_seconds", "is_listed")


def _with_hole(runs: DataFrame) -> DataFrame:
    """Add the hole between the last row up to the moment and the next one."""
    hole = F.struct(
        (F.col("last_seq") + 1).alias("from_seq"),
        (F.col("next.seq") - 1).alias("to_seq"),
        F.timestamp_micros("last_at").alias("after_at"),
        F.timestamp_micros("next.at").alias("before_at"),
    )
    alive_us = F.round(F.col("alive_seconds") * 1_000_000).cast("long")
    silent = F.coalesce(is_silence(hole, alive_us), F.lit(False))
    missing = F.coalesce(has_missing_rows(hole) & F.col("is_listed"), F.lit(False))
    return runs.withColumns(
        {
            "hole_from_at": F.when(missing | silent, F.col("last_at")),
            "hole_to_at": F.when(missing | silent, F.col("next.at")),
            "silent": silent,
        }
    )


def _without_dropped(runs: DataFrame, windows: DataFrame) -> DataFrame:
    """Count only rows that never arrived as missing, not those dropped by ``compact``."""
    whole = F.size("gaps") < MAX_GAPS
    gaps = windows.groupBy(*OBSERVER).agg(
        # A hole over midnight is listed on both days.
        F.array_distinct(F.flatten(F.collect_list("gaps"))).alias("gaps"),
        F.bool_and(whole).alias("whole"),
        F.max("alive_seconds").alias("computed_alive_seconds"),
    )
    up_to_moment = F.filter("gaps", lambda gap: gap["from_seq"] < F.col("last_seq"))
    lost = F.aggregate(
        up_to_moment, F.lit(0).cast("long"), lambda sum_, gap: sum_ + gap["to_seq"] - gap["from_seq"] + 1
    )
    known = runs.join(gaps, on=list(OBSERVER), how="left")
    # Rows may have arrived after the windows were computed; least() skips nulls.
    listed = F.exists("gaps", lambda gap: gap["from_seq"].between(F.col("last_seq") + 1, F.col("next.seq") - 1))
    return known.withColumns(
        {
            "missing": F.least("missing", F.when(F.col("whole"), lost)),
            "is_listed": F.coalesce(listed | ~F.col("whole"), F.lit(True)),
            "alive_seconds": F.coalesce("alive_seconds", "computed_alive_seconds"),
        }
    ).drop("gaps", "whole", "computed_alive_seconds")


def _rows(lean: DataFrame, cluster: str | None) -> DataFrame:
    of_cluster = F.lit(True) if cluster is None else F.col("cluster") == cluster
    mentions = F.col("entry.queues").isNotNull() | F.coalesce(F.col("entry.removed"), F.lit(False))
    groups = lean.filter(mentions & of_cluster).select("cluster", "broker_name").distinct()
    rows = lean.filter(~F.col("event").isin(*ROUTINE))
    of_groups = rows.join(groups, on=["cluster", "broker_name"], how="left_semi")
    whole = rows.filter(F.col("broker_name").isNull())
    of_clusters = whole.join(groups.select("cluster").distinct(), on="cluster", how="left_semi")
    of_name_servers = whole.filter(F.col("cluster").isNull() & F.col("event").startswith("NAMESRV_"))
    return of_groups.unionByName(of_clusters).unionByName(of_name_servers)


def microseconds(moment: datetime) -> int:
    """Return microseconds since 1970."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def moment_of(value: int | None) -> datetime | None:
    """Return the time of microseconds since 1970."""
    return None if value is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)


def _run(row: dict[str, Any]) -> NameServerRun:
    facts: dict[str, Any] = {name: moment_of(value) if name.endswith("_at") else value for name, value in row.items()}
    return NameServerRun(**facts)


def _history_row(row: dict[str, Any]) -> HistoryRow:
    at, detail, entry = moment_of(row.pop("at")), row.pop("detail"), row.pop("entry")
    assert at is not None  # noqa: S101  # every row of history has a time
    return HistoryRow(at=at, detail=_object(detail), set=_set(entry), **row)


def _object(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _set(entry: dict[str, Any] | None) -> Set | None:
    if entry is None or entry["full"] is None or None in (entry["part"], entry["parts"]):
        return None
    queues = entry["queues"]
    usable = queues is not None and len(queues) >= 3 and None not in queues[:3]
    return Set(**{**entry, "queues": tuple(queues[:3]) if usable else None})


@dataclass(frozen=True, slots=True)
class Source:
    """A warehouse, or history files. Files are read for one query and nothing is written, so the last hour can be
    queried."""

    warehouse: Warehouse | None = None
    history: History | None = None

    @property
    def is_warehouse(self) -> bool:
        return self.warehouse is not None

    def events(self, first_day: date, last_day: date) -> DataFrame:
        """Rows of ``registration_events`` of these days."""
        if self.history is not None:
            parsed = history_rows.parsed_lines(self.history.lines(self.history.files(first_day=first_day)))
            return history_rows.registration_events(parsed, first_day=first_day, last_day=last_day)
        return self._tables().read("registration_events", first_day=first_day, last_day=last_day)

    def windows(self, first_day: date, last_day: date) -> DataFrame | None:
        """Rows of ``observer_windows``; None without a warehouse."""
        if self.warehouse is None:
            return None
        return self.warehouse.read("observer_windows", first_day=first_day, last_day=last_day)

    def incidents(self, first_day: date, last_day: date) -> DataFrame | None:
        """Rows of ``incidents``; None without a warehouse."""
        if self.warehouse is None:
            return None
        return self.warehouse.read("incidents", first_day=first_day, last_day=last_day)

    def _tables(self) -> Warehouse:
        if self.warehouse is None:
            raise ValueError("a source is a warehouse or a history")
        return self.warehouse
