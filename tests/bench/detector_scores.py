"""How well a detector's flags match the labelled faults: arithmetic only.

A flag is a broker-day that a detector calls flapping. It is right when a fault of that broker that should be flagged
was active within the week up to that day. A fault is found when its broker is flagged on a day of the fault.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta

from tests.bench.histories import SHOULD_BE_FLAGGED, Kind, Label

MEMORY = timedelta(days=6)
"""A detector may use a week of data, whose last day is the flag's."""

Broker = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Flag:
    """A broker-day that a detector calls flapping."""

    broker: Broker
    day: date
    at: datetime | None = None
    """When a live detector would have raised the flag; None: at the day's end."""

    @property
    def known_at(self) -> datetime:
        return self.at or datetime.combine(self.day + timedelta(days=1), time(), UTC)


@dataclass(frozen=True, slots=True)
class Score:
    """A detector's figures."""

    flags: int
    right: int
    faults: int
    found: int
    found_by_kind: dict[Kind, float]
    delay_hours: float | None
    """The median from a fault's beginning to its first flag, over the faults that were found."""
    wrong_because: dict[str, int] = field(default_factory=dict)
    """The fault that was active when a flag was wrong; "nothing" without one."""

    @property
    def precision(self) -> float | None:
        return self.right / self.flags if self.flags else None

    @property
    def recall(self) -> float:
        return self.found / self.faults if self.faults else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        precision = self.precision or 0.0
        return 2 * precision * self.recall / (precision + self.recall) if precision + self.recall else 0.0


def score(flags: Iterable[Flag], labels: list[Label]) -> Score:
    """Compare one detector's flags with the labels."""
    all_flags = list(flags)
    of_broker: dict[Broker, list[Label]] = {}
    for label in labels:
        of_broker.setdefault((label.cluster, label.broker_name, label.broker_id), []).append(label)
    flagged: dict[Broker, list[Flag]] = {}
    for flag in all_flags:
        flagged.setdefault(flag.broker, []).append(flag)
    wrong = [flag for flag in all_flags if not _is_right(flag, of_broker.get(flag.broker, []))]
    wanted = [(broker, label) for broker, own in of_broker.items() for label in own if label.label in SHOULD_BE_FLAGGED]
    delays = [(label.label, _delay(label, flagged.get(broker, []))) for broker, label in wanted]
    found = [delay for _, delay in delays if delay is not None]
    of_kind, found_of_kind = Counter(kind for kind, _ in delays), Counter(kind for kind, d in delays if d is not None)
    because = Counter(_why(flag, of_broker.get(flag.broker, [])) for flag in wrong)
    return Score(
        flags=len(all_flags),
        right=len(all_flags) - len(wrong),
        faults=len(delays),
        found=len(found),
        found_by_kind={kind: found_of_kind[kind] / number for kind, number in sorted(of_kind.items())},
        delay_hours=statistics.median(found) if found else None,
        wrong_because=dict(because.most_common()),
    )


def either(*detectors: list[Flag]) -> list[Flag]:
    """A flag of any of them, at the earliest moment that one of them gives."""
    first: dict[tuple[Broker, date], Flag] = {}
    for flag in sorted((flag for flags in detectors for flag in flags), key=lambda flag: flag.known_at):
        first.setdefault((flag.broker, flag.day), flag)
    return list(first.values())


def _is_right(flag: Flag, labels: list[Label]) -> bool:
    return any(
        label.label in SHOULD_BE_FLAGGED
        and label.began_at.date() <= flag.day
        and label.ended_at.date() >= flag.day - MEMORY
        for label in labels
    )


def _delay(label: Label, flags: list[Flag]) -> float | None:
    """Hours to the first flag on a day of the fault."""
    of_it = [
        flag.known_at
        for flag in flags
        if label.began_at.date() <= flag.day <= label.ended_at.date() and flag.known_at >= label.began_at
    ]
    return (min(of_it) - label.began_at).total_seconds() / 3600 if of_it else None


def _why(flag: Flag, labels: list[Label]) -> str:
    that_day = {str(label.label) for label in labels if label.began_at.date() <= flag.day <= label.ended_at.date()}
    return " + ".join(sorted(that_day)) or "nothing"
