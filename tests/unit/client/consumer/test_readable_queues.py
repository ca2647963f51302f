"""The queues that a group shares, from the routes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_client.consumer.readable_queues import ReadableQueues
from pointsman_client.core.message_queue import MessageQueue
from tests.kit.client.memory_group import PERM_READ, PERM_WRITE, RoutesInMemory, queue_of, route_of


async def test_the_retry_topic_has_a_queue_for_each_delay_on_every_broker_that_is_read(clock: ManualClock) -> None:
    routes = RoutesInMemory(clock)
    routes.set(route_of("orders", {"a": 1, "b": 2}))
    routes.set(route_of("refunds", {"c": 1}, ids=(1,), perm=PERM_READ))
    found = await ReadableQueues(routes, group="g", with_retry_topic=True).of(["orders", "refunds"])
    retry = found["%RETRY%g"]
    assert retry is not None
    assert list(retry.queues) == [MessageQueue("%RETRY%g", "c1", name, level) for name in "abc" for level in range(16)]


async def test_a_missing_topic_has_no_queues_and_one_that_cannot_be_queried_is_unknown(
    clock: ManualClock,
) -> None:
    routes = RoutesInMemory(clock)
    routes.set(route_of("orders", {"a": 1}))
    readable = ReadableQueues(routes, group="g", with_retry_topic=True)
    gone = (await readable.of(["orders", "refunds"]))["refunds"]
    assert gone is not None
    assert gone.queues == ()
    routes.is_reachable = False
    found = await readable.of(["orders", "refunds"])
    assert found["refunds"] is None
    assert found["%RETRY%g"] is None
    orders = found["orders"]
    assert orders is not None
    assert orders.queues == (queue_of(0),)


async def test_why_a_topic_has_no_queues_is_logged_once(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    routes = RoutesInMemory(clock)
    routes.set(route_of("orders", {"a": 1}, perm=PERM_WRITE))
    routes.set(replace(route_of("static", {"a": 1}), is_static=True))
    readable = ReadableQueues(routes, group="g", with_retry_topic=False)
    for _ in range(2):
        await readable.of(["orders", "refunds", "static"])
    reasons = [record.getMessage() for record in caplog.records]
    assert reasons == [
        "topic orders cannot be consumed: no broker in its route has readable queues of it (perm, readQueueNums)",
        "topic refunds cannot be consumed: topic refunds has no route",
        "topic static cannot be consumed: it is a static topic, which this client does not support",
    ]


async def test_without_a_retry_topic_there_are_only_the_subscribed_ones(clock: ManualClock) -> None:
    routes = RoutesInMemory(clock)
    routes.set(route_of("orders", {"a": 1}))
    assert list(await ReadableQueues(routes, group="g", with_retry_topic=False).of(["orders"])) == ["orders"]


async def test_a_retry_topic_of_rocketmqs_brokers_has_the_queues_of_its_route(clock: ManualClock) -> None:
    routes = RoutesInMemory(clock)
    routes.set(route_of("orders", {"a": 4}))
    readable = ReadableQueues(routes, group="g", with_retry_topic=True, is_retry_topic_routed=True)
    missing = (await readable.of(["orders"]))["%RETRY%g"]
    assert missing is not None
    assert missing.queues == ()
    routes.is_reachable = False
    assert (await readable.of(["orders"]))["%RETRY%g"] is None
    routes.set(route_of("%RETRY%g", {"a": 1, "b": 1}))
    found = (await readable.of(["orders"]))["%RETRY%g"]
    assert found is not None
    assert list(found.queues) == [queue_of(0, topic="%RETRY%g", broker_name=name) for name in "ab"]
