"""The rows that a question about one topic needs, chosen from all rows of the days."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pointsman.history.row_format import ROUTINE, Row, as_text, detail_of

ROW_FIELDS = (
    *("event", "reason", "node", "boot_id", "seq", "cluster", "broker_name", "broker_id", "broker_addr"),
    *("incarnation", "data_version", "interval_ms", "state", "since_ms", "planned"),
)
"""The fields of a row that questions need, beside its time and its detail."""
ENTRY_FIELDS = ("part", "parts", "full", "base", "queues", "removed")
"""Of a TOPICS row: its place in the set, and what it says about the one topic."""


@dataclass(frozen=True, slots=True)
class TopicQuestion:
    """A topic at a moment, and the rows to read for it."""

    topic: str
    at: datetime
    first_day: date
    last_day: date
    """All rows of these UTC days are read, those after the moment too: they show whether a run continued."""
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class ObserverRows:
    """The rows of one run of a name server in the days read, counted. Times are microseconds since 1970."""

    node: str
    boot_id: str
    days: frozenset[date]
    """UTC days with rows."""
    first_us: int
    end_us: int
    """First and last row of the days."""
    rows: int
    """Number of rows up to the moment; without any, the fields of these rows are None."""
    last_us: int | None
    first_seq: int | None
    last_seq: int | None
    next_us: int | None
    next_seq: int | None
    """The row with the smallest number after the moment; None if there is none."""

    def joined(self, other: ObserverRows) -> ObserverRows:
        """Return the counts of both; ``other`` has counted other rows of the same run."""
        following = [each for each in (self, other) if each.next_seq is not None]
        return replace(
            min(following, key=lambda each: each.next_seq or 0, default=self),
            days=self.days | other.days,
            first_us=min(self.first_us, other.first_us),
            end_us=max(self.end_us, other.end_us),
            rows=self.rows + other.rows,
            last_us=max(_known(self.last_us, other.last_us), default=None),
            first_seq=min(_known(self.first_seq, other.first_seq), default=None),
            last_seq=max(_known(self.last_seq, other.last_seq), default=None),
        )


@dataclass(frozen=True, slots=True)
class TopicRows:
    """The rows of a topic's brokers, of their clusters and of the name servers' runs, without `ROUTINE`.

    Each has `ROW_FIELDS`, ``at`` (microseconds since 1970), ``detail`` (JSON text; None for TOPICS) and ``entry`` (of
    TOPICS: `ENTRY_FIELDS`).
    """

    rows: list[Row]
    observers: list[ObserverRows]


def days_before(at: datetime) -> tuple[date, date]:
    """The days to read: each day begins with a checkpoint, but a name server may have been down then."""
    day = at.astimezone(UTC).date()
    return day - timedelta(days=1), day


def group_of(row: Row) -> tuple[str | None, str | None]:
    """Return the cluster and broker name of a row."""
    return row["cluster"], row["broker_name"]


def mentions(row: Row, topic: str) -> bool:
    """Return whether a row sets or removes the topic."""
    if row["event"] != "TOPICS":
        return False
    entry = _entry_of(detail_of(row), topic)
    return entry["queues"] is not None or entry["removed"]


def is_of(row: Row, groups: Collection[tuple[str, str]]) -> bool:
    """Return whether a row is about one of the groups, one of their clusters, or a name server."""
    cluster, name = group_of(row)
    if row["event"] in ROUTINE:
        return False
    if name is not None:
        return (cluster, name) in groups
    if cluster is not None:
        return any(cluster == each for each, _ in groups)
    return bool(row["event"].startswith("NAMESRV_"))


def lean(row: Row, topic: str) -> Row:
    """Return a row as `TopicRows` has it: without the entries of other topics."""
    is_set = row["event"] == "TOPICS"
    fields = {name: row[name] for name in ("at", *ROW_FIELDS)}
    if is_set:
        return fields | {"detail": None, "entry": _entry_of(detail_of(row), topic)}
    return fields | {"detail": None if row["detail"] is None else as_text(row["detail"]), "entry": None}


def counted(rows: Iterable[Row], at: int) -> list[ObserverRows]:
    """Count the rows of each run; ``at``: the moment, in microseconds since 1970."""
    runs: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        runs[row["node"], row["boot_id"]].append(row)
    return [_counted(of_run, at) for of_run in runs.values()]


def joined(observers: Iterable[ObserverRows]) -> list[ObserverRows]:
    """Return the counts of each run, of rows that were counted in several places."""
    found: dict[tuple[str, str], ObserverRows] = {}
    for each in observers:
        known = found.get((each.node, each.boot_id))
        found[each.node, each.boot_id] = each if known is None else known.joined(each)
    return list(found.values())


def topic_entry(part: object, parts: object, full: object, base: object, queues: object, *, removed: bool) -> Row:
    """Return what a TOPICS row says about one topic. Fields of the wrong type are null, as Spark reads them."""
    numbers = [each if type(each) is int else None for each in queues] if isinstance(queues, list) else None
    values = (
        part if type(part) is int else None,
        parts if type(parts) is int else None,
        full if isinstance(full, bool) else None,
        base if isinstance(base, str) else None,
        numbers,
        removed,
    )
    return dict(zip(ENTRY_FIELDS, values, strict=True))


def _entry_of(detail: Mapping[str, Any], topic: str) -> Row:
    topics, removed = detail.get("topics"), detail.get("removed")
    return topic_entry(
        detail.get("part"),
        detail.get("parts"),
        detail.get("full"),
        detail.get("base"),
        topics.get(topic) if isinstance(topics, dict) else None,
        removed=isinstance(removed, list) and topic in removed,
    )


def _counted(rows: Collection[Row], at: int) -> ObserverRows:
    before = [row for row in rows if row["at"] <= at]
    following = min((row for row in rows if row["at"] > at), key=lambda row: row["seq"], default=None)
    one = next(iter(rows))
    return ObserverRows(
        one["node"],
        one["boot_id"],
        frozenset(row["dt"] for row in rows),
        first_us=min(row["at"] for row in rows),
        end_us=max(row["at"] for row in rows),
        rows=len(before),
        last_us=max((row["at"] for row in before), default=None),
        first_seq=min((row["seq"] for row in before), default=None),
        last_seq=max((row["seq"] for row in before), default=None),
        next_us=None if following is None else following["at"],
        next_seq=None if following is None else following["seq"],
    )


def _known(*values: int | None) -> list[int]:
    return [value for value in values if value is not None]
