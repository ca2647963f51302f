"""Precision and recall of incidents, rolling restarts and causes against the injected faults: arithmetic only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.bench.incidents.faults import EXPECTED_CAUSE, INCIDENTS, ROLLING, Fault, Kind

NOTICED_SECONDS = 200.0
"""An outage starts at most this long after a fault: the expiry, a heartbeat and a sweep."""


class Outage(NamedTuple):
    """One outage of the table ``outage_causes``, in seconds of the day."""

    broker: int
    at: float
    cause: str
    planned: bool


class Group(NamedTuple):
    """An incident or a rolling restart as the report gives it: broker and time of each member."""

    members: tuple[tuple[int, float], ...]


@dataclass
class Score:
    """How well one thing was recognised."""

    reported: int = 0
    right: int = 0
    injected: int = 0
    found: int = 0
    mistaken_for: Counter[str] = field(default_factory=Counter)
    """The true kind where the report was wrong, and the reported kind where it was missed."""

    @property
    def precision(self) -> float:
        return self.right / self.reported if self.reported else 0.0

    @property
    def recall(self) -> float:
        return self.found / self.injected if self.injected else 0.0


class Faults:
    """The injected faults, by broker."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.all = list(faults)
        self._of: dict[int, list[Fault]] = {}
        for fault in self.all:
            for broker in fault.brokers:
                self._of.setdefault(broker, []).append(fault)

    def of(self, broker: int, at: float) -> Fault | None:
        """The fault that an outage of a broker at a time belongs to."""
        own = (f for f in self._of.get(broker, []) if f.began - 1 <= at <= f.ended + NOTICED_SECONDS)
        return next(own, None)


def score_causes(outages: Iterable[Outage], faults: Faults) -> dict[str, Score]:
    """For each cause: of the outages that have it how many were right; of those that were it how many have it.

    Planned outages are not scored: the row itself says that they are. An outage without a fault is wrong in any case.
    """
    scores = {cause: Score() for cause in EXPECTED_CAUSE.values()}
    for outage in outages:
        if outage.planned:
            continue
        fault = faults.of(outage.broker, outage.at)
        expected = EXPECTED_CAUSE[fault.kind] if fault else "nothing"
        is_right = outage.cause == expected
        if outage.cause in scores:
            scores[outage.cause].reported += 1
            scores[outage.cause].right += is_right
        if expected in scores:
            scores[expected].injected += 1
            scores[expected].found += is_right
        if not is_right:
            for cause in {outage.cause, expected} & set(scores):
                scores[cause].mistaken_for[f"{expected} as {outage.cause}"] += 1
    return scores


def score_groups(groups: Iterable[Group], faults: Faults, kinds: frozenset[Kind]) -> Score:
    """A group is right when most of its members belong to one fault of these kinds; that fault is found by it."""
    score, found = Score(), set[int]()
    for group in groups:
        of = Counter(id(fault) for broker, at in group.members if (fault := faults.of(broker, at)) is not None)
        by_id = {id(fault): fault for fault in faults.all}
        most = by_id[of.most_common(1)[0][0]] if of else None
        score.reported += 1
        if most is not None and most.kind in kinds and of[id(most)] * 2 > len(group.members):
            score.right += 1
            found.add(id(most))
        else:
            score.mistaken_for[str(most.kind) if most else "nothing"] += 1
    score.injected = sum(fault.kind in kinds for fault in faults.all)
    score.found = len(found)
    for fault in faults.all:
        if fault.kind in kinds and id(fault) not in found:
            score.mistaken_for[f"missed {fault.kind}"] += 1
    return score


def all_scores(
    outages: Iterable[Outage], incidents: Iterable[Group], rolling: Iterable[Group], faults: Faults
) -> dict[str, Score]:
    """All of them, by name."""
    scores = {"incidents": score_groups(incidents, faults, INCIDENTS)}
    scores["rolling restarts"] = score_groups(rolling, faults, ROLLING)
    return scores | {f"cause {cause}": score for cause, score in score_causes(outages, faults).items()}
