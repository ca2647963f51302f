"""``pointsmanctl`` reads groups, locks and offsets from the agents that the name servers list, and pins groups."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from pointsman.clock import SystemClock
from pointsman.manual_clock import ManualClock
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.v1.broker_pb2 import PROBE_EVIDENCE_STRONG, PROBE_STATUS_FAILING, BrokerHealth
from pointsman_agent.core.drain_lag import GroupLag, LagReport
from pointsman_agent.core.queue import QueueKey
from pointsman_client.core.allocation import AllocationStrategy, Averagely, ConsistentHash
from pointsman_client.pointsman_grpc.agents.group_settings import own_settings
from pointsman_ctl.commands.agent_round import MAX_CONCURRENT_AGENTS, AgentChoice, agent_round
from pointsman_ctl.options.invocation import Invocation
from pointsman_ctl.servers.agent_queries import AgentServer
from tests.kit.agent.group_clients import Consumer, reads
from tests.kit.agent.in_route import whole_agents
from tests.kit.ctl.command import Ended, ctl
from tests.kit.ctl.fleet import Fleet, a_fleet
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.scripted_routes import refused_addr

A, B, C = "10.0.0.1@a", "10.0.0.2@b", "10.0.0.3@c"


def total(**counts: int) -> dict[str, object]:
    """The total of the group ``billing``."""
    zeros = dict.fromkeys(("queues", "lag", "queuesWithoutEnd", "retryQueues", "retryQueuesWithoutEnd"), 0)
    return {"group": "billing", **zeros, **counts}


@pytest.fixture
async def fleet(clock: ManualClock) -> AsyncIterator[Fleet]:
    async with a_fleet(clock) as fleet:
        yield fleet


# Groups


async def test_groups_are_merged_from_all_masters_and_each_client_counts_once(fleet: Fleet) -> None:
    for agent in (fleet.one, fleet.two):
        await fleet.join(agent, A, reads("billing", "orders"))
        await fleet.join(agent, B, reads("billing", "orders"))
    await fleet.join(fleet.two, C, reads("audit", "bills", model=wire.MESSAGE_MODEL_BROADCASTING))
    await fleet.join(fleet.replica, C, reads("backup"))
    table, printed, whole = await asyncio.gather(
        fleet.ctl("groups"), fleet.json("groups"), fleet.json("groups", "--all")
    )

    assert table == Ended(
        0,
        "GROUP    MEMBERS  AGENTS  LAG  IN/S  OUT/S  MODEL         TOPICS  FLAGS\n"
        "audit          1     1/2    -     -      -  BROADCASTING  bills   -\n"
        "billing        2     2/2    -     -      -  CLUSTERING    orders  -\n",
        "",
    )
    assert printed.document["groups"][1] == {
        "group": "billing",
        "members": 2,
        "isExact": True,
        "agents": sorted([fleet.one.addr, fleet.two.addr]),
        "messageModels": ["CLUSTERING"],
        "topics": ["orders"],
        "lag": None,
        "putRate": None,
        "commitRate": None,
        "behindQueues": 0,
        "stuckQueues": 0,
        "flags": [],
    }
    agents = {agent["addr"]: agent for agent in printed.document["agents"]}
    assert agents[fleet.one.addr] == {
        "addr": fleet.one.addr,
        "brokers": ["c1/a/0"],
        "absent": [],
        "state": "READY",
        "groups": [
            {
                "group": "billing",
                "members": 2,
                "messageModel": "CLUSTERING",
                "topics": ["orders"],
                "isConflicting": False,
                "isPinned": False,
                "load": None,
            }
        ],
    }
    assert [group["group"] for group in whole.document["groups"]] == ["audit", "backup", "billing"]


async def test_conflicts_pins_and_agents_with_different_members_are_flagged(fleet: Fleet) -> None:
    await fleet.join(fleet.one, A, reads("billing"), reads("split", "orders"))
    await fleet.join(fleet.one, B, reads("split", "bills"))
    await fleet.join(fleet.two, B, reads("billing"))
    assert (await fleet.ctl("pin", "split", "--to", "10.0.0.1", "--for", "1h")).code == 0
    listed = await fleet.json("groups")
    one = await fleet.ctl("group", "billing")

    assert [(group["group"], group["members"], group["flags"]) for group in listed.document["groups"]] == [
        ("billing", 2, ["DIFFERS"]),
        ("split", 2, ["CONFLICT", "PINNED"]),
    ]
    lines = one.out.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == [A, B]
    assert all(line.endswith(" 1/2  orders         DIFFERS") for line in lines[1:3])
    assert f"DIFFERS: {fleet.two.addr} (c1/b/0) does not know {A}" in lines
    assert f"DIFFERS: {fleet.one.addr} (c1/a/0) does not know {B}" in lines
    assert lines[-1] == "2 members, CLUSTERING, at 2 of 2 agents"
    assert one.code == 0


async def test_members_that_differ_are_named_with_what_differs_and_what_follows(fleet: Fleet) -> None:
    def stating(strategy: AllocationStrategy, *, age: int, is_ordered: bool = False) -> wire.GroupSubscription:
        group, now = reads("billing"), datetime(2026, 1, 1, tzinfo=UTC)
        group.settings.CopyFrom(own_settings(strategy, is_ordered=is_ordered, started_at=now - timedelta(seconds=age)))
        return group

    for agent in (fleet.one, fleet.two):
        await fleet.join(agent, B, stating(ConsistentHash(20), age=5))
        await fleet.join(agent, C, stating(Averagely(), age=5, is_ordered=True))
        await fleet.join(agent, A, stating(Averagely(), age=60))
    table, printed = await asyncio.gather(fleet.ctl("group", "billing"), fleet.json("group", "billing"))
    lines = table.out.splitlines()
    assert [line.split("orders")[1].split() for line in lines[1:4]] == [["-"], ["CONFLICT"], ["CONFLICT", "ASIDE"]]
    held = f'oldest member {A} in strategy (CONSISTENT_HASH {{"virtual_nodes":20}}, not AVG)'
    assert f"CONFLICT: {B} differs from the {held}: it follows the oldest member {A}" in lines
    assert f"CONFLICT: {C} differs from the oldest member {A} in ordered: it holds no queues" in lines
    member = next(each for each in printed.document["members"] if each["clientId"] == C)
    assert (member["strategy"], member["isOrdered"], member["standsAside"]) == ("AVG", True, True)
    assert member["differences"] == ["ORDERED"]
    assert (await fleet.json("groups")).document["groups"][0]["flags"] == ["CONFLICT"]

    await fleet.join(fleet.one, "10.0.0.9@old", reads("billing"))
    old = (await fleet.ctl("group", "billing")).out
    assert "UNKNOWN: the clients of 10.0.0.9@old do not state their settings\n" in old


async def test_a_clustering_and_a_broadcasting_member_differ_in_the_model_and_in_nothing_else(fleet: Fleet) -> None:
    await fleet.join(fleet.one, A, reads("split", "orders"))
    await fleet.join(fleet.one, B, reads("split", "bills", model=wire.MESSAGE_MODEL_BROADCASTING))
    out = (await fleet.ctl("group", "split")).out
    assert (
        f"CONFLICT: {B} differs from the oldest member {A} in message model: its client is too old to follow\n" in out
    )
    assert out.count("CONFLICT:") == 1


async def test_one_group_is_shown_with_everything_that_its_agents_know(fleet: Fleet, clock: ManualClock) -> None:
    await fleet.join(fleet.one, A, reads("held", "orders", tags="b || a"))
    await clock.advance(7.0)
    await fleet.join(fleet.one, B, reads("held", "orders", consume_type=wire.CONSUME_TYPE_PULL))
    assert (await fleet.ctl("pin", "held", "--to", A, "--for", "1h", "--agent", fleet.one.addr)).code == 0
    table, printed = await asyncio.gather(fleet.ctl("group", "held"), fleet.json("group", "held"))

    lines = table.out.splitlines()
    first = lines[1].split()
    assert first[0] == A
    assert first[1].startswith("127.0.0.1:")
    assert (first[2], first[4:]) == ("2026-01-01", ["7.0s", "1/1", "orders", "(a", "||", "b)", "-"])
    assert lines[2].endswith("CONFLICT")
    conflict = (
        f"CONFLICT: {B} differs from the oldest member {A} in consume type, subscriptions: messages may reach no member"
    )
    assert conflict in lines
    assert f"PINNED to {A} until 2026-01-01 01:00:07 UTC: {fleet.one.addr} (c1/a/0)" in lines
    assert f"DELAYED: {fleet.one.addr} (c1/a/0) has not pushed {B} yet" in lines
    assert f"no members at {fleet.two.addr} (c1/b/0)" in lines

    document = printed.document
    assert (document["isAgreed"], document["messageModels"]) == (True, ["CLUSTERING"])
    assert [member["clientId"] for member in document["members"]] == [A, B]
    second = document["members"][1]
    assert (second["consumeTypes"], second["isConflicting"], second["isConnected"]) == (["PULL"], True, True)
    assert (second["agents"], second["missingAt"], second["silentSeconds"]) == ([fleet.one.addr], [], 0.0)
    assert document["pins"] == [
        {"agent": fleet.one.addr, "pinnedClientIds": [A], "pinnedUntil": "2026-01-01T01:00:07.100Z"}
    ]
    known = {agent["addr"]: agent["group"] for agent in document["agents"]}
    assert known[fleet.two.addr] is None
    assert known[fleet.one.addr]["membership"]["clientIds"] == [A]
    assert known[fleet.one.addr]["holdDownSeconds"] == 10.0
    assert known[fleet.one.addr]["membership"]["revision"]["boot"] == "000000000000feed"
    assert len(known[fleet.one.addr]["members"]) == 2


@pytest.mark.parametrize(("command", "problem"), [("group", "members"), ("offsets", "committed offset")])
async def test_an_unknown_group_is_an_error_that_names_the_agents_that_were_searched(
    fleet: Fleet, command: str, problem: str
) -> None:
    await fleet.join(fleet.replica, A, reads("backup"))
    fleet.replica.offsets.commit("backup", {QueueKey("orders", 0): 4}, reset=False)
    table, printed, replicas = await asyncio.gather(
        fleet.ctl(command, "backup"), fleet.json(command, "backup"), fleet.ctl(command, "backup", "--all")
    )

    assert table == Ended(
        1,
        "",
        f"pointsmanctl: consumer group backup has no {problem} at the 2 agents that responded; "
        "see `pointsmanctl groups`, or query replicas with --all\n",
    )
    assert json.loads(printed.err)["error"]["code"] == "GROUP_NOT_FOUND"
    assert replicas.code == 0


async def test_an_agent_that_warms_up_is_named_and_its_members_are_no_disagreement(clock: ManualClock) -> None:
    async with (
        running_name_server() as app,
        whole_agents(("a", 0), clock=clock, name_servers=[app]) as (ready,),
        whole_agents(("b", 0), clock=clock, name_servers=[app], warm_up=30.0) as (warming,),
    ):
        await clock.advance(0.1)
        consumers = [Consumer(agent.addr, client_id) for agent, client_id in ((ready, A), (ready, B), (warming, A))]
        for consumer in consumers:
            await consumer.beat(reads("billing"))
        namesrv = ("--namesrv", app.addr)
        listed, shown, unknown = await asyncio.gather(
            ctl(*namesrv, "groups"), ctl(*namesrv, "group", "billing"), ctl(*namesrv, "group", "none")
        )
        for consumer in consumers:
            await consumer.crash()

    where = f"{warming.addr} (c1/b/0)"
    assert listed.out.splitlines()[1:] == [
        "billing        2     2/2    -     -      -  CLUSTERING  orders  WARMING",
        f"WARMING: {where}",
    ]
    assert f"WARMING: {where} may not know all members yet" in shown.out.splitlines()
    assert "DIFFERS" not in shown.out
    assert unknown.code == 1
    assert "is warming up, retry" in unknown.err


# Locks and offsets


async def test_locks_shows_who_holds_which_queue_of_which_broker_and_since_when(
    fleet: Fleet, clock: ManualClock
) -> None:
    fleet.two.locks.lock("billing", B, [QueueKey("orders", 1)], now=clock.monotonic())
    await clock.advance(61.0)
    fleet.one.locks.lock("billing", A, [QueueKey("orders", 0)], now=clock.monotonic())
    fleet.one.locks.lock("audit", C, [QueueKey("bills", 0)], now=clock.monotonic())
    table, printed, none = await asyncio.gather(
        fleet.ctl("locks"), fleet.json("locks", "--group", "billing"), fleet.ctl("locks", "--group", "none")
    )

    assert table.out == (
        "GROUP    TOPIC   BROKER  QUEUE  OWNER       LAST RENEWAL  STATUS\n"
        "audit    bills   c1/a/0      0  10.0.0.3@c           0ms  -\n"
        "billing  orders  c1/a/0      0  10.0.0.1@a           0ms  -\n"
        "billing  orders  c1/b/0      1  10.0.0.2@b         61.0s  EXPIRED\n"
    )
    locks = {lock["agent"]: lock for lock in printed.document["locks"]}
    assert locks[fleet.two.addr] == {
        "group": "billing",
        "topic": "orders",
        "agent": fleet.two.addr,
        "brokers": ["c1/b/0"],
        "queueId": 1,
        "clientId": B,
        "renewedAgoSeconds": 61.0,
        "isExpired": True,
    }
    assert [(agent["lifetimeSeconds"], agent["locks"]) for agent in printed.document["agents"]] == [(60.0, 1)] * 2
    assert none == Ended(0, "no queue is locked\n", "")


async def test_offsets_have_a_lag_where_the_end_is_known_and_a_total_per_group(fleet: Fleet) -> None:
    fleet.one.offsets.commit("billing", {QueueKey("orders", 0): 90, QueueKey("orders", 1): 7}, reset=False)
    fleet.one.ends.table = {QueueKey("orders", 0): 100}
    fleet.two.offsets.commit("billing", {QueueKey("orders", 0): 50}, reset=False)
    fleet.two.ends.table = {QueueKey("orders", 0): 20}
    fleet.two.offsets.commit("audit", {QueueKey("bills", 1): 3}, reset=False)
    table, printed = await asyncio.gather(fleet.ctl("offsets"), fleet.json("offsets", "billing"))

    assert table.out == (
        "GROUP    TOPIC   BROKER  QUEUE  COMMITTED  MAX  LAG  STATUS\n"
        "audit    bills   c1/b/0      1          3    -    -  -\n"
        "billing  orders  c1/a/0      0         90  100   10  -\n"
        "billing  orders  c1/a/0      1          7    -    -  -\n"
        "billing  orders  c1/b/0      0         50   20    0  BEYOND END\n"
        "\n"
        "GROUP    QUEUES  LAG  UNKNOWN LAG\n"
        "audit         1    -      1 queue\n"
        "billing       3   10      1 queue\n"
    )
    assert printed.document["totals"] == [total(queues=3, lag=10, queuesWithoutEnd=1)]
    assert (printed.document["notCounted"], printed.document["isAbsentKnown"]) == ([], True)
    assert printed.document["offsets"][0] == {
        "group": "billing",
        "topic": "orders",
        "agent": fleet.one.addr,
        "brokers": ["c1/a/0"],
        "queueId": 0,
        "committedOffset": 90,
        "maxOffset": 100,
        "lag": 10,
        "isBeyondEnd": False,
    }
    assert {agent["durableWithinSeconds"] for agent in printed.document["agents"]} == {1.0}


async def test_empty_retry_queues_are_shown_on_demand_and_always_in_json(fleet: Fleet) -> None:
    retries = {QueueKey("%RETRY%billing", queue_id): 0 for queue_id in range(16)}
    fleet.one.offsets.commit("billing", {QueueKey("orders", 0): 90} | retries, reset=False)
    fleet.one.ends.table = {QueueKey("orders", 0): 100} | retries
    table, whole, printed = await asyncio.gather(
        fleet.ctl("offsets", "billing"), fleet.ctl("offsets", "billing", "--retry"), fleet.json("offsets", "billing")
    )

    assert "%RETRY%" not in table.out
    assert "16 queues of retry topics hidden; show with --retry\n" in table.out
    assert table.out.splitlines()[-1].split() == ["billing", "1", "10", "-"]
    assert printed.document["totals"] == [total(queues=1, lag=10, retryQueues=16)]
    assert whole.out.count("%RETRY%billing") == 16
    assert "not shown" not in whole.out
    assert len(printed.document["offsets"]) == 17


async def test_many_pages_are_one_result_and_a_replicas_copy_counts_once(fleet: Fleet) -> None:
    many = {QueueKey("orders", queue_id): 5 for queue_id in range(2_500)}
    fleet.one.offsets.commit("billing", many, reset=False)
    fleet.replica.offsets.commit("billing", {QueueKey("orders", 0): 4}, reset=False)
    fleet.one.ends.table = dict.fromkeys(many, 6)
    printed = await fleet.json("--timeout", "20", "offsets", "billing", "--all")

    assert len(printed.document["offsets"]) == 2_501
    assert printed.document["totals"] == [total(queues=2_500, lag=2_500)]


# Pins


async def test_a_pin_is_sent_to_masters_and_replicas_and_ended_everywhere(fleet: Fleet) -> None:
    await fleet.join(fleet.one, A, reads("billing"))
    pinned = await fleet.ctl("pin", "billing", "--to", "10.0.0.1", "--to", C, "--for", "30m", "--by", "ops")
    printed = await fleet.json("group", "billing")
    again = await fleet.json("pin", "billing", "--to", A, "--for", "1h")
    unpinned = await fleet.ctl("unpin", "billing")

    assert pinned.code == 0
    assert len(pinned.out.splitlines()) == 3
    until = "billing is pinned until 2026-01-01 00:30:00 UTC"
    assert f"{fleet.one.addr} (c1/a/0): {until} to {A}\n" in pinned.out
    assert f"{fleet.replica.addr} (c1/a/1): {until}, to members that have not joined yet\n" in pinned.out
    assert printed.document["pins"][0]["pinnedClientIds"] == [A]
    assert [agent["until"] for agent in again.document["agents"]] == ["2026-01-01T01:00:00.100Z"] * 3
    assert unpinned.out.count("billing is not pinned\n") == 3
    assert all(agent.groups.core.pinned_count == 0 for agent in (fleet.one, fleet.two, fleet.replica))


async def test_a_pin_that_one_agent_rejected_names_the_others_and_fails(fleet: Fleet) -> None:
    await fleet.two.stop()
    made, printed = await asyncio.gather(
        fleet.ctl("pin", "billing", "--to", A, "--for", "1h"), fleet.json("unpin", "billing")
    )

    assert made.code == printed.code == 1
    done = ", ".join(sorted([fleet.one.addr, fleet.replica.addr]))
    assert f"{fleet.two.addr} is not responding (connection refused)\n" in made.out
    assert made.err == (
        f"pointsmanctl: 1 of 3 agents failed: {fleet.two.addr} (connection refused); done at {done}; "
        "run the command again when all respond; repeating it is safe\n"
    )
    failed = next(agent for agent in printed.document["agents"] if agent["addr"] == fleet.two.addr)
    assert failed["error"]["code"] == "AGENT_FAILED"


# Agents that cannot be found or reached


async def test_a_query_lists_the_brokers_that_are_not_counted_and_exits_with_1(fleet: Fleet) -> None:
    await fleet.join(fleet.one, A, reads("billing"))
    await fleet.two.stop()
    table, printed = await asyncio.gather(fleet.ctl("groups"), fleet.json("groups"))

    assert table.code == printed.code == 1
    assert table.out.splitlines()[1].split()[:3] == ["billing", "1", "1/1"]
    assert table.out.splitlines()[-1] == f"c1/b/0: not counted ({fleet.two.addr}: connection refused)"
    assert table.err == (
        f"pointsmanctl: 1 broker not counted: c1/b/0 ({fleet.two.addr}: connection refused); "
        "see `pointsmanctl brokers`\n"
    )
    assert json.loads(printed.err)["error"]["code"] == "BROKERS_NOT_COUNTED"
    assert printed.document["notCounted"] == [
        {"broker": "c1/b/0", "state": None, "addr": fleet.two.addr, "reason": "connection refused"}
    ]
    failed = next(agent for agent in printed.document["agents"] if agent["addr"] == fleet.two.addr)
    assert (failed["brokers"], failed["error"]["code"]) == (["c1/b/0"], "AGENT_FAILED")


async def test_a_broker_without_an_agents_address_is_named(fleet: Fleet) -> None:
    await fleet.two.register(fleet.name_server, agent_addr="")
    some = await fleet.ctl("groups")
    await fleet.one.register(fleet.name_server, agent_addr="")
    none = await fleet.json("offsets")

    assert some.code == 1
    assert "1 broker not counted: c1/b/0 (agent address unknown)" in some.err
    error = json.loads(none.err)["error"]
    assert (none.code, none.out, error["code"]) == (1, "", "NO_AGENT")
    assert "c1/a/0, c1/b/0" in error["message"]
    assert "--agent HOST:PORT" in error["hint"]


REFUSING = BrokerHealth(status=PROBE_STATUS_FAILING, evidence=PROBE_EVIDENCE_STRONG)


async def test_the_lag_of_a_broker_that_is_out_is_unknown_and_exits_with_1(fleet: Fleet) -> None:
    fleet.one.offsets.commit("billing", {QueueKey("orders", 0): 90}, reset=False)
    fleet.one.ends.table = {QueueKey("orders", 0): 100}
    fleet.two.offsets.commit("billing", {QueueKey("orders", 0): 5, QueueKey("%RETRY%billing", 0): 0}, reset=False)
    await fleet.two.register(fleet.name_server, health=REFUSING)
    table, printed, listed = await asyncio.gather(
        fleet.ctl("offsets", "billing"), fleet.json("offsets", "billing"), fleet.ctl("groups")
    )

    assert table == Ended(
        1,
        "GROUP    TOPIC   BROKER  QUEUE  COMMITTED  MAX  LAG  STATUS\n"
        "billing  orders  c1/a/0      0         90  100   10  -\n"
        "billing  orders  c1/b/0      0          5    -    -  -\n"
        "1 queue of retry topics hidden; show with --retry\n"
        "\n"
        "GROUP    QUEUES  LAG                UNKNOWN LAG\n"
        "billing       2   10  1 queue and 1 retry queue\n"
        "c1/b/0 OUT: the lag of 2 queues is unknown\n",
        "pointsmanctl: c1/b/0 OUT: the lag of 2 queues is unknown; see `pointsmanctl brokers`\n",
    )
    assert printed.code == 1
    assert printed.document["totals"] == [
        total(queues=2, lag=10, queuesWithoutEnd=1, retryQueues=1, retryQueuesWithoutEnd=1)
    ]
    assert {agent["addr"]: agent["absent"] for agent in printed.document["agents"]} == {
        fleet.one.addr: [],
        fleet.two.addr: [{"broker": "c1/b/0", "state": "OUT"}],
    }
    assert listed.code == 0


@pytest.mark.parametrize("command", [("groups",), ("group", "billing"), ("locks",), ("offsets", "billing")])
async def test_a_broker_that_departed_and_does_not_respond_is_not_counted(
    clock: ManualClock, command: tuple[str, ...]
) -> None:
    async with (
        running_name_server(clock=clock) as app,
        whole_agents(("b", 0), clock=clock, name_servers=[app]) as (gone,),
    ):
        await clock.advance(130.0)
        async with whole_agents(("a", 0), clock=clock, name_servers=[app]) as (up,):
            await clock.advance(0.1)
            up.offsets.commit("billing", {QueueKey("orders", 0): 1}, reset=False)
            consumers = [Consumer(agent.addr, A) for agent in (up, gone)]
            for consumer in consumers:
                await consumer.beat(reads("billing"))
            both = await ctl("--namesrv", app.addr, "-o", "json", *command)
            await consumers[1].crash()
            await gone.stop()
            table, printed = await asyncio.gather(
                ctl("--namesrv", app.addr, *command), ctl("--namesrv", app.addr, "-o", "json", *command)
            )
            await consumers[0].crash()

    assert both.code == 0  # its agent responds, though it no longer reaches the name server
    assert [agent["absent"] for agent in both.document["agents"] if agent["addr"] == gone.addr] == [
        [{"broker": "c1/b/0", "state": "GONE"}]
    ]
    assert table.code == printed.code == 1
    assert table.out.splitlines()[-1] == f"c1/b/0 GONE: not counted ({gone.addr}: connection refused)"
    assert "1 broker not counted: c1/b/0 GONE" in table.err
    assert "remove a broker that does not return with `pointsmanctl evict CLUSTER/BROKER/ID`" in table.err
    assert printed.document["notCounted"] == [
        {"broker": "c1/b/0", "state": "GONE", "addr": gone.addr, "reason": "connection refused"}
    ]


async def test_a_group_that_only_a_broker_without_a_response_knows_is_unknown_and_the_broker_is_named(
    fleet: Fleet,
) -> None:
    await fleet.two.register(fleet.name_server, health=REFUSING)
    await fleet.two.stop()
    made = await fleet.ctl("offsets", "billing")

    assert made.code == 1
    assert f"1 broker not counted: c1/b/0 OUT ({fleet.two.addr}: connection refused)" in made.err
    assert "consumer group billing has no committed offset at the 1 agent that responded" in made.err


async def test_a_pin_is_sent_to_a_broker_that_is_out(fleet: Fleet) -> None:
    await fleet.two.register(fleet.name_server, health=REFUSING)
    made = await fleet.json("pin", "billing", "--to", A, "--for", "1h")

    assert (made.code, len(made.document["agents"])) == (0, 3)
    assert fleet.two.groups.core.pinned_count == 1


async def test_the_locks_of_retry_topics_are_listed_after_the_others_of_the_group(
    fleet: Fleet, clock: ManualClock
) -> None:
    queues = [QueueKey("%RETRY%billing", 0), QueueKey("orders", 0)]
    fleet.one.locks.lock("billing", A, queues, now=clock.monotonic())
    fleet.one.locks.lock("audit", A, [QueueKey("%RETRY%audit", 0), QueueKey("bills", 0)], now=clock.monotonic())
    table = await fleet.ctl("locks")

    rows = [line.split()[:2] for line in table.out.splitlines()[1:]]
    assert rows == [
        ["audit", "bills"],
        ["audit", "%RETRY%audit"],
        ["billing", "orders"],
        ["billing", "%RETRY%billing"],
    ]


async def test_agents_given_by_address_are_queried_without_a_name_server(fleet: Fleet) -> None:
    await fleet.join(fleet.one, A, reads("billing"))
    async with refused_addr() as closed:
        one = await ctl("--namesrv", closed, "groups", "--agent", fleet.one.addr, "--agent", fleet.one.addr)
        none = await ctl("--namesrv", closed, "groups", "--agent", closed)
        lost = await ctl("--namesrv", closed, "groups")
        partly = await ctl("--namesrv", f"{closed},{fleet.name_server.addr}", "groups")

    assert one.code == 0
    assert one.out.splitlines()[1].split()[:3] == ["billing", "1", "1/1"]
    assert none.code == lost.code == 1
    assert none.err == (
        f"pointsmanctl: no agent is responding: {closed} (connection refused); "
        "check that the agent runs and is reachable from here, or give another address with --agent\n"
    )
    assert f"no name server is responding: {closed}" in lost.err
    assert partly.code == 1
    assert f"{closed} is not responding (connection refused); brokers that only it knows are missing" in partly.err


async def test_the_address_of_a_name_server_given_as_an_agent_is_an_error_that_explains_it(fleet: Fleet) -> None:
    made = await ctl("groups", "--agent", fleet.name_server.addr)

    assert made.code == 1
    assert "this call is not supported: not an agent, or older than this pointsmanctl" in made.err


async def test_an_agent_that_hangs_costs_only_its_deadline(fleet: Fleet) -> None:
    await fleet.join(fleet.one, A, reads("billing"))
    # The kernel accepts connections, and no process reads them.
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        host, port = deaf.getsockname()
        made = await ctl("--timeout", "0.5", "groups", "--agent", fleet.one.addr, "--agent", f"{host}:{port}")

    assert made.code == 1
    # Whichever ends first: the call, or gRPC's attempt to connect.
    words = ("no response in time", "connected, but not responding")
    assert any(f"1 broker not counted: {host}:{port} ({each})" in made.err for each in words)
    assert "billing" in made.out


async def test_many_agents_are_queried_with_bounded_concurrency_and_each_has_the_full_deadline() -> None:
    choice = AgentChoice(tuple(f"127.0.0.1:{port}" for port in range(1, 3 * MAX_CONCURRENT_AGENTS)))
    invocation = Invocation(("ns:1",), "table", 7.0)
    running, most, shortest = 0, 0, 7.0

    async def question(server: AgentServer, deadline: float) -> str:
        nonlocal running, most, shortest
        running += 1
        most = max(most, running)
        shortest = min(shortest, deadline - asyncio.get_running_loop().time())
        for _ in range(3):
            await asyncio.sleep(0)
        running -= 1
        return server.addr

    async with agent_round(invocation, choice) as asking:
        asked = await asking.query(question)
    assert [answer for _, answer in asked.received] == list(choice.addrs)
    assert most == MAX_CONCURRENT_AGENTS
    assert shortest > 6.0


async def test_only_the_agents_of_one_cluster_are_queried_and_an_unknown_cluster_is_an_error(fleet: Fleet) -> None:
    known, unknown = await asyncio.gather(
        fleet.json("groups", "--cluster", "c1"), fleet.ctl("groups", "--cluster", "c9")
    )

    assert len(known.document["agents"]) == 2
    assert (unknown.code, unknown.err) == (
        1,
        "pointsmanctl: cluster c9 is not known; see `pointsmanctl clusters`\n",
    )


# Drain


async def test_a_broker_is_drained_step_by_step_and_failures_are_reported() -> None:
    async with a_fleet(SystemClock()) as fleet:
        drained = await fleet.ctl("drain-broker", "c1/a/0", "--yes", "--by", "ops")
        as_json = await fleet.json("drain-broker", "--agent", fleet.one.addr, "--yes")
        left = await fleet.json("route", "orders")

    assert drained.code == 0
    for words in ("WIPE_WRITE_PERM    DONE", "WAIT_FOR_PRODUCERS SKIPPED: the put rate", "STOP_GROUPS        DONE"):
        assert words in drained.out
    assert "UNREGISTER         FAILED: ns2:9876 did not confirm" in drained.out
    assert "          ns2:9876: no answer in time\n" in drained.out
    assert "drained, but UNREGISTER FAILED; see the output of that step" in drained.err
    lines = [json.loads(line) for line in as_json.out.splitlines()]
    assert (lines[-1]["agent"], lines[-1]["step"], lines[-1]["state"]) == (fleet.one.addr, "UNREGISTER", "FAILED")
    assert lines[-1]["nameServers"][1] == {"addr": "ns2:9876", "done": False, "answer": "no answer in time"}
    assert (fleet.one.stopped_groups, fleet.two.stopped_groups) == (1, 0)
    perms = {data["brokerName"]: data["perm"] for data in left.document["queueDatas"]}
    assert perms == {"a": 4, "b": 6}


async def test_a_drain_that_leaves_messages_unread_names_the_group_and_exits_3() -> None:
    async with a_fleet(SystemClock()) as fleet:
        fleet.one.unread = LagReport((GroupLag("old", 9, 0, 0),), 1, 9, 0, 0)
        fleet.two.unread = LagReport((GroupLag("slow", 7, 2, 3),), 1, 7, 1, 7)
        alone, late = await asyncio.gather(
            fleet.ctl("drain-broker", "c1/a/0", "--yes", "--quiet", "1s"),
            fleet.json("drain-broker", "c1/b/0", "--yes", "--quiet", "1s", "--deadline", "1s"),
        )

    assert (alone.code, late.code) == (3, 3)
    assert "          old: 9 unread; no member: not waited for\n" in alone.out
    assert "WAIT_FOR_CONSUMERS FAILED (unread: old 9)" in alone.err
    timed_out = next(line for line in map(json.loads, late.out.splitlines()) if line["state"] == "TIMED_OUT")
    assert timed_out["step"] == "WAIT_FOR_CONSUMERS"
    assert timed_out["groups"] == [{"group": "slow", "lag": 7, "retryLag": 2, "memberCount": 3}]


async def test_a_drain_of_a_broker_that_cannot_be_found_or_is_anothers_changes_nothing(fleet: Fleet) -> None:
    await fleet.two.register(fleet.name_server, agent_addr=fleet.one.addr)
    gone, other, unsure = await asyncio.gather(
        fleet.ctl("drain-broker", "c1/z/0", "--yes"),
        fleet.json("drain-broker", "c1/b/0", "--yes"),
        fleet.ctl("drain-broker", "c1/a/0"),
    )

    assert gone.code == other.code == 1
    assert "c1/z/0 is not in the routes; see `pointsmanctl brokers`; give its agent with --agent" in gone.err
    assert json.loads(other.err)["error"]["code"] == "AGENT_OF_OTHER_BROKER"
    assert unsure.code == 2
    assert "No terminal for the confirmation: add --yes" in unsure.err
    assert fleet.one.drainer.state == fleet.two.drainer.state == ""
