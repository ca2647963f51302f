"""The agents to query, from what name servers report, and the brokers that none of them can be queried for. Pure.

A broker that is not in the routes has its offsets, groups and locks nevertheless, so its agent is found, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from pointsman.names import addr_problem
from pointsman.v1 import broker_pb2, route_service_pb2
from pointsman.wire.json_document import MASTER_ID


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent and its brokers."""

    addr: str
    brokers: tuple[str, ...] = ()
    """CLUSTER/BROKER/ID, sorted; empty for an agent named by its address."""
    is_rocketmq: bool = False
    """Whether it is a RocketMQ broker itself, at its own address."""

    @property
    def name(self) -> str:
        """The brokers where they are known, else the address."""
        return ", ".join(self.brokers) or self.addr

    @property
    def queues_of(self) -> str:
        """The broker whose queues it serves, the same for all replicas of a broker name."""
        return self.brokers[0].rpartition("/")[0] if self.brokers else self.addr

    def __str__(self) -> str:
        return f"{self.addr} ({self.name})" if self.brokers else self.addr


def noun_of(agents: Iterable[Agent]) -> str:
    """Return ``broker`` if all are RocketMQ brokers, else ``agent``."""
    return "broker" if all(agent.is_rocketmq for agent in agents) else "agent"


@dataclass(frozen=True, slots=True)
class MissingBroker:
    """A broker whose data is not in the responses."""

    name: str
    """CLUSTER/BROKER/ID, CLUSTER/BROKER if it has no master, or the address of an agent given by address."""
    state: str
    """OUT, GONE or NO MASTER; empty: it is in the routes, or its state is unknown."""
    why: str
    addr: str = ""
    """Of the agent or RocketMQ broker that was queried; empty: none could be."""

    @property
    def group(self) -> str:
        """CLUSTER/BROKER of a broker."""
        return self.name.rpartition("/")[0] if self.name.count("/") > 1 else self.name

    @property
    def reason(self) -> str:
        """Why it is missing, with the address that was queried."""
        return f"{self.addr}: {self.why}" if self.addr and self.addr != self.name else self.why

    def __str__(self) -> str:
        return f"{self.name} {self.state}".rstrip()


