"""``pointsmanctl`` changes every listed name server and prints each result; checked on real name servers."""

from __future__ import annotations

import asyncio
import getpass
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_namesrv.app import NameServerApp
from tests.kit.ctl.command import Ended, Terminal, ctl
from tests.kit.ctl.keys import undocumented_keys
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import register_at
from tests.kit.name_server.scripted_admin import scripted_admin_server
from tests.kit.name_server.scripted_routes import refused_addr


async def register(app: NameServerApp, name: str = "broker-a", *, cluster: str = "c1") -> None:
    port = 10_921 + ord(name[-1]) - ord("a") + 100 * (cluster != "c1")
    await register_at(app.addr, "orders", "payments", who=wire.identity(name, addr=f"10.0.0.1:{port}", cluster=cluster))


@dataclass
class Pair:
    """Two name servers that know the same broker."""

    one: NameServerApp
    two: NameServerApp

    async def ctl(self, *arguments: str) -> Ended:
        return await ctl("--namesrv", f"{self.one.addr},{self.two.addr}", *arguments)

    async def json(self, *arguments: str) -> Ended:
        return await self.ctl("-o", "json", *arguments)


async def change_at(app: NameServerApp, *arguments: str) -> None:
    """Change one server alone."""
    ended = await ctl("--namesrv", app.addr, *arguments)
    assert ended.code == 0, ended.err


async def topics_of(app: NameServerApp) -> list[str]:
    return (await ctl("--namesrv", app.addr, "topics")).out.split()


@pytest.fixture
async def pair(clock: ManualClock) -> AsyncIterator[Pair]:
    async with running_name_server(clock=clock) as one, running_name_server(clock=clock) as two:
        for app in (one, two):
            await register(app)
        yield Pair(one, two)


# What each change does, and its output


async def test_write_permission_is_wiped_and_added_everywhere_and_the_history_names_the_operator(pair: Pair) -> None:
    wiped = await pair.ctl("wipe-write-perm", "broker-a", "--cluster", "c1")
    again = await pair.json("wipe-write-perm", "broker-a", "--cluster", "c1")
    route, brokers = await pair.json("route", "orders"), await pair.json("brokers")
    added = await pair.json("add-write-perm", "broker-a", "--cluster", "c1", "--by", "ops")
    why = await pair.json("why", "broker-a")

    line = "c1/broker-a has no write permission; topics: 2\n"
    assert wiped == Ended(0, f"{pair.one.addr}: {line}{pair.two.addr}: {line}", "")
    assert again.document["nodes"] == [
        {"addr": server.addr, "changed": False, "cluster": "c1", "topicCount": 2} for server in (pair.one, pair.two)
    ]
    assert [node["changed"] for node in added.document["nodes"]] == [True, True]
    assert route.document["queueDatas"][0]["perm"] == 4
    assert [node["brokers"][0]["writeWiped"] for node in brokers.document["nodes"]] == [True, True]
    for node in why.document["nodes"]:
        changes = [event["detail"]["by"] for event in node["events"] if event["event"] == "PERM_CHANGED"]
        assert changes == [f"{getpass.getuser()}@{socket.gethostname()}", "ops"]


async def test_the_cluster_is_the_one_with_that_broker_name(pair: Pair) -> None:
    await change_at(pair.two, "evict", "c1/broker-a/0")

    made = await pair.json("wipe-write-perm", "broker-a")
    assert made.code == 1
    assert made.document["nodes"][0]["cluster"] == "c1"


async def test_a_broker_name_of_several_clusters_or_of_none_is_an_error_that_names_the_cause(pair: Pair) -> None:
    await register(pair.two, cluster="c2")

    several, none = await asyncio.gather(pair.ctl("wipe-write-perm", "broker-a"), pair.ctl("add-write-perm", "gone"))
    brokers = await pair.json("brokers")
    assert several.code == 2
    assert "broker-a is in clusters c1, c2: choose one with --cluster" in several.err
    assert (none.code, none.err) == (
        1,
        "pointsmanctl: broker gone is not registered at any name server; give --cluster; see `pointsmanctl brokers`\n",
    )
    assert not any(each["writeWiped"] for node in brokers.document["nodes"] for each in node["brokers"])


