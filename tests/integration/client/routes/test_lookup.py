"""Lookups over real sockets: failover, deadlines, single flight, and error texts."""

from __future__ import annotations

import asyncio
import gc
import random
import socket
import time
from collections.abc import AsyncIterator, Callable

import grpc
import grpc.aio
import pytest

from pointsman.manual_clock import ManualClock
from pointsman.wire.refusals import FieldViolation
from pointsman_client import (
    BrokerReplica,
    BrokerState,
    ClientClosedError,
    ClientNotStartedError,
    ClusterNotFoundError,
    InvalidOptionError,
    NameServerClient,
    NameServersUnavailableError,
    RequestRejectedError,
    TopicNotFoundError,
    WrongEventLoopError,
)
from tests.kit.name_server.scripted_routes import (
    ScriptedRouteServer,
    broker_data,
    refused_addr,
    scripted_route_server,
    silent_listener,
    topic_route,
)


@pytest.fixture
async def server() -> AsyncIterator[ScriptedRouteServer]:
    async with scripted_route_server() as server:
        server.routes["orders"] = topic_route()
        yield server


def client_of(*addrs: str, timeout: float = 10.0, clock: ManualClock | None = None) -> NameServerClient:
    return NameServerClient(addrs, lookup_timeout_seconds=timeout, shuffle_name_servers=False, clock=clock)


async def test_a_route_arrives_complete_and_contains_the_queues(server: ScriptedRouteServer) -> None:
    server.routes["orders"] = topic_route(groups=[broker_data("broker-a", {0: "10.0.0.1:1", 1: "10.0.0.2:1"})])

    async with client_of(server.addr) as client:
        route = await client.topic_route("orders")
        assert len(await client.publish_queues("orders")) == 4
        assert len(await client.subscribe_queues("orders")) == 4

    assert route.broker_datas[0].replicas == (
        BrokerReplica(0, "10.0.0.1:1", "", "", BrokerState.UP),
        BrokerReplica(1, "10.0.0.2:1", "", "", BrokerState.UP),
    )
    assert route.revision.boot == 7
    assert server.calls["GetTopicRoute"] == 1


@pytest.mark.parametrize(
    "status",
    [
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
    ],
)
async def test_a_server_that_fails_is_left_for_the_next_which_then_stays_in_use(
    server: ScriptedRouteServer, status: grpc.StatusCode
) -> None:
    async with scripted_route_server() as failing, client_of(failing.addr, server.addr) as client:
        failing.fail_with(status)

        await client.refresh("orders")
        failing.recover()
        await client.refresh("orders")

        assert client.name_server_in_use == server.addr
        assert (failing.calls["GetTopicRoute"], server.calls["GetTopicRoute"]) == (1, 2)


async def test_a_dead_server_and_a_silent_one_leave_time_for_the_third(server: ScriptedRouteServer) -> None:
    async with (
        refused_addr() as dead,
        silent_listener() as silent,
        client_of(dead, silent, server.addr, timeout=2.0) as client,
    ):
        route = await client.topic_route("orders")

    assert route.topic == "orders"


async def test_when_no_server_responds_the_error_is_raised_in_time_and_names_each_server_with_its_cause() -> None:
    async with scripted_route_server() as hanging, refused_addr() as dead, silent_listener() as silent:
        hanging.hang()
        async with client_of(dead, silent, hanging.addr, timeout=0.6) as client:
            started = time.monotonic()
            with pytest.raises(NameServersUnavailableError) as caught:
                await client.topic_route("orders")
            took = time.monotonic() - started

    failures = {failure.addr: failure for failure in caught.value.failures}
    assert [failures[addr].status for addr in (dead, silent, hanging.addr)] == [
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
    ]
    assert all(isinstance(failure.__cause__, grpc.aio.AioRpcError) for failure in failures.values())
    assert took < 6.0


