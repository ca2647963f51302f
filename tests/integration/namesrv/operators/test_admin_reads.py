"""AdminService, the read-only calls: penalties, watchers, digests, the node itself."""

from __future__ import annotations

import tomllib
from pathlib import Path

import grpc
import pytest

from pointsman.manual_clock import ManualClock
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1.broker_pb2 import NODE_STATE_READY
from pointsman.v1.route_service_pb2 import GetTopicRouteRequest, KnownRoute, WatchTopicRoutesRequest
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import HistoryConfig, NameServerConfig
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.model import Reason
from pointsman_namesrv.rpc import admin_codec, inspection
from tests.kit.name_server import wire
from tests.kit.name_server.peer import Peer, serving


async def register(peer: Peer, *topics: str, name: str = "a", cluster: str = "c1") -> None:
    await peer.register(*topics, who=wire.identity(name, addr=f"{name}:10911", cluster=cluster))


async def digests(peer: Peer, page_size: int = 0) -> tuple[dict[str, bytes], int]:
    """Every digest, and the number of their pages."""
    found: dict[str, bytes] = {}
    token, pages = "", 0
    while pages == 0 or token:
        request = admin.ListRouteDigestsRequest(page_size=page_size, page_token=token)
        page = await peer.admin.ListRouteDigests(request)
        assert [entry.topic for entry in page.digests] == sorted(entry.topic for entry in page.digests)
        found |= {entry.topic: entry.digest for entry in page.digests}
        token, pages = page.next_page_token, pages + 1
    return found, pages


# --- penalties --------------------------------------------------------------------------------------------------


async def test_the_brokers_that_flap_most_come_first_including_departed_ones(peer: Peer, clock: ManualClock) -> None:
    for _ in range(2):
        await register(peer, name="bad")
        await register(peer, name="poor", cluster="c3")
        await clock.advance(130)
    await register(peer, name="bad")
    await register(peer, name="good")
    await clock.advance(130)
    await register(peer, name="good")
    answer = await peer.admin.ListFlapping(admin.ListFlappingRequest())
    assert [(s.broker_name, s.outages, s.last_event) for s in answer.scores] == [
        ("bad", 3, "EXPIRED"),
        ("poor", 2, "EXPIRED"),
        ("good", 1, "EXPIRED"),
    ]
    assert [score.flapping for score in answer.scores] == [False, False, False]
    assert 2_800 < answer.scores[0].penalty < 3_000
    assert answer.scores[0].last_event_ago.seconds == 5
    (broker,) = (await peer.admin.ListBrokers(admin.ListBrokersRequest(broker_name="good"))).brokers
    assert 990 < broker.penalty < 1_000
    only = await peer.admin.ListFlapping(admin.ListFlappingRequest(limit=1))
    assert [score.broker_name for score in only.scores] == ["bad"]


async def test_a_cluster_without_any_record_is_not_found(peer: Peer, clock: ManualClock) -> None:
    await register(peer, name="left", cluster="c3")
    await clock.advance(130)
    # All its brokers are removed; their penalties show that it existed.
    assert not (await peer.admin.ListBrokers(admin.ListBrokersRequest(cluster="c3"))).brokers
    assert len((await peer.admin.ListFlapping(admin.ListFlappingRequest(cluster="c3"))).scores) == 1
    with pytest.raises(grpc.aio.AioRpcError) as brokers:
        await peer.admin.ListBrokers(admin.ListBrokersRequest(cluster="nope"))
    with pytest.raises(grpc.aio.AioRpcError) as flapping:
        await peer.admin.ListFlapping(admin.ListFlappingRequest(cluster="nope"))
    assert [refused.value.code() for refused in (brokers, flapping)] == [grpc.StatusCode.NOT_FOUND] * 2


# --- routes -----------------------------------------------------------------------------------------------------


async def test_the_watchers_of_a_topic_are_listed_with_their_addresses(peer: Peer, clock: ManualClock) -> None:
    await register(peer, "orders")
    request = WatchTopicRoutesRequest(topics=[KnownRoute(topic="orders"), KnownRoute(topic="other")])
    watch = peer.route.WatchTopicRoutes(request)
    await watch.read()
    await clock.advance(30)
    answer = await peer.admin.ListWatchers(admin.ListWatchersRequest(topic="orders"))
    (watcher,) = answer.watchers
    assert (answer.total, watcher.topics, watcher.age.seconds) == (1, 2, 30)
    assert not watcher.HasField("lag")
    assert "127.0.0.1" in watcher.peer
    assert (await peer.admin.ListWatchers(admin.ListWatchersRequest(topic="nothing"))).total == 0
    watch.cancel()