async def test_order_topics_are_keys_of_their_namespace(pair: Pair) -> None:
    assert (await pair.ctl("order-topic", "set", "orders", "broker-a:4;broker-b:4", "--yes")).code == 0
    table, printed, kv, route = await asyncio.gather(
        pair.ctl("order-topic", "list"),
        pair.json("order-topic", "list"),
        pair.json("kv", "list"),
        pair.json("route", "orders"),
    )
    removed = await pair.ctl("order-topic", "remove", "orders", "--yes")
    left = await pair.json("kv", "list")

    assert "orders  broker-a:4;broker-b:4\n" in table.out
    assert printed.document["nodes"][1]["orderTopics"] == [
        {"topic": "orders", "orderTopicConf": "broker-a:4;broker-b:4"}
    ]
    assert kv.document["nodes"][0]["entries"][0]["namespace"] == "ORDER_TOPIC_CONFIG"
    assert route.document["orderTopicConf"] == "broker-a:4;broker-b:4"
    assert (removed.code, [node["entries"] for node in left.document["nodes"]]) == (0, [[], []])


async def test_keys_that_an_order_configuration_moves_are_shown_before_it_applies(pair: Pair) -> None:
    """Broker-a has 4 queues of the topic."""
    denied, denied_json = await asyncio.gather(
        pair.ctl("order-topic", "set", "orders", "broker-a:3;broker-b:2"),
        pair.json("order-topic", "set", "orders", "broker-a:3;broker-b:2"),
    )
    unchanged = await pair.json("kv", "list")
    question = (
        "Keys of topic orders move: 3 of 6 queues change (c1/broker-a 4 -> 3, c1/broker-b 0 -> 2); "
        "50% of the keys with HashRing, 85% with ModuloMap or RocketMQ's hash. Change its order configuration?"
    )
    assert (denied.code, denied_json.code) == (2, 2)
    assert f"{question} No terminal for the confirmation: add --yes" in " ".join(denied.err.split())
    assert question in json.loads(denied_json.err)["error"]["message"]
    assert [node["entries"] for node in unchanged.document["nodes"]] == [[], []]

    made = await pair.json("order-topic", "set", "orders", "broker-a:3;broker-b:2", "--yes")
    assert [node["keyMoves"] for node in made.document["nodes"]] == [
        {
            "queuesBefore": 4,
            "queuesAfter": 5,
            "changedQueues": 3,
            "movedKeys": {"hashRing": 0.5, "modulo": 0.85},
            "brokers": [
                {"cluster": "c1", "brokerName": "broker-a", "queuesBefore": 4, "queuesAfter": 3},
                {"cluster": "c1", "brokerName": "broker-b", "queuesBefore": 0, "queuesAfter": 2},
            ],
        }
    ] * 2
    swapped = await ctl("--namesrv", pair.one.addr, "order-topic", "set", "orders", "broker-b:2;broker-a:3", "--yes")
    assert "; only the order changes; 0% of the keys with HashRing, 100% with ModuloMap" in swapped.out
    removed = await ctl("--namesrv", pair.one.addr, "order-topic", "remove", "orders", stdin=Terminal("n\n"))
    assert removed.code == 1
    assert "3 of 6 queues change (c1/broker-a 3 -> 4, c1/broker-b 2 -> 0)" in " ".join(removed.err.split())


async def test_an_order_configuration_that_moves_no_key_needs_no_confirmation(pair: Pair) -> None:
    same = await pair.json("order-topic", "set", "orders", "broker-a:4")
    again = await pair.json("order-topic", "set", "orders", "broker-a:4")
    new = await pair.json("order-topic", "set", "bills", "broker-a:3")
    removed = await pair.json("order-topic", "remove", "orders")

    assert [each.code for each in (same, again, new, removed)] == [0, 0, 0, 0]
    assert [node["keyMoves"] for each in (same, again, new, removed) for node in each.document["nodes"]] == [None] * 8


async def test_a_key_is_the_value_alone_while_all_servers_agree(pair: Pair) -> None:
    assert (await pair.ctl("kv", "put", "LIMITS", "orders", "100")).code == 0
    assert await pair.ctl("kv", "get", "LIMITS", "orders") == Ended(0, "100\n", "")

    await change_at(pair.two, "kv", "put", "LIMITS", "orders", "200")
    table, printed = await asyncio.gather(
        pair.ctl("kv", "get", "LIMITS", "orders"), pair.json("kv", "get", "LIMITS", "orders")
    )
    assert table.code == printed.code == 1
    assert table.out.splitlines()[1::3] == ["100", "200"]
    assert "the value differs between name servers; put the key again to make them equal" in table.err
    assert [node["value"] for node in printed.document["nodes"]] == ["100", "200"]
    assert json.loads(printed.err)["warning"]["code"] == "NODES_DIFFER"

    missing = await pair.ctl("kv", "get", "LIMITS", "gone")
    assert missing == Ended(
        1, "", "pointsmanctl: key gone is not set in namespace LIMITS; see `pointsmanctl kv list`\n"
    )


