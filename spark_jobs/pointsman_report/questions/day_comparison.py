"""``compare``: what got better or worse from one computed day to another, for programs and for operators.

Each list has its twenty most important entries, and their total number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from typing import Any
from zoneinfo import ZoneInfo

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.report.formatting import (
    NO_VALUE,
    broker_label,
    counted,
    duration,
    milliseconds,
    number,
    percent,
    printable,
)
from pointsman_report.report.meanings import WORST_FIRST
from pointsman_report.report.table_rows import key
from pointsman_report.report_errors import ReportError
from pointsman_report.schemas import INSTANCE

Row = dict[str, Any]
Changes = dict[str, dict[str, Row]]
"""By subject and kind of change: ``in_all``, and the first ``rows``, each with ``before`` and ``after``."""

WORSE = {
    "clusters": ("worse",),
    "brokers": ("worse",),
    "topics_at_risk": ("new", "worse"),
    "queues": ("new",),
    "name_servers": ("worse",),
}
"""Changes that count as worse. Later heartbeats alone do not: if they do harm, the class of the broker changes."""

_ORDER = ("worse", "new", "later", "better", "earlier", "gone", "otherwise")
MAX_ENTRIES = 20

LESS_AVAILABLE = 0.0001
"""Smaller differences of the availability are ignored."""
LATER, LATER_MS = 1.5, 1_000.0
"""Factor and minimum difference (ms) from which the 99th percentile of heartbeats counts as later."""
LONGER_SECONDS = 60.0
"""Additional time without a writable queue from which a topic counts as worse."""

GOOD_RANK = WORST_FIRST.index("degraded") + 1
"""Rank of all classes that need no attention: changes between them are neither better nor worse."""

NAMESRV = ("starts", "vanished", "pauses", "guard_activations", "rejected", "rows_missing", "rows_dropped")
PROBLEM_COUNTS = ("vanished", "pauses", "guard_activations", "rows_missing", "rows_dropped")
CHURN = ("created", "removed", "queue_changes", "perm_changes")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of day ``other`` with day ``one``."""

    one: date
    other: date
    changes: Changes
    churn: dict[str, dict[str, int]]

    @property
    def got_worse(self) -> dict[str, int]:
        """Number of changes for the worse, by subject."""
        sums = {
            subject: sum(self.changes[subject].get(kind, {}).get("in_all", 0) for kind in kinds)
            for subject, kinds in WORSE.items()
        }
        return {subject: count for subject, count in sums.items() if count}

    @property
    def exit_code(self) -> int:
        """0: nothing got worse."""
        return 1 if self.got_worse else 0

    def as_dict(self) -> dict[str, Any]:
        return {
            "one": self.one.isoformat(),
            "other": self.other.isoformat(),
            "got_worse": self.got_worse,
            "changes": self.changes,
            "topic_churn": self.churn,
        }

    def text(self, zone: ZoneInfo) -> str:  # noqa: ARG002 - whole UTC days
        lines = [f"{self.other} compared with {self.one} (UTC days)", self._headline()]
        for subject, (title, columns) in _SUBJECTS.items():
            for kind in _ORDER:
                found = self.changes[subject].get(kind)
                if found:
                    lines += ["", f"{title}, {kind}: {found['in_all']:,}", *_table(columns, found["rows"])]
                    left_out = found["in_all"] - len(found["rows"])
                    lines += [f"  and {left_out:,} more"] if left_out else []
        lines += ["", "Changes of topic registrations", *_table(_CHURN, self._churn_rows())]
        return "\n".join(lines) + "\n"

    def _headline(self) -> str:
        if not self.got_worse:
            return "no change for the worse"
        return "worse: " + ", ".join(counted(count, *_NAMES[name]) for name, count in self.got_worse.items())

    def _churn_rows(self) -> list[Row]:
        return [{"what": name, **{side: self.churn[side][name] for side in self.churn}} for name in self.churn["after"]]


