"""``pointsmanctl`` inspects name servers: what they report, where they differ, what is documented."""

from __future__ import annotations

import asyncio
import errno
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from pointsman.manual_clock import ManualClock
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2
from pointsman.v1 import registration_service_pb2 as registration
from pointsman.v1 import route_service_pb2 as route
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman.v1.route_service_pb2_grpc import RouteServiceStub
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.settings.settings_store import SettingsStore
from tests.kit.ctl.command import Ended, ctl, running_ctl
from tests.kit.ctl.keys import undocumented_keys
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import register_at
from tests.kit.name_server.scripted_admin import ScriptedAdminServer, scripted_admin_server
from tests.kit.name_server.scripted_routes import refused_addr, silent_listener


async def register(app: NameServerApp, *topics: str, name: str, **more: Any) -> None:
    await register_at(app.addr, *topics, who=wire.identity(name, addr=f"{name}:10911"), **more)


@pytest.fixture
async def server(clock: ManualClock) -> AsyncIterator[NameServerApp]:
    """A name server with one broker, and the memory of another that expired."""
    async with running_name_server(clock=clock) as app:
        await register(app, "orders", name="broker-b")
        await clock.advance(200.0)
        await register(app, "orders", name="broker-a")
        yield app


def succeeded(made: Ended) -> Ended:
    assert made.code == 0, made.err
    return made


async def run_ctl(server: NameServerApp | ScriptedAdminServer, *arguments: str) -> Ended:
    return await ctl("--namesrv", server.addr, *arguments)


async def test_flapping_brokers_are_listed_the_worst_first_and_marked(
    server: NameServerApp, clock: ManualClock
) -> None:
    for _ in range(4):
        await clock.advance(200.0)
        await register(server, "orders", name="broker-a")
    table, printed = await asyncio.gather(
        run_ctl(server, "flapping"), run_ctl(server, "-ojson", "flapping", "--limit", "1", "--cluster", "c1")
    )
    assert table.out.splitlines()[1].startswith("its history is off or not read at the start")
    heading, first, second = [line.split() for line in table.out.splitlines()[2:]]
    assert heading == ["CLUSTER", "BROKER", "ID", "PENALTY", "OUTAGES", "LAST", "EVENT", "EVENT", "AGE", "STATUS"]
    assert (first[:3], first[4:6], first[-1]) == (["c1", "broker-a", "0"], ["4", "EXPIRED"], "FLAPPING")
    assert (second[:3], second[4:6]) == (["c1", "broker-b", "0"], ["1", "EXPIRED"])
    (score,) = printed.document["nodes"][0]["scores"]
    assert f"{score['penalty']:.0f}" == first[3]


async def test_watchers_are_shown_with_what_they_have_not_read(server: NameServerApp, clock: ManualClock) -> None:
    async with grpc.aio.insecure_channel(server.addr) as channel:
        request = route.WatchTopicRoutesRequest(topics=[route.KnownRoute(topic="orders")])
        watch = RouteServiceStub(channel).WatchTopicRoutes(request)
        await watch.read()
        await clock.advance(10.0)
        table = await run_ctl(server, "watchers", "orders")

    assert table.out.splitlines()[1].split() == ["CLIENT", "AGE", "TOPICS", "PENDING", "LAG"]
    assert table.out.splitlines()[2].split()[1:] == ["10.0s", "1", "0", "-"]
    assert table.out.splitlines()[3] == "1 watcher"


async def test_info_shows_the_complete_node(server: NameServerApp) -> None:
    table, printed, whole = await asyncio.gather(
        run_ctl(server, "info"), run_ctl(server, "-ojson", "info"), run_ctl(server, "info", "--configuration")
    )

    for words in ("0.0.0-test", "READY", "3m 20s"):
        assert words in table.out
    assert "listen" not in table.out
    assert '\nlisten = "127.0.0.1:0"\n' in whole.out
    assert "listen" in printed.document["nodes"][0]["configuration"]
    node = printed.document["nodes"][0]
    assert (node["version"], len(node["boot"]), node["sizes"]["topics"]) == ("0.0.0-test", 16, 1)
    assert ["boot", node["boot"]] in [line.split() for line in table.out.splitlines()]


async def test_health_fails_for_a_server_in_an_unknown_state() -> None:
    async with scripted_admin_server() as scripted:
        assert (await run_ctl(scripted, "health")).code == 0
        scripted.state = broker_pb2.NODE_STATE_UNSPECIFIED
        assert (await run_ctl(scripted, "health")).code == 1


