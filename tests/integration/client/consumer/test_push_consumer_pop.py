"""A push consumer that leases its messages, against brokers and a group in memory, with a clock that moves by hand."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from pointsman.group_topics import dlq_topic, retry_topic
from pointsman_client.consumer.popped_feed import PoppedFeed
from pointsman_client.consumer.push_consumer import PushConsumer
from pointsman_client.core.allocation import AveragelyByCircle
from pointsman_client.core.lease import ConsumeMode
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.rebalance import MessageModel
from pointsman_client.core.retry_rules import ConsumeResult, Reject
from pointsman_client.core.subscription import SqlFilter
from pointsman_client.errors import BrokerUnreachableError, InvalidOptionError
from pointsman_client.ports.transport import Reader
from tests.kit.client.consumer_setup import Setup, numbers
from tests.kit.client.memory_group import CLUSTER, addr_of, queue_of, route_of
from tests.kit.client.seen import Held, Seen

Q0, Q1 = queue_of(0), queue_of(1)


async def join(setup: Setup, name: str, listener: Any, **settings: Any) -> PushConsumer:
    return await setup.join(name, listener, consume_mode=ConsumeMode.POP, **settings)


async def pass_seconds(setup: Setup, seconds: int) -> None:
    for _ in range(seconds):
        await setup.clock.advance(1)


async def dead_letters(setup: Setup) -> Sequence[ReceivedMessage]:
    dead = MessageQueue(dlq_topic("billing"), CLUSTER, "a", 0)
    pulled = await setup.brokers.transport.pull(
        addr_of("a"), dead, 0, max_messages=9, wait_seconds=0, timeout_seconds=1, reader=Reader("billing")
    )
    return pulled.messages


async def test_more_members_than_queues_share_the_messages(setup: Setup) -> None:
    setup.routes.set(route_of("orders", {"a": 1}))
    held = [Held(), Held(), Held()]
    for name, listener in zip("xyz", held, strict=True):
        await join(setup, name, listener, pop_threshold=2, consume_concurrency=2)
    await setup.brokers.put(Q0, numbers(6))
    await setup.until(lambda: sum(each.running for each in held) == 6)
    assert [each.running for each in held] == [2, 2, 2]
    for each in held:
        each.go.set()
    await setup.until(lambda: setup.hook.acknowledged_messages["ok"] == 6)
    await pass_seconds(setup, 6)
    assert setup.group.offsets[Q0] == 6
    assert sorted(body for each in held for body in each.bodies) == numbers(6)


async def test_a_message_that_comes_later_reaches_the_listener(setup: Setup) -> None:
    seen = Seen()
    await join(setup, "x", seen)
    await pass_seconds(setup, 40)
    await setup.brokers.put(Q1, ["late"])
    await setup.until(lambda: seen.bodies == ["late"], seconds=1)


async def test_a_slow_message_holds_up_none_behind_it_and_keeps_its_lease(setup: Setup) -> None:
    setup.routes.set(route_of("orders", {"a": 1}))
    blocked, seen = Held(), []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.body.decode())
        if message.body == b"0":
            await blocked(message)

    await setup.brokers.put(Q0, numbers(200))
    await join(setup, "x", listener, invisible_seconds=10, consume_concurrency=4)
    await setup.until(lambda: len(seen) == 200)
    await pass_seconds(setup, 300)
    assert len(seen) == 200
    assert setup.group.offsets[Q0] == 199
    blocked.go.set()
    await pass_seconds(setup, 60)
    assert setup.group.offsets[Q0] == 200
    assert len(seen) == 200


async def test_messages_that_wait_for_a_slow_listener_keep_their_leases_and_no_further_ones_are_requested(
    setup: Setup,
) -> None:
    held, other = Held(), Seen()
    consumer = await join(setup, "x", held, invisible_seconds=10, pop_threshold=8, consume_concurrency=2)
    await setup.brokers.put(Q0, numbers(20))
    await setup.until(lambda: held.running == 2)
    described = consumer.describe()
    assert (described["inFlight"], described["waiting"], described["unacknowledged"]) == (2, 6, 0)
    await join(setup, "y", other)
    await pass_seconds(setup, 120)
    assert len(other.bodies) == 12
    assert held.most == 2
    held.go.set()
    await setup.until(lambda: len(held.bodies) == 8)
    assert sorted(held.bodies + other.bodies, key=int) == numbers(20)


async def test_a_failed_message_comes_back_with_growing_delays_and_becomes_a_dead_letter(
    setup: Setup, caplog: Any
) -> None:
    await setup.brokers.put(Q0, ["bad"])
    calls: list[tuple[int, float]] = []
    letters: list[tuple[str, str]] = []

    async def listener(message: ReceivedMessage) -> None:
        calls.append((message.reconsume_times, setup.clock.monotonic()))
        raise ValueError("no such customer")

    await join(
        setup,
        "x",
        listener,
        max_reconsume_times=2,
        on_dead_letter=lambda message, error: letters.append((message.message_id, error)),
    )
    await setup.until(lambda: letters, seconds=60)
    await pass_seconds(setup, 300)
    assert [times for times, _ in calls] == [0, 1, 2]
    waits = [after - before for (_, before), (_, after) in pairwise(calls)]
    assert waits == [pytest.approx(10, abs=1.1), pytest.approx(30, abs=1.1)]
    assert letters == [("id-bad", "ValueError: no such customer")]
    (letter,) = await dead_letters(setup)
    assert (letter.body, letter.reconsume_times, letter.error) == (b"bad", 3, "ValueError: no such customer")
    assert setup.hook.destinations == {"retry": 2, "dlq": 1}
    assert setup.hook.results == {"raised": 3}
    assert setup.hook.acknowledged_messages == {"ok": 1}
    assert "delivered again" not in caplog.text
    assert setup.group.offsets[Q0] == 1


async def test_a_rejected_message_is_a_dead_letter_at_its_first_delivery(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["bad", "good"])

    async def listener(message: ReceivedMessage) -> None:
        if message.body == b"bad":
            raise Reject("no such customer")

    await join(setup, "x", listener)
    await setup.until(lambda: setup.hook.results == {"success": 1, "rejected": 1})
    await pass_seconds(setup, 10)
    assert [letter.error for letter in await dead_letters(setup)] == ["no such customer"]
    assert setup.group.offsets[Q0] == 2


async def test_a_call_that_takes_too_long_is_a_failure_and_its_late_end_has_no_effect(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["a"])
    go, calls = threading.Event(), []

    def listener(message: ReceivedMessage) -> None:
        calls.append(message.reconsume_times)
        if len(calls) == 1:
            go.wait(20)

    await join(setup, "x", listener, consume_timeout_seconds=15, invisible_seconds=10)
    try:
        await setup.until(lambda: setup.hook.results["timeout"])
        assert calls == [0]
        go.set()
        await pass_seconds(setup, 5)
        assert setup.group.offsets[Q0] == 0
        await setup.until(lambda: calls == [0, 1])
        await setup.until(lambda: setup.hook.acknowledged_messages["ok"] == 1)
    finally:
        go.set()


async def test_a_closed_member_finishes_what_its_listener_has_and_hands_back_what_waits(setup: Setup) -> None:
    held, other = Held(), Seen()
    consumer = await join(setup, "x", held, consume_concurrency=2, max_reconsume_times=0)
    await setup.brokers.put(Q0, numbers(6))
    await setup.until(lambda: held.running == 2)
    closing = asyncio.ensure_future(consumer.close())
    await setup.clock.advance(0.5)
    assert not closing.done()
    held.go.set()
    for _ in range(20):
        await setup.clock.advance(0.1)
    assert closing.done()
    assert setup.group.members == {}
    await join(setup, "y", other, max_reconsume_times=0)
    await setup.until(lambda: len(other.bodies) == 4, seconds=5)
    assert sorted(held.bodies + other.bodies) == numbers(6)
    assert {message.reconsume_times for message in other.messages} == {1}
    assert await dead_letters(setup) == ()


async def test_the_messages_of_a_member_that_is_gone_come_back_after_its_leases(setup: Setup) -> None:
    held, other = Held(), Seen()
    consumer = await join(setup, "x", held, consume_concurrency=2, invisible_seconds=20, close_timeout_seconds=1)
    await setup.brokers.put(Q0, numbers(2))
    await setup.until(lambda: held.running == 2)
    closing = asyncio.ensure_future(consumer.close())
    await pass_seconds(setup, 3)
    await closing
    await join(setup, "y", other)
    await pass_seconds(setup, 10)
    assert other.bodies == []
    await pass_seconds(setup, 12)
    assert sorted(other.bodies) == numbers(2)


async def test_an_acknowledgement_is_repeated_until_the_broker_confirms(setup: Setup, caplog: Any) -> None:
    held = Held()
    await join(setup, "x", held, pull_wait_seconds=1)
    await setup.brokers.put(Q0, ["a"])
    await setup.until(lambda: held.running == 1)
    setup.brokers.transport.take_down(addr_of("a"))
    held.go.set()
    await pass_seconds(setup, 5)
    assert setup.hook.acknowledged_messages["BROKER_UNREACHABLE"] >= 2
    setup.brokers.transport.bring_up(addr_of("a"))
    await setup.until(lambda: setup.hook.acknowledged_messages["ok"] == 1)
    await pass_seconds(setup, 100)
    assert held.bodies == ["a"]
    assert caplog.text.count("cannot acknowledge messages") == 1


async def test_a_message_whose_lease_ended_is_not_handed_out_here(setup: Setup, caplog: Any) -> None:
    held, other = Held(), Held()
    consumer = await join(setup, "x", held, invisible_seconds=10, consume_concurrency=1)
    await setup.brokers.put(Q0, numbers(2))
    await setup.until(lambda: held.running == 1)
    setup.brokers.transport.take_down(addr_of("a"))
    await pass_seconds(setup, 12)
    setup.brokers.transport.bring_up(addr_of("a"))
    await join(setup, "y", other)
    await setup.until(lambda: other.running == 2)
    held.go.set()
    await pass_seconds(setup, 10)
    other.go.set()
    assert held.bodies == ["0"]
    assert consumer.describe()["waiting"] == 0
    assert "group billing finished messages that are delivered again, too: the lease of id-0 is over" in caplog.text


async def test_a_failure_that_the_broker_cannot_note_comes_back_after_the_lease(setup: Setup, caplog: Any) -> None:
    calls: list[int] = []

    async def listener(message: ReceivedMessage) -> ConsumeResult:
        calls.append(message.reconsume_times)
        if len(calls) > 1:
            return ConsumeResult.SUCCESS
        setup.brokers.transport.take_down(addr_of("a"))
        return ConsumeResult.RECONSUME_LATER

    await setup.brokers.put(Q0, ["a"])
    await join(setup, "x", listener, invisible_seconds=20)
    await setup.until(lambda: "comes back when its lease is over" in caplog.text)
    setup.brokers.transport.bring_up(addr_of("a"))
    await pass_seconds(setup, 15)
    assert calls == [0]
    await setup.until(lambda: calls == [0, 1])


async def test_a_batch_listener_gets_messages_of_one_queue_and_its_failure_is_that_of_each(setup: Setup) -> None:
    batches: list[list[str]] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
        batches.append([message.body.decode() for message in messages])
        return ConsumeResult.RECONSUME_LATER if len(batches) == 1 else ConsumeResult.SUCCESS

    await setup.brokers.put(Q0, numbers(6))
    await join(setup, "x", None, batch_listener=listener, consume_message_batch_max_size=4, consume_concurrency=1)
    await setup.until(lambda: setup.hook.acknowledged_messages["ok"] == 6)
    assert batches[:2] == [["0", "1", "2", "3"], ["4", "5"]]
    assert sorted(body for batch in batches[2:] for body in batch) == numbers(4)
    assert setup.hook.destinations == {"retry": 4}


async def test_an_ordered_group_works_on_one_message_of_a_queue_and_repeats_it_in_place(setup: Setup) -> None:
    setup.routes.set(route_of("orders", {"a": 1}))
    seen: list[tuple[str, str, int]] = []
    running = 0

    def listener_of(name: str) -> Any:
        async def listener(message: ReceivedMessage) -> None:
            nonlocal running
            running += 1
            assert running == 1
            seen.append((name, message.body.decode(), message.reconsume_times))
            await setup.clock.sleep(0.5)
            running -= 1
            if message.body == b"1" and message.reconsume_times < 2:
                raise ValueError("not yet")

        return listener

    await setup.brokers.put(Q0, numbers(5))
    for name in "xy":
        await join(setup, name, listener_of(name), ordered=True)
    await setup.until(lambda: setup.hook.acknowledged_messages["ok"] == 5)
    bodies = [(body, times) for _, body, times in seen]
    assert bodies == [("0", 0), ("1", 0), ("1", 1), ("1", 2), ("2", 0), ("3", 0), ("4", 0)]


async def test_an_ordered_message_that_exhausts_its_retries_is_a_dead_letter_and_the_next_follows(setup: Setup) -> None:
    setup.routes.set(route_of("orders", {"a": 1}))
    seen = Seen(lambda message: ConsumeResult.SUSPEND if message.body == b"0" else None)
    await setup.brokers.put(Q0, numbers(2))
    consumer = await join(setup, "x", seen, ordered=True, max_reconsume_times=1)
    await setup.until(lambda: consumer.describe()["blocked"])
    await setup.until(lambda: setup.hook.acknowledged_messages["ok"] == 2)
    assert seen.bodies == ["0", "0", "1"]
    assert [letter.body for letter in await dead_letters(setup)] == [b"0"]


async def test_an_ordered_queue_whose_lease_ended_begins_with_the_first_message_again(setup: Setup) -> None:
    setup.routes.set(route_of("orders", {"a": 1}))
    held, seen = Held(), Seen()
    await setup.brokers.put(Q0, numbers(3))
    await join(setup, "x", held, ordered=True, invisible_seconds=10)
    await setup.until(lambda: held.running == 1)
    setup.brokers.transport.take_down(addr_of("a"))
    await pass_seconds(setup, 12)
    setup.brokers.transport.bring_up(addr_of("a"))
    await join(setup, "y", seen, ordered=True)
    await setup.until(lambda: len(seen.bodies) == 3)
    assert seen.bodies == numbers(3)
    held.go.set()
    await pass_seconds(setup, 30)
    assert held.bodies == ["0"]


async def test_members_with_a_listener_and_those_that_receive_share_a_group(setup: Setup) -> None:
    seen = Seen()
    await setup.brokers.put(Q0, numbers(40))
    receiving = await setup.join_leasing("x")
    found = await receiving.receive(10)
    await receiving.ack(*found)
    await join(setup, "y", seen)
    await setup.until(lambda: len(seen.bodies) == 30)
    assert sorted([*seen.bodies, *(message.body.decode() for message in found)], key=int) == numbers(40)
    assert setup.group.members.keys() == {"x@1", "y@1"}


async def test_a_group_that_stores_offsets_is_a_problem_of_its_topic_alone(setup: Setup, caplog: Any) -> None:
    setup.routes.set(route_of("refunds", {"a": 1}))
    refunds = queue_of(0, topic="refunds")
    await setup.brokers.put(Q0, numbers(3))
    await setup.brokers.put(refunds, ["r"])
    setup.group.offsets[Q0] = 1
    seen = Seen()
    consumer = await join(setup, "x", seen, subscriptions=["orders", "refunds"])
    await setup.until(lambda: seen.bodies == ["r"])
    await pass_seconds(setup, 60)
    assert seen.bodies == ["r"]
    (problem,) = consumer.health().problems
    assert problem.startswith("group billing cannot read topic orders: it has committed offset 1 of ")
    assert caplog.text.count("group billing cannot read topic orders") == 1
    del setup.group.offsets[Q0]
    await setup.until(lambda: sorted(seen.bodies) == ["0", "1", "2", "r"])
    assert consumer.health().is_ready


async def test_a_group_is_read_where_its_broker_states_pop(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    modes = {"orders": ConsumeMode.PULL}

    async def consume_mode(_addr: str, topic: str, **_: object) -> ConsumeMode:
        return modes[topic]

    monkeypatch.setattr(setup.brokers.transport, "consume_mode", consume_mode, raising=False)
    await setup.brokers.put(Q0, numbers(2))
    seen = Seen()
    consumer = await join(setup, "x", seen)
    await setup.until(lambda: not consumer.health().is_ready)
    (problem,) = consumer.health().problems
    assert problem.startswith("group billing cannot read topic orders: broker a-0:10911 has the group pull it, ")
    assert problem in caplog.text
    assert setup.group.members == {}
    modes["orders"] = ConsumeMode.POP
    await setup.until(lambda: sorted(seen.bodies) == numbers(2), seconds=10)
    assert consumer.health().is_ready
    assert list(setup.group.members) == ["x@1"]


async def test_the_retry_topic_of_members_that_pulled_is_not_read(setup: Setup) -> None:
    await setup.brokers.put(MessageQueue(retry_topic("billing"), CLUSTER, "a", 0), ["failed before"])
    await setup.brokers.put(Q0, ["a"])
    seen = Seen()
    await join(setup, "x", seen)
    await pass_seconds(setup, 30)
    assert seen.bodies == ["a"]


async def test_messages_of_a_topic_that_is_no_longer_subscribed_are_handed_back(setup: Setup) -> None:
    held, seen = Held(), Seen()
    consumer = await join(setup, "x", held, consume_concurrency=1)
    await setup.brokers.put(Q0, numbers(3))
    await setup.until(lambda: held.running == 1)
    consumer.unsubscribe("orders")
    await join(setup, "y", seen)
    await setup.until(lambda: len(seen.bodies) == 2, seconds=5)
    held.go.set()
    await setup.until(lambda: setup.hook.acknowledged_messages["ok"] == 3)
    assert held.bodies == ["0"]


async def test_a_broker_that_was_down_is_read_again(setup: Setup) -> None:
    seen = Seen()
    await setup.brokers.put(Q0, ["before"])
    consumer = await join(setup, "x", seen)
    await setup.until(lambda: seen.bodies == ["before"])
    setup.brokers.transport.take_down(addr_of("a"))
    await setup.until(lambda: not consumer.health().is_ready, seconds=60)
    (problem,) = consumer.health().problems
    assert problem.startswith("none of its brokers can be read; ")
    setup.brokers.transport.bring_up(addr_of("a"))
    await setup.brokers.put(Q0, ["after"])
    await setup.until(lambda: seen.bodies == ["before", "after"], seconds=60)
    assert consumer.health().is_ready


async def test_a_call_that_runs_for_long_is_a_problem_and_in_the_readings(setup: Setup) -> None:
    held = Held()
    await setup.brokers.put(Q0, ["a"])
    consumer = await join(setup, "x", held)
    await setup.until(lambda: held.running == 1)
    await pass_seconds(setup, 70)
    assert "a listener call has run for 7" in " ".join(consumer.health().problems)
    assert setup.hook.running.keys() == {Q0}
    feed = consumer._core
    assert isinstance(feed, PoppedFeed)
    reading = feed._member.reading(lambda _: True).queues[Q0]
    assert reading.oldest_call_seconds == pytest.approx(70, abs=1)
    assert reading.in_flight == 1
    held.go.set()


async def test_an_unexpected_error_of_a_receive_does_not_end_the_consumer(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    seen = Seen()
    consumer = await join(setup, "x", seen, pull_wait_seconds=1)
    feed = consumer._core
    assert isinstance(feed, PoppedFeed)
    with monkeypatch.context() as patched:
        patched.setattr(feed._member, "receive", None)
        await pass_seconds(setup, 3)
    assert "receiving for group billing failed; it is tried again" in caplog.text
    await setup.brokers.put(Q0, ["a"])
    await setup.until(lambda: seen.bodies == ["a"])
    caplog.clear()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"message_model": MessageModel.BROADCASTING}, "message_model = .* must be CLUSTERING with ConsumeMode.POP"),
        ({"strategy": AveragelyByCircle()}, "strategy = 'AveragelyByCircle' must be None with ConsumeMode.POP"),
        ({"invisible_seconds": 9}, "invisible_seconds = 9 must be from 10 to 43200"),
        ({"pop_threshold": 0}, "pop_threshold = 0 must be"),
        ({"consume_mode": "pop"}, "consume_mode = 'pop' must be a ConsumeMode"),
        ({"subscriptions": {"orders": SqlFilter("amount > 500")}}, "which only RocketMQ brokers evaluate"),
    ],
)
async def test_options_that_do_not_fit_are_refused(setup: Setup, settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidOptionError, match=problem):
        await setup.join("x", Seen(), **{"consume_mode": ConsumeMode.POP} | settings)


async def test_a_transport_that_cannot_lease_is_refused(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(type(setup.brokers.transport), "pop")
    with pytest.raises(InvalidOptionError, match="cannot lease messages"):
        await join(setup, "x", Seen())


async def test_a_broker_that_is_down_does_not_delay_a_close(setup: Setup) -> None:
    held = Held()
    consumer = await join(setup, "x", held, consume_concurrency=1, close_timeout_seconds=4)
    await setup.brokers.put(Q0, numbers(3))
    await setup.until(lambda: held.running == 1)
    setup.brokers.transport.take_down(addr_of("a"))
    with pytest.raises(BrokerUnreachableError):
        await setup.brokers.transport.min_offset(addr_of("a"), Q0, timeout_seconds=1)
    held.go.set()
    closing = asyncio.ensure_future(consumer.close())
    for _ in range(10):
        await setup.clock.advance(0.5)
    assert closing.done()
