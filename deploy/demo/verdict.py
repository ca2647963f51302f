"""Hold the report against what the demo knows that it did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

NOTICED_WITHIN_SECONDS = 3.0

Instance = tuple[str, int]
"""Broker name and id."""


@dataclass
class Deeds:
    """The kills that were made, by broker, and who was to flap."""

    flapping: Instance
    kills: dict[Instance, list[datetime]] = field(default_factory=dict)

    def note(self, instance: Instance, at: datetime) -> None:
        """Remember a kill."""
        self.kills.setdefault(instance, []).append(at)


def faults(report: dict[str, Any], deeds: Deeds, *, everybody: set[Instance]) -> Iterator[str]:
    """Everything in which the report is not what happened."""
    brokers = {(entry["broker_name"], entry["broker_id"]): entry for entry in report["brokers"]}
    if set(brokers) != everybody:
        yield f"the report knows {sorted(brokers)}, there were {sorted(everybody)}"
        return
    first = next(iter(brokers))
    if first != deeds.flapping:
        yield f"{_shown(first)} tops the list, not {_shown(deeds.flapping)}"
    for instance, entry in brokers.items():
        flaps = entry["class"] == "flapping"
        if flaps != (instance == deeds.flapping):
            yield f"{_shown(instance)} is classed {entry['class']}"
        yield from _outage_faults(instance, entry, deeds.kills.get(instance, []))


def _outage_faults(instance: Instance, entry: dict[str, Any], kills: list[datetime]) -> Iterator[str]:
    if entry["down_count"] != len(kills):
        yield f"{_shown(instance)} counts {entry['down_count']} downs, {len(kills)} kills were made"
    starts = [datetime.fromisoformat(outage["start_at"]) for outage in entry["outages"]]
    if len(starts) != len(kills):
        yield f"{_shown(instance)} lists {len(starts)} outages, {len(kills)} kills were made"
        return
    for number, (killed_at, start) in enumerate(zip(kills, sorted(starts), strict=True), 1):
        delay = (start - killed_at).total_seconds()
        # The history writes milliseconds, the demo knows microseconds.
        if not -0.001 <= delay <= NOTICED_WITHIN_SECONDS:
            yield f"outage {number} of {_shown(instance)} starts {delay:.3f} s after its kill"


def _shown(instance: Instance) -> str:
    return f"{instance[0]}/{instance[1]}"