async def test_health_fails_when_no_server_responds() -> None:
    async with refused_addr() as dead:
        made = await ctl("--namesrv", dead, "health")
    assert (made.code, made.out) == (1, "")
    assert "connection refused" in made.err


async def test_health_of_a_warming_server_is_delayed_and_its_lists_have_a_warning() -> None:
    async with running_name_server(warm_up_seconds=60) as warming:
        topics, clusters, brokers, health, route, watch = [
            await ctl("--namesrv", warming.addr, *command)
            for command in (
                ["topics"],
                ["-ojson", "clusters"],
                ["brokers"],
                ["health"],
                ["route", "orders"],
                ["watch", "orders", "--for", "1s"],
            )
        ]

    line = "pointsmanctl: this name server is WARMING: the list may be incomplete\n"
    assert topics == Ended(0, "", line)
    assert clusters.document["nodeState"] == "WARMING"
    assert json.loads(clusters.err)["warning"]["code"] == "NODE_WARMING"
    assert brokers.out.splitlines()[0].endswith(" WARMING")
    assert (health.code, route.code, watch.code) == (1, 1, 0)
    assert "WARMING" in route.err
    assert "does not know the route of orders yet" in watch.err


async def test_nodes_are_equal_until_one_has_an_extra_broker_and_equal_again_when_it_is_evicted() -> None:
    async with running_name_server() as one, running_name_server() as two:
        for app in (one, two):
            await register(app, "orders", name="broker-a")
        before = await ctl("-o", "json", "diff", one.addr, two.addr)
        await register(two, "refunds", name="broker-b")
        between = await ctl("-o", "json", "diff", one.addr, two.addr)
        await ctl("--namesrv", two.addr, "evict", "c1/broker-b/0")
        after = await ctl("diff", one.addr, two.addr)

    assert (before.code, between.code, after.code) == (0, 1, 0)
    assert (between.document["onlySecond"], between.document["onlyFirst"]) == (["refunds"], [])


async def test_a_topic_whose_brokers_are_all_down_is_shown_with_reasons_and_exits_1() -> None:
    clock = ManualClock()
    async with running_name_server(clock=clock) as one, running_name_server(clock=clock) as two:
        for app in (one, two):
            await register(app, "orders", name="broker-a")
        await clock.advance(200.0)
        table = await ctl("--namesrv", one.addr, "route", "orders")
        printed = await ctl("--namesrv", one.addr, "-o", "json", "route", "orders")
        diff = await ctl("diff", one.addr, two.addr)
        unknown = await ctl("--namesrv", one.addr, "route", "unknown")

    assert (table.code, printed.code, diff.code, unknown.code) == (1, 1, 0, 1)
    assert table.out.split()[7:13] == ["c1", "broker-a", "0", "broker-a:10911", "GONE", "SILENCE"]
    assert table.err.startswith("pointsmanctl: no broker of topic orders is up: c1/broker-a/0 SILENCE since ")
    (absent,) = printed.document["absentBrokers"]
    assert (absent["brokerName"], absent["isRegistered"], absent["reason"]) == ("broker-a", False, "SILENCE")
    assert json.loads(printed.err)["error"]["code"] == "NO_BROKER_UP"
    assert diff.out == f"1 topic at {one.addr}, 1 at {two.addr}: equal\n"
    assert "no broker of topic" not in unknown.err


