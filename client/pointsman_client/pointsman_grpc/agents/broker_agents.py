"""The agents in the routes of a consumer. Pure.

The order depends only on names and ids, so that all consumers of a group use the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from pointsman.names import addr_problem
from pointsman_client.core.route import BrokerData


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
    """Return the agent that has the locks and offsets of a replica group's queues; empty: none has an address.

    It is the master's agent, else that of the lowest broker id: the same for all consumers with the same route.
    """
    addrs = agent_addrs([broker]) if broker is not None else ()
    return addrs[0] if addrs else ""
