"""``pointsmanctl`` changes every name server listed, and says what each did."""

from __future__ import annotations

import asyncio
import getpass
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc
import pytest

from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2
from tests.fakes.ctl_command import Ended, Terminal, ctl
from tests.fakes.scripted_admin_server import Refusal, ScriptedAdminServer, scripted_admin_server
from tests.fakes.scripted_route_server import refused_addr


def broker(name: str = "broker-a", broker_id: int = 0, cluster: str = "c1") -> broker_pb2.BrokerStatus:
    identity = broker_pb2.BrokerIdentity(
        cluster=cluster, broker_name=name, broker_id=broker_id, addr=f"10.0.0.{broker_id}:10911"
    )
    return broker_pb2.BrokerStatus(identity=identity, state=broker_pb2.BROKER_STATE_UP)


@dataclass
class Pair:
    """Two name servers that know the same broker."""

    one: ScriptedAdminServer
    two: ScriptedAdminServer

    async def ctl(self, *arguments: str) -> Ended:
        return await ctl("--namesrv", f"{self.one.addr},{self.two.addr}", *arguments)

    async def json(self, *arguments: str) -> Ended:
        return await self.ctl("-o", "json", *arguments)


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    async with scripted_admin_server() as one, scripted_admin_server() as two:
        one.brokers, two.brokers = [broker()], [broker()]
        yield Pair(one, two)


# What each change sends, and what it says


async def test_write_permission_is_wiped_and_added_everywhere(pair: Pair) -> None:
    wiped = await pair.ctl("wipe-write-perm", "broker-a", "--cluster", "c1")
    again, added = await pair.json("wipe-write-perm", "broker-a", "--cluster", "c1"), None
    added = await pair.json("add-write-perm", "broker-a", "--cluster", "c1", "--by", "ops")

    line = "c1/broker-a is wiped of its write permission; topics: 4\n"
    assert wiped == Ended(0, f"{pair.one.addr}: {line}{pair.two.addr}: {line}", "")
    assert again.document["nodes"] == [
        {"addr": server.addr, "changed": False, "cluster": "c1", "topicCount": 4} for server in (pair.one, pair.two)
    ]
    assert [node["changed"] for node in added.document["nodes"]] == [True, True]
    for server in (pair.one, pair.two):
        assert [(request.writable, request.by) for request in server.received(admin.SetWritePermRequest)] == [
            (False, f"{getpass.getuser()}@{socket.gethostname()}"),
            (False, f"{getpass.getuser()}@{socket.gethostname()}"),
            (True, "ops"),
        ]


async def test_the_cluster_is_the_one_in_which_the_broker_name_stands(pair: Pair) -> None:
    pair.two.brokers = []

    assert (await pair.ctl("wipe-write-perm", "broker-a")).code == 1
    assert pair.one.received(admin.SetWritePermRequest)[0].cluster == "c1"


async def test_a_broker_name_that_stands_in_several_clusters_or_in_none_is_an_error_that_says_so(pair: Pair) -> None:
    pair.two.brokers = [broker(cluster="c2")]

    several, none = await asyncio.gather(pair.ctl("wipe-write-perm", "broker-a"), pair.ctl("add-write-perm", "gone"))
    assert several.code == 2
    assert "broker-a stands in clusters c1, c2: say which with --cluster" in several.err
    assert (none.code, none.err) == (
        1,
        "pointsmanctl: no name server knows broker gone: say where with --cluster; see `pointsmanctl brokers`\n",
    )
    assert pair.one.received(admin.SetWritePermRequest) == []


