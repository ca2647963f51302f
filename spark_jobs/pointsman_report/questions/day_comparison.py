"""``compare``: what got better or worse from one computed day to another, for programs and for operators.

Each list has its twenty most important entries, and their total number.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from heapq import nsmallest
from itertools import product
from math import inf
from typing import Any
from zoneinfo import ZoneInfo

from pointsman.history.row_format import Row
from pointsman.names import printable
from pointsman_report.io.past import Past
from pointsman_report.questions.text_table import text_table
from pointsman_report.report.formatting import NO_VALUE, broker_label, counted, duration, milliseconds, number, percent
from pointsman_report.report.meanings import WORST_FIRST
from pointsman_report.report.table_rows import key
from pointsman_report.report_errors import ReportError
from pointsman_report.schemas import INSTANCE

Order = tuple[Any, ...]
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
SIDES = ("before", "after")

LESS_AVAILABLE = 0.0001
"""Smaller differences of the availability are ignored."""
LATER, LATER_MS = 1.5, 1_000.0
"""Factor and minimum difference (ms) from which the 99th percentile of heartbeats counts as later."""
LONGER_SECONDS = 60.0
"""Additional time without a writable queue from which a topic counts as worse."""

GOOD_RANK = WORST_FIRST.index("degraded") + 1
"""Rank of all classes that need no attention: changes between them are neither better nor worse."""
_RANKS = {name: min(place, GOOD_RANK) for place, name in enumerate(WORST_FIRST)}

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
                    lines += ["", f"{title}, {kind}: {found['in_all']:,}", *text_table(columns, found["rows"])]
                    left_out = found["in_all"] - len(found["rows"])
                    lines += [f"  and {left_out:,} more"] if left_out else []
        lines += ["", "Changes of topic registrations", *text_table(_CHURN, self._churn_rows())]
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
        sides = [row[side] for side in SIDES if row[side] is not None]
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


def compare(past: Past, one: date, other: date) -> Comparison:
    """Compare ``other`` with ``one``.

    Raises:
        ReportError: a day was not computed.
    """
    missing = sorted(
        day for day in {one, other} if not past.rows("computed_days", ("dt",), first_day=day, last_day=day)
    )
    if missing:
        named = " and ".join(day.isoformat() for day in missing)
        raise ReportError(
            f"{named} {'was' if len(missing) == 1 else 'were'} not computed: run pointsman-report backfill "
            f"--from {missing[0]} --to {missing[-1]}"
        )
    days = _Days(past, one, other)
    changes: Changes = {
        "clusters": _clusters(days),
        "brokers": _brokers(days),
        "topics_at_risk": _topics_at_risk(days),
        "queues": _queues(days),
        "name_servers": _name_servers(days),
        "heartbeats": _heartbeats(days),
    }
    return Comparison(one, other, changes, _churn(days))


@dataclass(frozen=True, slots=True)
class _Days:
    """The rows of two days of a table."""

    past: Past
    one: date
    other: date

    def rows(self, table: str, columns: tuple[str, ...]) -> tuple[list[Row], list[Row]]:
        one, other = (self.past.rows(table, columns, first_day=day, last_day=day) for day in (self.one, self.other))
        return one, other

    def both(self, table: str, keys: tuple[str, ...], values: tuple[str, ...]) -> Iterator[Row]:
        """Yield a row for each key of either day; ``before`` and ``after`` are the values of the days, or None."""
        one: dict[Order, list[Row]] = {}
        other: dict[Order, list[Row]] = {}
        for side, rows in zip((one, other), self.rows(table, (*keys, *values)), strict=True):
            for row in rows:
                side.setdefault(tuple(row[name] for name in keys), []).append({name: row[name] for name in values})
        for found in one | other:
            for before, after in product(one.get(found, [None]), other.get(found, [None])):
                yield {**dict(zip(keys, found, strict=True)), "before": before, "after": after}


def _kept(rows: Iterable[Row], change: Callable[[Row], str | None], order: Callable[[Row], Order]) -> dict[str, Row]:
    """The first rows of each kind of change, and their total number. ``change``: of a row that both days have."""
    kinds: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        kind = "new" if row["before"] is None else "gone" if row["after"] is None else change(row)
        if kind is not None:
            kinds[kind].append(row)
    return {
        kind: {"in_all": len(found), "rows": nsmallest(MAX_ENTRIES, found, key=order)}
        for kind, found in sorted(kinds.items())
    }


def _worse_or_better(worse_by: float, least: float) -> str | None:
    if abs(worse_by) < least:
        return None
    return "worse" if worse_by > 0 else "better"


def _more(row: Row, name: str) -> float:
    """How much more the second day has; 0 if the value of a day is unknown."""
    before, after = row["before"][name], row["after"][name]
    return 0 if before is None or after is None else after - before


def _or_0(row: Row, side: str, name: str) -> float:
    found: float | None = (row[side] or {}).get(name)
    return found or 0


def _ascending(row: Row, *names: str) -> tuple[tuple[Any, ...], ...]:
    """Sort by these columns, rows without a value first."""
    return tuple(() if row[name] is None else (row[name],) for name in names)


def _descending(value: float | None) -> float:
    """Sort from the highest value down, rows without one last."""
    return inf if value is None else -value


def _clusters(days: _Days) -> dict[str, Row]:
    facts = ("availability", "down_seconds", "outages", "brokers", "budget_left_seconds")
    before, after = (Counter(each["cluster"] for each in rows) for rows in days.rows("incidents", ("cluster",)))
    rows = (
        {**row, "incidents_before": before[row["cluster"]], "incidents_after": after[row["cluster"]]}
        for row in days.both("cluster_health", ("cluster",), facts)
    )

    def change(row: Row) -> str | None:
        differs = _more(row, "outages") or row["incidents_before"] != row["incidents_after"]
        found = _worse_or_better(-_more(row, "availability"), LESS_AVAILABLE)
        return "otherwise" if found is None and differs else found

    def order(row: Row) -> Order:
        return -abs(_or_0(row, "after", "down_seconds") - _or_0(row, "before", "down_seconds")), *_ascending(
            row, "cluster"
        )

    return _kept(rows, change, order)


def _brokers(days: _Days) -> dict[str, Row]:
    def change(row: Row) -> str | None:
        before, after = _ranks(row)
        return None if before is None or after is None else _worse_or_better(before - after, 1)

    def order(row: Row) -> Order:
        worst = min((rank for rank in _ranks(row) if rank is not None), default=-1)
        return worst, _descending((row["after"] or {}).get("penalty_max")), *_ascending(row, *INSTANCE)

    return _kept(days.both("flapping", INSTANCE, ("class", "down_count", "penalty_max")), change, order)


def _ranks(row: Row) -> list[int | None]:
    """The rank of the broker's class on both days, None if unknown."""
    names = ((row[side] or {}).get("class") for side in SIDES)
    return [None if name is None else _RANKS.get(name, GOOD_RANK) for name in names]