async def test_that_a_topic_is_unknown_needs_a_second_server_and_is_not_kept(server: ScriptedRouteServer) -> None:
    async with scripted_route_server() as other, client_of(server.addr, other.addr) as client:
        with pytest.raises(TopicNotFoundError, match="topic nowhere has no route") as caught:
            await client.topic_route("nowhere")
        server.routes["nowhere"] = topic_route("nowhere")

        assert (await client.topic_route("nowhere")).topic == "nowhere"
        assert (server.calls["GetTopicRoute"], other.calls["GetTopicRoute"]) == (2, 1)
        assert not caught.value.retriable


async def test_the_error_for_an_unknown_topic_names_the_queried_servers_and_a_similar_topic(
    server: ScriptedRouteServer,
) -> None:
    async with client_of(server.addr) as client:
        with pytest.raises(TopicNotFoundError) as caught:
            await client.topic_route("ordres")
        assert str(caught.value) == f"topic ordres has no route at {server.addr}; create it, or correct its name"
        with pytest.raises(TopicNotFoundError) as caught:
            await client.topic_route("%DLQ%g")
        assert str(caught.value) == f"topic %DLQ%g has no route at {server.addr}"
        await client.topic_route("orders")
        with pytest.raises(TopicNotFoundError) as caught:
            await client.topic_route("ordres")
        assert str(caught.value) == f"topic ordres has no route at {server.addr}; did you mean orders?"


async def test_a_port_that_serves_something_else_is_reported_as_not_a_name_server() -> None:
    other = grpc.aio.server()
    port = other.add_insecure_port("127.0.0.1:0")
    await other.start()
    try:
        async with client_of(f"127.0.0.1:{port}") as client:
            with pytest.raises(NameServersUnavailableError) as caught:
                await client.topic_route("orders")
    finally:
        await other.stop(None)
    message = f"127.0.0.1:{port}: is not a name server, or runs an older version: Method not found! (UNIMPLEMENTED)"
    assert message in str(caught.value)


async def passing(clock: ManualClock, condition: Callable[[], bool]) -> None:
    """Advance the client's clock during real calls, until the condition is true."""
    async with asyncio.timeout(30):
        while not condition():
            await clock.advance(0.1)
            await asyncio.sleep(0.002)


async def test_a_client_can_be_waited_for_until_it_is_ready(server: ScriptedRouteServer, clock: ManualClock) -> None:
    async with client_of(server.addr, clock=clock) as client:
        await client.wait_until_ready()
        await client.wait_until_ready(["orders"])
        waiting = asyncio.ensure_future(client.wait_until_ready(["orders", "bills"], timeout_seconds=10.0))
        await passing(clock, lambda: server.calls["GetTopicRoute"] > 4)
        assert not waiting.done()
        server.routes["bills"] = topic_route("bills")
        await passing(clock, waiting.done)
        await waiting


async def test_waiting_until_ready_ends_with_the_error_of_its_last_try(
    server: ScriptedRouteServer, clock: ManualClock
) -> None:
    async with client_of(server.addr, clock=clock) as client:
        waiting = asyncio.ensure_future(client.wait_until_ready(["nowhere"], timeout_seconds=2.0))
        await passing(clock, waiting.done)
        with pytest.raises(TopicNotFoundError):
            await waiting
        with pytest.raises(InvalidOptionError, match="timeout_seconds"):
            await client.wait_until_ready(timeout_seconds=0)
    async with refused_addr() as addr, client_of(addr, clock=clock) as client:
        waiting = asyncio.ensure_future(client.wait_until_ready(timeout_seconds=2.0))
        await passing(clock, waiting.done)
        with pytest.raises(NameServersUnavailableError):
            await waiting


async def test_a_refusal_goes_to_the_caller_with_its_code(server: ScriptedRouteServer) -> None:
    server.fail_with(grpc.StatusCode.FAILED_PRECONDITION)
    async with scripted_route_server() as other, client_of(server.addr, other.addr) as client:
        with pytest.raises(RequestRejectedError, match="FAILED_PRECONDITION") as caught:
            await client.topic_route("orders")

        assert caught.value.details.code == "SCRIPTED"
        assert other.calls.total() == 0