async def test_order_topics_are_keys_of_their_namespace(pair: Pair) -> None:
    assert (await pair.ctl("order-topic", "set", "orders", "broker-a:4;broker-b:4")).code == 0
    table, printed, kv = await asyncio.gather(
        pair.ctl("order-topic", "list"), pair.json("order-topic", "list"), pair.json("kv", "list")
    )
    removed = await pair.ctl("order-topic", "remove", "orders")

    assert "orders  broker-a:4;broker-b:4\n" in table.out
    assert printed.document["nodes"][1]["orderTopics"] == [
        {"topic": "orders", "orderTopicConf": "broker-a:4;broker-b:4"}
    ]
    assert kv.document["nodes"][0]["entries"][0]["namespace"] == "ORDER_TOPIC_CONFIG"
    assert (removed.code, pair.one.kv, pair.two.kv) == (0, {}, {})


async def test_a_key_is_the_value_alone_while_all_servers_agree(pair: Pair) -> None:
    assert (await pair.ctl("kv", "put", "LIMITS", "orders", "100")).code == 0
    assert await pair.ctl("kv", "get", "LIMITS", "orders") == Ended(0, "100\n", "")

    pair.two.kv["LIMITS", "orders"] = "200"
    table, printed = await asyncio.gather(
        pair.ctl("kv", "get", "LIMITS", "orders"), pair.json("kv", "get", "LIMITS", "orders")
    )
    assert table.code == printed.code == 1
    assert table.out.splitlines()[1::3] == ["100", "200"]
    assert "the name servers differ: put the key again to make them equal" in table.err
    assert [node["value"] for node in printed.document["nodes"]] == ["100", "200"]
    assert json.loads(printed.err)["warning"]["code"] == "NODES_DIFFER"

    missing = await pair.ctl("kv", "get", "LIMITS", "gone")
    assert missing == Ended(
        1, "", "pointsmanctl: there is no key gone in namespace LIMITS: see `pointsmanctl kv list`\n"
    )


async def test_the_guard_is_told_for_a_time_and_shown(pair: Pair) -> None:
    told = await pair.json("guard", "hold", "--cluster", "c1", "--for", "10m")
    table, printed = await asyncio.gather(pair.ctl("guard"), pair.json("guard", "show", "--cluster", "c9"))

    assert told.document["nodes"][0]["guard"]["mode"] == "HOLD"
    assert told.document["nodes"][0]["guard"]["modeRemainingSeconds"] == 600.0
    assert pair.two.received(admin.SetGuardRequest)[0].duration.seconds == 600
    assert table.out.count("c1       HOLD  yes       1      8  0ms  10m 00s\n") == 2
    assert [node["guards"] for node in printed.document["nodes"]] == [[], []]


async def test_maintenance_is_announced_listed_and_ended(pair: Pair) -> None:
    on = await pair.ctl("maintenance", "on", "c1/broker-a", "--for", "30m", "--note", "new disks", "--by", "ops")
    whole = await pair.ctl("maintenance", "on", "c1", "--for", "2h")
    listed, printed = await asyncio.gather(pair.ctl("maintenance", "list"), pair.json("maintenance", "list"))
    off, none = await pair.ctl("maintenance", "off", "c1/broker-a"), await pair.ctl("maintenance", "off", "c9")

    assert (on.code, whole.code, off.code, none.code) == (0, 0, 0, 1)
    assert "c1/broker-a is in maintenance for 30m 00s\n" in on.out
    assert "c1       broker-a  30m 00s  ops" in listed.out
    assert "(all)" in listed.out
    assert printed.document["nodes"][0]["windows"][1] == {
        "cluster": "c1",
        "brokerName": "broker-a",
        "remainingSeconds": 1800.0,
        "note": "new disks",
        "by": "ops",
    }
    assert "c1/broker-a: maintenance ended" in off.out
    assert none.out == ""
    assert "(no maintenance window of c9 is open)" in none.err
    assert none.err.endswith(": see `pointsmanctl maintenance list`\n")


async def test_a_window_is_ended_where_it_is_open(pair: Pair) -> None:
    pair.two.windows["c1", ""] = admin.MaintenanceWindow(cluster="c1")

    off = await pair.ctl("maintenance", "off", "c1")
    assert off == Ended(
        0, f"{pair.one.addr}: c1: there was no window to end\n{pair.two.addr}: c1: maintenance ended\n", ""
    )