_NAMES = {
    "clusters": ("cluster", "clusters"),
    "brokers": ("broker", "brokers"),
    "topics_at_risk": ("topic at risk", "topics at risk"),
    "queues": ("finding about queues", "findings about queues"),
    "name_servers": ("name server", "name servers"),
}

TextColumn = tuple[str, Callable[[Row], str]]


def _step(name: str, write: Callable[[Any], str] = str) -> Callable[[Row], str]:
    """One value of both days, or of the only one."""

    def step(row: Row) -> str:
        sides = [row[side] for side in ("before", "after") if row[side] is not None]
        values = [NO_VALUE if side[name] is None else write(side[name]) for side in sides]
        return values[0] if len(set(values)) == 1 else f"{values[0]} \N{RIGHTWARDS ARROW} {values[1]}"

    return step


def _plain(name: str) -> Callable[[Row], str]:
    return lambda row: NO_VALUE if row[name] is None else printable(str(row[name]))


def _side(row: Row) -> Row:
    side: Row = row["after"] or row["before"]
    return side


_RUNS = (("starts", "starts"), ("crashes", "vanished"), ("pauses", "pauses"))
_BROKER: TextColumn = ("broker", lambda row: broker_label(*key(row)))
_SUBJECTS: dict[str, tuple[str, tuple[TextColumn, ...]]] = {
    "clusters": (
        "Clusters",
        (
            ("cluster", _plain("cluster")),
            ("availability", _step("availability", percent)),
            ("downtime", _step("down_seconds", duration)),
            ("outages", _step("outages", number)),
            ("incidents", lambda row: f"{row['incidents_before']} \N{RIGHTWARDS ARROW} {row['incidents_after']}"),
            ("brokers", _step("brokers", number)),
            ("error budget left", _step("budget_left_seconds", duration)),
        ),
    ),
    "brokers": ("Brokers", (_BROKER, ("class", _step("class")), ("outages", _step("down_count", number)))),
    "topics_at_risk": (
        "Topics at risk",
        (
            ("topic", lambda row: printable(f"{row['cluster']}/{row['topic']}")),
            ("worst", _step("worst")),
            ("unwritable", _step("unwritable_seconds", duration)),
            ("no master", _step("no_master_seconds", duration)),
            ("single broker", _step("one_broker_seconds", duration)),
        ),
    ),
    "queues": (
        "Queues",
        (
            ("cluster", _plain("cluster")),
            ("problem and what to do", lambda row: printable(f"{_side(row)['says']} -> {_side(row)['cure']}")),
        ),
    ),
    "name_servers": (
        "Name servers",
        (
            ("node", _plain("node")),
            *((title, _step(name, number)) for title, name in _RUNS),
            ("guard", _step("guard_activations", number)),
            ("rows lost", _step("rows_missing", number)),
            ("rows dropped", _step("rows_dropped", number)),
        ),
    ),
    "heartbeats": (
        "Heartbeats, 99th percentile",
        (_BROKER, ("interval", _step("p99_ms", milliseconds)), ("late", _step("late", number))),
    ),
}
_CHURN: tuple[TextColumn, ...] = (
    ("", lambda row: row["what"].replace("_", " ")),
    ("before", _plain("before")),
    ("after", _plain("after")),
)


def _table(columns: tuple[TextColumn, ...], rows: Iterable[Row]) -> list[str]:
    cells = [[title for title, _ in columns], *([write(row) for _, write in columns] for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(columns))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    ]


def compare(warehouse: Warehouse, one: date, other: date) -> Comparison:
    """Compare ``other`` with ``one``.

    Raises:
        ReportError: a day was not computed.
    """
    missing = sorted({one, other} - warehouse.computed_days())
    if missing:
        named = " and ".join(day.isoformat() for day in missing)
        raise ReportError(
            f"{named} {'was' if len(missing) == 1 else 'were'} not computed: run pointsman-report backfill "
            f"--from {missing[0]} --to {missing[-1]}"
        )
    days = _Days(warehouse, one, other)
    changes: Changes = {
        "clusters": _clusters(days),
        "brokers": _brokers(days),
        "topics_at_risk": _topics_at_risk(days),
        "queues": _queues(days),
        "name_servers": _name_servers(days),
        "heartbeats": _heartbeats(days),
    }
    return Comparison(one, other, changes, _churn(days))


