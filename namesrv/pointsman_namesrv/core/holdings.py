"""What registrations hold of a bound of the node, in total and by peer.

A registration is never removed to make room for another: that would take a broker out of the routes because of a
stranger. So the bound has a reserve: once it is reached, peers that hold less than another are still served, up to a
tenth more, and the peer that holds most is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from pointsman_namesrv.core.errors import LimitExceeded
from pointsman_namesrv.core.model import Registration

MAX_DETAIL_BYTES = 64 * 1024 * 1024
"""What all brokers together may say of themselves, labels above all."""
RESERVE_PART = 10
"""The reserve is this part of the bound."""


def detail_bytes(registration: Registration) -> int:
    """Memory of what a broker says of itself besides its topics, estimated."""
    r = registration
    texts = (r.incarnation, r.ha_addr, r.agent_addr, r.zone, r.host, r.broker_version, r.agent_version)
    lists = (*r.filter_servers, *r.labels, *r.labels.values())
    return sum(60 + len(text) * (1 if text.isascii() else 4) for text in (*texts, *lists))


class Holdings:
    """Counts ``limit``, at most ``bound`` and the reserve; ``field`` is the request's, for errors."""

    def __init__(self, limit: str, bound: int, *, field: str) -> None:
        self.total = 0
        self._limit = limit
        self._bound = bound
        self._field = field
        self._by_peer: dict[str, int] = {}

    @property
    def room(self) -> int:
        """What is left of the bound, without the reserve."""
        return max(0, self._bound - self.total)

    def refuse_beyond(self, peer: str, amount: int, *, freed: Mapping[str, int]) -> None:
        """Raise LimitExceeded if there is no room for this; ``freed``: what is replaced by it, by peer.

        What holds no more than it replaces always has room.
        """
        total = self.total + amount - sum(freed.values())
        if total <= max(self._bound, self.total):
            return
        wanted = self._by_peer.get(peer, 0) - freed.get(peer, 0) + amount
        if total <= self._bound + self._bound // RESERVE_PART and wanted < max(self._by_peer.values(), default=0):
            return
        raise LimitExceeded(self._limit, self._bound, field=self._field, value=total)

    def add(self, peer: str, amount: int) -> None:
        """Count what was registered, or with a negative amount what is not any longer."""
        self.total += amount
        held = self._by_peer.get(peer, 0) + amount
        if held:
            self._by_peer[peer] = held
        else:
            self._by_peer.pop(peer, None)

    def check_invariants(self, expected: Mapping[str, int]) -> None:
        """Hold the counts against those by peer; for tests."""
        assert self._by_peer == {peer: amount for peer, amount in expected.items() if amount}
        assert self.total == sum(expected.values())