async def test_settings_that_differ_are_shown_by_diff_and_warned_of_by_health() -> None:
    async with running_name_server() as one, running_name_server() as two:
        for app in (one, two):
            await register(app, "orders", name="broker-a")
        both, second = ("--namesrv", f"{one.addr},{two.addr}"), ("--namesrv", two.addr)
        for servers, command in (
            (both, ("guard", "hold", "--cluster", "c1", "--for", "30m")),
            (both, ("kv", "put", "LIMITS", "orders", "100")),
            (second, ("kv", "put", "LIMITS", "orders", "200")),
            (second, ("wipe-write-perm", "broker-a")),
            (second, ("maintenance", "on", "c1", "--for", "2h", "--note", "racks")),
        ):
            assert (await ctl(*servers, *command)).code == 0
        table = await ctl("diff", one.addr, two.addr)
        printed = await ctl("-o", "json", "diff", one.addr, two.addr)
        health = await ctl(*both, "health")
        for server in (one, two):
            await ctl("--namesrv", server.addr, "kv", "put", "LIMITS", "orders", "100")
        await ctl(*second, "add-write-perm", "broker-a")
        await ctl(*second, "maintenance", "off", "c1")
        equal = await ctl("diff", one.addr, two.addr)
        healthy = await ctl(*both, "health")

    assert (table.code, printed.code, equal.code, health.code, healthy.code) == (1, 1, 0, 0, 0)
    lines = [line.split() for line in table.out.splitlines()]
    assert ["kv", "LIMITS/orders", "100", "200"] in lines
    assert ["maintenance", "c1", "not", "set", "racks", "for"] in [line[:6] for line in lines]
    assert ["wiped", "permission", "c1/broker-a", "not", "set", "set"] in lines
    assert table.out.splitlines()[-1] == "operator settings: 3 of 4 differ"
    assert not printed.document["equal"]
    assert printed.document["settings"][0] == {
        "kind": "KV",
        "name": ["LIMITS", "orders"],
        "first": {"value": "100", "remainingSeconds": None},
        "second": {"value": "200", "remainingSeconds": None},
    }
    assert (
        "operator settings differ between name servers: kv LIMITS/orders, maintenance c1, wiped permission c1/broker-a"
        in health.err
    )
    assert healthy.err == ""
    assert equal.out.splitlines()[-1] == "operator settings: 2 equal"


async def test_a_setting_that_cannot_be_written_to_disk_is_a_warning_next_to_the_result_or_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "settings.db")

    caplog.set_level("INFO", "pointsman.daemon.rpc.refused_calls")

    monkeypatch.setattr(SettingsStore, "write", refuse)
    async with running_name_server(snapshot=tmp_path / "state") as app:
        await register(app, "orders", name="broker-a")
        hold = ("guard", "hold", "--cluster", "c1")
        table = await ctl("--namesrv", app.addr, *hold)
        printed = await ctl("--namesrv", app.addr, "-o", "json", *hold)
        failed = await ctl("--namesrv", app.addr, "kv", "put", "LIMITS", "orders", "100")

    problem = "could not be saved: [Errno 28] No space left on device: 'settings.db'"
    assert f"(not saved: a restart of this name server loses the setting, because it {problem})" in table.out
    assert printed.document["nodes"][0]["warning"].endswith(problem)
    assert (table.code, failed.code) == (0, 1)
    # By this id the line is found in the log of the server.
    (request_id,) = [vars(each)["facts"]["request_id"] for each in caplog.records if each.message == "call refused"]
    assert failed.err == (
        f"pointsmanctl: rejected by {app.addr} (the setting was not changed, because it {problem} "
        f"[request {request_id}]); "
        "free space on that server's disk, or repair it, and run the command again\n"
    )


async def test_every_page_of_two_nodes_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pointsman_ctl.servers.name_servers.DIGESTS_PER_PAGE", 2)
    topics = [f"topic-{number}" for number in range(5)]
    async with running_name_server() as one, running_name_server() as two:
        await register(one, *topics, name="broker-a")
        await register(two, *topics, name="broker-a")
        equal = await ctl("diff", one.addr, two.addr)
        await register(two, *topics[1:], "zz", name="broker-a")
        await register(two, "topic-4", name="broker-b")
        table, printed = await asyncio.gather(
            ctl("diff", one.addr, two.addr), ctl("-o", "json", "diff", one.addr, two.addr)
        )

    assert equal == Ended(0, f"5 topics at {one.addr}, 5 at {two.addr}: equal\n", "")
    assert table.code == printed.code == 1
    assert table.out.splitlines() == [
        "TOPIC    DIFFERENCE",
        f"topic-0  only at {one.addr}",
        "topic-4  differs",
        f"zz       only at {two.addr}",
        f"5 topics at {one.addr}, 5 at {two.addr}: 3 differ",
    ]
    found = printed.document
    assert (found["equal"], found["differing"], found["onlyFirst"], found["onlySecond"]) == (
        False,
        ["topic-4"],
        ["topic-0"],
        ["zz"],
    )


