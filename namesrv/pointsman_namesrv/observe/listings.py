"""What each observed name server lists now, and which brokers one of them does not list. Pure; time is an argument.

RocketMQ's name servers do not know each other. A broker that one of them lists and another does not is *missing* there;
it has departed when no server lists it. A server that does not respond, or that was just restarted and waits for its
brokers, lists nothing that counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pointsman_namesrv.core.model import Position

MOST_NAMED = 5
"""Brokers that sentences for operators name; the others are counted."""


@dataclass(slots=True)
class Listing:
    """One name server."""

    brokers: frozenset[Position] | None = None
    """None: it is not watched now."""
    missing: dict[Position, float] = field(default_factory=dict)
    """By broker that another server lists: since when, monotonic seconds."""
    topics: int | None = None
    """Topics at the last walk over them; None: there was none since it is watched."""


class Listings:
    """The listings of all observed name servers, by address."""

    def __init__(self, addrs: Iterable[str]) -> None:
        self.by_addr: Mapping[str, Listing] = {addr: Listing() for addr in addrs}

    def add(self, addr: str) -> None:
        """Begin with a name server."""
        self.by_addr = {**self.by_addr, addr: Listing()}

    def remove(self, addr: str, *, now: float) -> None:
        """End with a name server."""
        self.by_addr = {other: listing for other, listing in self.by_addr.items() if other != addr}
        self._compare(now)

    def watched(self, addr: str, brokers: frozenset[Position], *, now: float) -> None:
        """Record what a name server lists."""
        if self.by_addr[addr].brokers != brokers:
            self.by_addr[addr].brokers = brokers
            self._compare(now)

    def not_watched(self, addr: str, *, now: float) -> None:
        """Record that a name server does not respond, or waits for its brokers."""
        self.by_addr[addr].topics = None
        if self.by_addr[addr].brokers is not None:
            self.by_addr[addr].brokers = None
            self._compare(now)

    def lists_topics(self, addr: str, count: int) -> None:
        """Record how many topics a name server lists."""
        self.by_addr[addr].topics = count

    def missing_at(self, addr: str, *, now: float) -> list[str]:
        """Describe brokers that are missing at a name server, those for which it is longest first."""
        missing = sorted(self.by_addr[addr].missing.items(), key=lambda each: (each[1], each[0]))
        found = []
        for position, since in missing[:MOST_NAMED]:
            servers = self.lists(position)
            listed = f"{' and '.join(servers)} {'list' if len(servers) > 1 else 'lists'}"
            found.append(f"{position} for {now - since:.0f} s, which {listed}")
        if len(missing) > MOST_NAMED:
            found.append(f"{len(missing) - MOST_NAMED} more brokers that others list")
        return found

    def lists(self, position: Position) -> list[str]:
        """Return the name servers that list a broker."""
        return [addr for addr, each in self.by_addr.items() if each.brokers is not None and position in each.brokers]

    def _compare(self, now: float) -> None:
        everywhere = frozenset[Position]().union(*(each.brokers or () for each in self.by_addr.values()))
        for each in self.by_addr.values():
            absent = frozenset[Position]() if each.brokers is None else everywhere - each.brokers
            each.missing = {position: each.missing.get(position, now) for position in absent}
