"""Sends by the weights of brokers, with routes that change while the producer runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import pytest

from pointsman_client.core.message import Message
from tests.kit.client.producing import A, Shop, producing, put_route
from tests.kit.name_server.scripted_routes import ScriptedRouteServer, scripted_route_server, with_digest
from tests.kit.waiting import eventually

HELLO = Message("orders", b"hello")


@pytest.fixture
async def server() -> AsyncIterator[ScriptedRouteServer]:
    async with scripted_route_server() as server:
        yield server


def put_weights(server: ScriptedRouteServer, weights: dict[str, int], *, write: dict[str, int] | None = None) -> None:
    """Set the route; a weight of 0 is that of a broker whose agent does not know weights."""
    put_route(server, *weights, write=2)
    route = server.routes["orders"]
    for data in route.queue_datas:
        data.queue_weight = weights[data.broker_name]
        data.write_queue_nums = (write or {}).get(data.broker_name, 2)
    server.routes["orders"] = with_digest(route)


async def shares(shop: Shop, sends: int = 80) -> Counter[str]:
    return Counter([(await shop.producer.send(HELLO)).queue.broker_name for _ in range(sends)])


async def test_a_broker_beside_one_without_weight_gets_its_share(server: ScriptedRouteServer) -> None:
    put_weights(server, {"a": 3, "b": 0})
    async with producing(server) as shop:
        got = await shares(shop)
        queues = Counter(call.queue for call in shop.transport.calls)

    assert got["a"] == pytest.approx(60, abs=1)
    assert len(queues) == 4
    assert {round(count / 10) for queue, count in queues.items() if queue.broker_name == "a"} == {3}


async def test_a_weight_that_changes_while_the_producer_runs_applies(server: ScriptedRouteServer) -> None:
    put_weights(server, {"a": 0, "b": 0})
    async with producing(server) as shop:
        even = await shares(shop)
        await eventually(lambda: shop.producer.client.describe("orders")["watched"], clock=shop.clock)
        put_weights(server, {"a": 7, "b": 1})
        server.push("orders")
        # At a clock that stands still: by the watch, not by a poll.
        await eventually(lambda: _weights(shop) == {("c1", "a"): 7, ("c1", "b"): 1})
        heavy = await shares(shop)
        put_weights(server, {"a": 7, "b": 7})
        server.push("orders")
        await eventually(lambda: _weights(shop) == {})
        even_again = await shares(shop)

    assert even["a"] == even_again["a"] == 40
    assert heavy["a"] == pytest.approx(70, abs=1)


async def test_a_heavy_broker_that_loses_queues_gets_less_and_only_what_it_has(server: ScriptedRouteServer) -> None:
    put_weights(server, {"a": 3, "b": 1}, write={"a": 4, "b": 4})
    async with producing(server) as shop:
        await shares(shop)
        put_weights(server, {"a": 3, "b": 1}, write={"a": 1, "b": 4})
        await shop.producer.client.refresh("orders")
        shop.transport.calls.clear()
        got = await shares(shop, 70)
        numbers = {call.queue.queue_id for call in shop.transport.calls if call.queue.broker_name == "a"}

    assert got["a"] == pytest.approx(30, abs=1)
    assert numbers == {0}


async def test_a_heavy_broker_that_fails_is_avoided(server: ScriptedRouteServer) -> None:
    put_weights(server, {"a": 100, "b": 1})
    async with producing(server) as shop:
        shop.transport.unreachable(A)
        got = await shares(shop, 20)
        tried = Counter(call.addr for call in shop.transport.calls)

    assert got == {"b": 20}
    assert tried[A] == 1


async def test_a_keys_queue_does_not_depend_on_weights(server: ScriptedRouteServer) -> None:
    placed = []
    for weights in ({"a": 0, "b": 0}, {"a": 100, "b": 1}):
        put_weights(server, weights)
        async with producing(server) as shop:
            placed.append([(await shop.producer.send_by_key(HELLO, f"key-{n}")).queue for n in range(50)])

    assert placed[0] == placed[1]


def _weights(shop: Shop) -> object:
    cached = shop.producer.client.cached_route("orders")
    return None if cached is None else cached.queue_weights
