"""The rows of history that a question about one topic needs: those of the brokers that had it, no others.

They come from a warehouse, or from the name servers' files as they are.
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
from pointsman_report.transforms.observer_windows import MOST_GAPS

Group = tuple[str, str]
"""A cluster and a broker name."""
Queues = tuple[int, int, int]
"""Read queues, write queues, permission."""

NOT_ROUTED = frozenset({"OUT", "GONE"})
"""States of a replica that is registered with a failing probe, and of one that left."""

SILENT_AFTER = timedelta(seconds=150)
"""A name server writes a row a minute."""
_TOPICS = struct(
    part=INT,
    parts=INT,
    full=BOOL,
    base=TEXT,
    topics=T.MapType(TEXT, T.ArrayType(T.IntegerType())),
    removed=T.ArrayType(TEXT),
)
ROUTINE = ("HEARTBEAT", "HEARTBEATS", "QUEUE_STATS", "NAMESRV_ALIVE", "KV_CHANGED")
"""Rows that bear on no route; they show that a life went on, so they are counted, not collected."""
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
    """What a TOPICS row says of the one topic."""

    part: int
    parts: int
    full: bool
    base: str | None
    queues: Queues | None
    removed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
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
        """Whether the replica that the row is about is in the routes."""
        return self.state not in NOT_ROUTED

    @property
    def state_since(self) -> datetime | None:
        """Since when the replica is in this state; None where a restart of the name server forgot it."""
        return None if self.since_ms is None else self.at - timedelta(milliseconds=self.since_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One life of one name server, as far as the rows up to a moment show it."""

    node: str
    boot_id: str
    first_at: datetime
    last_at: datetime
    """Of the rows up to that moment."""
    goes_on: bool
    """Whether it wrote a row after it."""
    missing: int = 0
    """Rows up to that moment that were numbered and are not there."""
    started_at: datetime | None = None
    ready_at: datetime | None = None
    draining_at: datetime | None = None
    stopped_at: datetime | None = None

    def watched(self, at: datetime) -> bool:
        """Whether it answered at that moment."""
        if self.first_at > at or (self.stopped_at is not None and self.stopped_at <= at):
            return False
        return self.goes_on or at - self.last_at <= SILENT_AFTER

    def state(self, at: datetime) -> str:
        """WARMING, READY or DRAINING."""
        if self.started_at is not None and (self.ready_at is None or self.ready_at > at):
            return "WARMING"
        return "DRAINING" if self.draining_at is not None and self.draining_at <= at else "READY"


@dataclass(frozen=True, slots=True)
class Story:
    """What was told of a topic."""

    lives: list[Life]
    rows: list[Told]
    """By time, and each life's in its own order."""
    last_row_at: datetime | None
    """Of all rows that were read, about whomever; None where there were none."""


def told_of(
    events: DataFrame,
    topic: str,
    *,
    at: datetime,
    until: datetime,
    cluster: str | None,
    windows: DataFrame | None = None,
) -> Story:
    """Collect what the history tells of a topic's brokers up to ``until``, and which name servers lived at ``at``.

    ``windows``: the days' ``observer_windows``, which know what was lost from what ``compact`` dropped.
    """
    lean = _lean(events.filter(F.col("event_at") <= F.lit(until)), topic).persist()
    try:
        lives = [row.asDict() for row in _lives(lean, windows, at=at).collect()]
        rows = [_told(row.asDict(recursive=True)) for row in _rows(lean, cluster).collect()]
    finally:
        lean.unpersist()
    ends = [life.pop("end_at") for life in lives]
    begun = [_life(life) for life in lives if life["last_at"] is not None]
    return Story(
        sorted(begun, key=lambda life: (life.node, life.first_at, life.boot_id)),
        sorted(rows, key=lambda row: (row.at, row.node, row.boot_id, row.seq)),
        moment_of(max(ends, default=None)),
    )


def days_before(at: datetime) -> tuple[date, date]:
    """The days to read: a day begins with all there is, but a name server may have been off then."""
    day = at.astimezone(UTC).date()
    return day - timedelta(days=1), day


def _lean(events: DataFrame, topic: str) -> DataFrame:
    """Rows without what they say of other topics."""
    is_set = F.col("event") == "TOPICS"
    at = F.unix_micros("event_at").alias("at")
    # As a generator: a detail is long, and would else be parsed once for each field.
    parsed = F.inline(F.array(F.when(is_set, F.from_json("detail", _TOPICS))))
    rows = events.select(at, *_FIELDS, "detail", parsed)
    said = F.struct(
        "part",
        "parts",
        "full",
        "base",
        F.try_element_at("topics", F.lit(topic)).alias("queues"),
        F.coalesce(F.array_contains("removed", topic), F.lit(False)).alias("removed"),
    )
    no_text = is_set | F.col("event").isin(*ROUTINE)
    return rows.select(
        "at", *_FIELDS, F.when(~no_text, F.col("detail")).alias("detail"), F.when(is_set, said).alias("said")
    )