async def test_a_refusal_for_bad_input_names_each_field(server: ScriptedRouteServer) -> None:
    server.fail_with(grpc.StatusCode.INVALID_ARGUMENT)
    server.violations = [FieldViolation("zone", "has 2000 characters, at most 1024 are allowed")]
    async with client_of(server.addr) as client:
        with pytest.raises(RequestRejectedError) as caught:
            await client.fetch_route("orders", zone="z" * 2000)

    assert list(caught.value.violations) == server.violations


async def test_malformed_error_details_do_not_change_the_status(server: ScriptedRouteServer) -> None:
    server.fail_with(grpc.StatusCode.INVALID_ARGUMENT)
    server.garbled_details = True
    async with client_of(server.addr) as client:
        with pytest.raises(RequestRejectedError, match="INVALID_ARGUMENT") as caught:
            await client.fetch_route("orders")

    assert caught.value.details.code == ""


async def test_a_malformed_response_is_a_failure_of_that_server(server: ScriptedRouteServer) -> None:
    async def babble(_request: bytes, _context: object) -> bytes:
        return b"\xff\xff"

    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(babble)
    babbler = grpc.aio.server()
    babbler.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("pointsman.v1.RouteService", {"GetTopicRoute": handler}),)
    )
    port = babbler.add_insecure_port("127.0.0.1:0")
    await babbler.start()
    async with client_of(f"127.0.0.1:{port}", server.addr) as client:
        assert (await client.topic_route("orders")).topic == "orders"
        assert client.name_server_in_use == server.addr
    await babbler.stop(None)


async def test_starting_twice_changes_nothing(server: ScriptedRouteServer) -> None:
    async with client_of(server.addr) as client:
        assert await client.start() is client
        tasks = [task for task in asyncio.all_tasks() if task.get_name() == "pointsman-route-poll"]
        assert len(tasks) == 1


async def test_a_server_that_responds_with_another_topic_is_left_for_the_next(server: ScriptedRouteServer) -> None:
    async with scripted_route_server() as confused, client_of(confused.addr, server.addr) as client:
        confused.routes["orders"] = topic_route("payments")

        assert (await client.topic_route("orders")).topic == "orders"
        assert client.name_server_in_use == server.addr


async def test_callers_of_one_topic_share_a_lookup_and_the_next_call_needs_none(server: ScriptedRouteServer) -> None:
    server.hang()
    async with client_of(server.addr) as client:
        callers = [asyncio.create_task(client.topic_route("orders")) for _ in range(50)]
        await server.called(1)
        server.recover()

        assert len({id(route) for route in await asyncio.gather(*callers)}) == 1
        await client.topic_route("orders")
        assert server.calls["GetTopicRoute"] == 1


async def test_a_cancelled_caller_leaves_the_lookup_to_the_others(server: ScriptedRouteServer) -> None:
    server.hang()
    async with client_of(server.addr) as client:
        first = asyncio.create_task(client.topic_route("orders"))
        second = asyncio.create_task(client.topic_route("orders"))
        await server.called(1)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        server.recover()

        assert (await second).topic == "orders"
        assert server.calls["GetTopicRoute"] == 1


async def test_an_error_of_a_lookup_without_callers_is_not_reported(server: ScriptedRouteServer) -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    server.hang()
    async with client_of(server.addr) as client:
        caller = asyncio.create_task(client.topic_route("nowhere"))
        await server.called(1)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        server.recover()
        await asyncio.wait(list(client._lookups._flights.values()))
        gc.collect()

    assert complaints == []


async def test_different_topics_do_not_wait_for_each_other(server: ScriptedRouteServer) -> None:
    server.hang()
    async with client_of(server.addr) as client:
        callers = [asyncio.create_task(client.topic_route(topic)) for topic in ("orders", "nowhere")]
        await server.called(2)
        server.recover()
        results = await asyncio.gather(*callers, return_exceptions=True)

    assert [type(result).__name__ for result in results] == ["TopicRoute", "TopicNotFoundError"]


async def test_the_first_server_is_drawn_from_the_list_so_that_clients_spread() -> None:
    addrs = [f"10.0.0.{number}:9876" for number in range(4)]
    drawn = {NameServerClient(addrs, rng=random.Random(seed)).name_server_in_use for seed in range(40)}

    assert drawn == set(addrs)
    assert NameServerClient(addrs, rng=random.Random(3)).name_servers == tuple(addrs)