async def test_maintenance_of_who_is_not_known_is_accepted_and_said(pair: Pair) -> None:
    pair.two.brokers = []
    broker, cluster = (
        await pair.ctl("maintenance", "on", "c1/broker-a", "--for", "5m"),
        await pair.json("maintenance", "on", "c9", "--for", "5m"),
    )

    assert (broker.code, cluster.code) == (0, 0)
    words = "c1/broker-a is in maintenance for 5m 00s"
    assert broker.out.splitlines() == [
        f"{pair.one.addr}: {words}",
        f"{pair.two.addr}: {words}; no such broker is known here now",
    ]
    assert [(node["changed"], node["known"]) for node in cluster.document["nodes"]] == [(True, False)] * 2
    assert ("c9", "") in pair.one.windows


async def test_a_topic_that_is_no_order_topic_is_said_in_its_own_words(pair: Pair) -> None:
    made = await pair.ctl("order-topic", "remove", "nope")

    assert (made.code, made.out) == (1, "")
    assert "(nope is no order topic)" in made.err
    assert made.err.endswith(": see `pointsmanctl order-topic list`\n")


async def test_one_server_is_drained_and_taken_back_without_a_question(pair: Pair) -> None:
    drained = await ctl("--namesrv", pair.one.addr, "drain")
    health = await pair.ctl("health")
    undone = await pair.json("drain", "--undo")

    assert drained == Ended(0, f"{pair.one.addr}: is DRAINING\n", "")
    assert (health.code, health.out) == (1, f"{pair.one.addr} DRAINING\n{pair.two.addr} READY\n")
    assert f"{pair.one.addr} is DRAINING" in health.err
    assert [node["nodeState"] for node in undone.document["nodes"]] == ["READY", "READY"]
    assert [node["changed"] for node in undone.document["nodes"]] == [True, False]


async def test_what_was_drained_before_is_no_change(pair: Pair) -> None:
    pair.one.state = broker_pb2.NODE_STATE_DRAINING
    again = await ctl("--namesrv", pair.one.addr, "drain")
    pair.one.state = broker_pb2.NODE_STATE_WARMING
    first = await ctl("--namesrv", pair.one.addr, "-ojson", "drain")

    assert again == Ended(0, f"{pair.one.addr}: is DRAINING, as it was already\n", "")
    assert first.document["nodes"][0]["changed"] is True


async def test_a_registration_is_evicted_where_it_stands(pair: Pair) -> None:
    pair.two.brokers = []
    evicted, gone = await pair.json("evict", "c1/broker-a/0"), await pair.ctl("evict", "c1/broker-a/0")

    assert (evicted.code, evicted.err) == (0, "")
    assert evicted.document["nodes"] == [
        {"addr": pair.one.addr, "changed": True, "brokerAddr": "10.0.0.0:10911"},
        {"addr": pair.two.addr, "changed": False},
    ]
    assert (gone.code, gone.out) == (1, "")
    assert "refused by" in gone.err
    assert "see `pointsmanctl brokers`" in gone.err


async def test_a_topic_that_brokers_hold_is_refused_with_their_names_and_what_to_do(pair: Pair) -> None:
    for server in (pair.one, pair.two):
        server.held["orders"] = ["c1/broker-a", "c1/broker-b"]
    table, printed = await asyncio.gather(pair.ctl("delete-topic", "orders"), pair.json("delete-topic", "orders"))

    assert (table.code, table.out) == (1, "")
    assert "topic orders is held by c1/broker-a, c1/broker-b" in table.err
    assert "delete it on these brokers first, or hide it here with --force" in table.err
    assert json.loads(printed.err)["error"]["code"] == "TOPIC_HELD"

    forced = await pair.ctl("delete-topic", "orders", "--force", "--yes")
    assert forced.code == 0
    assert forced.out.count("hidden on c1/broker-a, c1/broker-b until they bring another set of topics") == 2


