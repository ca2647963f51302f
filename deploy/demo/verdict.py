"""Compare the report with what the demo did: outages, their causes, incidents, and what counts against whom."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

NOTICED_WITHIN_SECONDS = 20.0
"""A slow machine takes seconds to notice what a fast one does in less than two."""

PROCESS_DIED, AGENT_LOST = "process_died", "agent_lost"
UNKNOWN, STREAM_BROKEN = "unknown", "STREAM_BROKEN"
"""Without a probe and an incarnation, the end of a connection does not show whether its process died or the network."""

Instance = tuple[str, int]
"""Broker name and id."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill, the cause that the report must give for the outage that follows, and its reason where that is sure."""

    at: datetime
    cause: str
    reason: str | None


@dataclass
class Deeds:
    """The kills that were made, by broker, and which broker was to flap, if any."""

    flapping: Instance | None
    kills: dict[Instance, list[Kill]] = field(default_factory=dict)

    def note(self, instance: Instance, at: datetime, *, cause: str, reason: str | None = None) -> None:
        """Remember a kill."""
        self.kills.setdefault(instance, []).append(Kill(at, cause, reason))


def faults(report: dict[str, Any], deeds: Deeds, *, expected: Collection[Instance]) -> Iterator[str]:
    """Everything in which the report is not what happened."""
    brokers = {(entry["broker_name"], entry["broker_id"]): entry for entry in report["brokers"]}
    if set(brokers) != set(expected):
        yield f"the report lists {sorted(brokers)}, there were {sorted(expected)}"
        return
    yield from _incident_faults(report)
    first = next(iter(brokers))
    if deeds.flapping is not None and first != deeds.flapping:
        yield f"{_shown(first)} tops the list, not {_shown(deeds.flapping)}"
    for instance, entry in brokers.items():
        flaps = entry["class"] == "flapping"
        if flaps != (instance == deeds.flapping):
            yield f"{_shown(instance)} is classed {entry['class']}"
        yield from _outage_faults(instance, entry, deeds.kills.get(instance, []))


def longest_delay(report: dict[str, Any], deeds: Deeds) -> float:
    """Seconds from a kill to the start of its outage, the most of all."""
    brokers = {(entry["broker_name"], entry["broker_id"]): entry for entry in report["brokers"]}
    return max(
        (start - kill.at).total_seconds()
        for instance, kills in deeds.kills.items()
        for kill, start in zip(kills, _starts(brokers[instance]), strict=True)
    )


def wipe_faults(rows: Iterable[dict[str, Any]], wiped: str, *, nodes: Iterable[str]) -> Iterator[str]:
    """Where rows of a history, in their order, have anything but one wipe and its end, both by an operator."""
    expected = [(wiped, "ADMIN", False), (wiped, "ADMIN", True)]
    changes = [row for row in rows if row["event"] == "PERM_CHANGED"]
    for node in nodes:
        found = [
            (row["broker_name"], row["reason"], row["detail"]["writable"]) for row in changes if row["node"] == node
        ]
        if found != expected:
            yield f"the history of {node} has changes of the write permission {found}, there were {expected}"


def message_faults(produced: Collection[str], unsure: Collection[str], consumed: Collection[str]) -> Iterator[str]:
    """``unsure``: messages of which a send failed; the broker may have them all the same."""
    if lost := set(produced) - set(consumed):
        yield f"{len(lost)} messages were produced and not consumed, {min(lost)} is one of them"
    if strange := set(consumed) - set(produced) - set(unsure):
        yield f"{len(strange)} messages were consumed and not produced, {min(strange)} is one of them"


def _incident_faults(report: dict[str, Any]) -> Iterator[str]:
    """The kills are made one after another: never are several brokers down at the same moment."""
    for row in report["incidents"]["rows"]:
        yield (
            f"an incident of {row['brokers']} brokers from {row['from_at']} (cause {row['cause']}): "
            "each kill was made after the broker before it was back"
        )
    for row in report["rolling_restarts"]["rows"]:
        yield f"a rolling restart of {row['brokers']} brokers from {row['from_at']}: there was none"


def _outage_faults(instance: Instance, entry: dict[str, Any], kills: list[Kill]) -> Iterator[str]:
    name = _shown(instance)
    if entry["down_count"] != len(kills):
        yield f"{name} counts {entry['down_count']} downs, {len(kills)} kills were made"
    if entry["incident_downs"]:
        yield f"{entry['incident_downs']} outages of {name} count against an incident, not against it"
    if len(entry["outages"]) != len(kills):
        yield f"{name} lists {len(entry['outages'])} outages, {len(kills)} kills were made"
        return
    outages = sorted(entry["outages"], key=lambda outage: str(outage["start_at"]))
    for number, (kill, outage, start) in enumerate(zip(kills, outages, _starts(entry), strict=True), 1):
        delay = (start - kill.at).total_seconds()
        # The history writes milliseconds, the demo knows microseconds.
        if not -0.001 <= delay <= NOTICED_WITHIN_SECONDS:
            yield f"outage {number} of {name} starts {delay:.3f} s after its kill"
        if outage["cause"] != kill.cause:
            yield (
                f"outage {number} of {name} has the cause {outage['cause']} ({outage['evidence']}), it was {kill.cause}"
            )
        if kill.reason not in {None, outage["reason"]}:
            yield f"outage {number} of {name} has the reason {outage['reason']}, it was {kill.reason}"


def _starts(entry: dict[str, Any]) -> list[datetime]:
    return sorted(datetime.fromisoformat(outage["start_at"]) for outage in entry["outages"])


def _shown(instance: Instance) -> str:
    return f"{instance[0]}/{instance[1]}"