async def test_the_guard_is_set_for_a_time_and_shown(pair: Pair, clock: ManualClock) -> None:
    for server in (pair.one, pair.two):
        await register(server, "broker-b")
    await clock.advance(100.0)
    for server in (pair.one, pair.two):
        await register(server, "broker-b")
    await clock.advance(60.0)
    held = await pair.json("guard", "hold", "--cluster", "c1", "--for", "10m")
    table, printed = await asyncio.gather(pair.ctl("guard"), pair.json("guard", "show", "--cluster", "c9"))

    assert [node["guard"]["mode"] for node in held.document["nodes"]] == ["HOLD", "HOLD"]
    assert [node["guard"]["modeRemainingSeconds"] for node in held.document["nodes"]] == [600.0, 600.0]
    header, row = table.out.splitlines()[1:3]
    assert (header, row) == (
        "CLUSTER  MODE  ACTIVE  LOST  BASELINE  UP  SINCE  AUTO RESUMES IN",
        "c1       HOLD  yes        1         2   1    0ms          10m 00s",
    )
    assert [node["guards"] for node in printed.document["nodes"]] == [[], []]


async def test_maintenance_is_announced_listed_and_ended(pair: Pair) -> None:
    on = await pair.ctl("maintenance", "on", "c1/broker-a", "--for", "30m", "--note", "new disks", "--by", "ops")
    whole = await pair.ctl("maintenance", "on", "c1", "--for", "2h")
    listed, printed = await asyncio.gather(pair.ctl("maintenance", "list"), pair.json("maintenance", "list"))
    off, none = await pair.ctl("maintenance", "off", "c1/broker-a"), await pair.ctl("maintenance", "off", "c9")

    assert (on.code, whole.code, off.code, none.code) == (0, 0, 0, 1)
    assert "c1/broker-a is in maintenance for 30m 00s\n" in on.out
    assert "c1       broker-a    30m 00s  ops" in listed.out
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
    assert none.err.endswith("; see `pointsmanctl maintenance list`\n")


async def test_a_window_is_ended_where_it_is_open(pair: Pair) -> None:
    await change_at(pair.two, "maintenance", "on", "c1", "--for", "5m")

    off = await pair.ctl("maintenance", "off", "c1")
    assert off == Ended(0, f"{pair.one.addr}: c1: no window was open\n{pair.two.addr}: c1: maintenance ended\n", "")


async def test_maintenance_of_an_unknown_broker_is_accepted_with_a_warning(pair: Pair) -> None:
    await change_at(pair.two, "evict", "c1/broker-a/0")
    broker, cluster = (
        await pair.ctl("maintenance", "on", "c1/broker-a", "--for", "5m"),
        await pair.json("maintenance", "on", "c9", "--for", "5m"),
    )

    assert (broker.code, cluster.code) == (0, 0)
    words = "c1/broker-a is in maintenance for 5m 00s"
    assert broker.out.splitlines() == [
        f"{pair.one.addr}: {words}",
        f"{pair.two.addr}: {words}; no such broker is registered here now",
    ]
    assert [(node["changed"], node["known"]) for node in cluster.document["nodes"]] == [(True, False)] * 2
    listed = await pair.json("maintenance", "list")
    assert "c9" in [window["cluster"] for window in listed.document["nodes"][0]["windows"]]


async def test_a_topic_that_is_not_an_order_topic_has_its_own_error_text(pair: Pair) -> None:
    made = await pair.ctl("order-topic", "remove", "nope")

    assert (made.code, made.out) == (1, "")
    assert "(nope is not an order topic)" in made.err
    assert made.err.endswith("; see `pointsmanctl order-topic list`\n")


