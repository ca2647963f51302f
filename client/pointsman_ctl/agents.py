"""Which agents there are, by the word of the name servers: each knows the address that a broker's agent told. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pointsman.wire.names import addr_problem
from pointsman_client.core.route import BrokerData, BrokerReplica, ClusterData


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent, and whose it is."""

    addr: str
    brokers: tuple[str, ...] = ()
    """CLUSTER/BROKER/ID, sorted; none for one that was named by its address."""

    @property
    def name(self) -> str:
        """The brokers where they are known, else the address."""
        return ", ".join(self.brokers) or self.addr

    @property
    def queues_of(self) -> str:
        """Whose queues it speaks of: replicas of one broker name have the same."""
        return self.brokers[0].rpartition("/")[0] if self.brokers else self.addr

    def __str__(self) -> str:
        return f"{self.addr} ({self.name})" if self.brokers else self.addr


@dataclass(frozen=True, slots=True)
class FoundAgents:
    """What name servers know of agents."""

    agents: tuple[Agent, ...]
    """By address."""
    without: tuple[str, ...]
    """Brokers whose agent told no address that can be used, sorted."""


def agents_in(clusters: Iterable[ClusterData], *, replicas_too: bool) -> FoundAgents:
    """Return each agent of the masters (of all replicas) once; one broker's, if name servers differ on it, each."""
    brokers: dict[str, set[str]] = {}
    unreachable, reachable = set(), set()
    for cluster in clusters:
        for data in cluster.broker_datas:
            for replica in data.replicas if replicas_too else _served_by(data):
                name = f"{data.cluster}/{data.broker_name}/{replica.broker_id}"
                if addr_problem(replica.agent_addr):
                    unreachable.add(name)
                else:
                    reachable.add(name)
                    brokers.setdefault(replica.agent_addr, set()).add(name)
    agents = (Agent(addr, tuple(sorted(names))) for addr, names in sorted(brokers.items()))
    return FoundAgents(tuple(agents), tuple(sorted(unreachable - reachable)))


def _served_by(data: BrokerData) -> Iterator[BrokerReplica]:
    """The master, or whoever acts as one."""
    if data.master is not None:
        yield data.master
    elif data.acting_master:
        yield from data.replicas[:1]