def _topics_at_risk(days: _Days) -> dict[str, Row]:
    facts = ("worst", "unwritable_seconds", "no_master_seconds", "one_broker_seconds", "brokers")

    def change(row: Row) -> str | None:
        return _worse_or_better(_more(row, "unwritable_seconds"), LONGER_SECONDS)

    def order(row: Row) -> Order:
        most = (max(_or_0(row, side, name) for side in SIDES) for name in facts[1:4])
        return *map(_descending, most), *_ascending(row, "cluster", "topic")

    return _kept(days.both("topics_at_risk", ("cluster", "topic"), facts), change, order)


def _queues(days: _Days) -> dict[str, Row]:
    keys = ("cluster", "kind", "topic", "consumer_group")

    def order(row: Row) -> Order:
        side = _side(row)
        times = side["value"] / side["limit"] if side["value"] is not None and side["limit"] else None
        return _descending(times), *_ascending(row, *keys), *_ascending(side, "says")

    # Another hot queue of the same topic is not a change.
    return _kept(days.both("hot_queues", keys, ("value", "limit", "says", "cure")), lambda _: None, order)


def _name_servers(days: _Days) -> dict[str, Row]:
    def change(row: Row) -> str | None:
        more = {name: _or_0(row, "after", name) - _or_0(row, "before", name) for name in NAMESRV}
        if any(more[name] > 0 for name in PROBLEM_COUNTS):
            return "worse"
        if any(more[name] < 0 for name in PROBLEM_COUNTS):
            return "better"
        return "otherwise" if any(more.values()) else None

    return _kept(days.both("namesrv_days", ("node",), NAMESRV), change, lambda row: _ascending(row, "node"))


def _heartbeats(days: _Days) -> dict[str, Row]:
    rows = days.both("heartbeat_punctuality", INSTANCE, ("p99_ms", "p50_ms", "late", "beats"))

    def change(row: Row) -> str | None:
        more = _more(row, "p99_ms")
        if abs(more) < LATER_MS:
            return None
        shorter, longer = sorted(row[side]["p99_ms"] for side in SIDES)
        if longer < shorter * LATER:
            return None
        return "later" if more > 0 else "earlier"

    def order(row: Row) -> Order:
        return -abs(_more(row, "p99_ms")), *_ascending(row, *INSTANCE)

    return _kept((row for row in rows if row["before"] and row["after"]), change, order)


def _churn(days: _Days) -> dict[str, dict[str, int]]:
    sides = zip(SIDES, days.rows("topic_churn", CHURN), strict=True)
    return {side: {name: sum(row[name] or 0 for row in rows) for name in CHURN} for side, rows in sides}
