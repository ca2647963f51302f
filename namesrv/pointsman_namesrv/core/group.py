"""A replica group: who is in it, who of them is routed, and whose topics are the group's.

What can be derived is derived: the group's topics follow from its replicas alone, not from the order in which
things happened, so that every name server gives the same answer (RocketMQ edits permissions in place instead).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pointsman_namesrv.core.events import BrokerFacts
from pointsman_namesrv.core.liveness import Pulse, Punctuality
from pointsman_namesrv.core.model import MASTER_ID, BrokerIdentity, Evidence, GroupKey, Health, Registration
from pointsman_namesrv.core.replica_state import ROUTED, UP, Phase, ReplicaState


@dataclass(slots=True, kw_only=True)
class Replica:
    """One registration, the facts about its broker, and the state that was last applied."""

    registration: Registration
    generation: int
    registered_at: float
    """Monotonic seconds."""
    alive_since: float | None
    """When its position was first known to be alive, monotonic seconds; None: never, its probe has not passed yet."""
    pulse: Pulse
    health: Health
    peer: str = ""
    """Who registered it, as bounds distinguish peers; empty: the snapshot."""
    punctuality: Punctuality
    failing_since: float | None = None
    """Since when its probe fails."""
    is_provisional: bool = False
    """Known from the snapshot, no heartbeat since."""
    state: ReplicaState = UP
    """As the last call or sweep applied it."""
    state_since: float | None = None
    """Since when it is in that phase; None: a restart forgot it."""

    @property
    def identity(self) -> BrokerIdentity:
        """Who it is."""
        return self.registration.identity

    @property
    def is_routed(self) -> bool:
        """Whether clients may be sent to it."""
        return self.state.phase in ROUTED

    def is_held_by(self, identity: BrokerIdentity, generation: int) -> bool:
        """Whether a call with this fence is about this registration."""
        return self.generation == generation and self.identity.addr == identity.addr

    def enter(self, state: ReplicaState, *, now: float) -> None:
        """Apply a state."""
        if state.phase is not self.state.phase:
            self.state_since = now
        self.state = state

    @property
    def visible(self) -> object:
        """What clients see of it beside its topics; to compare."""
        r = self.registration
        return (r.identity, self.state.phase, r.ha_addr, r.agent_addr, r.zone, r.shown_acting_master, r.filter_servers)

    def renews(self, holder: Replica) -> bool:
        """Whether its registration says nothing that was not known of a living broker."""
        if self.state.phase is not Phase.UP or holder.state.phase is not Phase.UP:
            return False
        return replace(self.registration, health=holder.registration.health) == holder.registration

    def record_health(self, health: Health, *, now: float) -> bool:
        """Take what the probe found; return whether it has just begun to fail.

        A broker that refused to serve stays so until its probe passes, whatever weaker evidence follows.
        """
        before = self.health.failing
        if before is Evidence.STRONG and health.failing is not None:
            health = health._replace(evidence=Evidence.STRONG)
        self.health = health
        if health.failing is None:
            self.failing_since = None
            self.alive_since = now if self.alive_since is None else self.alive_since
            return False
        if before is None or self.failing_since is None:
            self.failing_since = now
        return before is None

    def facts(self, *, now: float) -> BrokerFacts:
        """What an event records of it."""
        registration = self.registration
        return BrokerFacts(
            registration.identity,
            self.generation,
            registration.incarnation,
            registration.zone,
            registration.host,
            registration.broker_version,
            registration.data_version,
            self.state,
            None if self.state_since is None else now - self.state_since,
        )


@dataclass(frozen=True, slots=True)
class MemberView:
    """What a replica is told of its own group (RocketMQ ``RegisterBrokerResult``). Empty where there is none."""

    min_broker_id: int = MASTER_ID
    min_broker_addr: str = ""
    master_addr: str = ""
    ha_addr: str = ""
    master_agent_addr: str = ""


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
        """What the replica with this id is told: a slave the addresses of its master and of its master's agent."""
        lowest = self.lowest()
        if lowest is None:
            return MemberView()
        _, _, lowest_id, addr = lowest.identity
        if broker_id == MASTER_ID or lowest_id != MASTER_ID:
            return MemberView(lowest_id, addr)
        return MemberView(lowest_id, addr, addr, lowest.registration.ha_addr, lowest.registration.agent_addr)


def _broker_id(replica: Replica) -> int:
    return replica.identity.broker_id