@dataclass(frozen=True, slots=True)
class FoundAgents:
    """The agents that name servers know."""

    agents: tuple[Agent, ...]
    """By address."""
    without: tuple[str, ...] = ()
    """Routed brokers whose agent has no usable address, sorted."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """OUT or GONE by CLUSTER/BROKER/ID: chosen brokers that are not in the routes of any name server."""
    missing: tuple[MissingBroker, ...] = ()
    """Chosen brokers that cannot be queried, sorted by name."""


class _Addresses:
    """Agents and RocketMQ brokers by address, with CLUSTER/BROKER/ID of their brokers."""

    def __init__(self) -> None:
        self._brokers: dict[tuple[str, bool], set[str]] = {}

    def add(self, addr: str, name: str, *, is_rocketmq: bool) -> bool:
        """Add a broker; return whether its address is usable."""
        if addr_problem(addr):
            return False
        self._brokers.setdefault((addr, is_rocketmq), set()).add(name)
        return True

    def update(self, other: _Addresses) -> None:
        """Add all of another one."""
        for key, names in other._brokers.items():
            self._brokers.setdefault(key, set()).update(names)

    def at(self, addr: str, *, is_rocketmq: bool) -> str:
        """Return the brokers at an address; empty: none."""
        return ", ".join(sorted(self._brokers.get((addr, is_rocketmq), ())))

    def agents(self) -> tuple[Agent, ...]:
        """Return one agent for each address."""
        return tuple(Agent(addr, tuple(sorted(names)), each) for (addr, each), names in sorted(self._brokers.items()))


def agents_in(
    clusters: Iterable[route_service_pb2.ClusterData],
    *,
    replicas_too: bool,
    rocketmq: Collection[str] = (),
    absent: Iterable[route_service_pb2.AbsentBrokerAgent] = (),
) -> FoundAgents:
    """Return each agent of the masters, or of all replicas, once; ``rocketmq``: CLUSTER/BROKER/ID of RocketMQ brokers.

    If name servers report different agents for a broker, all of them are returned. ``absent``: brokers that are not
    routed; one that another name server routes is not absent.
    """
    addresses, routed, groups, served = _Addresses(), set[str](), set[str](), set[str]()
    unreachable, reachable = set[str](), set[str]()
    for data in (data for cluster in clusters for data in cluster.broker_datas):
        group = f"{data.cluster}/{data.broker_name}"
        groups.add(group)
        routed.update(f"{group}/{replica.broker_id}" for replica in data.replicas)
        queried = list(data.replicas) if replicas_too else list(_served_by(data))
        served.update([group] if queried else ())
        for replica in queried:
            name = f"{group}/{replica.broker_id}"
            is_rocketmq = name in rocketmq and not replica.agent_addr
            addr = replica.addr if is_rocketmq else replica.agent_addr
            (reachable if addresses.add(addr, name, is_rocketmq=is_rocketmq) else unreachable).add(name)
    chosen = _chosen_absent(absent, routed=routed, groups=groups, replicas_too=replicas_too)
    missing = list(_add_absent(addresses, chosen))
    states = {name: "OUT" if any(each.broker.is_registered for each in found) else "GONE" for name, found in chosen}
    has_master = served | {name.removesuffix(f"/{MASTER_ID}") for name in states}
    missing += [MissingBroker(group, "NO MASTER", "see --all") for group in groups - has_master]
    missing = [replace(each, state=states.get(each.name, each.state)) for each in missing]
    without = tuple(sorted(unreachable - reachable))
    missing += [MissingBroker(name, "", "agent address unknown") for name in without]
    return FoundAgents(addresses.agents(), without, states, tuple(sorted(missing, key=lambda each: each.name)))


_Absent: TypeAlias = "list[tuple[str, list[route_service_pb2.AbsentBrokerAgent]]]"


def _chosen_absent(
    absent: Iterable[route_service_pb2.AbsentBrokerAgent], *, routed: set[str], groups: set[str], replicas_too: bool
) -> _Absent:
    """Return, by CLUSTER/BROKER/ID, what name servers report of masters that none of them routes, or of all replicas.

    Without any routed replica and without a master the lowest id counts as master: it acted as such.
    """
    found: dict[str, list[route_service_pb2.AbsentBrokerAgent]] = {}
    lowest: dict[str, int] = {}
    for each in absent:
        who = each.broker.identity
        group = f"{who.cluster}/{who.broker_name}"
        if f"{group}/{who.broker_id}" in routed:
            continue
        found.setdefault(f"{group}/{who.broker_id}", []).append(each)
        lowest[group] = min(who.broker_id, lowest.get(group, who.broker_id))
    masters = {f"{group}/{MASTER_ID if group in groups else lowest[group]}" for group in lowest}
    return [(name, each) for name, each in sorted(found.items()) if replicas_too or name in masters]


def _add_absent(addresses: _Addresses, absent: _Absent) -> Iterator[MissingBroker]:
    """Add the agents of absent brokers; yield the brokers that have none that can be queried."""
    added = _Addresses()
    for name, reported in absent:
        why, is_added = "agent address unknown", False
        for each in reported:
            is_rocketmq = each.is_rocketmq and not each.agent_addr
            addr = each.broker.identity.addr if is_rocketmq else each.agent_addr
            # Another broker moved to this address: its agent does not have the data of this one.
            if other := addresses.at(addr, is_rocketmq=is_rocketmq):
                why = f"{addr} now serves {other}"
            else:
                is_added |= added.add(addr, name, is_rocketmq=is_rocketmq)
        if not is_added:
            yield MissingBroker(name, "", why)
    addresses.update(added)


def _served_by(data: broker_pb2.BrokerData) -> Iterator[broker_pb2.BrokerReplica]:
    """Yield the master, or the acting master."""
    for position, replica in enumerate(data.replicas):
        if replica.broker_id == MASTER_ID or (position == 0 and data.acting_master):
            yield replica
            return
