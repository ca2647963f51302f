"""RouteService over a real channel: the cached response, its revision, its refusals."""

from __future__ import annotations

import grpc
import pytest
from grpc_status import rpc_status

from pointsman.manual_clock import ManualClock
from pointsman.v1.broker_pb2 import NODE_STATE_READY, NODE_STATE_WARMING
from pointsman.v1.route_service_pb2 import (
    GetClusterInfoRequest,
    GetTopicRouteRequest,
    GetTopicRoutesRequest,
    GetTopicRoutesResponse,
    KnownRoute,
    ListTopicsRequest,
    Revision,
    TopicRoute,
)
from pointsman.wire.error_details import read_status
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.rpc import routes
from tests.kit.name_server import wire
from tests.kit.name_server.peer import Peer, serving

SLAVE = wire.identity(broker_id=1, addr="10.0.0.2:10911")
WARM_UP = 2.0


async def route(peer: Peer, topic: str = "orders", *, cluster: str = "", zone: str = "") -> TopicRoute:
    request = GetTopicRouteRequest(topic=topic, cluster=cluster, zone=zone)
    return (await peer.route.GetTopicRoute(request)).route


def built(server: NameServerApp) -> float:
    return server.metrics.registry.get_sample_value("pointsman_namesrv_route_responses_built_total") or 0.0


def queries(server: NameServerApp) -> dict[str, float]:
    value = server.metrics.registry.get_sample_value
    return {
        result: value("pointsman_namesrv_route_queries_total", {"result": result}) or 0.0
        for result in ("ok", "unchanged", "not_found", "not_ready")
    }


async def test_the_second_query_is_served_from_the_bytes_of_the_first(server: NameServerApp, peer: Peer) -> None:
    await peer.register("orders")
    first, second = await route(peer), await route(peer)

    assert first == second
    assert (built(server), queries(server)["ok"]) == (1, 2)


async def test_a_change_of_another_topic_does_not_rebuild_a_response_and_one_of_this_topic_does(
    server: NameServerApp, peer: Peer
) -> None:
    await peer.register("orders")
    before = await route(peer)
    await peer.register("pay", who=wire.identity(name="b"))
    assert await route(peer) == before
    assert built(server) == 1

    await peer.register("orders", who=SLAVE)
    after = await route(peer)
    assert built(server) == 2
    assert [r.addr for r in after.broker_datas[0].replicas] == ["10.0.0.1:10911", "10.0.0.2:10911"]
    assert after.revision.boot == before.revision.boot
    assert after.revision.counter > before.revision.counter
    assert after.revision.digest != before.revision.digest


async def test_an_unchanged_registration_changes_no_revision(peer: Peer) -> None:
    await peer.register("orders")
    before = await route(peer)
    await peer.register("orders")
    assert await route(peer) == before


async def test_the_same_route_has_the_same_digest_on_another_node_in_any_order_of_registration(
    peer: Peer, clock: ManualClock
) -> None:
    async def fill(peer: Peer, *ids: int) -> None:
        for i in ids:
            who = wire.identity(broker_id=i, addr=f"10.0.0.{i}:1")
            await peer.register("orders", "x", who=who)

    async with serving(clock=clock) as (_, other_peer):
        await fill(peer, 0, 1, 2)
        await fill(other_peer, 2, 0, 1)
        here, there = await route(peer), await route(other_peer)
    assert here.revision.digest == there.revision.digest
    assert here.revision.boot != there.revision.boot


async def test_a_weight_is_part_of_the_route_and_a_weight_of_1_is_as_none(peer: Peer) -> None:
    digests = []
    for version, weight in enumerate((0, 3, 1, 100), 1):
        await peer.register(wire.topic("orders", weight=weight), version=(0, 0, version))
        answer = await route(peer)
        assert answer.queue_datas[0].queue_weight == (0 if weight == 1 else weight)
        digests.append(answer.revision.digest)

    none, three, one, hundred = digests
    assert none == one, "a name server without weights has the same digest"
    assert len({none, three, hundred}) == 3


