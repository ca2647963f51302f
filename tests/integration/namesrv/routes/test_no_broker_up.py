"""A topic whose brokers are all down, over the wire: lookups, watches, digests, a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from grpc import StatusCode

from pointsman.manual_clock import ManualClock
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import route_service_pb2 as route
from pointsman.v1.broker_pb2 import (
    PROBE_EVIDENCE_STRONG,
    PROBE_STATUS_FAILING,
    BrokerHealth,
    BrokerIdentity,
)
from pointsman.v1.registration_service_pb2 import UNREGISTER_REASON_DRAIN
from tests.kit.name_server import wire
from tests.kit.name_server.peer import Peer, serving
from tests.kit.refusal import refusal_of

WHO = wire.identity("a", addr="a:10911")
LATER = 200.0
ORDERS = route.GetTopicRouteRequest(topic="orders")


async def register(peer: Peer, who: BrokerIdentity = WHO, *topics: str) -> int:
    return await peer.register(*(topics or ("orders",)), who=who)


def reasons(found: route.TopicRoute) -> list[tuple[str, bool, str]]:
    return [(each.identity.broker_name, each.is_registered, each.reason) for each in found.absent_brokers]


async def read_until(watch: Any, news: str, *, brokers: int | None = None) -> route.WatchTopicRoutesResponse:
    """Read a watch until the given state; states in between do not matter."""
    while True:
        read: route.WatchTopicRoutesResponse = await watch.read()
        if read.WhichOneof("news") == news and brokers in {None, len(read.route.broker_datas)}:
            return read


async def test_lookups_and_digests_agree_on_an_empty_route_with_reasons(peer: Peer, clock: ManualClock) -> None:
    await register(peer)
    up = (await peer.route.GetTopicRoute(ORDERS)).route
    lost_at = clock.utc_now().timestamp() + LATER
    await clock.advance(LATER)
    down = (await peer.route.GetTopicRoute(ORDERS)).route
    assert (list(down.queue_datas), list(down.broker_datas), reasons(down)) == ([], [], [("a", False, "SILENCE")])
    assert lost_at - LATER < down.absent_brokers[0].since.seconds <= lost_at
    assert down.revision.counter > up.revision.counter
    assert down.revision.digest not in {b"", up.revision.digest}
    # Cached like any other response; the cache entry stays.
    known = route.GetTopicRouteRequest(topic="orders", known_digest=down.revision.digest)
    assert (await peer.route.GetTopicRoute(known)).unchanged == down.revision
    many = route.GetTopicRoutesRequest(topics=[route.KnownRoute(topic=topic) for topic in ("orders", "unknown")])
    answer = await peer.route.GetTopicRoutes(many)
    assert ([reasons(each) for each in answer.routes], list(answer.not_found)) == (
        [[("a", False, "SILENCE")]],
        ["unknown"],
    )
    digests = (await peer.admin.ListRouteDigests(admin.ListRouteDigestsRequest())).digests
    assert [(each.topic, each.digest) for each in digests] == [("orders", down.revision.digest)]
    assert (await refusal_of(peer.route.GetTopicRoute(route.GetTopicRouteRequest(topic="x")))).status is (
        StatusCode.NOT_FOUND
    )
    await register(peer)
    assert (await peer.route.GetTopicRoute(ORDERS)).route.revision.digest == up.revision.digest


async def test_a_watch_is_sent_the_empty_route_and_then_the_broker_that_is_back(peer: Peer, clock: ManualClock) -> None:
    await register(peer)
    topics = [route.KnownRoute(topic="orders")]
    watch = peer.route.WatchTopicRoutes(route.WatchTopicRoutesRequest(topics=topics))
    async with asyncio.timeout(30):
        await read_until(watch, "synced")
        await clock.advance(LATER)
        assert reasons((await read_until(watch, "route", brokers=0)).route) == [("a", False, "SILENCE")]
        # A watch that begins now begins with it.
        second = peer.route.WatchTopicRoutes(route.WatchTopicRoutesRequest(topics=topics))
        assert reasons((await read_until(second, "route", brokers=0)).route) == [("a", False, "SILENCE")]
        generation = await register(peer)
        await clock.advance(1.0)
        await read_until(watch, "route", brokers=1)
        leave = wire.unregistration(WHO, generation, UNREGISTER_REASON_DRAIN)
        await peer.registration.UnregisterBroker(leave)
        await clock.advance(1.0)
        assert (await read_until(watch, "gone")).gone.topic == "orders"
    watch.cancel()
    second.cancel()


async def test_two_name_servers_that_lost_a_broker_have_the_same_digest(peer: Peer, clock: ManualClock) -> None:
    async with serving(clock=clock) as (_, there):
        await register(peer)
        await clock.advance(50.0)
        await register(there)
        await clock.advance(LATER)
        routes = [(await each.route.GetTopicRoute(ORDERS)).route for each in (peer, there)]
    assert routes[0].revision.digest == routes[1].revision.digest
    assert routes[0].absent_brokers[0].since != routes[1].absent_brokers[0].since


@pytest.mark.parametrize("elapsed_hours", [1, 73])
async def test_a_restart_keeps_expired_brokers_for_their_remaining_time(
    clock: ManualClock, tmp_path: Path, elapsed_hours: int
) -> None:
    async with serving(clock=clock, snapshot=tmp_path / "state") as (_, peer):
        await register(peer)
        await register(peer, wire.identity("b", addr="b:10911"), "drained")
        await clock.advance(LATER)
        before = (await peer.route.GetTopicRoute(ORDERS)).route
    clock.now += elapsed_hours * 3_600.0
    async with serving(clock=clock, snapshot=tmp_path / "state") as (_, peer):
        if elapsed_hours == 73:
            assert (await refusal_of(peer.route.GetTopicRoute(ORDERS))).status is StatusCode.NOT_FOUND
            return
        after = (await peer.route.GetTopicRoute(ORDERS)).route
        assert (after.revision.digest, reasons(after)) == (before.revision.digest, reasons(before))
        assert abs(after.absent_brokers[0].since.seconds - before.absent_brokers[0].since.seconds) <= 1
        # Back, it has its segment again, and the next restart knows it as registered.
        await register(peer)
    async with serving(clock=clock, snapshot=tmp_path / "state") as (_, peer):
        assert len((await peer.route.GetTopicRoute(ORDERS)).route.broker_datas) == 1


async def absent(peer: Peer, cluster: str = "") -> list[tuple[str, bool, str, bool]]:
    """What the list of clusters says of brokers that are not routed."""
    found = (await peer.route.GetClusterInfo(route.GetClusterInfoRequest(cluster=cluster))).absent
    return [
        (each.broker.identity.broker_name, each.broker.is_registered, each.agent_addr, each.is_rocketmq)
        for each in found.brokers
    ]


async def test_the_agents_of_brokers_that_are_out_or_departed_are_listed_also_after_a_restart(
    clock: ManualClock, tmp_path: Path
) -> None:
    failing = BrokerHealth(status=PROBE_STATUS_FAILING, evidence=PROBE_EVIDENCE_STRONG)
    both = [("a", False, "a:9880", False), ("b", True, "b:9880", False)]
    out = wire.identity("b", addr="b:10911")
    async with serving(clock=clock, snapshot=tmp_path / "state") as (_, peer):
        nothing = await peer.route.GetClusterInfo(route.GetClusterInfoRequest())
        assert nothing.HasField("absent")
        topic = wire.topic("orders")
        await peer.register(topic, who=WHO, agent_addr="a:9880")
        await clock.advance(LATER)
        await peer.registration.RegisterBroker(
            wire.registration(topic, who=out, agent_addr="b:9880", health=failing, expiry=3_600)
        )
        up = wire.identity("up", addr="up:10911", cluster="c2")
        await peer.register(topic, who=up, agent_addr="up:9880")
        assert await absent(peer) == both
        assert (await absent(peer, "c1"), await absent(peer, "c2")) == (both, [])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("pointsman_namesrv.rpc.route_codec.MAX_ABSENT", 1)
            bounded = (await peer.route.GetClusterInfo(route.GetClusterInfoRequest())).absent
        assert (len(bounded.brokers), bounded.left_out) == (1, 1)
    async with serving(clock=clock, snapshot=tmp_path / "state") as (_, peer):
        assert await absent(peer) == both
        await peer.admin.EvictBroker(admin.EvictBrokerRequest(cluster="c1", broker_name="b", by="ops"))
        assert await absent(peer, "c1") == both[:1]  # all of its brokers have departed, and it is known
        await peer.admin.EvictBroker(admin.EvictBrokerRequest(cluster="c1", broker_name="a", by="ops"))
        assert await absent(peer) == []