async def test_digests_are_those_of_the_routes_for_any_page_size(peer: Peer) -> None:
    topics = [f"topic-{i:02}" for i in range(25)]
    await register(peer, *topics)
    await register(peer, *topics[:5], name="b")
    in_one, pages = await digests(peer)
    assert (sorted(in_one), pages) == (topics, 1)
    in_many, pages = await digests(peer, page_size=4)
    assert (in_many, pages) == (in_one, 7)
    route = (await peer.route.GetTopicRoute(GetTopicRouteRequest(topic="topic-03"))).route
    assert in_one["topic-03"] == route.revision.digest


async def test_a_page_of_digests_ends_early_when_its_routes_are_large(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = [f"topic-{i:02}" for i in range(12)]
    for name in ("a", "b", "c"):
        await register(peer, *topics, name=name)
    monkeypatch.setattr(inspection, "DIGEST_WORK", 16)
    found, pages = await digests(peer)
    assert (sorted(found), pages) == (topics, 3)


async def test_digests_do_not_fill_the_route_cache(server: NameServerApp, peer: Peer) -> None:
    await register(peer, "orders", "other")
    before = server.metrics.route_cache_bytes._value.get()
    await digests(peer)
    assert server.metrics.route_cache_bytes._value.get() == before


async def test_two_nodes_differ_in_the_digest_of_the_topic_that_differs(peer: Peer, clock: ManualClock) -> None:
    await register(peer, "orders", "other")
    async with serving(clock=clock) as (_, there):
        await register(there, "orders", "other")
        assert (await digests(there))[0] == (await digests(peer))[0]
        put = admin.PutKvRequest(namespace="ORDER_TOPIC_CONFIG", key="orders", value="a:4")
        await there.admin.PutKv(put)
        ours, theirs = (await digests(peer))[0], (await digests(there))[0]
        assert [topic for topic in ours if ours[topic] != theirs[topic]] == ["orders"]


# --- the node ---------------------------------------------------------------------------------------------------


async def test_a_node_reports_its_identity_and_its_size(server: NameServerApp, peer: Peer, clock: ManualClock) -> None:
    await register(peer, "orders", "other")
    await clock.advance(10)
    info = await peer.admin.GetNodeInfo(admin.GetNodeInfoRequest())
    route = (await peer.route.GetTopicRoute(GetTopicRouteRequest(topic="orders"))).route
    assert (info.version, info.state, info.uptime.seconds) == ("0.0.0-test", NODE_STATE_READY, 10)
    assert info.boot == route.revision.boot
    assert (info.sizes["brokers"], info.sizes["topics"], info.sizes["clusters"]) == (1, 2, 1)
    assert info.sizes["watchers"] == 0
    assert [(guard.cluster, guard.mode, guard.active) for guard in info.guards] == [
        ("c1", admin.GUARD_MODE_AUTO, False)
    ]
    assert not info.complaints
    shown = tomllib.loads(info.configuration)
    assert shown["history"]["directory"] == server.config.history.directory


def test_the_configuration_shows_only_the_program_of_the_ship_command() -> None:
    config = NameServerConfig(history=HistoryConfig(ship=("upload", "--token", "s3cret", "{file}")))
    shown = tomllib.loads(admin_codec.configuration(config))
    assert shown["history"]["ship"] == ["upload", "..."]
    assert "s3cret" not in admin_codec.configuration(config)
    alone = NameServerConfig(history=HistoryConfig(ship=("upload",)))
    assert tomllib.loads(admin_codec.configuration(alone))["history"]["ship"] == ["upload"]


async def test_events_of_a_broker_end_before_they_outgrow_a_message_and_the_newest_are_kept(
    server: NameServerApp, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "MAX_PAGE_BYTES", 500)
    await register(peer)
    (member,) = server.core.replicas()
    for number in range(5):
        detail = {"number": number, "text": "x" * 300}
        late = Event(
            kind=EventKind.LATE_HEARTBEAT, reason=Reason.HEARTBEAT, broker=member[1].facts(now=0.0), detail=detail
        )
        server.parts.recorder.record((late,))
    kept = await peer.admin.ListBrokerEvents(admin.ListBrokerEventsRequest(broker_name="a"))
    assert [event.detail["number"] for event in kept.events] == [3, 4]


async def test_a_node_without_brokers_has_empty_responses(tmp_path: Path, clock: ManualClock) -> None:
    async with serving(clock=clock, history=tmp_path) as (_, peer):
        assert await digests(peer) == ({}, 1)
        assert not (await peer.admin.ListBrokers(admin.ListBrokersRequest())).brokers
        assert not (await peer.admin.ListKv(admin.ListKvRequest())).entries
        assert not (await peer.admin.GetNodeInfo(admin.GetNodeInfoRequest())).guards