async def test_all_pages_of_topics_come_from_one_server(server: ScriptedRouteServer) -> None:
    server.topic_names = [f"t{number}" for number in range(7)]
    async with client_of(server.addr) as client:
        assert await client.list_topics() == tuple(server.topic_names)
        assert server.calls["ListTopics"] == 4
        with pytest.raises(ClusterNotFoundError, match="cluster c9 is not known"):
            await client.list_topics("c9")


async def test_constructing_a_client_opens_nothing_and_use_before_the_start_is_an_error_with_the_remedy() -> None:
    client = NameServerClient(["127.0.0.1:9876"])

    with pytest.raises(ClientNotStartedError, match="the client is not started: use it in"):
        await client.topic_route("orders")
    assert client.route_age_seconds("orders") is None
    await client.close()


async def test_a_closed_client_stays_closed(server: ScriptedRouteServer) -> None:
    async with client_of(server.addr) as client:
        await client.topic_route("orders")
    await client.close()

    for use in (client.topic_route("orders"), client.refresh("orders"), client.start(), client.list_clusters()):
        with pytest.raises(ClientClosedError, match="the client is closed: make a new one"):
            await use


async def test_close_ends_lookups_in_bounded_time_with_a_clear_error(server: ScriptedRouteServer) -> None:
    server.hang()
    client = await client_of(server.addr, timeout=60.0).start()
    waiting = [asyncio.create_task(client.topic_route("orders")) for _ in range(3)]
    listing = asyncio.create_task(client.list_topics())
    await server.called(1)
    await server.called(1, "ListTopics")
    started = time.monotonic()
    await client.close()

    assert time.monotonic() - started < 20.0
    for caller in (*waiting, listing):
        with pytest.raises(ClientClosedError):
            await caller


async def test_a_caller_that_is_cancelled_while_the_client_closes_is_cancelled(server: ScriptedRouteServer) -> None:
    server.hang()
    client = await client_of(server.addr).start()
    caller = asyncio.create_task(client.topic_route("orders"))
    await server.called(1)
    caller.cancel()
    await client.close()

    with pytest.raises(asyncio.CancelledError):
        await caller


async def test_use_from_another_event_loop_is_refused(server: ScriptedRouteServer) -> None:
    async with client_of(server.addr) as client:

        def elsewhere() -> None:
            for use in (client.topic_route, client.refresh, client.fetch_route):
                with pytest.raises(WrongEventLoopError, match="one client in each event loop"):
                    asyncio.run(use("orders"))
            with pytest.raises(WrongEventLoopError):
                asyncio.run(client.close())

        await asyncio.to_thread(elsewhere)
        assert (await client.topic_route("orders")).topic == "orders"


async def test_no_task_is_left_after_close(server: ScriptedRouteServer) -> None:
    def own_tasks() -> set[str]:
        return {name for task in asyncio.all_tasks() if (name := task.get_name()).startswith("pointsman-")}

    async with client_of(server.addr) as client:
        server.hang()
        caller = asyncio.create_task(client.topic_route("orders"))
        await server.called(1)
        assert own_tasks() == {
            "pointsman-route-poll",
            "pointsman-route-recheck",
            "pointsman-route-watch",
            "pointsman-lookup-orders",
        }

    assert own_tasks() == set()
    with pytest.raises(ClientClosedError):
        await caller


async def test_a_server_that_comes_back_on_its_port_is_found_again(clock: ManualClock) -> None:
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
    async with client_of(f"127.0.0.1:{port}", clock=clock) as client:
        with pytest.raises(NameServersUnavailableError):
            await client.topic_route("orders")
        async with scripted_route_server(port) as server:
            server.routes["orders"] = topic_route()
            async with asyncio.timeout(10):
                while True:
                    try:
                        route = await client.topic_route("orders")
                    except NameServersUnavailableError:
                        # The channel waits out its reconnect backoff, at most 2 s.
                        await asyncio.sleep(0.05)
                    else:
                        break
    assert route.topic == "orders"