def _lives(lean: DataFrame, windows: DataFrame | None, *, at: datetime) -> DataFrame:
    heard = F.col("at") <= F.lit(microseconds(at))

    def first_of(event: str) -> Column:
        return F.min(F.when(F.col("event") == event, F.col("at")))

    seqs = F.when(heard, F.col("seq"))
    lives = lean.groupBy(*OBSERVER).agg(
        F.min("at").alias("first_at"),
        F.max(F.when(heard, F.col("at"))).alias("last_at"),
        F.max("at").alias("end_at"),
        F.bool_or(~heard).alias("goes_on"),
        (F.max(seqs) - F.min(seqs) + 1 - F.count(seqs)).alias("missing"),
        F.max(seqs).alias("last_seq"),
        first_of("NAMESRV_STARTED").alias("started_at"),
        first_of("NAMESRV_READY").alias("ready_at"),
        first_of("NAMESRV_DRAINING").alias("draining_at"),
        first_of("NAMESRV_STOPPED").alias("stopped_at"),
    )
    return (lives if windows is None else _without_dropped(lives, windows)).drop("last_seq")


def _without_dropped(lives: DataFrame, windows: DataFrame) -> DataFrame:
    """Of what is not there count as missing only what never arrived."""
    whole = F.size("gaps") < MOST_GAPS
    gaps = windows.groupBy(*OBSERVER).agg(
        F.flatten(F.collect_list("gaps")).alias("gaps"), F.bool_and(whole).alias("whole")
    )
    heard = F.filter("gaps", lambda gap: gap["from_seq"] < F.col("last_seq"))
    lost = F.aggregate(heard, F.lit(0).cast("long"), lambda sum_, gap: sum_ + gap["to_seq"] - gap["from_seq"] + 1)
    known = lives.join(gaps, on=list(OBSERVER), how="left")
    # A day may have got rows since its windows were computed; least() skips a null.
    return known.withColumn("missing", F.least("missing", F.when(F.col("whole"), lost))).drop("gaps", "whole")


def _rows(lean: DataFrame, cluster: str | None) -> DataFrame:
    of_cluster = F.lit(True) if cluster is None else F.col("cluster") == cluster
    mentions = F.col("said.queues").isNotNull() | F.coalesce(F.col("said.removed"), F.lit(False))
    groups = lean.filter(mentions & of_cluster).select("cluster", "broker_name").distinct()
    rows = lean.filter(~F.col("event").isin(*ROUTINE))
    of_groups = rows.join(groups, on=["cluster", "broker_name"], how="left_semi")
    whole = rows.filter(F.col("broker_name").isNull())
    of_clusters = whole.join(groups.select("cluster").distinct(), on="cluster", how="left_semi")
    of_nobody = whole.filter(F.col("cluster").isNull() & F.col("event").startswith("NAMESRV_"))
    return of_groups.unionByName(of_clusters).unionByName(of_nobody)


def microseconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def moment_of(value: int | None) -> datetime | None:
    return None if value is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)


def _life(row: dict[str, Any]) -> Life:
    facts: dict[str, Any] = {name: moment_of(value) if name.endswith("_at") else value for name, value in row.items()}
    return Life(**facts)


def _told(row: dict[str, Any]) -> Told:
    at, detail, said = moment_of(row.pop("at")), row.pop("detail"), row.pop("said")
    assert at is not None  # noqa: S101  # every row of history has a time
    return Told(at=at, detail=_object(detail), set=_set(said), **row)


def _object(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _set(said: dict[str, Any] | None) -> Set | None:
    if said is None or said["full"] is None or None in (said["part"], said["parts"]):
        return None
    queues = said["queues"]
    usable = queues is not None and len(queues) >= 3 and None not in queues[:3]
    return Set(**{**said, "queues": tuple(queues[:3]) if usable else None})


@dataclass(frozen=True, slots=True)
class Source:
    """One of the two. Files are read for the one question and nothing is written: so an hour ago can be asked about."""

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
        """Rows of ``observer_windows``; None where no report has computed any."""
        if self.warehouse is None:
            return None
        return self.warehouse.read("observer_windows", first_day=first_day, last_day=last_day)

    def incidents(self, first_day: date, last_day: date) -> DataFrame | None:
        """Rows of ``incidents``; None where no report has looked for any."""
        if self.warehouse is None:
            return None
        return self.warehouse.read("incidents", first_day=first_day, last_day=last_day)

    def _tables(self) -> Warehouse:
        if self.warehouse is None:
            raise ValueError("a source is a warehouse or a history")
        return self.warehouse
