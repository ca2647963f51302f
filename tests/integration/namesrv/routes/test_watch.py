"""WatchTopicRoutes over real channels: first state, changes, slow readers, bounds, ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from pointsman.manual_clock import ManualClock
from pointsman.v1.broker_pb2 import BROKER_STATE_SUSPECT
from pointsman.v1.registration_service_pb2 import UpdateTopicsRequest
from pointsman.v1.route_service_pb2 import (
    GetTopicRouteRequest,
    KnownRoute,
    Revision,
    TopicRoute,
    WatchTopicRoutesRequest,
)
from pointsman.wire.error_details import ErrorDetails, read_status
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.rpc import node_server
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.peer import Peer
from tests.kit.name_server.watching import Watch, watching
from tests.kit.waiting import eventually

STEP = 0.05
"""The default ``watch_coalesce_seconds``."""
WARM_UP = 2.0
OTHER = wire.identity(name="b", addr="10.0.0.9:10911")
BIG = 300
"""Brokers of a route of some 25 kB."""


@pytest.fixture(autouse=True)
async def nothing_left_behind(server: NameServerApp) -> AsyncIterator[None]:
    """After each test, its watches are removed when their clients have disconnected."""
    yield
    server.parts.hub.check_invariants()
    await eventually(lambda: server.parts.hub.count == 0)
    server.parts.hub.check_invariants()


async def register_big(peer: Peer, *, queues: int = 4) -> None:
    """A route so large that a few of its versions fill what gRPC buffers for a client that does not read."""
    for number in range(BIG):
        who = wire.identity(name=f"{'n' * 60}{number}", addr=f"10.1.{number // 250}.{number % 250}:10911")
        await peer.register(wire.topic("big", queues), who=who)


async def refused(peer: Peer, request: WatchTopicRoutesRequest) -> tuple[grpc.StatusCode, ErrorDetails, str]:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        async for _ in peer.route.WatchTopicRoutes(request):
            pass
    return error.value.code(), read_status(rpc_status.from_call(error.value)), error.value.details() or ""


def value(server: NameServerApp, name: str, **labels: str) -> float:
    return server.metrics.registry.get_sample_value(name, labels) or 0.0


def brokers(route: TopicRoute) -> list[str]:
    return [data.broker_name for data in route.broker_datas]


# --- the first state ------------------------------------------------------------------------------------------


async def test_a_watch_begins_with_the_routes_in_the_requested_order_and_then_the_absent_topics(
    server: NameServerApp, peer: Peer
) -> None:
    await peer.register(wire.topic("orders"), wire.topic("pay"))
    async with watching(peer.channel, "pay", "nowhere", "orders") as watch:
        pay, orders, nowhere, synced = (
            await watch.route(),
            await watch.route(),
            await watch.gone(),
            await watch.synced(),
        )
        assert server.parts.hub.count == 1
    assert (pay.topic, orders.topic, nowhere.topic) == ("pay", "orders", "nowhere")
    assert orders == (await peer.route.GetTopicRoute(GetTopicRouteRequest(topic="orders"))).route
    assert (nowhere.revision.boot, nowhere.revision.digest) == (orders.revision.boot, b"")
    assert (synced.unchanged, bool(synced.node)) == (0, True)


async def test_a_revision_that_the_client_knows_is_not_sent_again_unless_it_is_of_another_boot(peer: Peer) -> None:
    await peer.register(wire.topic("orders"), wire.topic("pay"))
    async with watching(peer.channel, "orders", "nowhere") as watch:
        orders, nowhere = (await watch.route()).revision, (await watch.gone()).revision
    foreign = Revision(boot=orders.boot ^ 1, counter=orders.counter + 9, digest=orders.digest)
    outdated = Revision(boot=orders.boot, counter=orders.counter, digest=b"another")

    async with watching(peer.channel, known=[("orders", orders), ("nowhere", nowhere)]) as watch:
        assert (await watch.synced()).unchanged == 2
    for revision in (foreign, outdated, Revision()):
        async with watching(peer.channel, known=[("orders", revision)]) as watch:
            assert (await watch.route()).revision == orders
            assert (await watch.synced()).unchanged == 0


async def test_cluster_and_zone_filter_a_watch(peer: Peer, clock: ManualClock) -> None:
    near = wire.identity(cluster="c1")
    await peer.register(wire.topic("orders"), who=near, zone="z1")
    await peer.register(wire.topic("orders"), who=wire.identity(cluster="c2"), zone="z2")
    async with (
        watching(peer.channel, "orders", cluster="c2") as of_cluster,
        watching(peer.channel, "orders", zone="Z1") as of_zone,
    ):
        assert [data.cluster for data in (await of_cluster.route()).broker_datas] == ["c2"]
        assert [data.cluster for data in (await of_zone.route()).broker_datas] == ["c1"]
        await of_cluster.synced()
        await of_zone.synced()

        await peer.register(wire.topic("orders", 8), who=near, zone="z1")
        await clock.advance(STEP)
        assert (await of_zone.route()).queue_datas[0].read_queue_nums == 8
        await peer.register(who=wire.identity(cluster="c2"), zone="z2")
        await clock.advance(STEP)
        # The next update that it receives: the change in the other cluster was not sent to it.
        assert (await of_cluster.gone()).topic == "orders"


# --- changes --------------------------------------------------------------------------------------------------


async def test_each_kind_of_change_reaches_the_watcher(server: NameServerApp, peer: Peer, clock: ManualClock) -> None:
    generation = await peer.register(wire.topic("orders"))
    seen = []
    async with watching(peer.channel, "orders") as watch:
        seen.append((await watch.route()).revision)
        await watch.synced()

        delta = UpdateTopicsRequest(
            identity=wire.identity(),
            generation=generation,
            base_data_version=wire.data_version((0, 0, 1)),
            data_version=wire.data_version((0, 0, 2)),
            changed=[wire.topic("orders", 7)],
        )
        await peer.registration.UpdateTopics(delta)
        await clock.advance(STEP)
        changed = await watch.route()
        assert changed.queue_datas[0].read_queue_nums == 7
        seen.append(changed.revision)

        await peer.register(wire.topic("orders"), who=OTHER)
        await clock.advance(STEP)
        joined = await watch.route()
        assert brokers(joined) == ["a", "b"]
        seen.append(joined.revision)

        await clock.advance(80)
        silent = await watch.route()
        assert {replica.state for data in silent.broker_datas for replica in data.replicas} == {BROKER_STATE_SUSPECT}
        seen.append(silent.revision)

        await clock.advance(50)
        down = await watch.route()
        assert (brokers(down), len(down.absent_brokers)) == ([], 2)
        seen.append(down.revision)
    assert [revision.counter for revision in seen] == sorted({revision.counter for revision in seen})
    assert {revision.boot for revision in seen} == {server.responses.boot}


async def test_a_topic_that_comes_back_has_a_higher_counter_than_its_deletion(peer: Peer, clock: ManualClock) -> None:
    counters = []
    async with watching(peer.channel, "orders") as watch:
        counters.append((await watch.gone()).revision.counter)
        await watch.synced()
        for _ in range(3):
            await peer.register(wire.topic("orders"))
            await clock.advance(STEP)
            counters.append((await watch.route()).revision.counter)
            await peer.register()
            await clock.advance(STEP)
            counters.append((await watch.gone()).revision.counter)
    assert counters == sorted(set(counters))


async def test_changes_within_one_step_arrive_as_one(peer: Peer, clock: ManualClock) -> None:
    await peer.register(wire.topic("orders", 1))
    async with watching(peer.channel, "orders") as watch:
        await watch.route()
        await watch.synced()
        for queues in range(2, 12):
            await peer.register(wire.topic("orders", queues))
        await clock.advance(STEP)
        assert (await watch.route()).queue_datas[0].read_queue_nums == 11
        await peer.register(wire.topic("orders", 12))
        await clock.advance(STEP)
        assert (await watch.route()).queue_datas[0].read_queue_nums == 12


async def test_a_route_that_changed_back_is_not_sent(peer: Peer, clock: ManualClock) -> None:
    await peer.register(wire.topic("orders", 1))
    async with watching(peer.channel, "orders") as watch:
        before = await watch.route()
        await watch.synced()
        for queues in (2, 1):
            await peer.register(wire.topic("orders", queues))
        await clock.advance(STEP)
        async with watching(peer.channel, "orders") as later:
            again = await later.route()
        assert again.revision.digest == before.revision.digest
        assert again.revision.counter > before.revision.counter
        await peer.register(wire.topic("orders", 3))
        await clock.advance(STEP)
        assert (await watch.route()).queue_datas[0].read_queue_nums == 3


async def test_a_new_watch_gets_the_change_pending_for_the_others_and_gets_it_once(
    peer: Peer, clock: ManualClock
) -> None:
    await peer.register(wire.topic("orders", 1))
    async with watching(peer.channel, "orders") as early:
        await early.route()
        await early.synced()
        await peer.register(wire.topic("orders", 2))
        async with watching(peer.channel, "orders") as late:
            newest = await late.route()
            assert newest.queue_datas[0].read_queue_nums == 2
            await late.synced()
            await clock.advance(STEP)
            assert await early.route() == newest
            await peer.register(wire.topic("orders", 3))
            await clock.advance(STEP)
            for watch in (early, late):
                assert (await watch.route()).queue_datas[0].read_queue_nums == 3


async def test_a_topic_that_came_and_went_unseen_is_gone_at_a_later_revision_for_a_client_that_resumes(
    peer: Peer,
) -> None:
    async with watching(peer.channel, "orders") as first:
        await first.gone()
        await first.synced()
        await peer.register(wire.topic("orders"))
        polled = (await peer.route.GetTopicRoute(GetTopicRouteRequest(topic="orders"))).route.revision
        await peer.register()
        async with watching(peer.channel, known=[("orders", polled)]) as second:
            assert (await second.gone()).revision.counter > polled.counter


async def test_hundreds_of_watchers_all_receive_the_same_bytes(server: NameServerApp, clock: ManualClock) -> None:
    async with AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(
                grpc.aio.insecure_channel(server.addr, options=[("grpc.use_local_subchannel_pool", 1)])
            )
            for _ in range(4)
        ]
        peer = Peer(channels[0])
        await peer.register(wire.topic("orders", 1))
        watches = [await stack.enter_async_context(watching(channels[i % 4], "orders")) for i in range(200)]

        async def next_update(watch: Watch) -> bytes:
            return (await watch.route()).SerializeToString()

        first = await asyncio.gather(*map(next_update, watches))
        await asyncio.gather(*(watch.synced() for watch in watches))
        assert server.parts.hub.count == value(server, "pointsman_namesrv_watchers") == 200
        await peer.register(wire.topic("orders", 2))
        await clock.advance(STEP)
        second = await asyncio.gather(*map(next_update, watches))
        assert (len(set(first)), len(set(second))) == (1, 1)
        assert first[0] != second[0]
        assert value(server, "pointsman_namesrv_route_responses_built_total") == 2
        await eventually(lambda: value(server, "pointsman_namesrv_watch_lag_seconds_count") == 200)
    await eventually(lambda: value(server, "pointsman_namesrv_watchers") == 0)


# --- a slow reader --------------------------------------------------------------------------------------------


async def test_a_watcher_that_does_not_read_delays_no_other_and_gets_the_latest_in_the_end(
    server: NameServerApp, peer: Peer, clock: ManualClock
) -> None:
    await register_big(peer)
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)]
    async with (
        grpc.aio.insecure_channel(server.addr, options=options) as slow_channel,
        watching(peer.channel, "big") as quick,
        watching(slow_channel, "big") as slow,
    ):
        await slow.route()
        first = await quick.route()
        await quick.synced()
        started = clock.now
        sizes = [first.ByteSize()]
        for queues in range(5, 45):
            await peer.register(
                wire.topic("big", queues), who=wire.identity(name="n" * 60 + "0", addr="10.1.0.0:10911")
            )
            await clock.advance(1)
            latest = await quick.route()
            sizes.append(latest.ByteSize())
        assert min(sizes) > 20_000
        (facts, total) = server.parts.hub.watchers("big")
        assert total == 2
        keeping_up, stuck = sorted(facts, key=lambda each: each.pending)
        assert (keeping_up.pending, keeping_up.waiting_since) == (0, None)
        assert 1 <= stuck.pending <= 2
        assert stuck.waiting_since is not None
        assert started < stuck.waiting_since < clock.now
        assert value(server, "pointsman_namesrv_watch_changes_coalesced_total") > 10
        read = [(await slow.news()).WhichOneof("news")]
        counters: list[int] = []
        while not counters or counters[-1] != latest.revision.counter:
            counters.append((await slow.route()).revision.counter)
        assert read == ["synced"]
        assert counters == sorted(set(counters))
        assert len(counters) < 40


# --- what may not be known yet --------------------------------------------------------------------------------


@pytest.mark.parametrize("warm_up_seconds", [WARM_UP])
async def test_a_warming_node_sends_nothing_about_an_unknown_topic_until_it_is_ready(
    peer: Peer, clock: ManualClock
) -> None:
    await peer.register(wire.topic("orders"))
    async with watching(peer.channel, "late", "orders", "never") as watch:
        assert (await watch.route()).topic == "orders"
        await watch.synced()
        await peer.register(wire.topic("late"), who=OTHER)
        await clock.advance(STEP)
        assert (await watch.route()).topic == "late"
        await clock.advance(WARM_UP)
        assert (await watch.gone()).topic == "never"


@pytest.mark.parametrize("warm_up_seconds", [WARM_UP])
async def test_a_route_that_ends_while_warming_is_reported_gone_when_the_node_is_ready(
    peer: Peer, clock: ManualClock
) -> None:
    await peer.register(wire.topic("orders"), wire.topic("pay"))
    async with watching(peer.channel, "orders", "pay") as watch:
        orders, pay = await watch.route(), await watch.route()
        await watch.synced()
        await peer.register()
        await clock.advance(STEP)
        async with watching(peer.channel, "orders") as other:
            assert (await other.synced()).unchanged == 0
            await peer.register(wire.topic("orders"))
            await clock.advance(STEP)
            for each in (watch, other):
                again = await each.route()
                assert again.revision.digest == orders.revision.digest
                assert again.revision.counter > orders.revision.counter
        await clock.advance(WARM_UP)
        ended = await watch.gone()
        assert (ended.topic, ended.revision.counter > pay.revision.counter) == ("pay", True)


# --- the end --------------------------------------------------------------------------------------------------


async def test_a_draining_node_ends_its_watches_and_refuses_route_queries_alone(
    server: NameServerApp, peer: Peer, clock: ManualClock
) -> None:
    await peer.register(wire.topic("orders"))
    async with watching(peer.channel, "orders") as watch:
        await watch.route()
        await watch.synced()
        server.lifecycle.drain(by="ann")
        assert await watch.ending() == (grpc.StatusCode.UNAVAILABLE, "NOT_READY")
    assert server.parts.hub.count == 0
    code, details, message = await refused(peer, WatchTopicRoutesRequest(topics=[KnownRoute(topic="orders")]))
    assert (code, details.code) == (grpc.StatusCode.UNAVAILABLE, "NOT_READY")
    assert (details.facts["node_state"], message) == ("DRAINING", "this name server is DRAINING; use another one")
    await peer.register(wire.topic("pay"), who=OTHER)

    server.lifecycle.undrain(by="ann", now=clock.now, still_provisional=0)
    async with watching(peer.channel, "pay") as watch:
        assert (await watch.route()).topic == "pay"


async def test_stopping_ends_idle_and_stuck_watches_well_within_the_grace(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pointsman.daemon.rpc.handler_table.ENDING_SECONDS", 0.2)
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)]
    async with AsyncExitStack() as stack:
        async with running_name_server(clock=clock) as server:
            stop = server.server.stop
            stuck_channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.addr, options=options))
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.addr, options=options[:1]))
            peer = Peer(channel)
            await register_big(peer)
            stuck = await stack.enter_async_context(watching(stuck_channel, "big"))
            idle = await stack.enter_async_context(watching(channel, "big", "nowhere"))
            await stuck.route()
            await idle.route()
            for queues in range(5, 25):
                await peer.register(
                    wire.topic("big", queues), who=wire.identity(name="n" * 60 + "0", addr="10.1.0.0:10911")
                )
                await clock.advance(STEP)
            await eventually(lambda: any(facts.pending for facts in server.parts.hub.watchers("big")[0]))
            started = time.monotonic()
            ending = asyncio.create_task(idle.ending())
            await stop(60.0)
            assert time.monotonic() - started < 10
            assert server.parts.hub.count == 0
            assert await ending == (grpc.StatusCode.UNAVAILABLE, "NOT_READY")
        assert (await stuck.ending())[0] is grpc.StatusCode.UNAVAILABLE


async def test_watches_of_clients_that_disconnect_are_removed(server: NameServerApp) -> None:
    async with grpc.aio.insecure_channel(server.addr, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        await Peer(channel).register(wire.topic("orders"))
        async with AsyncExitStack() as stack:
            for _ in range(20):
                watch = await stack.enter_async_context(watching(channel, "orders", "nowhere"))
                await watch.route()
            assert server.parts.hub.count == 20
        await eventually(lambda: server.parts.hub.count == 0)
        watch = Watch(
            Peer(channel).route.WatchTopicRoutes(WatchTopicRoutesRequest(topics=[KnownRoute(topic="orders")]))
        )
        await watch.route()
        assert server.parts.hub.count == 1
        del watch  # below grpcio 1.83 closing a channel leaves referenced calls open
    await eventually(lambda: server.parts.hub.count == 0)


# --- bounds and bad input -------------------------------------------------------------------------------------


async def test_a_watch_of_too_many_topics_is_refused_with_the_bound_and_counted(
    server: NameServerApp, peer: Peer
) -> None:
    request = WatchTopicRoutesRequest(topics=[KnownRoute(topic=f"t{i}") for i in range(10_000)])
    code, details, message = await refused(peer, request)
    assert (code, details.code) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED")
    assert details.facts == {"limit": "topics_per_watch", "bound": "1000"}
    assert message == "topics: this name server allows at most 1000 topics_per_watch, not 10000"
    assert value(server, "pointsman_namesrv_limits_exceeded_total", limit="topics_per_watch") == 1


async def test_more_watchers_than_allowed_are_refused_and_one_that_ends_frees_its_place(
    server: NameServerApp, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.parts.hub._bounds["watchers"], "bound", 1)
    async with watching(peer.channel, "orders") as watch:
        await watch.gone()
        code, details, _ = await refused(peer, WatchTopicRoutesRequest(topics=[KnownRoute(topic="orders")]))
        assert (code, details.code) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED")
        assert details.facts == {"limit": "watchers", "bound": "1"}
    await eventually(lambda: server.parts.hub.count == 0)
    async with watching(peer.channel, "orders") as watch:
        await watch.gone()


async def test_a_watch_of_the_connection_with_most_is_ended_for_another_with_the_reason(
    server: NameServerApp, peer: Peer
) -> None:
    server.parts.hub._bounds["watched_topics"].bound = 5
    own_connection = [("grpc.use_local_subchannel_pool", 1)]
    async with AsyncExitStack() as stack:
        for topics in ("ab", "abc"):
            latest = await stack.enter_async_context(watching(peer.channel, *topics))
            await latest.absent()
            await latest.synced()
        other = await stack.enter_async_context(grpc.aio.insecure_channel(server.addr, options=own_connection))
        honest = await stack.enter_async_context(watching(other, "a"))
        assert (await honest.gone()).topic == "a"
        assert await latest.ending() == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED")
        assert value(server, "pointsman_namesrv_limits_exceeded_total", limit="watched_topics") == 1
        assert (value(server, "pointsman_namesrv_watchers"), value(server, "pointsman_namesrv_watched_topics")) == (
            2,
            3,
        )
        await peer.register(wire.topic("a"))


@pytest.mark.parametrize(
    ("topics", "more", "field"),
    [
        ([], {}, "topics"),
        (["a", "a b"], {}, "topics[1].topic"),
        ([""], {}, "topics[0].topic"),
        (["a", "b", "a"], {}, "topics[2].topic"),
        (["a"], {"cluster": "c/1"}, "cluster"),
        (["a"], {"zone": "\n"}, "zone"),
    ],
)
async def test_a_bad_watch_is_refused_with_the_field(
    peer: Peer, topics: Iterable[str], more: dict[str, str], field: str
) -> None:
    request = WatchTopicRoutesRequest(topics=[KnownRoute(topic=topic) for topic in topics], **more)
    code, details, _ = await refused(peer, request)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert [violation.field for violation in details.violations] == [field]


async def test_bytes_that_are_no_watch_are_an_invalid_argument(peer: Peer) -> None:
    call: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = peer.channel.unary_stream(
        "/pointsman.v1.RouteService/WatchTopicRoutes"
    )
    with pytest.raises(grpc.aio.AioRpcError) as error:
        async for _ in call(b"\xff\xff\xff\xff"):
            pass
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


# --- what operators see ---------------------------------------------------------------------------------------


async def test_the_watchers_of_a_topic_are_shown_the_oldest_first(
    server: NameServerApp, peer: Peer, clock: ManualClock
) -> None:
    async with watching(peer.channel, "orders", "pay") as first:
        assert list((await first.absent()).topics) == ["orders", "pay"]
        await clock.advance(10)
        async with watching(peer.channel, "orders", zone="z") as second:
            await second.gone()
            await second.synced()
            facts, total = server.parts.hub.watchers("orders")
            assert total == 2
            assert [(each.topics, clock.now - each.opened_at) for each in facts] == [(2, 10), (1, 0)]
            assert all(each.peer.startswith("127.0.0.1:") for each in facts)
            assert (len(server.parts.hub.watchers("pay")[0]), server.parts.hub.watchers("nowhere")) == (1, ([], 0))


@pytest.mark.parametrize("warm_up_seconds", [WARM_UP])
async def test_health_follows_the_state(server: NameServerApp, peer: Peer, clock: ManualClock) -> None:
    stub = health_pb2_grpc.HealthStub(peer.channel)
    names = {
        "whole": "",
        "route": "pointsman.v1.RouteService",
        "registration": "pointsman.v1.RegistrationService",
        "admin": "pointsman.v1.AdminService",
        "live": node_server.LIVE,
    }

    async def serving() -> set[str]:
        return {
            word
            for word, name in names.items()
            if (await stub.Check(health_pb2.HealthCheckRequest(service=name))).status
            == health_pb2.HealthCheckResponse.SERVING
        }

    assert (await serving(), value(server, "pointsman_namesrv_ready")) == ({"registration", "admin", "live"}, 0)
    await clock.advance(WARM_UP)
    assert (await serving(), value(server, "pointsman_namesrv_ready")) == (set(names), 1)
    server.lifecycle.drain(by="ann")
    assert (await serving(), value(server, "pointsman_namesrv_ready")) == ({"registration", "admin", "live"}, 0)
    server.lifecycle.undrain(by="ann", now=clock.now, still_provisional=0)
    assert (await serving(), value(server, "pointsman_namesrv_ready")) == (set(names), 1)
