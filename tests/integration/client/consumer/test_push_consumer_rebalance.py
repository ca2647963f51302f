"""Consumers of a group that share queues out, and hand them over; a clock that moves by hand."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.rebalance import ConsumeFrom
from tests.kit.client.consumer_setup import Setup, numbers, queues_of
from tests.kit.client.memory_group import queue_of, route_of
from tests.kit.client.seen import Held, Seen

Q0, Q1 = queue_of(0), queue_of(1)


async def test_w12_a_join_a_leave_growth_and_a_subscription_are_seen_immediately_and_nothing_every_20_seconds(
    setup: Setup,
) -> None:
    first = await setup.join("x", Seen())
    await setup.clock.advance(1)
    assert queues_of(first) == [0, 1]

    second = await setup.join("y", Seen())
    await setup.clock.advance(2)
    assert (queues_of(first), queues_of(second)) == ([0], [1])
    assert setup.hook.triggers["members"] >= 1

    await second.close()
    await setup.clock.advance(2)
    assert queues_of(first) == [0, 1]

    setup.routes.set(route_of("orders", {"a": 4}))
    await setup.clock.advance(2)
    assert queues_of(first) == [0, 1, 2, 3]
    assert setup.hook.triggers["route"] == 1

    setup.routes.set(route_of("refunds", {"a": 1}))
    first.subscribe("refunds", "*")
    await setup.clock.advance(2)
    assert {each["topic"] for each in first.describe()["queues"]} == {"orders", "refunds", "%RETRY%billing"}
    assert (setup.hook.queues["orders"], setup.hook.queues["refunds"]) == (4, 1)
    first.unsubscribe("refunds")
    await setup.clock.advance(2)
    assert "refunds" not in {each["topic"] for each in first.describe()["queues"]}
    assert setup.hook.queues["refunds"] == 0
    assert "subscriptions {'orders': '*', 'refunds': '*'}" in setup.group.log

    # A member without a notice is found only by the periodic check.
    setup.group.members["a@silent"] = lambda: None
    await setup.clock.advance(15)
    before = queues_of(first)
    await setup.clock.advance(6)
    assert (before, queues_of(first)) == ([0, 1, 2, 3], [2, 3])
    assert setup.hook.triggers["period"] == 1


async def test_w12_the_queues_of_a_killed_member_are_taken_over_immediately_though_its_locks_have_not_expired(
    setup: Setup,
) -> None:
    setup.group.members["y@1"] = lambda: None
    setup.group.locks[Q1] = ("y@1", setup.clock.monotonic() + 60)
    await setup.brokers.put(Q1, ["1"])
    seen = Seen()
    await setup.join("x", seen)
    await setup.clock.advance(2)
    assert seen.bodies == []
    setup.group.vanish("y@1")
    await setup.clock.advance(2)
    assert seen.bodies == ["1"]


async def test_w15_a_surplus_member_idles_with_one_warning(setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
    setup.group.members |= {"a@1": lambda: None, "b@1": lambda: None}
    consumer = await setup.join("x", Seen())
    await setup.clock.advance(60)
    assert queues_of(consumer) == []
    assert setup.hook.idle == [True]
    assert sum("x@1 of group billing has no queue of topic orders" in text for text in caplog.messages) == 1
    setup.group.vanish("a@1")
    await setup.clock.advance(3)
    assert setup.hook.idle == [True, False]


async def test_a_queue_that_moves_is_finished_and_committed_before_the_new_owner_begins(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(40, "a"))
    await setup.brokers.put(Q1, numbers(40, "b"))
    first, second = Held(), Seen()
    await setup.join("x", first, consume_concurrency=40)
    await setup.clock.advance(1)
    await setup.join("y", second)
    await setup.clock.advance(3)
    assert second.bodies == []
    first.go.set()
    await setup.until(lambda: len(set(first.bodies) | set(second.bodies)) == 80)
    await setup.clock.advance(10)
    assert len(first.bodies) + len(second.bodies) == 80


async def test_an_ordered_queue_does_not_move_while_its_listener_ignores_its_timeout(setup: Setup) -> None:
    await setup.brokers.put(Q1, ["0", "1", "2"])
    go, second = asyncio.Event(), Seen()

    async def deaf(message: ReceivedMessage) -> None:
        while message.body != b"0" and not go.is_set():
            with suppress(asyncio.CancelledError):
                await go.wait()

    await setup.join("x", deaf, ordered=True, consume_timeout_seconds=10)
    await setup.clock.advance(1)
    await setup.join("y", second, ordered=True)
    try:
        for _ in range(40):
            await setup.clock.advance(5)
        assert second.bodies == []
        assert setup.group.offsets[Q1] == 1
    finally:
        go.set()
    await setup.until(lambda: second.bodies == ["2"])


async def test_an_ordered_queue_whose_listener_outlasts_the_close_is_left_locked(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["0"])
    first, second = await setup.join("x", Held(), ordered=True), Seen()
    await setup.clock.advance(1)
    await setup.join("y", second, ordered=True)
    await setup.clock.advance(1)
    closing = asyncio.ensure_future(first.close())
    await setup.until(closing.done)
    assert set(setup.group.locks) == {Q0, Q1}
    assert setup.group.locks[Q0][0] == "x@1"
    await setup.clock.advance(30)
    assert second.bodies == []
    await setup.until(lambda: second.bodies == ["0"], seconds=70)


async def test_a_message_that_fails_when_its_queue_is_another_members_is_left_to_that_one(setup: Setup) -> None:
    await setup.brokers.put(Q1, ["1"])
    go = asyncio.Event()

    async def slow(_: ReceivedMessage) -> None:
        await go.wait()
        raise RuntimeError("cannot")

    seen = Seen()
    await setup.join("x", slow)
    await setup.clock.advance(1)
    await setup.join("y", seen)
    await setup.clock.advance(10)
    assert seen.bodies == ["1"]
    go.set()
    await setup.clock.advance(20)
    assert not setup.hook.destinations
    assert seen.bodies == ["1"]


async def test_a_concurrent_consumer_does_not_wait_longer_than_the_hand_over_timeout(setup: Setup) -> None:
    await setup.brokers.put(Q1, ["1"])
    setup.group.members["w@1"] = lambda: None
    setup.group.locks[Q1] = ("w@1", float("inf"))
    seen = Seen()
    await setup.join("x", seen)
    await setup.clock.advance(4.5)
    assert seen.bodies == []
    await setup.clock.advance(1.5)
    assert seen.bodies == ["1"]


async def test_a_concurrent_consumer_begins_immediately_when_no_agent_responds_for_the_locks(setup: Setup) -> None:
    setup.group.locks_answer = False
    await setup.brokers.put(Q0, ["1"])
    seen = Seen()
    await setup.join("x", seen)
    await setup.clock.advance(0.5)
    assert seen.bodies == ["1"]


async def test_queues_that_are_released_together_are_committed_and_unlocked_together(setup: Setup) -> None:
    setup.routes.set(route_of("orders", {"a": 200}))
    consumer = await setup.join("x", Seen())
    await setup.until(lambda: len(setup.group.locks) == 216)
    setup.group.commits = setup.group.unlocks = 0
    closing = asyncio.ensure_future(consumer.close())
    await setup.until(closing.done)
    assert not setup.group.locks
    # One call per queue would take two hundred seconds with an agent that does not respond.
    assert setup.group.commits <= 2
    assert setup.group.unlocks <= 2


async def test_where_a_queue_without_an_offset_began_is_committed_before_its_first_message_is_handed_out(
    setup: Setup,
) -> None:
    await setup.brokers.put(Q0, ["1", "2"], age_seconds=61)
    committed: list[int | None] = []

    async def listener(message: ReceivedMessage) -> None:
        committed.append(setup.group.offsets.get(message.queue))

    await setup.join("x", listener, consume_from=ConsumeFrom.LAST_OFFSET)
    await setup.clock.advance(1)
    assert setup.group.offsets[Q0] == 2
    await setup.brokers.put(Q0, ["3"])
    await setup.clock.advance(1)
    assert committed == [2]


async def test_offsets_that_cannot_be_committed_are_logged_once_and_committed_later(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    await setup.brokers.put(Q0, ["1"])
    await setup.join("x", Seen())
    await setup.clock.advance(1)
    setup.group.offsets_answer = False
    await setup.clock.advance(20)
    assert setup.group.offsets[Q0] == 0
    assert caplog.text.count("offsets of group billing on broker c1/a cannot be committed") == 1
    setup.group.offsets_answer = True
    await setup.clock.advance(5)
    assert setup.group.offsets[Q0] == 1
    await setup.clock.advance(10)
    assert caplog.text.count("offsets of group billing on broker c1/a are committed again") == 1


async def test_a_topic_that_is_created_later_is_consumed_from_then_on(setup: Setup) -> None:
    seen = Seen()
    await setup.join("x", seen, subscriptions={"refunds": "*"})
    await setup.clock.advance(5)
    setup.routes.set(route_of("refunds", {"a": 1}))
    await setup.brokers.put(queue_of(0, topic="refunds"), ["1"])
    await setup.clock.advance(2)
    assert seen.bodies == ["1"]


async def test_a_deleted_topic_is_released_and_one_that_cannot_be_looked_up_is_not(setup: Setup) -> None:
    consumer = await setup.join("x", Seen())
    await setup.clock.advance(2)
    route = setup.routes.routes.pop("orders")
    setup.routes.is_reachable = False
    await setup.clock.advance(25)
    assert queues_of(consumer) == [0, 1]
    setup.routes.is_reachable = True
    await setup.clock.advance(25)
    assert queues_of(consumer) == []
    setup.routes.set(route)
    await setup.clock.advance(2)
    assert queues_of(consumer) == [0, 1]


async def test_a_strategy_that_raises_leaves_the_queues_as_they_are(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    class Moody:
        name = "moody"
        is_bad = False

        def allocate(self, request: Any) -> Any:
            if self.is_bad:
                raise ZeroDivisionError
            return request.queues

    moody = Moody()
    consumer = await setup.join("x", Seen(), strategy=moody)
    await setup.clock.advance(2)
    moody.is_bad = True
    await setup.clock.advance(60)
    assert queues_of(consumer) == [0, 1]
    assert "strategy moody failed for topic orders" in caplog.text