async def test_one_server_is_drained_and_put_back_without_a_prompt(pair: Pair) -> None:
    drained = await ctl("--namesrv", pair.one.addr, "drain")
    health, printed = await pair.ctl("health"), await pair.json("health")
    elsewhere, alone = await pair.ctl("route", "orders"), await ctl("--namesrv", pair.one.addr, "route", "orders")
    undone = await pair.json("drain", "--undo")

    assert drained == Ended(0, f"{pair.one.addr}: is DRAINING\n", "")
    assert (health.code, health.out) == (1, f"{pair.one.addr} DRAINING\n{pair.two.addr} READY\n")
    assert f"{pair.one.addr} is DRAINING" in health.err
    assert [node["nodeState"] for node in printed.document["nodes"]] == ["DRAINING", "READY"]
    assert (elsewhere.code, alone.code) == (0, 1)
    assert "DRAINING" in alone.err
    assert [node["nodeState"] for node in undone.document["nodes"]] == ["READY", "READY"]
    assert [node["changed"] for node in undone.document["nodes"]] == [True, False]


async def test_draining_a_drained_server_changes_nothing(pair: Pair) -> None:
    await change_at(pair.one, "drain")
    again = await ctl("--namesrv", pair.one.addr, "drain")
    async with running_name_server(warm_up_seconds=60) as warming:
        first = await ctl("--namesrv", warming.addr, "-ojson", "drain")

    assert again == Ended(0, f"{pair.one.addr}: is DRAINING (already)\n", "")
    assert first.document["nodes"][0]["changed"] is True


async def test_a_registration_is_evicted_where_it_is_registered(pair: Pair) -> None:
    await change_at(pair.two, "evict", "c1/broker-a/0")
    evicted, gone = await pair.json("evict", "c1/broker-a/0"), await pair.ctl("evict", "c1/broker-a/0")

    assert (evicted.code, evicted.err) == (0, "")
    assert evicted.document["nodes"] == [
        {"addr": pair.one.addr, "changed": True, "brokerAddr": "10.0.0.1:10921"},
        {"addr": pair.two.addr, "changed": False},
    ]
    assert (gone.code, gone.out) == (1, "")
    assert "rejected by" in gone.err
    assert "see `pointsmanctl brokers`" in gone.err


async def test_a_broker_that_is_gone_is_evicted_once_and_then_retired(pair: Pair, clock: ManualClock) -> None:
    await clock.advance(130)
    evicted, again = await pair.ctl("evict", "c1/broker-a/0"), await pair.ctl("evict", "c1/broker-a/0")
    why = await pair.ctl("why", "broker-a")

    assert (evicted.code, evicted.err) == (0, "")
    assert evicted.out.count("evicted") == 2
    assert again.code == 1
    assert why.out.count("reason     UNREGISTERED ADMIN, planned") == 2


async def test_a_topic_that_brokers_have_is_not_deleted_and_the_error_names_them_and_the_remedy(pair: Pair) -> None:
    for server in (pair.one, pair.two):
        await register(server, "broker-b")
    table, printed = await asyncio.gather(pair.ctl("delete-topic", "orders"), pair.json("delete-topic", "orders"))

    assert (table.code, table.out) == (1, "")
    assert "topic orders is held by c1/broker-a, c1/broker-b" in table.err
    assert "delete it on these brokers first, or hide it here with --force" in table.err
    assert json.loads(printed.err)["error"]["code"] == "TOPIC_HELD"

    forced = await pair.ctl("delete-topic", "orders", "--force", "--yes")
    assert await topics_of(pair.one) == await topics_of(pair.two) == ["payments"]
    assert forced.code == 0
    assert forced.out.count("hidden on c1/broker-a, c1/broker-b until they register another set of topics") == 2


# When something fails


@pytest.mark.parametrize(
    "change",
    [
        ["wipe-write-perm", "broker-a", "--cluster", "c1"],
        ["add-write-perm", "broker-a"],
        ["delete-topic", "orders", "--force", "--yes"],
        ["kv", "put", "NS", "key", "1"],
        ["kv", "delete", "NS", "known"],
        ["order-topic", "set", "orders", "broker-a:4", "--yes"],
        ["guard", "off", "--cluster", "c1"],
        ["maintenance", "on", "c1", "--for", "5m"],
        ["maintenance", "off", "c1"],
        ["drain", "--yes"],
        ["evict", "c1/broker-a/0"],
    ],
    ids=" ".join,
)
async def test_one_server_that_fails_is_named_and_the_others_are_changed(pair: Pair, change: list[str]) -> None:
    await change_at(pair.one, "kv", "put", "NS", "known", "1")
    await change_at(pair.one, "maintenance", "on", "c1", "--for", "5m")
    async with refused_addr() as dead:
        made = await ctl("--namesrv", f"{dead},{pair.one.addr}", "-o", "json", *change)

    assert made.code == 1
    failed, done = made.document["nodes"]
    assert failed["error"]["servers"] == [{"addr": dead, "message": "connection refused"}]
    assert (done["addr"], "changed" in done) == (pair.one.addr, True)
    message = json.loads(made.err)["error"]["message"]
    assert message == f"1 of 2 name servers failed: {dead} (connection refused); done at {pair.one.addr}"
    assert "repeating it is safe" in json.loads(made.err)["error"]["hint"]


