"""Whom the outages hit: the owners of the brokers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from pointsman_report.report.section import TOP, Section, left_out, section
from pointsman_report.report.sections.worst_brokers import Broker


@dataclass(frozen=True, slots=True)
class OwnerHit:
    """An owner's listed brokers that had unplanned downtime, the one with the most downtime first."""

    owner: str
    brokers: list[Broker]
    outages: int
    down_seconds: float
    longest_outage_seconds: float


def owners_hit(brokers: Iterable[Broker]) -> list[OwnerHit]:
    """Sum the downtime by owner, the most first; brokers without the label ``owner`` are left out."""
    found: dict[str, list[Broker]] = defaultdict(list)
    for broker in brokers:
        if broker.owner and broker.down_seconds:
            found[broker.owner].append(broker)
    hit = (
        OwnerHit(
            owner,
            sorted(own, key=lambda broker: (-broker.down_seconds, broker.key)),
            sum(broker.down_count for broker in own),
            sum(broker.down_seconds for broker in own),
            max(broker.longest_outage_seconds or 0.0 for broker in own),
        )
        for owner, own in found.items()
    )
    return sorted(hit, key=lambda row: (-row.down_seconds, row.owner))


def owners_section(brokers: list[Broker]) -> Section | None:
    """Return the section; None if no owner is known."""
    found = owners_hit(brokers)
    if not found:
        return None
    rows = found[:TOP]
    return section("owners", "Owners hit", rows=rows, rest=left_out(len(found), len(rows), "owners", "report.json"))