async def test_a_node_that_does_not_respond_is_not_compared(server: NameServerApp) -> None:
    async with refused_addr() as dead, silent_listener() as silent:
        made = await ctl("diff", server.addr, dead)
        both = await ctl("--timeout", "0.3", "diff", silent, dead)

    assert (made.code, made.out) == (1, "")
    assert f"1 of 2 name servers failed: {dead} (connection refused)" in made.err
    assert "no name server is responding" in both.err


async def test_top_shows_one_frame_with_once(server: NameServerApp, clock: ManualClock) -> None:
    await clock.advance(100.0)
    async with refused_addr() as dead:
        fine = await run_ctl(server, "top", "--once")
        partly = await ctl("--namesrv", f"{server.addr},{dead}", "-o", "json", "top", "--once")

    assert (fine.code, fine.err) == (0, "")
    assert "c1/broker-a/0" in fine.out
    assert partly.code == 1
    assert "error" in partly.document["nodes"][1]
    assert partly.out.count("\n") == 1


@pytest.mark.parametrize("command", ["brokers", "flapping"])
async def test_a_cluster_that_no_server_knows_is_not_found(server: NameServerApp, command: str) -> None:
    async with running_name_server() as other:
        arguments = ("--namesrv", f"{server.addr},{other.addr}", command, "--cluster", "nope")
        made = await ctl(*arguments)
        await register_at(other.addr, who=wire.identity("broker-n", cluster="nope"))
        partly = await ctl(*arguments)

    assert made == Ended(1, "", "pointsmanctl: cluster nope is not known; see `pointsmanctl clusters`\n")
    assert partly.code == 1
    assert f"1 of 2 name servers failed: {server.addr} (no broker is known in cluster nope)" in partly.err


async def test_brokers_that_departed_unplanned_are_named_below_the_registered_ones(server: NameServerApp) -> None:
    made = await run_ctl(server, "brokers")
    assert re.search(r"^DEPARTED: c1/broker-b 0 \(EXPIRED [0-9.]+s ago\)$", made.out, re.MULTILINE), made.out


async def test_why_shows_the_state_its_rule_and_the_length_of_an_outage() -> None:
    clock = ManualClock()
    refused = broker_pb2.BrokerHealth(
        status=broker_pb2.PROBE_STATUS_FAILING, evidence=broker_pb2.PROBE_EVIDENCE_STRONG, detail="connect: refused"
    )
    async with running_name_server(clock=clock) as app:
        await register(app, "orders", name="broker-a", incarnation="p1")
        await clock.advance(5.0)
        await register(app, "orders", name="broker-a", incarnation="p1", health=refused)
        during = await ctl("--namesrv", app.addr, "why", "broker-a")
        await clock.advance(12.0)
        await register(app, "orders", name="broker-a", incarnation="p2")
        after = await ctl("--namesrv", app.addr, "why", "broker-a", "--cluster", "c1")
        await ctl("--namesrv", app.addr, "evict", "c1/broker-a/0")
        gone = await ctl("--namesrv", app.addr, "why", "broker-a", "--cluster", "c1")

    assert "c1/broker-a 0 at broker-a:10911: OUT for 0ms\n" in during.out
    assert "    rule       the probe fails on strong evidence\n" in during.out
    assert "    probe      failing, strong evidence: connect: refused\n" in during.out
    assert "left the routes; last heartbeat 5.0s before; evidence STRONG" in during.out
    assert "c1/broker-a 0 at broker-a:10911: UP for 0ms\n" in after.out
    assert "    outage     12.0s (new process); back at 2026-01-01 00:00:17.000 (UTC)\n" in after.out
    assert "re-registered; back in the routes after 12.0s (new process)" in after.out
    assert gone.code == 0
    assert "c1/broker-a 0 at broker-a:10911: GONE since " in gone.out
    assert "unregistered: by an operator; left the routes, planned" in gone.out