async def test_the_masters_weight_applies_and_a_slaves_when_it_is_promoted(peer: Peer) -> None:
    await peer.register(wire.topic("orders", weight=3))
    await peer.register(wire.topic("orders", weight=7), who=SLAVE)
    assert (await route(peer)).queue_datas[0].queue_weight == 3
    promoted = wire.identity(addr=SLAVE.addr)
    await peer.register(wire.topic("orders", weight=7), who=promoted, version=(1, 0, 1))
    assert (await route(peer)).queue_datas[0].queue_weight == 7


async def test_for_a_known_digest_of_any_node_the_response_is_only_the_revision(
    server: NameServerApp, peer: Peer, clock: ManualClock
) -> None:
    await peer.register("orders")
    async with serving(clock=clock) as (_, there):
        await there.registration.RegisterBroker(wire.registration(wire.topic("orders")))
        known = (await route(there)).revision.digest
    here = await route(peer)
    for _ in range(2):
        answer = await peer.route.GetTopicRoute(GetTopicRouteRequest(topic="orders", known_digest=known))
        assert (answer.HasField("route"), answer.unchanged) == (False, here.revision)
    assert built(server) == 1

    await peer.register(wire.topic("orders", 8))
    answer = await peer.route.GetTopicRoute(GetTopicRouteRequest(topic="orders", known_digest=known))
    assert (answer.route.queue_datas[0].read_queue_nums, answer.HasField("unchanged")) == (8, False)
    assert queries(server) == {"ok": 2, "unchanged": 2, "not_found": 0, "not_ready": 0}


async def many(peer: Peer, *topics: str, cluster: str = "", zone: str = "") -> GetTopicRoutesResponse:
    return await peer.route.GetTopicRoutes(
        GetTopicRoutesRequest(topics=[KnownRoute(topic=topic) for topic in topics], cluster=cluster, zone=zone)
    )


def parts(answer: GetTopicRoutesResponse) -> tuple[list[str], list[str], list[str], list[str]]:
    """Topics of the routes, unchanged, not found, left out."""
    routes = [found.topic for found in answer.routes]
    return routes, list(answer.unchanged), list(answer.not_found), list(answer.left_out)


async def test_many_routes_are_those_of_single_queries_in_the_requested_order(
    server: NameServerApp, peer: Peer
) -> None:
    names = [f"t{number}" for number in range(5)]
    await peer.register(*names, zone="z1")
    single = [await route(peer, name) for name in reversed(names)]
    answer = await many(peer, *reversed(names), "nowhere")
    assert list(answer.routes) == single
    assert parts(answer) == (names[::-1], [], ["nowhere"], [])
    assert built(server) == 5

    known = [KnownRoute(topic=r.topic, revision=Revision(boot=9, digest=r.revision.digest)) for r in single[:2]]
    known.append(KnownRoute(topic=single[2].topic, revision=Revision(digest=b"outdated")))
    answer = await peer.route.GetTopicRoutes(GetTopicRoutesRequest(topics=known))
    assert parts(answer) == (["t2"], ["t4", "t3"], [], [])
    assert [len(r.broker_datas) for r in (await many(peer, "t0", cluster="c1", zone="z2")).routes] == [0]
    assert (await many(peer, "t0", cluster="c9")).not_found == ["t0"]
    assert queries(server) == {"ok": 12, "unchanged": 2, "not_found": 2, "not_ready": 0}


