"""``pointsmanctl`` and the real name server: what one changes, the other shows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc.aio
import pytest

from namesrv.app import NameServerApp
from pointsman.v1 import broker_pb2, registration_service_pb2_grpc
from tests.fakes import wire
from tests.fakes.ctl_command import Ended, ctl
from tests.fakes.name_server import running_name_server

Pair = tuple[NameServerApp, NameServerApp]


async def register(app: NameServerApp, *topics: broker_pb2.TopicConfig, who: broker_pb2.BrokerIdentity) -> None:
    async with grpc.aio.insecure_channel(app.addr) as channel:
        stub = registration_service_pb2_grpc.RegistrationServiceStub(channel)
        await stub.RegisterBroker(wire.registration(*topics, who=who))


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    async with running_name_server() as one, running_name_server() as two:
        for app in (one, two):
            await register(app, wire.topic("orders"), wire.topic("payments"), who=wire.identity("broker-a"))
        yield one, two


async def asked(pair: Pair, *arguments: str) -> Ended:
    return await ctl("--namesrv", ",".join(app.addr for app in pair), "-o", "json", *arguments)


async def test_a_wiped_broker_cannot_be_written_and_the_history_says_who_did_it(pair: Pair) -> None:
    wiped = await asked(pair, "wipe-write-perm", "broker-a", "--by", "ops")
    route, brokers, why = await asyncio.gather(
        asked(pair, "route", "orders"), asked(pair, "brokers"), asked(pair, "why", "broker-a")
    )

    assert [node["changed"] for node in wiped.document["nodes"]] == [True, True]
    assert route.document["queueDatas"][0]["perm"] == 4
    assert [node["brokers"][0]["writeWiped"] for node in brokers.document["nodes"]] == [True, True]
    for node in why.document["nodes"]:
        assert (node["events"][-1]["event"], node["events"][-1]["detail"]["by"]) == ("PERM_CHANGED", "ops")


async def test_a_topic_that_is_held_is_deleted_by_force_alone(pair: Pair) -> None:
    refused = await asked(pair, "delete-topic", "payments")
    forced = await asked(pair, "delete-topic", "payments", "--force", "--yes")
    topics = await asked(pair, "topics")

    assert refused.code == 1
    assert "topic payments is held by c1/broker-a" in refused.err
    assert [node["hiddenOn"] for node in forced.document["nodes"]] == [["c1/broker-a"]] * 2
    assert topics.document == {"topics": ["orders"], "nodeState": "READY"}


async def test_what_operators_set_is_shown_by_both(pair: Pair) -> None:
    for change in (
        ["kv", "put", "LIMITS", "orders", "100"],
        ["order-topic", "set", "orders", "broker-a:4"],
        ["guard", "hold", "--cluster", "c1", "--for", "10m"],
        ["maintenance", "on", "c1/broker-a", "--for", "30m", "--note", "new disks"],
    ):
        assert (await asked(pair, *change)).code == 0
    value, orders, guard, windows, route = await asyncio.gather(
        asked(pair, "kv", "get", "LIMITS", "orders"),
        asked(pair, "order-topic", "list"),
        asked(pair, "guard"),
        asked(pair, "maintenance", "list"),
        asked(pair, "route", "orders"),
    )

    assert [node["value"] for node in value.document["nodes"]] == ["100", "100"]
    assert [node["orderTopics"][0]["topic"] for node in orders.document["nodes"]] == ["orders", "orders"]
    assert [node["guards"][0]["mode"] for node in guard.document["nodes"]] == ["HOLD", "HOLD"]
    assert [node["windows"][0]["note"] for node in windows.document["nodes"]] == ["new disks", "new disks"]
    assert route.document["orderTopicConf"] == "broker-a:4"


async def test_nodes_are_equal_until_one_knows_a_broker_more_and_equal_again_when_it_is_evicted(pair: Pair) -> None:
    one, two = pair
    before = await ctl("-o", "json", "diff", one.addr, two.addr)
    await register(two, wire.topic("refunds"), who=wire.identity("broker-b", addr="10.0.0.2:10911"))
    between = await ctl("-o", "json", "diff", one.addr, two.addr)
    evicted = await asked(pair, "evict", "c1/broker-b/0")
    after = await ctl("diff", one.addr, two.addr)

    assert (before.code, between.code, evicted.code, after.code) == (0, 1, 0, 0)
    assert between.document["onlySecond"] == ["refunds"]


async def test_a_drained_node_is_passed_over_and_says_so(pair: Pair) -> None:
    one, _ = pair
    drained = await ctl("--namesrv", one.addr, "drain")
    route, alone, health = await asyncio.gather(
        asked(pair, "route", "orders"), ctl("--namesrv", one.addr, "route", "orders"), asked(pair, "health")
    )
    undone = await ctl("--namesrv", one.addr, "drain", "--undo")

    assert (drained.code, route.code, alone.code, health.code) == (0, 0, 1, 1)
    assert "DRAINING" in alone.err
    assert [node["nodeState"] for node in health.document["nodes"]] == ["DRAINING", "READY"]
    assert (undone.code, undone.out) == (0, f"{one.addr}: is READY\n")


async def test_a_warming_node_waits_with_its_answer_and_warns() -> None:
    async with running_name_server(warm_up_seconds=60) as warming:
        topics, route, watch = await asyncio.gather(
            ctl("--namesrv", warming.addr, "topics"),
            ctl("--namesrv", warming.addr, "route", "orders"),
            ctl("--namesrv", warming.addr, "watch", "orders", "--for", "1s"),
        )

    assert (topics.code, route.code, watch.code) == (0, 1, 0)
    assert "WARMING: the list may not be whole yet" in topics.err
    assert "WARMING" in route.err
    assert "does not know yet where orders is" in watch.err
