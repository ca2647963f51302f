"""The brokers that are known, with their topics, routes and penalties: what queries read.

:class:`~pointsman_namesrv.core.name_server.NameServer` changes these tables when brokers call it and when time passes.
The observer changes those of each name server that it polls, which it may not judge by heartbeats.
"""

from __future__ import annotations

from collections.abc import Iterator

from pointsman_namesrv.core.absences import Absences
from pointsman_namesrv.core.addresses import Addresses
from pointsman_namesrv.core.departed import DepartedBrokers
from pointsman_namesrv.core.flap_penalties import Penalties
from pointsman_namesrv.core.group import Group, Replica
from pointsman_namesrv.core.guard import Guard
from pointsman_namesrv.core.holdings import PeerHoldings
from pointsman_namesrv.core.kv import KvConfig
from pointsman_namesrv.core.maintenance import MaintenanceWindows
from pointsman_namesrv.core.model import BrokerIdentity, Registration
from pointsman_namesrv.core.node_refusals import ClusterNotFound
from pointsman_namesrv.core.overrides import Overrides
from pointsman_namesrv.core.replica_state import Phase
from pointsman_namesrv.core.route_table import RouteTable


class BrokerTables:
    """All known brokers and the routes that follow from them."""

    hears_brokers = True
    """Whether brokers call this server: else heartbeats, probes, versions, processes and guards are unknown."""

    def __init__(self, *, guard: Guard, max_brokers: int, max_topics: int, remember_seconds: float) -> None:
        self.overrides = Overrides()
        self.departed = DepartedBrokers(seconds=remember_seconds)
        self.routes = RouteTable(self.overrides, self.departed)
        self.guard = guard
        self.maintenance = MaintenanceWindows()
        self.kv = KvConfig()
        self.penalties = Penalties()
        self.held = PeerHoldings(max_brokers=max_brokers, max_topics=max_topics)
        self.absences = Absences(self.departed, self.routes, self.maintenance, self.held)
        self.addresses = Addresses()

    def members(self) -> Iterator[tuple[Group, Replica]]:
        """Iterate over all known replicas, unsorted, for a walk that ends before the next call."""
        return ((group, replica) for group in self.routes.groups.values() for replica in group.replicas.values())

    def registration_of(self, identity: BrokerIdentity) -> Registration | None:
        """Return the latest registration of the holder of an address and position."""
        replica = self.replica_of(identity)
        return replica.registration if replica is not None and replica.identity.addr == identity.addr else None

    def provisional_count(self) -> int:
        """Return the number of snapshot replicas without a heartbeat yet that have not expired."""
        return sum(each.is_provisional and each.state.phase is not Phase.PROTECTED for _, each in self.members())

    def replicas(self, *, cluster: str = "", broker_name: str = "") -> list[tuple[Group, Replica]]:
        """Return all known replicas, sorted by identity."""
        members = (
            (group, replica)
            for group, replica in self.members()
            if (not cluster or group.key.cluster == cluster)
            and (not broker_name or group.key.broker_name == broker_name)
        )
        return sorted(members, key=lambda member: member[1].identity)

    def clusters(self, cluster: str = "") -> list[tuple[str, list[Group]]]:
        """Return clusters and their groups, sorted by name. Raises ClusterNotFound for an unknown name."""
        found = [(name, groups) for name, groups in self.routes.iter_clusters() if not cluster or name == cluster]
        if cluster and not found:
            raise ClusterNotFound(cluster)
        return found

    def topic_names(self, cluster: str = "") -> list[str]:
        """Return the names of topics, sorted. Raises ClusterNotFound for an unknown cluster."""
        if cluster:
            self.clusters(cluster)
        return self.routes.topic_names(cluster)

    def replica_of(self, identity: BrokerIdentity) -> Replica | None:
        """Return the holder of a position."""
        group = self.routes.groups.get(identity.group_key)
        return None if group is None else group.replicas.get(identity.broker_id)