class _Days:
    """The rows of two days of a table."""

    def __init__(self, warehouse: Warehouse, one: date, other: date) -> None:
        self._warehouse = warehouse
        self._one = one
        self._other = other

    def both(self, table: str, keys: tuple[str, ...], values: tuple[str, ...]) -> DataFrame:
        """A row for each key of either day; ``before`` and ``after`` are structs of the values, or null."""
        sides = [
            self._of(table, day).select(*keys, F.struct(*values).alias(name))
            for day, name in ((self._one, "before"), (self._other, "after"))
        ]
        on = [sides[0][key].eqNullSafe(sides[1][key]) for key in keys]
        joined = sides[0].join(sides[1], on=on, how="full")
        return joined.select(*(F.coalesce(sides[0][key], sides[1][key]).alias(key) for key in keys), "before", "after")

    def summed(self, table: str, keys: tuple[str, ...], **sums: Column) -> DataFrame:
        """Sums of either day: columns ``is_after`` and the sums."""
        each = [
            self._of(table, day).select("*", F.lit(is_after).alias("is_after"))
            for day, is_after in ((self._one, False), (self._other, True))
        ]
        named = [column.alias(name) for name, column in sums.items()]
        return each[0].unionByName(each[1]).groupBy(*keys, "is_after").agg(*named)

    def _of(self, table: str, day: date) -> DataFrame:
        return self._warehouse.read(table, first_day=day, last_day=day)


def _kept(rows: DataFrame, change: Column, *order: Column | str) -> dict[str, Row]:
    """The first rows of each kind of change, and their total number, in one query."""
    changed = rows.withColumn("change", change).filter(F.col("change").isNotNull())
    kind = Window.partitionBy("change")
    numbered = changed.withColumns(
        {"place": F.row_number().over(kind.orderBy(*order)), "in_all": F.count("*").over(kind)}
    )
    found: dict[str, Row] = {}
    for row in numbered.filter(F.col("place") <= MAX_ENTRIES).orderBy("change", "place").collect():
        plain = row.asDict(recursive=True)
        entry = found.setdefault(plain["change"], {"in_all": plain["in_all"], "rows": []})
        entry["rows"].append({name: plain[name] for name in plain if name not in ("change", "place", "in_all")})
    return found


def _new_or_gone() -> Column:
    return F.when(F.col("before").isNull(), "new").when(F.col("after").isNull(), "gone")


def _clusters(days: _Days) -> dict[str, Row]:
    facts = ("availability", "down_seconds", "outages", "brokers", "budget_left_seconds")
    health = days.both("cluster_health", ("cluster",), facts)
    incidents = days.summed("incidents", ("cluster",), incidents=F.count("*"))
    of_cluster = incidents.groupBy("cluster").agg(
        *(
            F.coalesce(F.sum(F.when(F.col("is_after") == is_after, F.col("incidents"))), F.lit(0)).alias(name)
            for name, is_after in (("incidents_before", False), ("incidents_after", True))
        )
    )
    counts = ("incidents_before", "incidents_after")
    rows = health.join(of_cluster, on="cluster", how="left").fillna(0, subset=list(counts))
    lost = F.col("before.availability") - F.col("after.availability")
    other_counts = (F.col("before.outages") != F.col("after.outages")) | (F.col(counts[0]) != F.col(counts[1]))
    change = (
        F.when(_new_or_gone().isNotNull(), _new_or_gone())
        .when(lost >= LESS_AVAILABLE, "worse")
        .when(lost <= -LESS_AVAILABLE, "better")
        .when(other_counts, "otherwise")
    )
    seconds = F.abs(F.coalesce("after.down_seconds", F.lit(0.0)) - F.coalesce("before.down_seconds", F.lit(0.0)))
    return _kept(rows, change, seconds.desc(), "cluster")


