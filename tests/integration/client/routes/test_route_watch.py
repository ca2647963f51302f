"""The watch: one stream for all topics in use, reopened when needed, with the poll next to it. Real sockets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import grpc
import pytest

from pointsman.manual_clock import ManualClock
from pointsman_client import NameServerClient, RouteChange, TopicNotFoundError
from pointsman_client.client import parts_of
from pointsman_client.metrics_hook import MetricsHook
from tests.kit.name_server.scripted_routes import (
    ScriptedRouteServer,
    broker_data,
    scripted_route_server,
    topic_route,
    with_digest,
)
from tests.kit.waiting import eventually


@pytest.fixture
async def server() -> AsyncIterator[ScriptedRouteServer]:
    async with scripted_route_server() as server:
        server.routes["orders"] = with_digest(topic_route(), counter=5)
        yield server


@pytest.fixture
async def client(server: ScriptedRouteServer, clock: ManualClock) -> AsyncIterator[NameServerClient]:
    async with NameServerClient([server.addr], poll_jitter=0.0, lookup_timeout_seconds=10.0, clock=clock) as client:
        yield client


def is_watched(client: NameServerClient, *topics: str) -> bool:
    return all(client.describe(topic)["watched"] for topic in topics)


async def write_queues(client: NameServerClient) -> int:
    return (await client.topic_route("orders")).queue_datas[0].write_queue_nums


async def test_a_change_arrives_without_a_lookup(
    client: NameServerClient, clock: ManualClock, server: ScriptedRouteServer
) -> None:
    notified: list[RouteChange] = []
    client.on_route_change(notified.append)
    await client.topic_route("orders")
    await eventually(lambda: is_watched(client, "orders"), clock=clock)
    server.routes["orders"] = with_digest(topic_route(write=2), counter=6)
    server.push("orders")

    await eventually(lambda: len(notified) == 2)
    assert await write_queues(client) == 2
    assert server.calls["GetTopicRoute"] == 1
    assert client.route_age_seconds("orders") == 0.0


async def test_topics_that_come_into_use_together_are_watched_by_one_new_stream(
    client: NameServerClient, clock: ManualClock, server: ScriptedRouteServer
) -> None:
    for topic in "abc":
        server.routes[topic] = topic_route(topic)
    await client.topic_route("orders")
    await eventually(lambda: is_watched(client, "orders"), clock=clock)
    for topic in "abc":
        await client.topic_route(topic)
    await eventually(lambda: is_watched(client, "orders", "a", "b", "c"), clock=clock)

    assert [set(topics) for topics in server.watched] == [{"orders"}, {"orders", "a", "b", "c"}]
    await eventually(lambda: len(server.open_watches) == 1)


async def test_a_broken_watch_resumes_from_the_known_revisions_and_gets_the_changes_in_between(
    client: NameServerClient, clock: ManualClock, server: ScriptedRouteServer
) -> None:
    known = await client.topic_route("orders")
    await eventually(lambda: is_watched(client, "orders"), clock=clock)
    server.routes["orders"] = with_digest(topic_route(write=1), counter=9)
    server.end_watches(grpc.StatusCode.CANCELLED)
    await eventually(lambda: len(server.watched) == 2 and is_watched(client, "orders"), clock=clock)

    assert server.watched[1] == {"orders": known.revision.digest}
    assert await write_queues(client) == 1
    assert server.calls["GetTopicRoute"] == 1


@pytest.mark.parametrize("status", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED])
async def test_watch_and_lookups_both_leave_a_server_that_drains_or_disconnects(
    server: ScriptedRouteServer, clock: ManualClock, status: grpc.StatusCode
) -> None:
    async with scripted_route_server() as other:
        other.routes["orders"] = with_digest(topic_route(), boot=8, counter=1)
        servers = [server.addr, other.addr]
        async with NameServerClient(servers, shuffle_name_servers=False, clock=clock) as client:
            await client.topic_route("orders")
            await eventually(lambda: is_watched(client, "orders"), clock=clock)
            server.end_watches(status)
            await eventually(lambda: other.open_watches == [{"orders"}], clock=clock)

            await eventually(lambda: client.name_server_in_use == other.addr)
            await client.refresh("orders")
            assert other.calls["GetTopicRoute"] == 1


async def test_a_watch_follows_when_a_lookup_fails_over_to_another_server(
    server: ScriptedRouteServer, clock: ManualClock
) -> None:
    async with scripted_route_server() as other:
        other.routes["orders"] = topic_route()
        servers = [server.addr, other.addr]
        async with NameServerClient(servers, shuffle_name_servers=False, clock=clock) as client:
            await client.topic_route("orders")
            await eventually(lambda: is_watched(client, "orders"), clock=clock)
            server.fail_with(grpc.StatusCode.UNAVAILABLE)
            await client.refresh("orders")

            await eventually(lambda: other.open_watches == [{"orders"}], clock=clock)
            await eventually(lambda: server.open_watches == [], clock=clock)


async def test_a_server_that_hangs_with_an_open_watch_is_detected_by_the_poll_and_left(
    server: ScriptedRouteServer, clock: ManualClock
) -> None:
    async with scripted_route_server() as other:
        other.routes["orders"] = topic_route()
        servers = [server.addr, other.addr]
        async with NameServerClient(
            servers, shuffle_name_servers=False, lookup_timeout_seconds=2.0, clock=clock
        ) as client:
            await client.topic_route("orders")
            await eventually(lambda: is_watched(client, "orders"), clock=clock)
            server.hang()
            await clock.advance(30.0)

            await eventually(lambda: other.open_watches == [{"orders"}], clock=clock)
            assert client.name_server_in_use == other.addr


async def test_an_older_server_that_cannot_be_watched_is_only_polled_and_that_is_logged_once(
    client: NameServerClient, clock: ManualClock, server: ScriptedRouteServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.watchable = False
    await client.topic_route("orders")
    await eventually(lambda: any("cannot watch routes" in record.message for record in caplog.records), clock=clock)
    server.routes["orders"] = with_digest(topic_route(write=3), counter=6)
    await eventually(lambda: server.calls["GetTopicRoute"] >= 3, clock=clock, step=1.0)
    await client.refresh("orders")

    assert await write_queues(client) == 3
    assert client.name_server_in_use == server.addr
    assert [record.levelno for record in caplog.records if "cannot watch" in record.message] == [logging.WARNING]


async def test_an_outage_is_logged_once_for_any_number_of_watch_attempts_and_the_next_outage_again(
    client: NameServerClient, clock: ManualClock, server: ScriptedRouteServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="pointsman_client.pointsman_grpc.route_stream")
    await client.topic_route("orders")
    await eventually(lambda: is_watched(client, "orders"), clock=clock)
    for outages in (1, 2):
        tries = server.calls["WatchTopicRoutes"]
        server.fail_with(grpc.StatusCode.UNAVAILABLE)
        server.end_watches(grpc.StatusCode.UNAVAILABLE)
        await eventually(lambda tries=tries: server.calls["WatchTopicRoutes"] >= tries + 4, clock=clock, step=1.0)  # type: ignore[misc]
        logged = [record.message for record in caplog.records if "route watch at" in record.message]
        assert len(logged) == outages
        assert server.addr in logged[-1]
        server.recover()
        await eventually(lambda: is_watched(client, "orders"), clock=clock, step=1.0)


async def test_a_server_that_bounds_the_topics_of_a_watch_gets_several(
    client: NameServerClient, clock: ManualClock, server: ScriptedRouteServer
) -> None:
    server.most_topics_per_watch = 2
    topics = [f"t{number}" for number in range(5)]
    for topic in topics:
        server.routes[topic] = topic_route(topic)
        await client.topic_route(topic)
    await eventually(lambda: is_watched(client, *topics), clock=clock)

    assert sorted(len(watch) for watch in server.open_watches) == [1, 2, 2]
    assert set.union(*server.open_watches) == set(topics)
    assert client.name_server_in_use == server.addr


async def test_without_the_setting_nothing_is_watched(server: ScriptedRouteServer, clock: ManualClock) -> None:
    async with NameServerClient([server.addr], watch_routes=False, clock=clock) as client:
        await client.topic_route("orders")
        await clock.advance(20.0)
        assert server.calls["WatchTopicRoutes"] == 0
        assert not is_watched(client, "orders")


async def test_the_poll_continues_and_an_unchanged_route_confirms_the_cached_one(
    client: NameServerClient, clock: ManualClock, server: ScriptedRouteServer
) -> None:
    await client.topic_route("orders")
    await eventually(lambda: is_watched(client, "orders"), clock=clock)
    await clock.advance(30.0)
    await server.called(2)
    await eventually(lambda: (client.route_age_seconds("orders") or 0.0) < 1.0)

    assert server.unchanged == 1


async def test_a_response_that_is_older_than_the_update_of_the_watch_changes_nothing(
    client: NameServerClient, clock: ManualClock, server: ScriptedRouteServer
) -> None:
    notified: list[RouteChange] = []
    await client.topic_route("orders")
    await eventually(lambda: is_watched(client, "orders"), clock=clock)
    client.on_route_change(notified.append)
    server.hang()
    looking = asyncio.create_task(client.refresh("orders"))
    await server.called(2)
    server.routes["orders"] = with_digest(topic_route(write=2), counter=9)
    server.push("orders")
    await eventually(lambda: len(notified) == 1)
    server.routes["orders"] = with_digest(topic_route(write=1), counter=8)
    server.recover()

    assert (await looking).queue_datas[0].write_queue_nums == 2
    assert len(notified) == 1


async def test_an_update_that_is_older_than_a_response_changes_nothing(
    client: NameServerClient, clock: ManualClock, server: ScriptedRouteServer
) -> None:
    server.routes["bills"] = topic_route("bills")
    await client.topic_route("orders")
    await client.topic_route("bills")
    await eventually(lambda: is_watched(client, "orders", "bills"), clock=clock)
    server.routes["orders"] = with_digest(topic_route(write=2), counter=9)
    await client.refresh("orders")
    server.routes["orders"] = with_digest(topic_route(write=1), counter=8)
    server.push("orders")
    # A later update on the same stream has arrived, so the older one has, too.
    server.routes["bills"] = with_digest(topic_route("bills", write=1), counter=9)
    server.push("bills")
    await eventually(lambda: len(client._table.find("bills").publish_queues) == 1)  # type: ignore[union-attr]

    assert await write_queues(client) == 2


async def test_a_topic_not_found_before_is_found_once_the_watch_reports_it(
    client: NameServerClient, clock: ManualClock, server: ScriptedRouteServer
) -> None:
    await client.topic_route("orders")
    await eventually(lambda: is_watched(client, "orders"), clock=clock)
    changes = client.route_changes("later")
    await eventually(lambda: is_watched(client, "orders", "later"), clock=clock)
    server.hang()
    looking = asyncio.create_task(client.topic_route("later"))
    await server.called(2)
    # The lookup returns the old state, the watch the new one.
    route = with_digest(topic_route("later"), counter=9)
    server.routes["later"] = route
    server.push("later")
    await eventually(lambda: client.route_age_seconds("later") is not None)
    del server.routes["later"]
    server.recover()

    assert (await looking).topic == "later"
    assert (await anext(changes)).new is not None


async def test_a_deleted_topic_is_reported_to_all_listeners_and_comes_back_by_itself(
    client: NameServerClient, clock: ManualClock, server: ScriptedRouteServer
) -> None:
    notified: list[RouteChange] = []
    client.on_route_change(notified.append)
    changes = client.route_changes("orders")
    first = await anext(changes)
    await eventually(lambda: is_watched(client, "orders"), clock=clock)
    kept = server.routes.pop("orders")
    server.gone_counter = 6
    server.push("orders")

    gone = await anext(changes)
    assert (gone.old, gone.new) == (first.new, None)
    with pytest.raises(TopicNotFoundError):
        await client.topic_route("orders")
    server.routes["orders"] = with_digest(kept, counter=7)
    server.push("orders")
    back = await anext(changes)
    assert back.old is None
    assert back.new is not None
    assert [(change.old is None, change.new is None) for change in notified] == [
        (True, False),
        (False, True),
        (True, False),
    ]


async def test_a_used_topic_stays_watched_without_a_reader_after_its_deletion(
    client: NameServerClient, clock: ManualClock, server: ScriptedRouteServer
) -> None:
    with pytest.raises(TopicNotFoundError):
        await client.topic_route("later")
    await eventually(lambda: server.open_watches == [{"later"}], clock=clock)
    server.routes["later"] = with_digest(topic_route("later"), counter=9)
    server.push("later")

    await eventually(lambda: client.route_age_seconds("later") is not None)


async def test_a_server_whose_watch_sends_no_first_response_is_left_for_the_next(
    server: ScriptedRouteServer, clock: ManualClock
) -> None:
    async with scripted_route_server() as other:
        other.routes["orders"] = topic_route()
        servers = [server.addr, other.addr]
        async with NameServerClient(
            servers, shuffle_name_servers=False, lookup_timeout_seconds=2.0, clock=clock
        ) as client:
            server.silent_watches = True
            await client.topic_route("orders")
            await eventually(lambda: other.open_watches == [{"orders"}], clock=clock)


async def test_a_watch_leaves_a_server_only_for_one_that_sends_its_state(
    server: ScriptedRouteServer, clock: ManualClock
) -> None:
    async with scripted_route_server() as other:
        servers, moves = [server.addr, other.addr], list[str]()
        async with NameServerClient(
            servers, shuffle_name_servers=False, lookup_timeout_seconds=1.0, clock=clock
        ) as client:
            client._choice.on_move(lambda: moves.append(client.name_server_in_use))
            other.silent_watches = True
            await client.topic_route("orders")
            await eventually(lambda: is_watched(client, "orders"), clock=clock)
            server.fail_with(grpc.StatusCode.UNAVAILABLE)
            server.end_watches(grpc.StatusCode.UNAVAILABLE)
            await eventually(lambda: other.calls["WatchTopicRoutes"] == 2, clock=clock)
            assert moves == []

            other.silent_watches = False
            await eventually(lambda: other.open_watches == [{"orders"}], clock=clock)
            await eventually(lambda: moves == [other.addr])

            other.routes["orders"] = server.routes["orders"]
            server.recover()
            other.fail_with(grpc.StatusCode.UNAVAILABLE)
            await client.refresh("orders")
            assert moves == [other.addr, server.addr]
            await eventually(lambda: server.open_watches == [{"orders"}], clock=clock)


async def test_a_server_that_needs_longer_for_the_state_gets_more_time_at_each_attempt(
    server: ScriptedRouteServer, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="pointsman_client.pointsman_grpc.route_stream")
    async with NameServerClient([server.addr], lookup_timeout_seconds=0.5, clock=clock) as client:
        server.silent_watches = True
        await client.topic_route("orders")
        await eventually(lambda: server.calls["WatchTopicRoutes"] == 3, clock=clock)
        server.silent_watches = False
        await eventually(lambda: is_watched(client, "orders"), clock=clock)

    limits = [record.getMessage() for record in caplog.records if "no complete initial state" in record.message]
    assert ["within 0.5 s" in limits[0], "within 1 s" in limits[1], "within 2 s" in limits[2]] == [True] * 3


async def test_the_hook_is_called_for_failures_confirmations_and_evictions(
    server: ScriptedRouteServer, clock: ManualClock
) -> None:
    calls: list[tuple[str, str]] = []

    class Recording(MetricsHook):
        def name_server_failed(self, *, addr: str) -> None:
            calls.append(("failed", addr))

        def route_confirmed(self, *, topic: str, at: float) -> None:
            assert at == clock.now
            calls.append(("confirmed", topic))

        def route_dropped(self, *, topic: str) -> None:
            calls.append(("forgotten", topic))

    server.routes["a"] = topic_route("a")
    async with NameServerClient([server.addr], max_topics=1, metrics_hook=Recording(), clock=clock) as client:
        await client.topic_route("orders")
        await client.topic_route("a")
        assert calls == [("confirmed", "orders"), ("confirmed", "a"), ("forgotten", "orders")]
        await eventually(lambda: is_watched(client, "a"), clock=clock)
        calls.clear()
        server.end_watches(grpc.StatusCode.UNAVAILABLE)
        await eventually(lambda: calls == [("failed", server.addr)])
        assert parts_of(client).metrics_hook.__class__ is Recording
        assert parts_of(client).clock is clock


async def test_addresses_that_are_no_longer_in_any_route_are_reported_and_brokers_are_found_by_name(
    client: NameServerClient, server: ScriptedRouteServer
) -> None:
    gone: list[tuple[str, ...]] = []
    remove = client.on_addrs_removed(gone.append)
    both = [broker_data("broker-a", {0: "10.0.0.1:1", 1: "10.0.0.2:1"}), broker_data("broker-b", {0: "10.0.0.3:1"})]
    server.routes["orders"] = topic_route(groups=both)
    server.routes["bills"] = topic_route("bills", groups=both[:1])
    await client.topic_route("orders")
    await client.topic_route("bills")
    assert [data.broker_name for data in client.brokers_of(["orders", "bills"])] == ["broker-a", "broker-b"]
    assert [data.broker_name for data in client.brokers_of(["bills", "unknown"])] == ["broker-a"]

    server.routes["orders"] = topic_route(groups=[broker_data("broker-a", {0: "10.0.0.9:1"})])
    await client.refresh("orders")
    await asyncio.sleep(0)
    assert gone == [("10.0.0.3:1",)]
    assert client.broker("DefaultCluster", "broker-b") is None
    assert (found := client.broker("DefaultCluster", "broker-a")) is not None
    assert [replica.addr for replica in found.replicas] == ["10.0.0.9:1"]

    remove()
    server.routes["bills"] = topic_route("bills", groups=[])
    await client.refresh("bills")
    await asyncio.sleep(0)
    assert len(gone) == 1
