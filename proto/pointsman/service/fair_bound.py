"""A bound that peers share: while there is room each takes what it wants, at the bound the peer with the most loses.

A peer is an authenticated identity, else a connection; never an address, because NAT and proxies put many peers
behind one. Pure: the caller refuses calls and ends streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator


class Share:
    """What one call or stream holds of a bound. :meth:`FairBound.take` makes it."""

    __slots__ = ("amount", "end", "is_held", "peer")

    def __init__(self, peer: str, amount: int, end: Callable[[], None]) -> None:
        self.peer = peer
        self.amount = amount
        self.end = end
        """Called when it is taken away for a peer that holds less; then it is given back already."""
        self.is_held = True


class FairBound:
    """At most ``bound`` in total. At the bound a peer that holds less takes the latest shares of the peer with most."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.total = 0
        self._held: dict[str, int] = {}
        self._shares: dict[str, dict[Share, None]] = {}

    def take(self, peer: str, amount: int, end: Callable[[], None]) -> Share | None:
        """Take a share, or None when the bound is reached and no other peer would hold more."""
        share = Share(peer, 0, end)
        if not self._make_room(share, amount):
            return None
        self._shares.setdefault(peer, {})[share] = None
        self._add(share, amount)
        return share

    def grow(self, share: Share, amount: int) -> bool:
        """Add to a share; False, and nothing changes, where :meth:`take` would refuse or the share was taken away."""
        if not share.is_held or not self._make_room(share, amount):
            return False
        self._add(share, amount)
        return True

    def give_back(self, share: Share) -> None:
        """End a share; one that is not held any longer stays so."""
        if not share.is_held:
            return
        share.is_held = False
        self._add(share, -share.amount)
        shares = self._shares[share.peer]
        del shares[share]
        if not shares:
            del self._shares[share.peer], self._held[share.peer]

    def _add(self, share: Share, amount: int) -> None:
        share.amount += amount
        self.total += amount
        self._held[share.peer] = self._held.get(share.peer, 0) + amount

    def _make_room(self, asking: Share, amount: int) -> bool:
        missing = self.total + amount - self.bound
        if missing <= 0:
            return True
        wanted = self._held.get(asking.peer, 0) + amount
        held, taken = dict(self._held), list[Share]()
        latest: dict[str, Iterator[Share]] = {}
        while missing > 0:
            most = max(held, key=held.__getitem__, default=asking.peer)
            if most == asking.peer or held[most] <= wanted:
                return False
            share = next(latest.setdefault(most, reversed(self._shares[most])))
            held[most] -= share.amount
            missing -= share.amount
            taken.append(share)
        for share in taken:
            self.give_back(share)
            share.end()
        return True
