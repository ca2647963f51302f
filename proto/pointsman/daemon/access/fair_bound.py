"""A bound that peers share: at the bound, the peer with the most loses a share to one with less.

A peer is an authenticated identity, else a connection; never an address, because NAT and proxies put many peers
behind one. Pure: the caller refuses calls and ends streams.
"""

from __future__ import annotations

from collections import Counter
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


class _Shares:
    """The shares of a peer that has more than one."""

    __slots__ = ("amount", "shares")

    def __init__(self, first: Share) -> None:
        self.amount = first.amount
        self.shares: dict[Share, None] = {first: None}


class FairBound:
    """At most ``bound`` in total. At the bound a peer with less takes the latest shares of the peer with most."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.total = 0
        self._peers: dict[str, Share | _Shares] = {}
        """What each peer holds. Most hold one share, and there may be a hundred thousand of them."""
        self._holders = Counter[int]()
        """The number of peers that hold each amount: a refusal must not take a walk over all peers."""

    def take(self, peer: str, amount: int, end: Callable[[], None]) -> Share | None:
        """Return a share, or None when the bound is reached and no other peer would hold more."""
        share = Share(peer, amount, end)
        if not self._withdraw_shares(share, amount):
            return None
        self.total += amount
        held = self._peers.get(peer)
        if held is None:
            self._peers[peer] = share
            self._note(0, amount)
            return share
        if isinstance(held, Share):
            held = self._peers[peer] = _Shares(held)
        held.shares[share] = None
        held.amount += amount
        self._note(held.amount - amount, held.amount)
        return share

    def grow(self, share: Share, amount: int) -> bool:
        """Extend a share; False, without a change, where :meth:`take` would refuse or the share was withdrawn."""
        if not share.is_held or not self._withdraw_shares(share, amount):
            return False
        self.total += amount
        share.amount += amount
        held = self._peers[share.peer]
        if held is not share:
            held.amount += amount
        self._note(held.amount - amount, held.amount)
        return True

    def give_back(self, share: Share) -> None:
        """Release a share; does nothing for one that is no longer held."""
        if not share.is_held:
            return
        share.is_held = False
        self.total -= share.amount
        held = self._peers[share.peer]
        if isinstance(held, _Shares):
            held.amount -= share.amount
            del held.shares[share]
            self._note(held.amount + share.amount, held.amount)
            if held.shares:
                return
        else:
            self._note(share.amount, 0)
        del self._peers[share.peer]

    def _note(self, before: int, after: int) -> None:
        """Note that a peer holds another amount."""
        if before:
            self._holders[before] -= 1
            if not self._holders[before]:
                del self._holders[before]
        if after:
            self._holders[after] += 1

    def _withdraw_shares(self, asking: Share, amount: int) -> bool:
        missing = self.total + amount - self.bound
        if missing <= 0:
            return True
        own = self._peers.get(asking.peer)
        wanted = (own.amount if own is not None else 0) + amount
        if max(self._holders, default=0) <= wanted:
            return False
        held, taken = {peer: each.amount for peer, each in self._peers.items()}, list[Share]()
        latest: dict[str, Iterator[Share]] = {}
        while missing > 0:
            most = max(held, key=held.__getitem__, default=asking.peer)
            if most == asking.peer or held[most] <= wanted:
                return False
            share = next(latest.setdefault(most, self._latest_of(most)))
            held[most] -= share.amount
            missing -= share.amount
            taken.append(share)
        for share in taken:
            self.give_back(share)
            share.end()
        return True

    def _latest_of(self, peer: str) -> Iterator[Share]:
        held = self._peers[peer]
        return iter((held,)) if isinstance(held, Share) else reversed(held.shares)
