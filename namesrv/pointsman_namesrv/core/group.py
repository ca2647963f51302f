"""A replica group: its replicas, which of them are routed, and which one provides the group's topics.

The group's topics are derived from its replicas alone, not from the order of events, so that every name server gives
the same response (RocketMQ edits permissions in place instead).
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
    """When its position was first known to be alive, monotonic seconds; None: its probe has not passed yet."""
    pulse: Pulse
    health: Health
    peer: str = ""
    """The peer that registered it, for bounds; empty: the snapshot."""
    punctuality: Punctuality
    failing_since: float | None = None
    """When its probe began to fail."""
    left_in_window: bool = False
    """Whether its silence or failing probe was in a maintenance window at some time: no evidence for the guard."""
    is_provisional: bool = False
    """Known from the snapshot, no heartbeat since."""
    state: ReplicaState = UP
    """The state that the last call or sweep applied."""
    state_since: float | None = None
    """Start of that phase; None: unknown after a restart."""
    shares_addr_since: float | None = None
    """Since when another registration has its address too, monotonic seconds; None: none has."""

    @property
    def identity(self) -> BrokerIdentity:
        """Return address and position."""
        return self.registration.identity

    @property
    def is_routed(self) -> bool:
        """Return whether clients may be sent to it."""
        return self.state.phase in ROUTED

    def is_held_by(self, identity: BrokerIdentity, generation: int) -> bool:
        """Return whether a call with this fence is about this registration."""
        return self.generation == generation and self.identity.addr == identity.addr

    def is_heard(self, *, now: float) -> bool:
        """Return whether it sends heartbeats: not handed over, its stream not broken, not silent for two heartbeats,
        and not known from the snapshot alone."""
        return not self.is_provisional and self.pulse.is_healthy(now=now)

    def enter(self, state: ReplicaState, *, now: float) -> None:
        """Apply a state."""
        self.left_in_window = self.left_in_window or state.planned
        if state.phase is not self.state.phase:
            self.state_since = now
        self.state = state

    @property
    def visible(self) -> object:
        """Return what clients see of it apart from its topics, for comparison."""
        r = self.registration
        return (r.identity, self.state.phase, r.ha_addr, r.agent_addr, r.zone, r.shown_acting_master, r.filter_servers)

    def renews(self, holder: Replica) -> bool:
        """Return whether its registration adds nothing to what is known of a running broker."""
        if self.state.phase is not Phase.UP or holder.state.phase is not Phase.UP:
            return False
        return replace(self.registration, health=holder.registration.health) == holder.registration

    def record_health(self, health: Health, *, now: float) -> bool:
        """Record the probe's result; return whether it has just begun to fail.

        A broker that refused to serve remains so until its probe passes, whatever weaker evidence follows.
        """
        before = self.health.failing
        if before is Evidence.STRONG and health.failing is not None:
            health = health._replace(evidence=Evidence.STRONG)
        self.health = health
        if health.failing is None:
            self.failing_since, self.left_in_window = None, False
            self.alive_since = now if self.alive_since is None else self.alive_since
            return False
        if before is None or self.failing_since is None:
            self.failing_since = now
        return before is None

    def vouch(self, *, now: float) -> None:
        """Record a heartbeat of the broker itself, whose agent holds the registration."""
        self.pulse.vouch(now=now)
        self.left_in_window = self.left_in_window and self.health.failing is not None

    def facts(self, *, now: float) -> BrokerFacts:
        """Return the facts that an event records."""
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
    """What a replica learns of its group (RocketMQ ``RegisterBrokerResult``). Empty values: there is none."""

    min_broker_id: int = MASTER_ID
    min_broker_addr: str = ""
    master_addr: str = ""
    ha_addr: str = ""
    master_agent_addr: str = ""
    also_at_addr: tuple[BrokerIdentity, ...] = ()
    """Other registrations of the replica's own address, of any group."""


@dataclass(slots=True)
class Group:
    """The replicas of one broker name, by broker id. Never empty while it is in a table."""

    key: GroupKey
    replicas: dict[int, Replica] = field(default_factory=dict)
    version: int = 0
    """Number of the change that last altered what clients see of the group."""

    def routed(self) -> list[Replica]:
        """Return the replicas that clients may be sent to, by broker id."""
        return [self.replicas[i] for i in sorted(self.replicas) if self.replicas[i].is_routed]

    def lowest(self) -> Replica | None:
        """Return the routed replica with the lowest id. Runs for every heartbeat, so it makes no list."""
        return min((r for r in self.replicas.values() if r.is_routed), key=_broker_id, default=None)

    def at_addr(self, addr: str) -> Replica | None:
        """Return the replica that holds an address."""
        return next((replica for replica in self.replicas.values() if replica.identity.addr == addr), None)

    def contributor(self) -> Replica | None:
        """Return the replica that provides the group's topics: the master, else the lowest id if it may act as one.

        RocketMQ calls the second the prime slave (``RouteInfoManager.registerBroker``, step 8).
        """
        lowest = self.lowest()
        if lowest is None or lowest.identity.broker_id == MASTER_ID or lowest.registration.acting_master:
            return lowest
        return None

    def view_for(self, broker_id: int) -> MemberView:
        """Return the group's view for one replica: a slave gets the addresses of its master and of its master's
        agent."""
        lowest = self.lowest()
        if lowest is None:
            return MemberView()
        _, _, lowest_id, addr = lowest.identity
        if broker_id == MASTER_ID or lowest_id != MASTER_ID:
            return MemberView(lowest_id, addr)
        return MemberView(lowest_id, addr, addr, lowest.registration.ha_addr, lowest.registration.agent_addr)


def _broker_id(replica: Replica) -> int:
    return replica.identity.broker_id
