"""The agents to which a consumer connects."""

from __future__ import annotations

import random

from pointsman_client.core.route import BrokerData, BrokerReplica, BrokerState
from pointsman_client.pointsman_grpc.agents.broker_agents import agent_addrs, agent_of_queues


def broker(cluster: str, name: str, **agents: str) -> BrokerData:
    """A replica group; ``_0="host:1"`` is the agent of broker id 0."""
    replicas = tuple(
        BrokerReplica(int(each[1:]), "10.0.0.1:1", "", addr, BrokerState.UP) for each, addr in agents.items()
    )
    return BrokerData(cluster, name, replicas, "", acting_master=False)


def test_agents_are_sorted_by_cluster_name_and_id_for_any_order_of_the_routes() -> None:
    brokers = [
        broker("c1", "b", _10="h:4", _9="h:3"),
        broker("c2", "a", _0="h:5"),
        broker("c1", "a", _0="h:1", _1="h:2"),
    ]
    for seed in range(5):
        random.Random(seed).shuffle(brokers)
        assert agent_addrs(brokers) == ("h:1", "h:2", "h:3", "h:4", "h:5")


def test_an_agent_without_a_usable_address_is_skipped() -> None:
    assert agent_addrs([broker("c", "a", _0="", _1="not an address", _2="h:2")]) == ("h:2",)
    assert agent_addrs([]) == ()


def test_an_address_of_two_brokers_counts_once_at_its_first_place() -> None:
    assert agent_addrs([broker("c", "a", _0="h:1"), broker("c", "b", _0="h:2", _1="h:1")]) == ("h:1", "h:2")


def test_queues_belong_to_the_agent_of_the_master_else_of_the_lowest_id() -> None:
    assert agent_of_queues(broker("c", "a", _1="h:1", _0="h:9")) == "h:9"
    assert agent_of_queues(broker("c", "a", _2="h:2", _1="h:1")) == "h:1"
    assert agent_of_queues(broker("c", "a", _0="")) == ""
    assert agent_of_queues(None) == ""
