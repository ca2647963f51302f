"""A bound that peers share: at the bound, the peer with the most loses a share to one with less.

A peer is an authenticated identity, else a connection; never an address, because NAT and proxies put many peers
behind one. Pure: the caller refuses calls and ends streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator


class Share:
    """The part of a bound that one call or stream uses. Created by :meth:`FairBound.take`."""

    __slots__ = ("amount", "end", "is_held", "peer")

    def __init__(self, peer: str, amount: int, end: Callable[[], None]) -> None:
        self.peer = peer
        self.amount = amount
        self.end = end
        """Called when the share is withdrawn for a peer that holds less; it is already given back then."""
        self.is_held = True


class FairBound:
    """At most ``bound`` in total. At the bound a peer with less takes the latest shares of the peer with most."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.total = 0
        self._held: dict[str, int] = {}
        self._shares: dict[str, dict[Share, None]] = {}

    def take(self, peer: str, amount: int, end: Callable[[], None]) -> Share | None:
        """Return a share, or None when the bound is reached and no other peer would hold more."""
        share = Share(peer, 0, end)
        if not self._withdraw_shares(share, amount):
            return None
        self._shares.setdefault(peer, {})[share] = None
        self._add(share, amount)
        return share

    def grow(self, share: Share, amount: int) -> bool:
        """Extend a share; False, without a change, where :meth:`take` would refuse or the share was withdrawn."""
        if not share.is_held or not self._withdraw_shares(share, amount):
            return False
        self._add(share, amount)
        return True

    def give_back(self, share: Share) -> None:
        """Release a share; does nothing for one that is no longer held."""
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

    def _withdraw_shares(self, asking: Share, amount: int) -> bool:
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
