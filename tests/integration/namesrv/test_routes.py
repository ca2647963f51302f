"""RouteService over a real channel: the cached answer, its revision, its refusals."""

from __future__ import annotations

import grpc
import pytest
from grpc_status import rpc_status

from namesrv.app import NameServerApp
from pointsman.v1.route_service_pb2 import (
    GetClusterInfoRequest,
    GetTopicRouteRequest,
    ListTopicsRequest,
    TopicRoute,
)
from pointsman.wire.errors import read_status
from tests.fakes import wire
from tests.fakes.manual_clock import ManualClock
from tests.fakes.name_server import running_name_server
from tests.integration.namesrv.conftest import Peer

SLAVE = wire.identity(broker_id=1, addr="10.0.0.2:10911")


async def route(peer: Peer, topic: str = "orders", **more: str) -> TopicRoute:
    return (await peer.route.GetTopicRoute(GetTopicRouteRequest(topic=topic, **more))).route


def answers(server: NameServerApp, source: str) -> float:
    value = server.metrics.registry.get_sample_value("namesrv_route_answers_total", {"source": source})
    return value or 0.0


async def test_the_second_query_is_served_from_the_bytes_of_the_first(server: NameServerApp, peer: Peer) -> None:
    await peer.registration.RegisterBroker(wire.registration(wire.topic("orders")))
    first, second = await route(peer), await route(peer)

    assert first == second
    assert (answers(server, "built"), answers(server, "cached")) == (1, 1)


async def test_a_change_elsewhere_does_not_rebuild_an_answer_and_one_here_does(
    server: NameServerApp, peer: Peer
) -> None:
    await peer.registration.RegisterBroker(wire.registration(wire.topic("orders")))
    before = await route(peer)
    await peer.registration.RegisterBroker(wire.registration(wire.topic("pay"), who=wire.identity(name="b")))
    assert await route(peer) == before
    assert answers(server, "built") == 1

    await peer.registration.RegisterBroker(wire.registration(wire.topic("orders"), who=SLAVE))
    after = await route(peer)
    assert answers(server, "built") == 2
    assert [r.addr for r in after.broker_datas[0].replicas] == ["10.0.0.1:10911", "10.0.0.2:10911"]
    assert after.revision.boot == before.revision.boot
    assert after.revision.counter > before.revision.counter
    assert after.revision.digest != before.revision.digest


async def test_an_unchanged_registration_changes_no_revision(peer: Peer) -> None:
    await peer.registration.RegisterBroker(wire.registration(wire.topic("orders")))
    before = await route(peer)
    await peer.registration.RegisterBroker(wire.registration(wire.topic("orders")))
    assert await route(peer) == before


async def test_the_same_route_has_the_same_digest_on_another_node_whatever_came_first(
    peer: Peer, clock: ManualClock
) -> None:
    async def fill(peer: Peer, *ids: int) -> None:
        for i in ids:
            who = wire.identity(broker_id=i, addr=f"10.0.0.{i}:1")
            await peer.registration.RegisterBroker(wire.registration(wire.topic("orders"), wire.topic("x"), who=who))

    async with running_name_server(clock=clock) as other, grpc.aio.insecure_channel(other.addr) as channel:
        other_peer = Peer(channel)
        await fill(peer, 0, 1, 2)
        await fill(other_peer, 2, 0, 1)
        here, there = await route(peer), await route(other_peer)
    assert here.revision.digest == there.revision.digest
    assert here.revision.boot != there.revision.boot


async def test_an_unknown_topic_is_not_found(peer: Peer) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await route(peer, "nowhere")
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    assert read_status(rpc_status.from_call(refused.value)).code == "TOPIC_NOT_FOUND"


async def test_a_topic_that_is_gone_is_not_found_though_it_was_cached(peer: Peer) -> None:
    await peer.registration.RegisterBroker(wire.registration(wire.topic("orders")))
    await route(peer)
    await peer.registration.RegisterBroker(wire.registration())
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await route(peer)
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"topic": ""}, "topic"),
        ({"topic": "a b"}, "topic"),
        ({"topic": "a", "cluster": "c/1"}, "cluster"),
        ({"topic": "a", "zone": "\n"}, "zone"),
    ],
)
async def test_a_bad_query_is_answered_with_the_field(peer: Peer, query: dict[str, str], field: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await route(peer, **query)
    assert [v.field for v in read_status(rpc_status.from_call(refused.value)).violations] == [field]


@pytest.mark.parametrize(
    "method", ["RouteService/GetTopicRoute", "RouteService/ListTopics", "RegistrationService/Heartbeat"]
)
async def test_bytes_that_are_no_message_are_an_invalid_argument(peer: Peer, method: str) -> None:
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = peer.channel.unary_unary(f"/pointsman.v1.{method}")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call(b"\xff\xff\xff\xff")
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert read_status(rpc_status.from_call(refused.value)).code == "UNREADABLE_REQUEST"


async def test_zone_and_cluster_narrow_the_route(peer: Peer) -> None:
    for cluster, zone in (("c1", "z1"), ("c2", "z2")):
        who = wire.identity(cluster=cluster)
        await peer.registration.RegisterBroker(wire.registration(wire.topic("orders"), who=who, zone=zone))

    assert [d.cluster for d in (await route(peer)).broker_datas] == ["c1", "c2"]
    assert [d.cluster for d in (await route(peer, cluster="c2")).broker_datas] == ["c2"]
    assert [d.cluster for d in (await route(peer, zone="Z1")).broker_datas] == ["c1"]


async def test_topics_come_in_sorted_pages(peer: Peer) -> None:
    names = [f"t{i:03}" for i in range(25)]
    await peer.registration.RegisterBroker(wire.registration(*map(wire.topic, reversed(names))))
    found: list[str] = []
    token, pages = "", 0
    while pages == 0 or token:
        page = await peer.route.ListTopics(ListTopicsRequest(page_size=10, page_token=token))
        found += page.topics
        token, pages = page.next_page_token, pages + 1
    assert (found, pages) == (names, 3)


async def test_cluster_info_shows_each_group_with_its_replicas(peer: Peer) -> None:
    await peer.registration.RegisterBroker(wire.registration())
    await peer.registration.RegisterBroker(wire.registration(who=SLAVE))
    info = await peer.route.GetClusterInfo(GetClusterInfoRequest())
    ((cluster, groups),) = [(c.cluster, c.broker_datas) for c in info.clusters]
    assert cluster == "c1"
    assert [(g.broker_name, [r.broker_id for r in g.replicas]) for g in groups] == [("a", [0, 1])]
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await peer.route.GetClusterInfo(GetClusterInfoRequest(cluster="c9"))
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
