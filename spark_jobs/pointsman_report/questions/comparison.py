"""Two days held against each other: for programs and for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from typing import Any
from zoneinfo import ZoneInfo

from pointsman_report.report.formatting import (
    NOTHING,
    broker_label,
    counted,
    duration,
    milliseconds,
    number,
    percent,
    printable,
)
from pointsman_report.report.table_rows import key

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
"""What counts as got worse. Later beats alone do not: where they do harm, a broker's class says so."""

_ORDER = ("worse", "new", "later", "better", "earlier", "gone", "otherwise")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The answer; ``other`` is held against ``one``."""

    one: date
    other: date
    changes: Changes
    churn: dict[str, dict[str, int]]

    @property
    def got_worse(self) -> dict[str, int]:
        """How many of each subject."""
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

    def text(self, zone: ZoneInfo) -> str:  # noqa: ARG002 - it is about whole UTC days
        lines = [f"{self.other} against {self.one} (UTC days)", self._headline()]
        for subject, (title, columns) in _SUBJECTS.items():
            for kind in _ORDER:
                found = self.changes[subject].get(kind)
                if found:
                    lines += ["", f"{title}, {kind}: {found['in_all']:,}", *_table(columns, found["rows"])]
                    left_out = found["in_all"] - len(found["rows"])
                    lines += [f"  and {left_out:,} more"] if left_out else []
        lines += ["", "Topics' registrations changed", *_table(_CHURN, self._churn_rows())]
        return "\n".join(lines) + "\n"

    def _headline(self) -> str:
        if not self.got_worse:
            return "nothing got worse"
        return "got worse: " + ", ".join(counted(count, *_NAMES[name]) for name, count in self.got_worse.items())

    def _churn_rows(self) -> list[Row]:
        return [{"what": name, **{side: self.churn[side][name] for side in self.churn}} for name in self.churn["after"]]


_NAMES = {
    "clusters": ("cluster", "clusters"),
    "brokers": ("broker", "brokers"),
    "topics_at_risk": ("topic at risk", "topics at risk"),
    "queues": ("finding about queues", "findings about queues"),
    "name_servers": ("name server", "name servers"),
}

Column = tuple[str, Callable[[Row], str]]


def _step(name: str, write: Callable[[Any], str] = str) -> Callable[[Row], str]:
    """One value of both days; one side where there is no other."""

    def step(row: Row) -> str:
        sides = [row[side] for side in ("before", "after") if row[side] is not None]
        values = [NOTHING if side[name] is None else write(side[name]) for side in sides]
        return values[0] if len(set(values)) == 1 else f"{values[0]} \N{RIGHTWARDS ARROW} {values[1]}"

    return step


def _plain(name: str) -> Callable[[Row], str]:
    return lambda row: NOTHING if row[name] is None else printable(str(row[name]))


def _side(row: Row) -> Row:
    told: Row = row["after"] or row["before"]
    return told


_BROKER: Column = ("broker", lambda row: broker_label(*key(row)))
_SUBJECTS: dict[str, tuple[str, tuple[Column, ...]]] = {
    "clusters": (
        "Clusters",
        (
            ("cluster", _plain("cluster")),
            ("availability", _step("availability", percent)),
            ("down", _step("down_seconds", duration)),
            ("outages", _step("outages", number)),
            ("incidents", lambda row: f"{row['incidents_before']} \N{RIGHTWARDS ARROW} {row['incidents_after']}"),
            ("brokers", _step("brokers", number)),
            ("budget left", _step("budget_left_seconds", duration)),
        ),
    ),
    "brokers": ("Brokers", (_BROKER, ("class", _step("class")), ("outages", _step("down_count", number)))),
    "topics_at_risk": (
        "Topics at risk",
        (
            ("topic", lambda row: printable(f"{row['cluster']}/{row['topic']}")),
            ("worst", _step("worst")),
            ("not writable", _step("unwritable_seconds", duration)),
            ("no master", _step("no_master_seconds", duration)),
            ("one broker", _step("one_broker_seconds", duration)),
        ),
    ),
    "queues": (
        "Queues",
        (
            ("cluster", _plain("cluster")),
            ("what", lambda row: printable(f"{_side(row)['says']} -> {_side(row)['cure']}")),
        ),
    ),
    "name_servers": (
        "Name servers",
        (
            ("node", _plain("node")),
            *((name.replace("_", " "), _step(name, number)) for name in ("starts", "vanished", "pauses")),
            ("guard", _step("guard_activations", number)),
            ("rows lost", _step("rows_missing", number)),
            ("rows dropped", _step("rows_dropped", number)),
        ),
    ),
    "heartbeats": (
        "Beats, 99th percentile",
        (_BROKER, ("time between beats", _step("p99_ms", milliseconds)), ("late", _step("late", number))),
    ),
}
_CHURN: tuple[Column, ...] = (
    ("", lambda row: row["what"].replace("_", " ")),
    ("before", _plain("before")),
    ("after", _plain("after")),
)


def _table(columns: tuple[Column, ...], rows: Iterable[Row]) -> list[str]:
    cells = [[title for title, _ in columns], *([write(row) for _, write in columns] for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(columns))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    ]
