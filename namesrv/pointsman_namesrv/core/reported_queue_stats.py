"""An agent's measurements of its broker's queues: limits, and their form in the history."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pointsman.names import MAX_QUEUES
from pointsman.wire.refusals import FieldViolation, shown
from pointsman_namesrv.core.request_rules import name_violations

TOP = 20
"""Maximum entries of each list (design, section 3)."""
MAX_MESSAGES = 2**63 - 1
"""Readers of the history have signed numbers of 64 bits."""
MAX_PERIOD = 7 * 86_400.0
RATE_DIGITS = 6
"""Decimal places of a put rate (messages per second) in the history: one message per day is not 0."""


class QueuePuts(NamedTuple):
    """Writes to one queue."""

    topic: str
    queue_id: int
    put_rate: float
    depth: int
    bytes: int = 0
    """0: not known."""


class QueueLag(NamedTuple):
    """How far one group is behind in one queue."""

    group: str
    topic: str
    queue_id: int
    lag: int
    put_rate: float
    oldest_unread: float | None = None
    """Age of the message at the committed offset in seconds; None: not known."""


class TopicTotals(NamedTuple):
    """Totals of a topic's measured queues."""

    topic: str
    queue_count: int
    idle_queue_count: int
    put_rate: float
    highest_put_rate: float
    depth: int
    highest_depth: int


class GroupTotals(NamedTuple):
    """Totals of a group in all queues of one topic for which it has committed an offset."""

    group: str
    topic: str
    queue_count: int
    lag: int
    highest_lag: int
    member_count: int
    put_rate: float = 0.0
    commit_rate: float | None = None
    """None: not known yet."""
    behind_queue_count: int = 0
    stuck_queue_count: int = 0
    membership_changes: int = 0
    """In the last ten minutes."""
    membership_changes_in_hour: int = 0


_Entry = QueuePuts | QueueLag | TopicTotals | GroupTotals
KEYS = frozenset({"group", "topic", "queue_id"})
"""The fields that identify an entry of each list."""
_IN_HISTORY: Mapping[type[_Entry], int] = {QueuePuts: 4, QueueLag: 5, TopicTotals: 7, GroupTotals: 6}
"""Number of the leading fields that the history has: the others say how things are now."""


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Totals of all measured queues, and the top entries of each list."""

    period: float
    """Seconds over which put rates were averaged."""
    queue_count: int
    unmeasured_queue_count: int
    topic_count: int
    depth: int
    put_rate: float
    lag: int
    top_put_rates: tuple[QueuePuts, ...] = ()
    top_lags: tuple[QueueLag, ...] = ()
    top_topics: tuple[TopicTotals, ...] = ()
    top_groups: tuple[GroupTotals, ...] = ()

    def violations(self, *, path: str) -> Iterator[FieldViolation]:
        """Check everything but the lengths of the lists, which are checked before they are read."""
        if not 0 <= self.period <= MAX_PERIOD:
            yield _not(f"{path}.period", f"{self.period:g}s", f"must be from 0s to {MAX_PERIOD:g}s")
        for field in ("depth", "lag"):
            yield from _count_violations(f"{path}.{field}", getattr(self, field))
        yield from _rate_violations(f"{path}.put_rate", self.put_rate)
        for field, entries in self._lists():
            seen = set[tuple[object, ...]]()
            for i, entry in enumerate(entries):
                yield from _entry_violations(entry, seen, path=f"{path}.{field}[{i}]")

    def detail(self) -> dict[str, object]:
        """Return the detail of the history row."""
        lists = {field: [_to_detail(entry) for entry in entries] for field, entries in self._lists()}
        return {
            "period_ms": round(self.period * 1000),
            "queue_count": self.queue_count,
            "unmeasured_queue_count": self.unmeasured_queue_count,
            "topic_count": self.topic_count,
            "depth": self.depth,
            "put_rate": round(self.put_rate, RATE_DIGITS),
            "lag": self.lag,
            **lists,
        }

    def _lists(self) -> Iterator[tuple[str, tuple[_Entry, ...]]]:
        yield "top_put_rates", self.top_put_rates
        yield "top_lags", self.top_lags
        yield "top_topics", self.top_topics
        yield "top_groups", self.top_groups


def _entry_violations(entry: _Entry, seen: set[tuple[object, ...]], *, path: str) -> Iterator[FieldViolation]:
    facts = entry._asdict()
    for field, value in facts.items():
        at = f"{path}.{field}"
        if value is None:
            continue
        if field == "queue_id":
            if not 0 <= value < MAX_QUEUES:
                yield _not(at, value, f"must be from 0 to {MAX_QUEUES - 1}")
        elif isinstance(value, str):
            yield from name_violations(at, value)
        elif isinstance(value, float):
            yield from _rate_violations(at, value)
        else:
            yield from _count_violations(at, value)
    key = tuple(value for field, value in facts.items() if field in KEYS)
    if key in seen:
        yield FieldViolation(path, f"occurs twice in this list: {shown(' '.join(map(str, key)))}")
    seen.add(key)


def _count_violations(field: str, count: int) -> Iterator[FieldViolation]:
    if not 0 <= count <= MAX_MESSAGES:
        yield _not(field, count, f"must be from 0 to {MAX_MESSAGES}")


def _rate_violations(field: str, rate: float) -> Iterator[FieldViolation]:
    if not (math.isfinite(rate) and rate >= 0):
        yield _not(field, rate, "must be finite and not negative")


def _not(field: str, value: object, problem: str) -> FieldViolation:
    return FieldViolation(field, f"{problem}, not {shown(value)}")


def _to_detail(entry: _Entry) -> dict[str, object]:
    facts = zip(entry._fields[: _IN_HISTORY[type(entry)]], entry, strict=False)
    return {field: round(fact, RATE_DIGITS) if isinstance(fact, float) else fact for field, fact in facts}
