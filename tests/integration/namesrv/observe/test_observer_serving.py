"""What an observer serves: pages with a column per name server, ``/v1``, and ``pointsmanctl --namesrv observe://``."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pointsman_namesrv.config import RemotingConfig
from pointsman_namesrv.observe import observer as observing
from pointsman_namesrv.observe.observed_servers import ObservedServers
from pointsman_namesrv.observe.observer_config import ObserverMonitoringConfig, ObserverServerConfig
from pointsman_namesrv.web import page_source, past_source
from tests.kit.broker.redis.process import free_port
from tests.kit.broker.rocketmq.frames import broker_ext, register, register_body, topic_config
from tests.kit.broker.rocketmq.peer import RemotingPeer, remoting_peer
from tests.kit.ctl.command import Ended, running_ctl
from tests.kit.http_answer import ask
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.observed import observe, observed_servers, polled
from tests.kit.waiting import eventually, read_until


@pytest.fixture(autouse=True)
def _waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing, "FIRST_WAIT_SECONDS", 0.02)
    monkeypatch.setattr(observing, "LONGEST_WAIT_SECONDS", 0.1)
    # A slow machine takes longer to start the process that reads the history.
    monkeypatch.setattr(page_source, "HISTORY_SECONDS", 50.0)
    monkeypatch.setattr(past_source, "WAIT_SECONDS", 50.0)


@dataclass
class Fleet:
    """Two name servers with a connection to each, and an observer of both."""

    addrs: list[str]
    peers: list[RemotingPeer]
    port: int
    pages: int
    servers: list[AsyncExitStack]
    """Of each name server, what ends it."""

    @property
    def observer(self) -> str:
        return f"observe://127.0.0.1:{self.port}"

    async def ctl(self, *arguments: str) -> Ended:
        async with running_ctl("--namesrv", self.observer, *arguments) as running:
            return await running.ended()

    async def status(self) -> Any:
        return (await ask(self.pages, "/v1/status")).document

    async def until_listed(self, first: int, second: int) -> None:
        """Wait until the name servers list these numbers of brokers."""

        def listed(document: Any) -> bool:
            return [each["brokers"] for each in document["nameServers"]] == [first, second]

        await read_until(self.status, listed)

    async def until_walked(self) -> None:
        await read_until(lambda: ask(self.pages, "/topics"), lambda answer: answer.status == 200)


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def add(peer: RemotingPeer, name: str, n: int, *topics: str) -> None:
    table = {topic: topic_config(topic) for topic in (name, "Shared", *topics)}
    peer.send(register(broker_ext(name, 0, f"10.0.0.{n}:10911"), register_body(table)))
    assert (await peer.answer()).code == 0


async def remove(peer: RemotingPeer, name: str, n: int) -> None:
    assert (await peer.ask(104, broker_ext(name, 0, f"10.0.0.{n}:10911"))).code == 0


@asynccontextmanager
async def observed_fleet(folder: Path) -> AsyncIterator[Fleet]:
    async with name_servers() as fleet, running_observer(fleet, folder):
        yield fleet


@asynccontextmanager
async def name_servers() -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as steps:
        addrs, peers, servers = list[str](), list[RemotingPeer](), list[AsyncExitStack]()
        for _ in range(2):
            stack = await steps.enter_async_context(AsyncExitStack())
            listen = RemotingConfig(listen=f"127.0.0.1:{free_port()}")
            server = await stack.enter_async_context(running_name_server(remoting=listen))
            addrs.append(server.remoting_addr)
            peers.append(await stack.enter_async_context(remoting_peer(server.remoting_addr)))
            servers.append(stack)
        yield Fleet(addrs, peers, free_port(), free_port(), servers)


@asynccontextmanager
async def running_observer(fleet: Fleet, folder: Path) -> AsyncIterator[ObservedServers]:
    stop = asyncio.Event()
    servers = observed_servers(folder, polled(*fleet.addrs, poll_seconds=0.05, topics_seconds=0.2))
    task = asyncio.create_task(
        observe(
            servers,
            folder,
            stop,
            server=ObserverServerConfig(f"127.0.0.1:{fleet.port}"),
            monitoring=ObserverMonitoringConfig(f"127.0.0.1:{fleet.pages}"),
        )
    )
    try:
        await eventually(lambda: _accepts(fleet.pages))
        yield servers
    finally:
        stop.set()
        assert await task == 0


async def test_a_broker_that_one_name_server_misses_is_up_and_marked_as_missing_there(tmp_path: Path) -> None:
    async with observed_fleet(tmp_path) as fleet:
        first, second = fleet.addrs
        for peer in fleet.peers:
            await add(peer, "broker-a", 1)
        await add(fleet.peers[0], "broker-b", 2)
        await fleet.until_listed(2, 1)

        document = await fleet.status()
        page = (await ask(fleet.pages, "/")).body.decode()
        brokers = await fleet.ctl("brokers")
        doctor = await fleet.ctl("-o", "json", "doctor")

        assert document["states"] == {"UP": 2}
        assert document["gone"] == []
        [warning] = [each["text"] for each in document["problems"]]
        assert warning.startswith(f"Missing at name server {second}: DefaultCluster/broker-b/0 for ")
        assert warning.endswith(f"which {first} lists.")
        assert f"At {first}" in page
        assert f"At {second}" in page
        assert page.count(">MISSING</b>") == 1
        assert "Heartbeats, probes and versions are unknown" in page
        assert brokers.code == 0
        assert f"node {fleet.observer}/{first} ({first})" in brokers.out
        assert "missing here: DefaultCluster/broker-b/0 for " in brokers.out
        assert "0.0s" not in brokers.out, "a heartbeat is unknown, and not just now"
        missing = [each for each in doctor.document["findings"] if each["kind"] == "MISSING"]
        assert [(each["subject"], each["severity"]) for each in missing] == [("DefaultCluster/broker-b/0", "WARNING")]
        assert not [each for each in doctor.document["findings"] if each["kind"] in {"DEPARTED", "PROBLEM"}]


async def test_a_broker_that_departs_everywhere_is_down_and_its_return_ends_the_outage(tmp_path: Path) -> None:
    async with observed_fleet(tmp_path) as fleet:
        for peer in fleet.peers:
            await add(peer, "broker-a", 1)
            await add(peer, "broker-b", 2)
        await fleet.until_listed(2, 2)
        for peer in fleet.peers:
            await remove(peer, "broker-b", 2)
        await fleet.until_listed(1, 1)
        gone = await fleet.status()
        page = (await ask(fleet.pages, "/brokers/DefaultCluster/broker-b")).body.decode()
        flapping = await fleet.ctl("-o", "json", "flapping")
        for peer in fleet.peers:
            await add(peer, "broker-b", 2)
        await fleet.until_listed(2, 2)
        why = await fleet.ctl("-o", "json", "why", "broker-b")
        explained = await fleet.ctl("why", "broker-b")

        assert [each["brokerName"] for each in gone["gone"]] == ["broker-b"]
        assert "departed unplanned: DefaultCluster/broker-b/0" in gone["problems"][0]["text"]
        assert "the name server no longer lists it" in page
        assert [[score["outages"] for score in node["scores"]] for node in flapping.document["nodes"]] == [[1], [1]]
        for node in why.document["nodes"]:
            kinds = [each["event"] for each in node["events"] if each["state"]]
            assert kinds[1:] == ["EXPIRED", "REGISTERED"]
            [outage] = node["outages"]
            assert (outage["planned"], outage["beginKnown"], outage["newProcess"]) == (False, True, None)
            [status] = node["brokers"]
            unknown = ("silenceSeconds", "heartbeatIntervalSeconds", "expirySeconds", "health", "registeredAt")
            assert {name: status[name] for name in unknown} == dict.fromkeys(unknown)
        assert "heartbeat  unknown, as stream and probe" in explained.out
        assert "the name server no longer lists it; left the routes" in explained.out


async def test_a_name_server_that_stops_is_unreachable_and_takes_no_broker_with_it(tmp_path: Path) -> None:
    async with observed_fleet(tmp_path) as fleet:
        _, second = fleet.addrs
        for peer in fleet.peers:
            await add(peer, "broker-a", 1)
        await fleet.until_listed(1, 1)
        await fleet.servers[1].aclose()
        await read_until(fleet.status, lambda document: document["nameServers"][1]["result"] == "UNREACHABLE")
        document, page = await fleet.status(), (await ask(fleet.pages, "/")).body.decode()
        brokers, health = await fleet.ctl("-o", "json", "brokers"), await ask(fleet.pages, "/v1/brokers")
        why, diff = await fleet.ctl("why", "broker-a"), await fleet.ctl("diff")
        await fleet.servers[0].aclose()
        await read_until(fleet.status, lambda document: document["nameServers"][0]["result"] == "UNREACHABLE")
        none, all_unknown = await fleet.status(), await fleet.ctl("brokers")

    assert document["states"] == {"UP": 1}
    assert document["gone"] == []
    [warning] = [each["text"] for each in document["problems"]]
    assert warning.startswith(f"Name server {second} has not been watched for ")
    assert warning.endswith("The state of its brokers is unknown.")
    assert page.count(">UNKNOWN</b>") == 1
    assert brokers.code == 1, "one of them failed"
    answered, failed = brokers.document["nodes"]
    assert [each["brokerName"] for each in answered["brokers"]] == ["broker-a"]
    assert f"has not watched {second} for " in failed["error"]["message"]
    assert [set(each) for each in health.document["nodes"]] == [set(answered), {"addr", "error"}]
    assert (why.code, "EXPIRED" in why.out) == (1, False)
    assert diff.code == 1
    assert none["states"] == {"UP": 1}, "as listed last"
    assert none["problems"][0]["text"].startswith("No name server is watched")
    assert all_unknown.code == 1


async def test_a_name_server_that_returns_is_waited_for_and_no_departure_is_recorded(tmp_path: Path) -> None:
    async with observed_fleet(tmp_path) as fleet:
        for peer in fleet.peers:
            await add(peer, "broker-a", 1)
        await fleet.until_listed(1, 1)
        await fleet.servers[1].aclose()
        await read_until(fleet.status, lambda document: document["nameServers"][1]["result"] == "UNREACHABLE")
        listen = RemotingConfig(listen=fleet.addrs[1])
        async with running_name_server(remoting=listen), remoting_peer(fleet.addrs[1]) as peer:
            waits = "1 brokers known before are not listed again yet"
            await read_until(fleet.status, lambda document: document["nameServers"][1]["detail"] == waits)
            assert (await fleet.ctl("why", "broker-a")).code == 1
            await add(peer, "broker-a", 1)
            await fleet.until_listed(1, 1)
            why = await fleet.ctl("-o", "json", "why", "broker-a")

    events = [[each["event"] for each in node["events"]] for node in why.document["nodes"]]
    assert events[0][1:] == []
    assert events[1][1:] == ["NAMESRV_STOPPED", "NAMESRV_STARTED"]
    _, stopped, started = why.document["nodes"][1]["events"]
    assert stopped["detail"]["problem"], "the name server did not respond"
    assert started["detail"]["watch"] == 2, "the observer is the same"


async def test_events_and_penalties_of_an_earlier_observer_are_read_back(tmp_path: Path) -> None:
    async with name_servers() as fleet:
        for peer in fleet.peers:
            await add(peer, "broker-a", 1)
            await add(peer, "broker-b", 2)
        async with running_observer(fleet, tmp_path):
            await fleet.until_listed(2, 2)
            for peer in fleet.peers:
                await remove(peer, "broker-b", 2)
            await fleet.until_listed(1, 1)
        async with running_observer(fleet, tmp_path):
            await fleet.until_listed(1, 1)
            document = await read_until(fleet.status, lambda document: document["gone"])
            why = await read_until(
                lambda: fleet.ctl("-o", "json", "why", "broker-b"),
                lambda ended: all(node["earlierRuns"] == "READ" for node in ended.document["nodes"]),
            )

    assert [(each["brokerName"], each["outages"]) for each in document["gone"]] == [("broker-b", 1)]
    for node in why.document["nodes"]:
        assert [each["event"] for each in node["events"]][-3:] == ["EXPIRED", "NAMESRV_STOPPED", "NAMESRV_STARTED"]
        stopped = next(each for each in node["events"] if each["event"] == "NAMESRV_STOPPED")
        assert "problem" not in stopped["detail"], "the observer stopped, and not the name server"
        assert node["events"][-1]["detail"]["watch"] == 1


async def test_commands_that_change_or_need_settings_are_refused_with_what_to_use(tmp_path: Path) -> None:
    async with observed_fleet(tmp_path) as fleet:
        refused = await fleet.ctl("kv", "list")
        drained = await fleet.ctl("drain", "--yes")
        as_name_server = await fleet_ctl(f"127.0.0.1:{fleet.port}", "brokers")
        not_observer = await fleet_ctl(f"observe://127.0.0.1:{fleet.port}/10.9.9.9:9876", "brokers")
    for ended, name in ((refused, "kv"), (drained, "drain")):
        assert ended.code == 2
        assert f"{name} is not for {fleet.observer}: an observer only polls RocketMQ's name servers" in ended.err
    for ended in (as_name_server, not_observer):
        assert ended.code == 1
        assert f"this is an observer of {', '.join(fleet.addrs)}" in ended.err


async def fleet_ctl(addr: str, *arguments: str) -> Ended:
    async with running_ctl("--namesrv", addr, *arguments) as running:
        return await running.ended()


async def test_routes_and_differences_are_those_of_the_walks(tmp_path: Path) -> None:
    async with observed_fleet(tmp_path) as fleet:
        first, second = fleet.addrs
        for peer in fleet.peers:
            await add(peer, "broker-a", 1)
        await fleet.until_listed(1, 1)
        await fleet.until_walked()
        equal = await read_until(lambda: fleet.ctl("diff"), lambda ended: ended.code == 0)
        await add(fleet.peers[0], "broker-a", 1, "OnlyFirst")
        differs = await read_until(lambda: fleet.ctl("-o", "json", "diff"), lambda ended: ended.code == 1)
        topics = await fleet.ctl("topics")
        route = await fleet.ctl("-o", "json", "route", "Shared")
        page = (await ask(fleet.pages, "/topics/Shared")).body.decode()
        http = (await ask(fleet.pages, "/v1/routes/Shared")).document

    assert "equal" in equal.out
    assert differs.document["onlyFirst"] == ["OnlyFirst"]
    assert [differs.document[side]["addr"] for side in ("first", "second")] == [
        f"{fleet.observer}/{addr}" for addr in (first, second)
    ]
    assert "Shared" in topics.out.split()
    for document in (route.document, http):
        assert [each["brokerAddrs"] for each in document["brokerDatas"]] == [{"0": "10.0.0.1:10911"}]
    assert "broker-a" in page
    assert "Groups that consume it" not in page


async def test_top_watch_events_info_and_health_have_each_name_server(tmp_path: Path) -> None:
    async with observed_fleet(tmp_path) as fleet:
        for peer in fleet.peers:
            await add(peer, "broker-a", 1)
        await fleet.until_listed(1, 1)
        await fleet.until_walked()
        top = await fleet.ctl("-o", "json", "top", "--once")
        health, info = await fleet.ctl("health"), await fleet.ctl("info")
        async with running_ctl("--namesrv", fleet.observer, "-o", "json", "watch", "Shared") as watch:
            line = await watch.out.line()
        events = await read_until(lambda: fleet.ctl("events"), lambda ended: ended.out.count("NAMESRV_READY") == 2)

    assert [node["brokersByState"] for node in top.document["nodes"]] == [{"UP": 1}] * 2
    assert [node["guards"] for node in top.document["nodes"]] == [[], []]
    assert (health.code, info.code) == (0, 0)
    assert '"broker-a"' in line
    assert all(addr in events.out for addr in fleet.addrs)


async def test_the_past_and_events_are_of_all_name_servers(tmp_path: Path) -> None:
    async with observed_fleet(tmp_path) as fleet:
        for peer in fleet.peers:
            await add(peer, "broker-a", 1)
        await fleet.until_listed(1, 1)

        async def events() -> str:
            return (await ask(fleet.pages, "/events?kind=NAMESRV_READY")).body.decode()

        page = await read_until(events, lambda text: text.count('data-label="Event">NAMESRV_READY<') == 2)
        past = (await ask(fleet.pages, "/v1/past/events?kind=NAMESRV_READY")).document
        missing = await ask(fleet.pages, "/groups")

    assert all(addr in page for addr in fleet.addrs)
    assert len(past["events"]) == 2
    assert missing.status == 404


async def test_pages_are_refused_beyond_loopback_and_for_another_host(tmp_path: Path) -> None:
    async with observed_fleet(tmp_path) as fleet:
        other_host = await ask(fleet.pages, "/v1/status", Host="evil.example")
        posted = await ask(fleet.pages, "/v1/status", "POST")
    assert other_host.error[:2] == (403, "OTHER_HOST")
    assert posted.status == 405


async def test_pages_and_commands_follow_a_list_of_name_servers_that_changes(tmp_path: Path) -> None:
    async with name_servers() as fleet:
        first, second = fleet.addrs
        await add(fleet.peers[0], "broker-a", 1)
        await add(fleet.peers[1], "broker-b", 2)
        both = polled(first, second, poll_seconds=0.05, topics_seconds=0.2)
        fleet.addrs = [first]
        async with running_observer(fleet, tmp_path) as servers:
            await read_until(
                fleet.status, lambda document: [each["brokers"] for each in document["nameServers"]] == [1]
            )
            servers.apply(both)
            await fleet.until_listed(1, 1)
            listed = await fleet.ctl("-o", "json", "brokers")
            past = await read_until(
                lambda: fleet.ctl("-o", "json", "events", "--since", "1h"), lambda ended: second in ended.out
            )
            servers.apply(replace(both, name_servers=(second,)))
            await read_until(fleet.status, lambda document: len(document["nameServers"]) == 1)
            left = await fleet.ctl("-o", "json", "brokers")
            page = (await ask(fleet.pages, "/")).body.decode()

    assert [node["addr"] for node in listed.document["nodes"]] == [
        f"{fleet.observer}/{addr}" for addr in both.name_servers
    ]
    assert past.code == 0
    assert [node["addr"] for node in left.document["nodes"]] == [f"{fleet.observer}/{second}"]
    assert re.search("broker-a.*GONE", re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", page)))


async def test_metrics_count_the_fleet_its_departures_and_the_highest_penalties(tmp_path: Path) -> None:
    async with observed_fleet(tmp_path) as fleet:

        async def until_sampled(*lines: str) -> None:
            def has_all(text: str) -> bool:
                return all(f"pointsman_observe_{line}\n" in text for line in lines)

            async def read() -> str:
                return (await ask(fleet.pages, "/metrics")).body.decode()

            await read_until(read, has_all)

        for peer in fleet.peers:
            await add(peer, "broker-a", 1)
            await add(peer, "broker-b", 2)
        await add(fleet.peers[0], "broker-c", 3)
        in_cluster = 'fleet_brokers{{cluster="DefaultCluster",state="{}"}} {}'.format
        await until_sampled(in_cluster("up", 2.0), in_cluster("missing", 1.0), "fleet_departures_total 0.0")
        listed = 'topics{{name_server="{}"}} {}'.format
        await until_sampled(listed(fleet.addrs[0], 4.0), listed(fleet.addrs[1], 3.0))
        for peer in fleet.peers:
            await remove(peer, "broker-b", 2)
        await until_sampled(
            in_cluster("up", 1.0), in_cluster("gone", 1.0), "fleet_departures_total 1.0", "fleet_returns_total 0.0"
        )
        for peer in fleet.peers:
            await add(peer, "broker-b", 2)
        await until_sampled(in_cluster("up", 2.0), "fleet_returns_total 1.0", "flapping_brokers 0.0")
        text = (await ask(fleet.pages, "/metrics")).body.decode()
        penalty = 'pointsman_observe_flap_penalty{broker_id="0",broker_name="broker-b",cluster="DefaultCluster"} '
        assert 900 < float(text.partition(penalty)[2].partition("\n")[0]) <= 1_000
