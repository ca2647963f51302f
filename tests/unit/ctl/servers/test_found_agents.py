"""Which agents are queried when brokers are not in the routes, and which brokers are named as not counted."""

from __future__ import annotations

import grpc
import pytest

from pointsman.v1 import broker_pb2
from pointsman.v1 import route_service_pb2 as wire
from pointsman_client import AgentFailedError
from pointsman_ctl.commands.agent_round import AgentChoice, QueryResult, missing_report
from pointsman_ctl.commands.offset_commands import group_totals, offset_rows, unknown_ends
from pointsman_ctl.servers.found_agents import Agent, FoundAgents, MissingBroker, agents_in
from pointsman_ctl.servers.server_calls import NodeResponse
from tests.unit.ctl.output.test_consumer_group_view import cluster, offsets


def absent(
    name: str = "b", broker_id: int = 0, agent_addr: str = "b:1", *, out: bool = False, rocketmq: bool = False
) -> wire.AbsentBrokerAgent:
    who = broker_pb2.BrokerIdentity(cluster="c1", broker_name=name, broker_id=broker_id, addr=f"{name}:10911")
    return wire.AbsentBrokerAgent(
        broker=wire.AbsentBroker(identity=who, is_registered=out), agent_addr=agent_addr, is_rocketmq=rocketmq
    )


def names(missing: FoundAgents) -> list[str]:
    return [f"{each}: {each.reason}" for each in missing.missing]


A = cluster((0, "a:1"))


def test_agents_of_brokers_that_are_out_or_departed_are_queried_too() -> None:
    found = agents_in([A], replicas_too=False, absent=[absent(out=True), absent("c", agent_addr="c:1")])

    assert found.agents == (Agent("a:1", ("c1/a/0",)), Agent("b:1", ("c1/b/0",)), Agent("c:1", ("c1/c/0",)))
    assert found.absent == {"c1/b/0": "OUT", "c1/c/0": "GONE"}
    assert found.missing == ()


def test_a_rocketmq_broker_that_departed_is_queried_itself() -> None:
    found = agents_in([A], replicas_too=False, absent=[absent(agent_addr="", rocketmq=True)])

    assert found.agents[1] == Agent("b:10911", ("c1/b/0",), is_rocketmq=True)


def test_a_broker_that_one_name_server_routes_is_not_absent() -> None:
    found = agents_in([A], replicas_too=False, absent=[absent("a", agent_addr="old:1")])

    assert ([agent.addr for agent in found.agents], found.absent) == (["a:1"], {})


def test_a_broker_that_is_out_at_one_name_server_and_departed_at_another_is_out() -> None:
    found = agents_in([], replicas_too=False, absent=[absent(agent_addr="old:1"), absent(out=True)])

    assert ([agent.addr for agent in found.agents], found.absent) == (["b:1", "old:1"], {"c1/b/0": "OUT"})


def test_absent_replicas_are_queried_on_demand_or_where_the_lowest_acted_as_master() -> None:
    replicas = [absent("a", 1, "a1:1"), absent("b", 1, "b1:1"), absent("b", 2, "b2:1")]
    masters = agents_in([A], replicas_too=False, absent=replicas)
    every = agents_in([A], replicas_too=True, absent=replicas)

    assert masters.absent == {"c1/b/1": "GONE"}
    assert list(every.absent) == ["c1/a/1", "c1/b/1", "c1/b/2"]


def test_a_departed_broker_whose_address_another_one_has_now_is_not_counted() -> None:
    found = agents_in([A], replicas_too=False, absent=[absent("old", agent_addr="a:1"), absent("c", agent_addr="")])

    assert [agent.name for agent in found.agents] == ["c1/a/0"]
    assert names(found) == ["c1/c/0 GONE: agent address unknown", "c1/old/0 GONE: a:1 now serves c1/a/0"]


def test_a_name_without_a_master_is_not_counted_unless_its_master_is_known_or_replicas_are_queried() -> None:
    slave = cluster((1, "a1:1"))

    assert names(agents_in([slave], replicas_too=False)) == ["c1/a NO MASTER: see --all"]
    assert names(agents_in([slave], replicas_too=False, absent=[absent("a")])) == []
    assert names(agents_in([slave], replicas_too=True)) == []
    assert names(agents_in([cluster((1, "a1:1"), acting_master=True)], replicas_too=False)) == []


def result(found: FoundAgents, *failed: str, replicas_too: bool = False) -> QueryResult[object]:
    failure = AgentFailedError("any:1", grpc.StatusCode.DEADLINE_EXCEEDED, "no response")
    responses = [
        (
            agent,
            NodeResponse(
                agent.addr,
                None if agent.addr in failed else object(),
                failure if agent.addr in failed else None,
            ),
        )
        for agent in found.agents
    ]
    return QueryResult(AgentChoice(replicas_too=replicas_too), found, (), responses)


def test_every_broker_of_an_agent_that_failed_is_missing_except_where_a_deputy_responded() -> None:
    deputy = cluster((1, "a1:1"), acting_master=True)
    found = agents_in([deputy], replicas_too=False, absent=[absent("a", agent_addr="a:1"), absent("b")])

    def missing(*failed: str, replicas_too: bool = False) -> list[str]:
        return [str(each) for each in result(found, *failed, replicas_too=replicas_too).missing]

    assert missing("a:1", "b:1") == ["c1/b/0 GONE"]
    assert missing("a:1", replicas_too=True) == ["c1/a/0 GONE"]
    assert missing("a1:1") == ["c1/a/1"]
    assert missing() == []


def test_the_report_of_many_missing_brokers_is_short_and_says_how_a_departed_one_is_removed() -> None:
    many = [MissingBroker(f"c1/b{number:02}/0", "OUT", "no response in time", "b:1") for number in range(12)]
    text = missing_report(many).to_line()
    assert text.startswith("pointsmanctl: 12 brokers not counted: c1/b00/0 OUT (b:1: no response in time), ")
    assert text.endswith(" and 2 more; see `pointsmanctl brokers`")
    assert "`pointsmanctl evict CLUSTER/BROKER/ID`" in missing_report([MissingBroker("c1/b/0", "GONE", "x")]).hint


@pytest.mark.parametrize(
    ("deputy", "lag", "unknown"),
    [
        pytest.param(None, 4, ["c1/b/0 OUT: the lag of 2 queues is unknown"], id="no-replica-knows-the-end"),
        pytest.param((0, 3, 9), 7, ["c1/b/0 OUT: the lag of 1 queue is unknown"], id="a-replica-knows-one-end"),
    ],
)
def test_offsets_of_a_broker_that_is_out_count_as_unknown_lag(
    deputy: tuple[int, int, int] | None, lag: int, unknown: list[str]
) -> None:
    a, b, replica = Agent("a:1", ("c1/a/0",)), Agent("b:1", ("c1/b/0",)), Agent("b1:1", ("c1/b/1",))
    answers = [(a, offsets((0, 6, 10), (1, 5, None))), (b, offsets((0, 6, None), (1, 2, None)))]
    answers += [(replica, offsets(deputy))] if deputy else []
    rows = offset_rows(answers)
    (total,) = group_totals(rows)

    assert (total.queues, total.lag, total.without_end) == (4, lag, 4 - (2 if deputy else 1))
    assert unknown_ends(rows, {"c1/b/0": "OUT"}) == unknown
