"""What a producer uses: parts that it owns or shares, its bounded lookups of routes, and a fork."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_client.aio import finish_tasks
from pointsman_client.client import NameServerClient
from pointsman_client.core.message import Message
from pointsman_client.errors import (
    ClientClosedError,
    ClientNotStartedError,
    InvalidOptionError,
    NameServersUnavailableError,
    WrongEventLoopError,
)
from pointsman_client.ownership import MessagingOptions, Resources
from pointsman_client.producer.fault_recovery import MAX_PARALLEL_LOOKUPS, RouteRefresher
from pointsman_client.producer.producer import Producer
from tests.kit.client.scripted_transport import ScriptedTransport
from tests.kit.name_server.scripted_routes import ScriptedRouteServer, broker_data, scripted_route_server, topic_route
from tests.kit.waiting import eventually


@pytest.fixture
async def server() -> AsyncIterator[ScriptedRouteServer]:
    async with scripted_route_server() as server:
        server.routes["orders"] = topic_route(groups=[broker_data("a", {0: "10.0.0.1:1"}, cluster="c1")])
        yield server


def our_tasks() -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if task.get_name().startswith("pointsman-")]


async def test_parts_that_the_producer_made_are_closed_and_the_transport_is_notified_of_removed_brokers(
    server: ScriptedRouteServer,
) -> None:
    parts = Resources(MessagingOptions([server.addr], transport=ScriptedTransport))
    await parts.start()
    transport = parts.transport
    assert isinstance(transport, ScriptedTransport)
    await parts.client.topic_route("orders")
    server.routes["orders"] = topic_route(groups=[broker_data("b", {0: "10.0.0.2:1"}, cluster="c1")])
    await parts.client.refresh("orders")
    await eventually(lambda: transport.forgotten == ["10.0.0.1:1"])

    await parts.close(timeout_seconds=2.0)
    await parts.close(timeout_seconds=2.0)

    assert transport.closed == 1
    with pytest.raises(ClientClosedError):
        parts.binding.check()
    with pytest.raises(ClientClosedError):
        await parts.client.topic_route("orders")


async def test_parts_that_are_shared_stay_open(server: ScriptedRouteServer) -> None:
    transport = ScriptedTransport()
    async with NameServerClient([server.addr]) as client:
        parts = Resources(MessagingOptions(client, transport=transport))
        await parts.start()
        await parts.close(timeout_seconds=2.0)
        assert (await client.topic_route("orders")).topic == "orders"
    assert transport.closed == 0


async def test_nothing_is_made_before_the_start() -> None:
    parts = Resources(MessagingOptions(["ns:9876"], transport=ScriptedTransport))

    with pytest.raises(ClientNotStartedError):
        parts.binding.check()
    with pytest.raises(ClientNotStartedError):
        _ = parts.transport
    await parts.close(timeout_seconds=1.0)


def test_an_object_that_is_not_a_transport_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="transport"):
        Resources(MessagingOptions(["ns:9876"], transport=None))


async def test_a_transport_that_does_not_close_blocks_no_caller(server: ScriptedRouteServer) -> None:
    class Stuck(ScriptedTransport):
        async def close(self) -> None:
            await asyncio.Event().wait()

    parts = Resources(MessagingOptions([server.addr], transport=Stuck))
    await parts.start()
    async with asyncio.timeout(30):
        await parts.close(timeout_seconds=0.2)


async def test_another_event_loop_is_refused(server: ScriptedRouteServer) -> None:
    parts = Resources(MessagingOptions([server.addr], transport=ScriptedTransport))
    await parts.start()

    async def use() -> None:
        parts.binding.check()

    def in_another_loop() -> None:
        asyncio.run(use())

    with pytest.raises(WrongEventLoopError):
        await asyncio.to_thread(in_another_loop)
    await parts.close(timeout_seconds=1.0)


async def test_a_forked_process_gets_an_error_that_asks_for_a_new_producer(
    server: ScriptedRouteServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Resources(MessagingOptions([server.addr], transport=ScriptedTransport))
    await parts.start()
    pid = os.getpid()
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: pid + 1)
        with pytest.raises(Exception, match="the process was forked"):
            parts.binding.check()
    await parts.close(timeout_seconds=1.0)


async def test_a_task_that_does_not_end_is_left_after_its_time(caplog: pytest.LogCaptureFixture) -> None:
    released = asyncio.Event()

    async def stubborn() -> None:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue

    task = asyncio.create_task(stubborn(), name="stubborn")
    await asyncio.sleep(0)
    try:
        await finish_tasks([task], timeout_seconds=0.01)
        assert "stubborn did not stop after cancellation" in caplog.text
    finally:
        released.set()
        await task


async def test_lookups_after_failures_are_one_a_topic_and_bounded() -> None:
    clock, asked, open_gate = ManualClock(), list[str](), asyncio.Event()

    async def refresh(topic: str) -> None:
        asked.append(topic)
        await open_gate.wait()
        raise NameServersUnavailableError(())

    refresher = RouteRefresher(refresh, clock=clock)
    for _ in range(2):
        for number in range(MAX_PARALLEL_LOOKUPS):
            refresher.request(f"topic-{number}")
    refresher.request("one-too-many")
    await clock.advance(0.0)
    assert len(asked) == MAX_PARALLEL_LOOKUPS
    assert refresher.skipped == 1

    open_gate.set()
    await clock.advance(0.0)
    refresher.request("topic-0")
    refresher.request("new")
    await clock.advance(0.9)
    assert asked[MAX_PARALLEL_LOOKUPS:] == ["new"]
    await clock.advance(0.1)
    assert asked[MAX_PARALLEL_LOOKUPS:] == ["new", "topic-0"]
    await refresher.close(timeout_seconds=1.0)


async def test_a_factory_that_returns_no_transport_is_reported_before_anything_is_started(
    server: ScriptedRouteServer,
) -> None:
    for made in (None, 5):
        producer = Producer([server.addr], transport=cast("Any", lambda made=made: made))
        with pytest.raises(InvalidOptionError, match=f"^transport = {made} was returned by the callable"):
            await producer.start()
        assert not our_tasks()
        await producer.close()


async def test_a_close_that_was_cancelled_continues_and_another_one_waits_for_its_end(
    server: ScriptedRouteServer,
) -> None:
    transport = ScriptedTransport()
    producer = await Producer([server.addr], transport=lambda: transport, close_timeout_seconds=1.0).start()
    transport.hang("10.0.0.1:1")
    sending = asyncio.create_task(producer.send(Message("orders", b"1")))
    await transport.called(1)

    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await producer.close()

    assert transport.closed
    sending.cancel()
    await asyncio.wait([sending])
    await eventually(lambda: not our_tasks())


async def test_a_thread_without_an_event_loop_gets_an_error_that_names_the_sync_class(
    server: ScriptedRouteServer,
) -> None:
    async with NameServerClient([server.addr]) as client:
        with pytest.raises(WrongEventLoopError, match=r"pointsman_client\.sync"):
            await asyncio.to_thread(client.route_changes, "orders")
