"""Which of two claims holds: registrations of one address under two identities, and of one identity at two addresses.

A broker that was renamed or moved to another cluster registers its address under another identity, while the hand-over
of its agent keeps the previous one for a minute. But two running brokers may have one address too: private networks
that overlap, agents left at 127.0.0.1. So a registration ends if another identity has its address and it is not heard
itself. Only what this name server hears decides, so name servers that hear the same messages in another order end at
the same result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain, islice

from pointsman_namesrv.core.broker_events import broker_event
from pointsman_namesrv.core.events import EventKind
from pointsman_namesrv.core.group import Replica
from pointsman_namesrv.core.liveness import SUSPECT_AFTER_INTERVALS
from pointsman_namesrv.core.model import BrokerIdentity, Position, Reason, Registration
from pointsman_namesrv.core.node_refusals import IdentityHeld
from pointsman_namesrv.core.replica_state import Phase

MAX_NAMED = 4
"""Maximum others that an event or a response names. Hundreds of agents may be left at 127.0.0.1."""
MAX_COMPARED = 64
"""Maximum registrations of one address that a call compares. Those of a more crowded one end with the next sweep."""


class Addresses:
    """The registrations by address."""

    def __init__(self) -> None:
        self._at: dict[str, dict[Position, Replica]] = {}
        self._shared: dict[str, None] = {}

    @property
    def shared(self) -> Collection[str]:
        """Return the addresses that several registrations have."""
        return self._shared.keys()

    def add(self, replica: Replica, holder: Replica | None = None, *, now: float) -> list[Replica]:
        """Note a registration in place of its holder's; return those that share their address from now on.

        ``now``: when it was registered; minus infinity for one of the snapshot: long ago.
        """
        addr = replica.identity.addr
        if holder is not None and holder.identity.addr == addr:
            replica.shares_addr_since = holder.shares_addr_since
            self._at[addr][replica.identity.position] = replica
            return []
        if holder is not None:
            self.discard(holder)
        at = self._at.setdefault(addr, {})
        at[replica.identity.position] = replica
        if len(at) == 1:
            return []
        self._shared[addr] = None
        # Of the others only one that was alone until now is not marked: the first.
        begun = [each for each in (replica, next(iter(at.values()))) if each.shares_addr_since is None]
        for each in begun:
            each.shares_addr_since = now
        return begun

    def discard(self, replica: Replica) -> None:
        """Drop a registration that ended."""
        addr = replica.identity.addr
        at = self._at[addr]
        del at[replica.identity.position]
        if not at:
            del self._at[addr]
        elif len(at) == 1:
            del self._shared[addr]
            next(iter(at.values())).shares_addr_since = None

    def others(self, identity: BrokerIdentity) -> tuple[BrokerIdentity, ...]:
        """Return the other registrations of an address, at most :data:`MAX_NAMED`."""
        at, own = self._at.get(identity.addr, {}), identity.position
        return tuple(islice((each.identity for position, each in at.items() if position != own), MAX_NAMED))

    def replaced_by(self, registration: Registration, holder: Replica | None, *, now: float) -> list[Replica]:
        """Return the registrations of other groups that end when a broker registers their address.

        ``holder`` of its identity: it registers again, which ends none.
        """
        at, key = self._at.get(registration.identity.addr, {}), registration.identity.group_key
        if len(at) > MAX_COMPARED or (holder is not None and holder.identity.addr == registration.identity.addr):
            return []
        others = (each for each in at.values() if each.identity.group_key != key)
        return [each for each in others if _ends(each, registration, now=now)]

    def superseded(self, addr: str, *, now: float) -> list[tuple[Replica, BrokerIdentity]]:
        """Return the registrations of an address that end because another one there is heard, and that other one.

        None for an address that more than :data:`MAX_COMPARED` have.
        """
        at = self._at.get(addr, {})
        return [] if len(at) == 1 or len(at) > MAX_COMPARED else list(_superseded(at.values(), now=now))

    def all_superseded(self, at_most: int, *, now: float) -> list[tuple[Replica, BrokerIdentity]]:
        """Return the same of every address."""
        return list(
            islice(chain.from_iterable(_superseded(self._at[a].values(), now=now) for a in self._shared), at_most)
        )

    def check_invariants(self, replicas: Collection[Replica]) -> None:
        """Compare the index with the replicas; for tests."""
        at: dict[str, dict[Position, Replica]] = {}
        for replica in replicas:
            at.setdefault(replica.identity.addr, {})[replica.identity.position] = replica
        assert self._at == at
        assert self._shared.keys() == {addr for addr, here in at.items() if len(here) > 1}
        assert all((each.shares_addr_since is None) == (len(at[each.identity.addr]) == 1) for each in replicas)


def _superseded(at: Collection[Replica], *, now: float) -> Iterator[tuple[Replica, BrokerIdentity]]:
    heard = [each for each in islice(at, MAX_COMPARED) if each.is_heard(now=now)]
    for replica in at if heard else ():
        if not replica.is_heard(now=now):
            by = next((each for each in heard if _ends(replica, each.registration, now=now)), None)
            if by is not None:
                yield replica, by.identity


def _ends(replica: Replica, other: Registration, *, now: float) -> bool:
    """Return whether a registration ends because another one that is heard has its address.

    One of the snapshot that has to send a heartbeat yet ends if it was alone at its address, or is the same process.
    Others that shared it were both alive: they have the time of two heartbeats.
    """
    if not replica.pulse.is_healthy(now=now):
        return not _is_known_apart(replica, other)
    own = replica.registration.incarnation
    is_same_process = bool(own) and own == other.incarnation
    return replica.is_provisional and (replica.shares_addr_since is None or is_same_process)


def _is_known_apart(replica: Replica, other: Registration) -> bool:
    """Return whether a registration is known to be another broker than one of the same address.

    It is if it was heard for the time of two heartbeats while its address was shared, and the two name different
    processes, or different hosts where a process is unknown. Then its silence is an outage like any other, which the
    guard may bridge, and an upgrade of its agent leaves it in the routes.
    """
    since, pulse, own = replica.shares_addr_since, replica.pulse, replica.registration
    if since is None or pulse.last_seen - since <= SUSPECT_AFTER_INTERVALS * pulse.heartbeat_interval:
        return False
    if own.incarnation and other.incarnation:
        return own.incarnation != other.incarnation
    return bool(own.host and other.host) and own.host != other.host


def superseded_by(identity: BrokerIdentity) -> dict[str, object]:
    """Return the detail of a registration's end: who has its address."""
    return {"superseded_by": str(identity.position)}


def refuse_lower_claim(registration: Registration, holder: Replica | None, *, now: float) -> None:
    """Raise IdentityHeld where a claim has a lower state version than a holder that is UP.

    With equal versions the later claim wins: a version derived from content has no order, and a container that
    returns under another address must win. Two running agents do not alternate: the displaced one waits.
    """
    if holder is None or holder.identity.addr == registration.identity.addr or holder.state.phase is not Phase.UP:
        return
    held, claimed = holder.registration.data_version, registration.data_version
    if claimed.state_version < held.state_version:
        event = broker_event(
            EventKind.REJECTED,
            holder,
            Reason.STATE_VERSION,
            now=now,
            detail={"claimant_addr": registration.identity.addr, "claimed_data_version": str(claimed)},
        )
        raise IdentityHeld(
            registration.identity, holder_addr=holder.identity.addr, held=held, claimed=claimed, event=event
        )