# When something fails


@pytest.mark.parametrize(
    "change",
    [
        ["wipe-write-perm", "broker-a", "--cluster", "c1"],
        ["add-write-perm", "broker-a"],
        ["delete-topic", "orders"],
        ["kv", "put", "NS", "key", "1"],
        ["kv", "delete", "NS", "known"],
        ["order-topic", "set", "orders", "broker-a:4"],
        ["guard", "off", "--cluster", "c1"],
        ["maintenance", "on", "c1", "--for", "5m"],
        ["maintenance", "off", "c1"],
        ["drain", "--yes"],
        ["evict", "c1/broker-a/0"],
    ],
    ids=" ".join,
)
async def test_one_server_that_fails_is_named_and_the_others_are_changed(pair: Pair, change: list[str]) -> None:
    pair.one.held["orders"] = []
    pair.one.kv["NS", "known"] = "1"
    pair.one.windows["c1", ""] = admin.MaintenanceWindow(cluster="c1")
    async with refused_addr() as dead:
        made = await ctl("--namesrv", f"{dead},{pair.one.addr}", "-o", "json", *change)

    assert made.code == 1
    failed, done = made.document["nodes"]
    assert failed["error"]["servers"] == [{"addr": dead, "message": "connection refused"}]
    assert (done["addr"], "changed" in done) == (pair.one.addr, True)
    message = json.loads(made.err)["error"]["message"]
    assert message == f"1 of 2 name servers failed: {dead} (connection refused); done at {pair.one.addr}"
    assert "what is done stays done" in json.loads(made.err)["error"]["hint"]


async def test_a_removal_is_finished_on_the_server_that_failed_before(pair: Pair) -> None:
    pair.two.kv["NS", "key"] = "1"

    again = await pair.ctl("kv", "delete", "NS", "key")
    assert again == Ended(0, f"{pair.one.addr}: had no NS key\n{pair.two.addr}: NS key removed\n", "")
    assert (await pair.ctl("kv", "delete", "NS", "key")).code == 1


async def test_an_older_server_is_said_to_be_older(pair: Pair) -> None:
    pair.one.refusals["PutKv"] = Refusal(grpc.StatusCode.UNIMPLEMENTED)
    partly = await pair.ctl("kv", "put", "NS", "key", "1")
    wholly = await ctl("--namesrv", pair.one.addr, "kv", "put", "NS", "key", "1")

    words = "this name server does not know that call: it is older than this pointsmanctl"
    assert partly.code == wholly.code == 1
    assert f"{pair.one.addr} did not answer ({words})" in partly.out
    assert words in wholly.err
    assert "is it running" not in wholly.err


# Questions


async def test_without_a_terminal_nothing_that_hurts_is_done_unless_the_command_says_yes(pair: Pair) -> None:
    pair.one.held["orders"] = pair.two.held["orders"] = ["c1/broker-a"]
    forced, drained = await asyncio.gather(pair.json("delete-topic", "orders", "--force"), pair.ctl("drain"))

    assert forced.code == drained.code == 2
    assert "There is no terminal to ask on: add --yes" in json.loads(forced.err)["error"]["message"]
    assert "There is no terminal to ask on: add --yes" in drained.err
    assert pair.one.requests == pair.two.requests == []


@pytest.mark.parametrize(("answer", "code", "is_held"), [("y\n", 0, False), ("n\n", 1, True), ("\n", 1, True)])
async def test_on_a_terminal_a_person_is_asked(pair: Pair, answer: str, code: int, is_held: bool) -> None:
    pair.one.held["orders"] = ["c1/broker-a"]
    made = await ctl("--namesrv", pair.one.addr, "delete-topic", "orders", "--force", stdin=Terminal(answer))

    assert made.code == code
    assert "Hide topic orders in every cluster, so that its clients lose their route? [y/N]:" in made.err
    assert ("not confirmed: nothing was changed" in made.err) is is_held
    assert ("orders" in pair.one.held) is is_held
