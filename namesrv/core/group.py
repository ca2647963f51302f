"""A replica group: who is in it, who of them is routed, and whose topics are the group's.

What can be derived is derived: the group's topics follow from its replicas alone, not from the order in which
things happened, so that every name server gives the same answer (RocketMQ edits permissions in place instead).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from namesrv.core.events import BrokerFacts, Reason
from namesrv.core.liveness import Pulse
from namesrv.core.model import MASTER_ID, BrokerIdentity, BrokerState, GroupKey, Health, ProbeVerdict, Registration
from namesrv.core.punctuality import Punctuality


@dataclass(slots=True, kw_only=True)
class Replica:
    """One registration and its signs of life."""

    registration: Registration
    generation: int
    registered_at: float
    """Monotonic seconds."""
    known_since: float
    """Since when its position has been held without a gap; monotonic seconds."""
    pulse: Pulse
    health: Health
    punctuality: Punctuality
    failing_since: float | None = None
    """Since when its probe fails."""
    is_out: bool = False
    """Whether the history was told that its failing probe took it out of the routes."""
    is_announced: bool = False
    """Whether it went out in a maintenance window."""
    protected_from: Reason | None = None
    """Why it would be out of the routes if the guard did not keep it."""
    is_provisional: bool = False
    """Known from the snapshot and not heard since."""

    @property
    def identity(self) -> BrokerIdentity:
        """Who it is."""
        return self.registration.identity

    @property
    def is_routed(self) -> bool:
        """Whether clients may be sent to it."""
        return self.health.verdict is not ProbeVerdict.FAILING or self.protected_from is not None

    @property
    def state(self) -> BrokerState:
        """How it is seen."""
        if not self.is_routed:
            return BrokerState.PROBE_FAILED
        if self.protected_from is not None:
            return BrokerState.PROTECTED
        if self.is_provisional:
            return BrokerState.PROVISIONAL
        return BrokerState.SUSPECT if self.pulse.suspect else BrokerState.UP

    def facts(self) -> BrokerFacts:
        """What an event says of it."""
        registration = self.registration
        return BrokerFacts(
            registration.identity,
            self.generation,
            registration.incarnation,
            registration.zone,
            registration.host,
            registration.broker_version,
            registration.data_version,
        )


@dataclass(frozen=True, slots=True)
class MemberView:
    """What a replica is told of its own group (RocketMQ ``RegisterBrokerResult``). Empty where there is none."""

    min_broker_id: int = MASTER_ID
    min_broker_addr: str = ""
    master_addr: str = ""
    ha_addr: str = ""


@dataclass(slots=True)
class Group:
    """The replicas of one broker name, by broker id. Never empty while it stands in a table."""

    key: GroupKey
    replicas: dict[int, Replica] = field(default_factory=dict)
    version: int = 0
    """Number of the change that last altered what clients see of it."""

    def routed(self) -> list[Replica]:
        """The replicas that clients may be sent to, by broker id."""
        return [self.replicas[i] for i in sorted(self.replicas) if self.replicas[i].is_routed]

    def lowest(self) -> Replica | None:
        """The routed replica with the lowest id. On the way of every beat, so without a list."""
        return min((r for r in self.replicas.values() if r.is_routed), key=_broker_id, default=None)

    def at_addr(self, addr: str) -> Replica | None:
        """The replica that holds an address."""
        return next((replica for replica in self.replicas.values() if replica.identity.addr == addr), None)

    def contributor(self) -> Replica | None:
        """The replica whose topics are the group's: the master, else the lowest id if it may act as one.

        RocketMQ calls the second the prime slave (``RouteInfoManager.registerBroker``, step 8).
        """
        lowest = self.lowest()
        if lowest is None or lowest.identity.broker_id == MASTER_ID or lowest.registration.acting_master:
            return lowest
        return None

    def view_for(self, broker_id: int) -> MemberView:
        """What the replica with this id is told: a slave its master's address and HA address."""
        lowest = self.lowest()
        if lowest is None:
            return MemberView()
        _, _, lowest_id, addr = lowest.identity
        if broker_id == MASTER_ID or lowest_id != MASTER_ID:
            return MemberView(lowest_id, addr)
        return MemberView(lowest_id, addr, addr, lowest.registration.ha_addr)


def _broker_id(replica: Replica) -> int:
    return replica.identity.broker_id
