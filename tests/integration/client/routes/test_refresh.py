"""Routes in use stay fresh: polling, ages, stale marks, and notification of changes. Real sockets, manual time."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator

import grpc
import pytest

from pointsman.manual_clock import ManualClock
from pointsman_client import NameServerClient, NameServersUnavailableError, RouteChange, TopicNotFoundError
from tests.kit.name_server.scripted_routes import (
    ScriptedRouteServer,
    broker_data,
    scripted_route_server,
    topic_route,
    with_digest,
)

ONE_BROKER = topic_route(groups=[broker_data("broker-a")])
TWO_BROKERS = topic_route(groups=[broker_data("broker-a"), broker_data("broker-b")])


@pytest.fixture
async def server() -> AsyncIterator[ScriptedRouteServer]:
    async with scripted_route_server() as server:
        server.routes["orders"] = TWO_BROKERS
        yield server


@pytest.fixture
async def client(server: ScriptedRouteServer, clock: ManualClock) -> AsyncIterator[NameServerClient]:
    async with NameServerClient(
        [server.addr], poll_jitter=0.0, lookup_timeout_seconds=10.0, watch_routes=False, clock=clock
    ) as client:
        yield client


async def poll(client: NameServerClient, clock: ManualClock, server: ScriptedRouteServer) -> None:
    """Let one poll interval pass and wait until its lookup has come back."""
    await quiet(client, clock)
    calls = server.calls["GetTopicRoute"]
    await clock.advance(30.0)
    await server.called(calls + 1)
    await quiet(client, clock)


async def quiet(client: NameServerClient, clock: ManualClock) -> None:
    """Wait until no lookup is in flight and its callers have continued."""
    await clock.advance(0.0)
    while flights := list(client._lookups._flights.values()):
        await asyncio.wait(flights)
        await clock.advance(0.0)


async def test_a_topic_in_use_is_looked_up_each_interval_and_not_before(
    client: NameServerClient, clock: ManualClock, server: ScriptedRouteServer
) -> None:
    await client.topic_route("orders")
    server.routes["orders"] = ONE_BROKER

    await clock.advance(29.9)
    assert server.calls["GetTopicRoute"] == 1
    assert len((await client.topic_route("orders")).broker_datas) == 2
    await clock.advance(0.1)
    await server.called(2)
    await client.refresh("orders")

    assert len((await client.topic_route("orders")).broker_datas) == 1


async def test_the_age_counts_from_the_last_confirmation(client: NameServerClient, clock: ManualClock) -> None:
    assert client.route_age_seconds("orders") is None
    await client.topic_route("orders")
    await clock.advance(12.5)
    assert client.route_age_seconds("orders") == 12.5

    await clock.advance(10.0)
    await client.refresh("orders")
    assert client.route_age_seconds("orders") == 0.0


async def test_w11_with_all_name_servers_down_known_routes_go_on_and_grow_older(
    client: NameServerClient, clock: ManualClock, server: ScriptedRouteServer, caplog: pytest.LogCaptureFixture
) -> None:
    await client.topic_route("orders")
    server.fail_with(grpc.StatusCode.UNAVAILABLE)
    with caplog.at_level(logging.WARNING, "pointsman_client"):
        await poll(client, clock, server)
        await poll(client, clock, server)

        assert len(await client.publish_queues("orders")) == 8
        assert client.route_age_seconds("orders") == 60.0
        with pytest.raises(NameServersUnavailableError):
            await client.refresh("orders")
        assert len(await client.publish_queues("orders")) == 8

        server.recover()
        await poll(client, clock, server)
        assert client.route_age_seconds("orders") == 0.0

    assert [record.message.split(":")[0] for record in caplog.records] == [
        "route refresh failed; using cached routes",
        "route refresh recovered",
    ]


async def test_when_no_server_responds_the_rest_of_the_round_is_skipped(
    client: NameServerClient, clock: ManualClock, server: ScriptedRouteServer
) -> None:
    topics = [f"t{number}" for number in range(40)]
    for topic in topics:
        server.routes[topic] = topic_route(topic)
        await client.topic_route(topic)
    before = server.calls["GetTopicRoute"]
    server.fail_with(grpc.StatusCode.UNAVAILABLE)

    await poll(client, clock, server)

    assert server.calls["GetTopicRoute"] - before <= 8


async def test_a_poll_queries_a_few_topics_at_a_time(
    client: NameServerClient, clock: ManualClock, server: ScriptedRouteServer
) -> None:
    for number in range(30):
        server.routes[f"t{number}"] = topic_route(f"t{number}")
        await client.topic_route(f"t{number}")
    server.hang()
    await clock.advance(30.0)
    await server.called(38)
    server.recover()
    await server.called(60)

    assert server.busiest == 8


async def test_with_one_name_server_a_topic_no_longer_found_is_removed_until_it_comes_back(
    client: NameServerClient, clock: ManualClock, server: ScriptedRouteServer
) -> None:
    notified: list[RouteChange] = []
    known = await client.topic_route("orders")
    client.on_route_change(notified.append)
    del server.routes["orders"]
    await poll(client, clock, server)

    assert notified == [RouteChange("orders", known, None)]
    assert client.route_age_seconds("orders") is None
    with pytest.raises(TopicNotFoundError):
        await client.topic_route("orders")

    server.routes["orders"] = TWO_BROKERS
    await poll(client, clock, server)
    assert client.route_age_seconds("orders") == 0.0
    assert notified[1:] == [RouteChange("orders", None, known)]


async def test_a_callback_gets_each_change_once_and_nothing_when_nothing_changed(
    client: NameServerClient, server: ScriptedRouteServer
) -> None:
    notified: list[RouteChange] = []
    remove = client.on_route_change(notified.append)
    await client.topic_route("orders")
    server.routes["orders"] = with_digest(TWO_BROKERS, boot=8, counter=9)
    await client.refresh("orders")
    server.routes["orders"] = ONE_BROKER
    await client.refresh("orders")
    remove()
    server.routes["orders"] = TWO_BROKERS
    await client.refresh("orders")

    sizes = [tuple(side and len(side.broker_datas) for side in (change.old, change.new)) for change in notified]
    assert sizes == [(None, 2), (2, 1)]


async def test_a_callback_that_raises_goes_to_the_loops_handler_and_stops_nothing(
    client: NameServerClient,
) -> None:
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["exception"]))
    notified: list[RouteChange] = []

    def broken(change: RouteChange) -> None:
        raise LookupError(change.topic)

    client.on_route_change(broken)
    client.on_route_change(notified.append)
    await client.topic_route("orders")
    await asyncio.sleep(0)

    assert [type(fault) for fault in faults] == [LookupError]
    assert len(notified) == 1


async def test_changes_begin_with_the_route_as_it_is_and_a_slow_reader_sees_the_latest(
    client: NameServerClient, server: ScriptedRouteServer
) -> None:
    changes = client.route_changes("orders")
    first = await anext(changes)
    assert first.old is None
    assert first.new is not None
    assert len(first.new.broker_datas) == 2

    server.routes["orders"] = ONE_BROKER
    await client.refresh("orders")
    server.routes["orders"] = topic_route(groups=[])
    await client.refresh("orders")
    second = await anext(changes)
    assert second.old == first.new
    assert second.new is not None
    assert second.new.broker_datas == ()


async def test_changes_of_a_topic_that_is_not_there_yet_wait_for_it(
    client: NameServerClient, clock: ManualClock, server: ScriptedRouteServer
) -> None:
    changes = client.route_changes("later")
    reading = asyncio.ensure_future(anext(changes))
    await server.called(1)
    await poll(client, clock, server)
    assert not reading.done()

    server.routes["later"] = topic_route("later")
    await poll(client, clock, server)
    assert (change := await reading).topic == "later"
    assert change.new is not None


async def test_changes_end_when_the_client_closes(client: NameServerClient) -> None:
    notified: asyncio.Queue[str] = asyncio.Queue()

    async def read() -> None:
        async for change in client.route_changes("orders"):
            notified.put_nowait(change.topic)

    reading = asyncio.create_task(read())
    assert await notified.get() == "orders"
    await client.close()

    await reading
    assert notified.empty()


async def test_an_iterator_that_was_dropped_is_no_longer_polled(
    client: NameServerClient, clock: ManualClock, server: ScriptedRouteServer
) -> None:
    changes = client.route_changes("never")
    reading = asyncio.ensure_future(anext(changes))
    await poll(client, clock, server)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    del changes, reading
    gc.collect()
    before = server.calls["GetTopicRoute"]
    await clock.advance(30.0)
    await quiet(client, clock)

    assert server.calls["GetTopicRoute"] == before


async def test_jitter_only_shortens_the_interval(server: ScriptedRouteServer, clock: ManualClock) -> None:
    async with NameServerClient([server.addr], poll_jitter=0.5, clock=clock) as client:
        await client.topic_route("orders")
        for _ in range(5):
            await poll(client, clock, server)

    assert server.calls["GetTopicRoute"] >= 6


async def test_a_refusal_at_a_poll_is_logged_once_and_keeps_the_route(
    client: NameServerClient, clock: ManualClock, server: ScriptedRouteServer, caplog: pytest.LogCaptureFixture
) -> None:
    await client.topic_route("orders")
    server.fail_with(grpc.StatusCode.PERMISSION_DENIED)
    await poll(client, clock, server)
    await poll(client, clock, server)

    assert [record.levelname for record in caplog.records if record.name.startswith("pointsman_client")] == ["WARNING"]
    assert len(await client.publish_queues("orders")) == 8


async def test_a_topic_beyond_the_limit_is_evicted_unless_it_is_watched(
    server: ScriptedRouteServer, clock: ManualClock
) -> None:
    for topic in "abc":
        server.routes[topic] = topic_route(topic)
    async with NameServerClient([server.addr], max_topics=1, clock=clock) as client:
        changes = client.route_changes("a")
        await anext(changes)
        await client.topic_route("b")
        await client.topic_route("c")

        known = {topic: client.route_age_seconds(topic) is not None for topic in "abc"}
    assert known == {"a": True, "b": False, "c": True}