async def test_why_names_the_other_registration_of_an_address_and_the_one_that_superseded_it() -> None:
    clock = ManualClock()
    old, new = (wire.identity("broker-b", addr="10.0.0.1:6379", cluster=cluster) for cluster in ("home", "west"))
    async with running_name_server(clock=clock) as app, grpc.aio.insecure_channel(app.addr) as channel:
        stub = RegistrationServiceStub(channel)
        first, second = [
            await stub.RegisterBroker(wire.registration(wire.topic("orders"), who=who)) for who in (old, new)
        ]
        both = await run_ctl(app, "why", "broker-b")
        shown = json.loads((await run_ctl(app, "--output", "json", "why", "broker-b")).out)
        await clock.advance(5.0)
        metric = app.metrics.registry.get_sample_value("pointsman_namesrv_address_conflicts")
        await stub.Heartbeat(registration.HeartbeatRequest(beat=wire.beat(first.generation, who=old, hand_over=True)))
        after = await run_ctl(app, "why", "broker-b")
        await clock.advance(5.0)
        later = app.metrics.registry.get_sample_value("pointsman_namesrv_address_conflicts")

    assert (list(first.superseded), list(second.superseded)) == ([], [])
    assert [[each.cluster for each in answer.group.also_at_addr] for answer in (first, second)] == [[], ["home"]]
    assert "    conflict   west/broker-b 0 is registered at this address too\n" in both.out
    assert "    conflict   home/broker-b 0 is registered at this address too\n" in both.out
    assert "another registration has its address too, and both send heartbeats; " in both.out
    others = {each["cluster"]: each["alsoAtAddr"] for each in shown["nodes"][0]["brokers"]}
    identity = {"brokerName": "broker-b", "brokerId": 0, "addr": "10.0.0.1:6379"}
    assert others == {"home": [{"cluster": "west", **identity}], "west": [{"cluster": "home", **identity}]}
    assert (metric, later) == (1.0, 0.0)
    assert "home/broker-b 0 at 10.0.0.1:6379: GONE since " in after.out
    assert "unregistered: another identity registered its address; left the routes, planned" in after.out
    assert "superseded by west/broker-b/0" in after.out
    assert "conflict" not in after.out.split("TIME (UTC)")[0]


async def test_events_of_a_cluster_of_which_a_server_knows_no_broker_are_shown(clock: ManualClock) -> None:
    async with running_name_server(clock=clock) as app:
        await register(app, "orders", name="broker-b")
        await clock.advance(200.0)
        made = await run_ctl(app, "why", "broker-b", "--cluster", "c1")
    assert (made.code, "expired: heartbeats are missing; left the routes" in made.out) == (0, True)


async def test_the_timeout_applies_to_all_pages_of_a_result_together() -> None:
    async with scripted_admin_server() as slow:
        slow.brokers = [broker_pb2.BrokerStatus()] * 40
        slow.digests = {f"topic-{number:02}": b"" for number in range(40)}
        slow.page_seconds = 0.1
        for command in (["brokers"], ["diff", slow.addr, "127.0.0.1:1"]):
            made = await run_ctl(slow, "--timeout", "0.4", *command)
            assert made.code == 1
            assert f"{slow.addr} (no response in time)" in made.err
    assert len(slow.received(admin.ListBrokersRequest)) < 10
    assert len(slow.received(admin.ListRouteDigestsRequest)) < 10


async def test_top_as_json_is_one_object_per_refresh_with_rates_until_ctrl_c(
    server: NameServerApp,
) -> None:
    async with running_ctl("--namesrv", server.addr, "-o", "json", "top", "--interval", "0.1") as command:
        first, second = [json.loads(await command.out.line()) for _ in range(2)]
        made = await command.interrupted()

    assert (made.code, made.err.strip()) == (130, "")
    assert first["nodes"][0]["ratesPerSecond"] == {}
    assert {"heartbeats", "events"} <= set(second["nodes"][0]["ratesPerSecond"])


@pytest.mark.parametrize(
    ("command", "elsewhere"),
    [
        (["route", "orders"], []),
        (["topics"], []),
        (["clusters"], ["route"]),
        (["brokers"], ["guard", "flapping"]),
        (["why", "broker-a"], ["brokers", "guard"]),
        (["flapping"], []),
        (["watchers", "orders"], []),
        (["watch", "orders"], ["route"]),
        (["top", "--once"], ["guard", "brokers"]),
        (["info"], ["guard"]),
        (["health"], []),
    ],
    ids=" ".join,
)
async def test_every_key_of_the_json_output_is_documented_in_the_help(
    server: NameServerApp, capsys: pytest.CaptureFixture[str], command: list[str], elsewhere: list[str]
) -> None:
    async with running_ctl("--namesrv", server.addr, "-o", "json", *command) as made:
        document = (
            json.loads(await made.out.line()) if command[0] == "watch" else succeeded(await made.ended()).document
        )
    assert undocumented_keys(document, command, *elsewhere, capsys=capsys) == set()
