"""Which agents a consumer speaks to, by the routes. Pure.

Every consumer of a group must come to the same order, so it follows from names and ids alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pointsman.wire.names import addr_problem
from pointsman_client.core.route import BrokerData


class RoutedBrokers(Protocol):
    """What is needed of the routes; ``NameServerClient`` has it."""

    def broker(self, cluster: str, broker_name: str, /) -> BrokerData | None:
        """Return a replica group of a cached route; None: no route has it."""
        ...

    def brokers_of(self, topics: Iterable[str], /) -> tuple[BrokerData, ...]:
        """Return the replica groups of the cached routes of these topics."""
        ...


def agent_addrs(brokers: Iterable[BrokerData]) -> tuple[str, ...]:
    """Return the agents of all replicas, each address once, in the order of (cluster, broker name, broker id)."""
    found = {
        (*broker.key, replica.broker_id): replica.agent_addr
        for broker in brokers
        for replica in broker.replicas
        if addr_problem(replica.agent_addr) is None
    }
    return tuple(dict.fromkeys(addr for _, addr in sorted(found.items())))


def agent_of_queues(broker: BrokerData | None) -> str:
    """Return the agent that keeps locks and offsets of a replica group's queues; empty: none tells its address.

    That is the master's, else that of the lowest id: the same for every consumer that sees the same route.
    """
    addrs = agent_addrs([broker]) if broker is not None else ()
    return addrs[0] if addrs else ""
