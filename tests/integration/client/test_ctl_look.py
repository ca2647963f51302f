"""``pointsmanctl`` looks at name servers: what they say of themselves, where they differ, what is documented."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2
from pointsman.v1 import route_service_pb2 as route
from pointsman_client.ctl.command import run
from tests.fakes.ctl_command import Ended, ctl, running_ctl
from tests.fakes.scripted_admin_server import Refusal, ScriptedAdminServer, scripted_admin_server
from tests.fakes.scripted_route_server import broker_data, refused_addr, silent_listener, topic_route

DATA_KEYED = {"labels", "sizes", "ratesPerSecond", "brokersByState", "detail", "brokerAddrs", "filterServerTable"}
"""Their keys are names of the user's own, or of the server's."""


@pytest.fixture
async def server() -> AsyncIterator[ScriptedAdminServer]:
    async with scripted_admin_server() as server:
        identity = broker_pb2.BrokerIdentity(cluster="c1", broker_name="broker-a", addr="10.0.0.1:10911")
        server.brokers = [
            broker_pb2.BrokerStatus(identity=identity, state=broker_pb2.BROKER_STATE_SUSPECT, penalty=1000.0)
        ]
        server.events = [admin.BrokerEvent(event="REREGISTERED", reason="SNAPSHOT", identity=identity)]
        server.scores = [
            admin.FlapScore(
                cluster="c1",
                broker_name="broker-a",
                penalty=3400.0,
                flapping=True,
                outages=4,
                last_event="EXPIRED",
                last_event_ago=Duration(seconds=61),
            ),
            admin.FlapScore(cluster="c1", broker_name="broker-b", penalty=12.0, last_event="EXPIRED"),
        ]
        server.watchers = [
            admin.Watcher(peer="10.9.9.9:5", age=Duration(seconds=300), topics=2, pending=1, lag=Duration(seconds=3))
        ]
        server.guards = [admin.GuardStatus(cluster="c1", mode=admin.GUARD_MODE_AUTO, lost=1, lived=8)]
        server.complaints = ["history is not written"]
        server.digests = {f"topic-{number}": b"same" for number in range(5)}
        server.topic_names = ["orders"]
        server.routes = {"orders": topic_route()}
        server.clusters = [route.ClusterData(cluster="c1", broker_datas=[broker_data(cluster="c1")])]
        server.kv = {("ORDER_TOPIC_CONFIG", "orders"): "broker-a:4", ("NS", "key"): "1"}
        server.windows = {("c1", ""): admin.MaintenanceWindow(cluster="c1", remaining=Duration(seconds=60))}
        server.held = {"orders": []}
        yield server


async def asked(server: ScriptedAdminServer, *arguments: str) -> Ended:
    return await ctl("--namesrv", server.addr, *arguments)


async def test_flapping_brokers_are_listed_the_worst_first_and_marked(server: ScriptedAdminServer) -> None:
    table, printed = await asyncio.gather(
        asked(server, "flapping"), asked(server, "-ojson", "flapping", "--limit", "1", "--cluster", "c1")
    )
    assert table.out.splitlines()[1:] == [
        "CLUSTER  BROKER    ID  PENALTY  OUTAGES  LAST EVENT    AGO",
        "c1       broker-a   0     3400        4  EXPIRED     61.0s  FLAPPING",
        "c1       broker-b   0       12        0  EXPIRED       0ms",
    ]
    assert [score["penalty"] for score in printed.document["nodes"][0]["scores"]] == [3400.0]


async def test_watchers_are_shown_with_what_they_have_not_read(server: ScriptedAdminServer) -> None:
    table = await asked(server, "watchers", "orders")

    assert table.out.splitlines()[1:] == [
        "CLIENT       SINCE  TOPICS  WAITING   LAG",
        "10.9.9.9:5  5m 00s       2        1  3.0s",
        "1 watcher",
    ]


async def test_info_is_the_whole_node(server: ScriptedAdminServer) -> None:
    table, printed, whole = await asyncio.gather(
        asked(server, "info"), asked(server, "-ojson", "info"), asked(server, "info", "--configuration")
    )

    for words in ("1.2.3", "READY", "2m 05s", "COMPLAINT: history is not written"):
        assert words in table.out
    assert "listen" not in table.out
    assert whole.out.endswith('\n\n[server]\nlisten = "0.0.0.0:9876"\n')
    assert "listen" in printed.document["nodes"][0]["configuration"]
    node = printed.document["nodes"][0]
    assert (node["version"], node["boot"], node["sizes"]["topics"]) == ("1.2.3", "0000000000000007", 3)


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (broker_pb2.NODE_STATE_READY, 0),
        (broker_pb2.NODE_STATE_WARMING, 1),
        (broker_pb2.NODE_STATE_DRAINING, 1),
        (broker_pb2.NODE_STATE_UNSPECIFIED, 1),
    ],
)
async def test_health_is_fine_for_a_server_that_is_ready(
    server: ScriptedAdminServer, state: broker_pb2.NodeState.ValueType, code: int
) -> None:
    server.state = state
    assert (await asked(server, "health")).code == code


async def test_health_is_not_fine_when_nobody_answers() -> None:
    async with refused_addr() as dead:
        made = await ctl("--namesrv", dead, "health")
    assert (made.code, made.out) == (1, "")
    assert "connection refused" in made.err


async def test_lists_of_a_warming_server_come_with_a_warning_on_stderr(server: ScriptedAdminServer) -> None:
    server.state = broker_pb2.NODE_STATE_WARMING
    topics, clusters, brokers = await asyncio.gather(
        asked(server, "topics"), asked(server, "-ojson", "clusters"), asked(server, "brokers")
    )

    line = "pointsmanctl: this name server is WARMING: the list may not be whole yet\n"
    assert topics == Ended(0, "orders\n", line)
    assert clusters.document["nodeState"] == "WARMING"
    assert json.loads(clusters.err)["warning"]["code"] == "NODE_WARMING"
    assert brokers.out.splitlines()[0].endswith(" WARMING")


async def test_nodes_that_agree_are_equal_and_every_page_is_compared(server: ScriptedAdminServer) -> None:
    async with scripted_admin_server() as other:
        other.digests = dict(server.digests)
        equal = await ctl("diff", server.addr, other.addr)
        other.digests |= {"topic-4": b"other", "zz": b"same"}
        del other.digests["topic-0"]
        other.state = broker_pb2.NODE_STATE_WARMING
        table, printed = await asyncio.gather(
            ctl("diff", server.addr, other.addr), ctl("-o", "json", "diff", server.addr, other.addr)
        )

    assert equal == Ended(0, f"5 topics at {server.addr}, 5 at {other.addr}: equal\n", "")
    assert table.code == printed.code == 1
    assert table.out.splitlines() == [
        "TOPIC    DIFFERENCE",
        f"topic-0  only at {server.addr}",
        "topic-4  differs",
        f"zz       only at {other.addr}",
        f"5 topics at {server.addr}, 5 at {other.addr}: 3 differ",
        f"{other.addr} is WARMING: it may not have heard of every broker yet",
    ]
    found = printed.document
    assert (found["equal"], found["differing"], found["onlyFirst"], found["onlySecond"]) == (
        False,
        ["topic-4"],
        ["topic-0"],
        ["zz"],
    )


async def test_a_node_that_does_not_answer_is_compared_with_nothing(server: ScriptedAdminServer) -> None:
    async with refused_addr() as dead, silent_listener() as silent:
        made = await ctl("diff", server.addr, dead)
        both = await ctl("--timeout", "0.3", "diff", silent, dead)

    assert (made.code, made.out) == (1, "")
    assert f"1 of 2 name servers failed: {dead} (connection refused)" in made.err
    assert "no name server answered" in both.err


async def test_brokers_of_an_older_server_that_says_nothing_of_itself_are_shown(server: ScriptedAdminServer) -> None:
    server.refusals["GetNodeInfo"] = Refusal(grpc.StatusCode.UNIMPLEMENTED)
    brokers, info = await asyncio.gather(asked(server, "-ojson", "brokers"), asked(server, "info"))

    assert (brokers.code, brokers.document["nodes"][0]["nodeState"]) == (0, None)
    assert info.code == 1
    assert "this name server does not know that call: it is older than this pointsmanctl" in info.err


async def test_top_shows_one_frame_when_told_so(server: ScriptedAdminServer) -> None:
    async with refused_addr() as dead:
        fine = await asked(server, "top", "--once")
        partly = await ctl("--namesrv", f"{server.addr},{dead}", "-o", "json", "top", "--once")

    assert (fine.code, fine.err) == (0, "")
    assert "c1/broker-a/0" in fine.out
    assert partly.code == 1
    assert "error" in partly.document["nodes"][1]
    assert partly.out.count("\n") == 1


@pytest.mark.parametrize("command", ["brokers", "flapping"])
async def test_a_cluster_that_no_server_knows_is_not_found(server: ScriptedAdminServer, command: str) -> None:
    for method in ("ListBrokers", "ListFlapping"):
        server.refusals[method] = Refusal(grpc.StatusCode.NOT_FOUND, "CLUSTER_NOT_FOUND", "cluster nope is not known")
    async with scripted_admin_server() as other:
        other.refusals = server.refusals
        made = await ctl("--namesrv", f"{server.addr},{other.addr}", command, "--cluster", "nope")
        other.refusals = {}
        partly = await ctl("--namesrv", f"{server.addr},{other.addr}", command, "--cluster", "nope")

    assert made == Ended(1, "", "pointsmanctl: cluster nope is not known: see `pointsmanctl clusters`\n")
    assert partly.code == 1
    assert f"1 of 2 name servers failed: {server.addr} (cluster nope is not known)" in partly.err


async def test_brokers_that_left_after_an_outage_are_named_below_those_that_are_there(
    server: ScriptedAdminServer,
) -> None:
    made = await asked(server, "brokers")
    assert "GONE: c1/broker-b 0 (EXPIRED 0ms ago)\n" in made.out


async def test_the_timeout_bounds_all_pages_of_an_answer_together(server: ScriptedAdminServer) -> None:
    server.brokers *= 40
    server.page, server.page_seconds = 1, 0.1
    for command in (["brokers"], ["diff", server.addr, "127.0.0.1:1"]):
        server.digests = {f"topic-{number:02}": b"" for number in range(40)}
        made = await asked(server, "--timeout", "0.4", *command)
        assert made.code == 1
        assert f"{server.addr} (no answer in time)" in made.err
    assert len(server.received(admin.ListBrokersRequest)) < 10
    assert len(server.received(admin.ListRouteDigestsRequest)) < 10


async def test_top_as_json_is_one_object_a_refresh_with_rates_until_ctrl_c(
    server: ScriptedAdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pointsman_client.ctl.commands.watch.REFRESH_SECONDS", 0.05)
    async with running_ctl("--namesrv", server.addr, "-o", "json", "top") as command:
        first, second = [json.loads(await command.out.line()) for _ in range(2)]
        made = await command.interrupted()

    assert (made.code, made.err.strip()) == (130, "")
    assert first["nodes"][0]["ratesPerSecond"] == {}
    assert second["nodes"][0]["ratesPerSecond"]["calls"] > 10


def keys_of(document: object) -> Iterator[str]:
    if isinstance(document, dict):
        for key, value in document.items():
            yield key
            if key not in DATA_KEYED and key != "error":
                yield from keys_of(value)
    elif isinstance(document, list):
        for item in document:
            yield from keys_of(item)


@pytest.mark.parametrize(
    ("command", "elsewhere"),
    [
        (["route", "orders"], []),
        (["topics"], []),
        (["clusters"], ["route"]),
        (["brokers"], ["guard"]),
        (["why", "broker-a"], []),
        (["flapping"], []),
        (["watchers", "orders"], []),
        (["watch", "orders", "--for", "1s"], ["route"]),
        (["top", "--once"], ["guard"]),
        (["info"], ["guard"]),
        (["health"], []),
        (["guard"], []),
        (["guard", "hold", "--cluster", "c1"], []),
        (["maintenance", "on", "c1", "--for", "5m"], []),
        (["maintenance", "off", "c1"], []),
        (["maintenance", "list"], []),
        (["wipe-write-perm", "broker-a"], []),
        (["add-write-perm", "broker-a"], []),
        (["delete-topic", "orders"], []),
        (["evict", "c1/broker-a/0"], []),
        (["drain"], []),
        (["kv", "list"], []),
        (["kv", "get", "NS", "key"], []),
        (["kv", "put", "NS", "key", "2"], []),
        (["kv", "delete", "NS", "key"], []),
        (["order-topic", "list"], []),
        (["order-topic", "set", "orders", "broker-a:4"], []),
        (["order-topic", "remove", "orders"], []),
    ],
    ids=" ".join,
)
async def test_every_key_of_the_json_output_is_documented_in_the_help(
    server: ScriptedAdminServer, capsys: pytest.CaptureFixture[str], command: list[str], elsewhere: list[str]
) -> None:
    name = command[:2] if command[0] in {"kv", "order-topic", "maintenance"} else command[:1]
    words: set[str] = set()
    for documented in [name, *([other] for other in elsewhere)]:
        capsys.readouterr()
        assert run([*documented, "--help"]) == 0
        words |= set(re.findall(r"\w+", capsys.readouterr().out.partition("JSON")[2].partition("Examples:")[0]))

    answer = await asked(server, "-o", "json", *command)
    assert answer.code == 0, answer.err
    found = set(keys_of(answer.document))
    assert found
    assert found - words == set()