def _brokers(days: _Days) -> dict[str, Row]:
    rows = days.both("flapping", INSTANCE, ("class", "down_count", "penalty_max"))
    before, after = _rank("before.class"), _rank("after.class")
    change = (
        F.when(_new_or_gone().isNotNull(), _new_or_gone()).when(after < before, "worse").when(after > before, "better")
    )
    return _kept(rows, change, F.least(before, after), F.col("after.penalty_max").desc_nulls_last(), *INSTANCE)


def _rank(name: str) -> Column:
    place = F.array_position(F.array(*map(F.lit, WORST_FIRST)), F.col(name))
    return F.when(F.col(name).isNotNull(), F.when(place > 0, F.least(place - 1, F.lit(GOOD_RANK))).otherwise(GOOD_RANK))


def _topics_at_risk(days: _Days) -> dict[str, Row]:
    facts = ("worst", "unwritable_seconds", "no_master_seconds", "one_broker_seconds", "brokers")
    rows = days.both("topics_at_risk", ("cluster", "topic"), facts)
    longer = F.col("after.unwritable_seconds") - F.col("before.unwritable_seconds")
    change = (
        F.when(_new_or_gone().isNotNull(), _new_or_gone())
        .when(longer >= LONGER_SECONDS, "worse")
        .when(longer <= -LONGER_SECONDS, "better")
    )
    most = [
        F.greatest(F.coalesce(f"after.{name}", F.lit(0.0)), F.coalesce(f"before.{name}", F.lit(0.0)))
        for name in facts[1:4]
    ]
    return _kept(rows, change, *(seconds.desc() for seconds in most), "cluster", "topic")


def _queues(days: _Days) -> dict[str, Row]:
    keys = ("cluster", "kind", "topic", "consumer_group")
    # Another hot queue of the same topic is not a change.
    rows = days.both("hot_queues", keys, ("value", "limit", "says", "cure"))
    times = F.try_divide(F.coalesce("after.value", "before.value"), F.coalesce("after.limit", "before.limit"))
    return _kept(rows, _new_or_gone(), times.desc_nulls_last(), *keys)


def _name_servers(days: _Days) -> dict[str, Row]:
    rows = days.both("namesrv_days", ("node",), NAMESRV)
    more = [_count("after", name) > _count("before", name) for name in PROBLEM_COUNTS]
    less = [_count("after", name) < _count("before", name) for name in PROBLEM_COUNTS]
    differs = [_count("after", name) != _count("before", name) for name in NAMESRV]
    change = F.when(_new_or_gone().isNotNull(), _new_or_gone()).when(_any(more), "worse").when(_any(less), "better")
    return _kept(rows, change.when(_any(differs), "otherwise"), "node")


def _count(side: str, name: str) -> Column:
    return F.coalesce(F.col(f"{side}.{name}"), F.lit(0))


def _any(conditions: list[Column]) -> Column:
    return F.array_contains(F.array(*conditions), F.lit(True))


def _heartbeats(days: _Days) -> dict[str, Row]:
    rows = days.both("heartbeat_punctuality", INSTANCE, ("p99_ms", "p50_ms", "late", "beats"))
    before, after = F.col("before.p99_ms"), F.col("after.p99_ms")
    change = F.when((after >= before * LATER) & (after - before >= LATER_MS), "later").when(
        (before >= after * LATER) & (before - after >= LATER_MS), "earlier"
    )
    return _kept(rows, change, F.abs(after - before).desc(), *INSTANCE)


def _churn(days: _Days) -> dict[str, dict[str, int]]:
    sums = days.summed("topic_churn", (), **{name: F.coalesce(F.sum(name), F.lit(0)) for name in CHURN})
    found = {name: dict.fromkeys(CHURN, 0) for name in ("before", "after")}
    for row in sums.collect():
        found["after" if row["is_after"] else "before"] = {name: row[name] for name in CHURN}
    return found