async def test_a_removal_is_finished_on_the_server_that_failed_before(pair: Pair) -> None:
    await change_at(pair.two, "kv", "put", "NS", "key", "1")

    again = await pair.ctl("kv", "delete", "NS", "key")
    assert again == Ended(0, f"{pair.one.addr}: NS key was not set\n{pair.two.addr}: NS key removed\n", "")
    assert (await pair.ctl("kv", "delete", "NS", "key")).code == 1


async def test_an_older_server_is_reported_as_older(pair: Pair) -> None:
    async with scripted_admin_server() as older:
        change = ("kv", "put", "NS", "key", "1")
        partly = await ctl("--namesrv", f"{older.addr},{pair.two.addr}", *change)
        wholly = await ctl("--namesrv", older.addr, *change)

    words = "this call is not supported: the name server is older than this pointsmanctl"
    assert partly.code == wholly.code == 1
    assert f"{older.addr} is not responding ({words})" in partly.out
    assert words in wholly.err
    assert "is it running" not in wholly.err


# Questions


async def test_without_a_terminal_nothing_destructive_is_done_without_the_yes_option(pair: Pair) -> None:
    forced, drained = await asyncio.gather(pair.json("delete-topic", "orders", "--force"), pair.ctl("drain"))

    assert forced.code == drained.code == 2
    assert "No terminal for the confirmation: add --yes" in json.loads(forced.err)["error"]["message"]
    assert "No terminal for the confirmation: add --yes" in drained.err
    assert "orders" in await topics_of(pair.one)
    assert (await pair.ctl("health")).code == 0


@pytest.mark.parametrize(("answer", "code", "is_held"), [("y\n", 0, False), ("n\n", 1, True), ("\n", 1, True)])
async def test_on_a_terminal_the_operator_is_prompted(pair: Pair, answer: str, code: int, is_held: bool) -> None:
    made = await ctl("--namesrv", pair.one.addr, "delete-topic", "orders", "--force", stdin=Terminal(answer))

    assert made.code == code
    assert "Hide topic orders in every cluster, so that its clients lose their route? [y/N]:" in made.err
    assert ("not confirmed: nothing was changed" in made.err) is is_held
    assert ("orders" in await topics_of(pair.one)) is is_held


# What is documented


@pytest.mark.parametrize(
    "command",
    [
        ["guard"],
        ["guard", "hold", "--cluster", "c1"],
        ["maintenance", "on", "c1", "--for", "5m"],
        ["maintenance", "off", "c1"],
        ["maintenance", "list"],
        ["wipe-write-perm", "broker-a"],
        ["add-write-perm", "broker-a"],
        ["delete-topic", "orders", "--force", "--yes"],
        ["evict", "c1/broker-a/0"],
        ["drain"],
        ["kv", "list"],
        ["kv", "get", "NS", "key"],
        ["kv", "put", "NS", "key", "2"],
        ["kv", "delete", "NS", "key"],
        ["order-topic", "list"],
        ["order-topic", "set", "orders", "broker-a:3", "--yes"],
        ["order-topic", "remove", "orders", "--yes"],
    ],
    ids=" ".join,
)
async def test_every_key_of_the_json_output_is_documented_in_the_help(
    pair: Pair, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    await change_at(pair.one, "kv", "put", "NS", "key", "1")
    await change_at(pair.one, "order-topic", "set", "orders", "broker-a:4", "--yes")
    await change_at(pair.one, "maintenance", "on", "c1", "--for", "5m")

    made = await ctl("--namesrv", pair.one.addr, "-o", "json", *command)
    assert made.code == 0, made.err
    assert undocumented_keys(made.document, command, capsys=capsys) == set()