async def test_routes_beyond_the_response_size_are_left_out_and_one_route_always_fits(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["a", "b", "c"]
    await peer.register(*names)
    size = (await peer.route.GetTopicRoute(GetTopicRouteRequest(topic="a"))).ByteSize()
    for room, fitting in ((1, 1), (size, 1), (2 * size - 1, 1), (2 * size, 2), (3 * size, 3)):
        monkeypatch.setattr(routes, "MAX_RESPONSE_BYTES", room)
        answer = await many(peer, *names)
        assert parts(answer) == (names[:fitting], [], [], names[fitting:])
        assert sum(r.ByteSize() for r in answer.routes) <= max(room, size)


@pytest.mark.parametrize(
    ("topics", "more", "field", "problem"),
    [
        ([f"t{number}" for number in range(1_001)], {}, "topics", "may hold at most 1000, not 1001"),
        (["a", "b", "a"], {}, "topics[2].topic", "occurs twice in this request, not 'a'"),
        (["a", "b c"], {}, "topics[1].topic", "may hold only letters, digits and %|_-.+: 'b c'"),
        (["a"], {"cluster": "c/1"}, "cluster", "may hold only letters, digits and %|_-.+: 'c/1'"),
        (["a"], {"zone": "\n"}, "zone", "must not hold control characters: '\\n'"),
    ],
)
async def test_a_bad_query_for_many_topics_is_refused_with_field_and_value(
    peer: Peer, topics: list[str], more: dict[str, str], field: str, problem: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await many(peer, *topics, **more)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    violations = read_status(rpc_status.from_call(refused.value)).violations
    assert [(violation.field, violation.description) for violation in violations] == [(field, problem)]


@pytest.mark.parametrize("warm_up_seconds", [WARM_UP])
async def test_a_warming_node_serves_known_routes_and_reports_others_as_not_ready(
    server: NameServerApp, peer: Peer, clock: ManualClock
) -> None:
    await peer.register("orders")
    assert (await route(peer)).topic == "orders"
    answer = await many(peer, "orders", "nowhere")
    assert parts(answer) == (["orders"], [], [], ["nowhere"])
    for call in (
        peer.route.GetTopicRoute(GetTopicRouteRequest(topic="nowhere")),
        peer.route.GetClusterInfo(GetClusterInfoRequest(cluster="c9")),
        peer.route.ListTopics(ListTopicsRequest(cluster="c9")),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        details = read_status(rpc_status.from_call(refused.value))
        assert (details.code, details.facts["node_state"]) == ("NOT_READY", "WARMING")
        assert "retry in a few seconds, or use another" in (refused.value.details() or "")
    assert queries(server) == {"ok": 2, "unchanged": 0, "not_found": 0, "not_ready": 2}

    assert (await peer.route.ListTopics(ListTopicsRequest())).node_state == NODE_STATE_WARMING
    assert (await peer.route.GetClusterInfo(GetClusterInfoRequest())).node_state == NODE_STATE_WARMING
    await clock.advance(WARM_UP)
    assert (await peer.route.ListTopics(ListTopicsRequest())).node_state == NODE_STATE_READY
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await route(peer, "nowhere")
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


async def test_an_unknown_topic_is_not_found(peer: Peer) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await route(peer, "nowhere")
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    assert read_status(rpc_status.from_call(refused.value)).code == "TOPIC_NOT_FOUND"


async def test_a_deleted_topic_is_not_found_though_it_was_cached(peer: Peer) -> None:
    await peer.register("orders")
    await route(peer)
    await peer.register()
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
async def test_a_bad_query_is_refused_with_the_field(peer: Peer, query: dict[str, str], field: str) -> None:
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
        await peer.register("orders", who=who, zone=zone)

    assert [d.cluster for d in (await route(peer)).broker_datas] == ["c1", "c2"]
    assert [d.cluster for d in (await route(peer, cluster="c2")).broker_datas] == ["c2"]
    assert [d.cluster for d in (await route(peer, zone="Z1")).broker_datas] == ["c1"]


async def test_topics_come_in_sorted_pages(peer: Peer) -> None:
    names = [f"t{i:03}" for i in range(25)]
    await peer.register(*reversed(names))
    found: list[str] = []
    token, pages = "", 0
    while pages == 0 or token:
        page = await peer.route.ListTopics(ListTopicsRequest(page_size=10, page_token=token))
        found += page.topics
        token, pages = page.next_page_token, pages + 1
    assert (found, pages) == (names, 3)


async def test_cluster_info_shows_each_group_with_its_replicas(peer: Peer) -> None:
    await peer.register()
    await peer.register(who=SLAVE)
    info = await peer.route.GetClusterInfo(GetClusterInfoRequest())
    ((cluster, groups),) = [(c.cluster, c.broker_datas) for c in info.clusters]
    assert cluster == "c1"
    assert [(g.broker_name, [r.broker_id for r in g.replicas]) for g in groups] == [("a", [0, 1])]
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await peer.route.GetClusterInfo(GetClusterInfoRequest(cluster="c9"))
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
