"""The simple consumer against brokers and a group in memory, with a clock that moves by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from pointsman.group_topics import dlq_topic
from pointsman.manual_clock import ManualClock
from pointsman_client.consumer.simple_consumer import SimpleConsumer
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.rebalance import ConsumeFrom
from pointsman_client.core.subscription import SqlFilter
from pointsman_client.errors import (
    BrokerUnreachableError,
    ClientClosedError,
    GroupModeError,
    InvalidOptionError,
    LeaseExpiredError,
)
from pointsman_client.ports.transport import Reader
from tests.kit.client.consumer_setup import Setup, numbers
from tests.kit.client.memory_group import CLUSTER, addr_of, queue_of, route_of

Q0, Q1 = queue_of(0), queue_of(1)
ResultT = TypeVar("ResultT")


async def passing(work: Coroutine[Any, Any, ResultT], clock: ManualClock, seconds: float = 1.0) -> ResultT:
    """Let time pass while ``work`` runs."""
    running = asyncio.ensure_future(work)
    await clock.advance(seconds)
    return await running


async def received(consumer: SimpleConsumer, setup: Setup, most: int = 32, **more: Any) -> tuple[ReceivedMessage, ...]:
    return await passing(consumer.receive(most, timeout_seconds=1.0, **more), setup.clock)


def bodies(messages: tuple[ReceivedMessage, ...]) -> list[str]:
    return sorted(message.body.decode() for message in messages)


async def test_members_share_a_queue_and_each_message_is_delivered_to_one_of_them(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(6))
    members = [await setup.join_leasing(name) for name in "xyz"]
    found = [bodies(await received(member, setup, 2)) for member in members]
    assert sorted(body for each in found for body in each) == numbers(6)
    assert [len(each) for each in found] == [2, 2, 2]


async def test_a_condition_that_no_broker_evaluates_is_refused(setup: Setup) -> None:
    with pytest.raises(InvalidOptionError, match="which only RocketMQ brokers evaluate"):
        await setup.join_leasing("x", subscriptions={"orders": SqlFilter("amount > 500")})


async def test_all_queues_and_brokers_are_read(setup: Setup) -> None:
    setup.routes.set(route_of("orders", {"a": 2, "b": 2}))
    for number, (name, queue_id) in enumerate([("a", 0), ("a", 1), ("b", 0), ("b", 1)]):
        await setup.brokers.put(queue_of(queue_id, broker_name=name), [str(number)])
    consumer = await setup.join_leasing("x")
    assert bodies(await received(consumer, setup)) == numbers(4)


async def test_a_message_that_is_not_acknowledged_in_time_comes_back_to_any_member(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["a", "b"])
    x, y = await setup.join_leasing("x"), await setup.join_leasing("y")
    first = await received(x, setup, invisible_seconds=10)
    await x.ack(first[0])
    assert await received(y, setup) == ()
    await setup.clock.advance(8.5)
    (again,) = await received(y, setup)
    assert (again.body, again.reconsume_times) == (first[1].body, 1)
    with pytest.raises(LeaseExpiredError, match=r"the lease of id-b is over"):
        await x.ack(first[1])
    assert setup.hook.acknowledged_messages == {"ok": 1, "LEASE_EXPIRED": 1}


async def test_a_receive_waits_for_a_message_and_returns_none_after_its_timeout(setup: Setup) -> None:
    consumer = await setup.join_leasing("x")
    waiting = asyncio.ensure_future(consumer.receive(timeout_seconds=40))
    await setup.clock.advance(20)
    assert not waiting.done()
    await setup.brokers.put(Q1, ["a"])
    await setup.clock.advance(0)
    (message,) = await waiting
    await consumer.ack(message)
    assert await passing(consumer.receive(timeout_seconds=40), setup.clock, 40) == ()


async def test_a_slow_handler_keeps_its_message_if_its_lease_is_renewed(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["a"])
    x = await setup.join_leasing("x", renew=True, invisible_seconds=10)
    y = await setup.join_leasing("y")
    messages = await received(x, setup)
    for _ in range(50):
        await setup.clock.advance(1)
    assert await received(y, setup) == ()
    await x.ack(*messages)
    for _ in range(20):
        await setup.clock.advance(1)
    assert await received(y, setup) == ()


async def test_a_lease_is_not_renewed_for_longer_than_the_limit(setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
    await setup.brokers.put(Q0, ["a"])
    x = await setup.join_leasing("x", renew=True, invisible_seconds=10, max_renew_seconds=30)
    y = await setup.join_leasing("y")
    await received(x, setup)
    for _ in range(29):
        await setup.clock.advance(1)
    assert await received(y, setup) == ()
    for _ in range(11):
        await setup.clock.advance(1)
    assert bodies(await received(y, setup)) == ["a"]
    assert "the lease of message id-a of " in caplog.text


async def test_the_lease_of_a_killed_receiver_ends(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["a"])
    x, y = await setup.join_leasing("x", renew=True, invisible_seconds=10), await setup.join_leasing("y")
    await received(x, setup)
    await passing(x.close(), setup.clock, 5)
    await setup.clock.advance(10)
    assert bodies(await received(y, setup)) == ["a"]


async def test_a_changed_duration_brings_a_message_back_later_or_sooner(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["a", "b"])
    consumer = await setup.join_leasing("x", renew=True)
    a, b = await received(consumer, setup, invisible_seconds=30)
    await consumer.change_invisible_duration(a, 10)
    await consumer.change_invisible_duration(b, 100)
    await setup.clock.advance(10)
    assert bodies(await received(consumer, setup, invisible_seconds=1000)) == ["a"]
    await setup.clock.advance(87)
    assert await received(consumer, setup) == ()
    await setup.clock.advance(2)
    assert bodies(await received(consumer, setup)) == ["b"]


async def test_after_its_last_delivery_a_message_is_a_dead_letter(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["a"])
    letters: list[tuple[str, str]] = []
    consumer = await setup.join_leasing(
        "x",
        max_reconsume_times=1,
        invisible_seconds=10,
        on_dead_letter=lambda message, error: letters.append((message.message_id, error)),
    )
    for delivery in range(2):
        (message,) = await received(consumer, setup)
        assert message.reconsume_times == delivery
        await setup.clock.advance(10)
    assert await received(consumer, setup) == ()
    assert letters == [("id-a", "not acknowledged after 2 deliveries")]
    await setup.clock.advance(60)
    assert await received(consumer, setup) == ()
    dead = MessageQueue(dlq_topic("billing"), CLUSTER, "a", 0)
    pulled = await setup.brokers.transport.pull(
        addr_of("a"), dead, 0, max_messages=9, wait_seconds=0, timeout_seconds=1, reader=Reader("billing")
    )
    (letter,) = pulled.messages
    assert (letter.topic, letter.body, letter.reconsume_times) == ("orders", b"a", 2)
    assert (letter.origin, letter.error) == (f"{CLUSTER}/a/orders/0@0", "not acknowledged after 2 deliveries")
    assert setup.hook.destinations == {"dlq": 1}


async def test_an_iteration_acknowledges_a_message_when_the_next_one_is_requested(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(4))
    consumer = await setup.join_leasing("x", invisible_seconds=20)
    seen = []
    async for message in consumer:
        seen.append(message.body.decode())
        if len(seen) == 2:
            await consumer.change_invisible_duration(message, 10)
        if len(seen) == 4:
            break
    assert seen == numbers(4)
    assert setup.hook.acknowledged_messages == {"ok": 2}
    await setup.clock.advance(20)
    assert bodies(await received(consumer, setup)) == ["1", "3"]


async def test_an_iteration_does_not_hand_out_a_message_whose_lease_is_over(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(2))
    consumer = await setup.join_leasing("x", invisible_seconds=10)
    assert (await anext(consumer)).body == b"0"
    await setup.clock.advance(10)
    again = [await passing(anext(consumer), setup.clock) for _ in range(1)]
    assert [(message.body, message.reconsume_times) for message in again] == [(b"1", 1)]


async def test_an_iteration_that_waits_ends_with_a_close(setup: Setup) -> None:
    consumer = await setup.join_leasing("x")
    waiting = asyncio.ensure_future(anext(consumer, None))
    await setup.clock.advance(40)
    assert not waiting.done()
    await passing(consumer.close(), setup.clock, 5)
    assert await waiting is None
    with pytest.raises(ClientClosedError):
        await consumer.receive()


async def test_only_messages_with_a_wanted_tag_are_received_and_the_others_are_finished(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["a"], tags="paid")
    await setup.brokers.put(Q0, ["b"], tags="open")
    consumer = await setup.join_leasing("x", subscriptions={"orders": "paid"})
    assert bodies(await received(consumer, setup)) == ["a"]
    assert setup.hook.filtered_messages == 1
    await setup.clock.advance(6)
    assert setup.group.offsets[Q0] == 1


async def test_the_committed_offset_of_a_group_is_the_end_minus_its_unfinished_messages(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(10))
    consumer = await setup.join_leasing("x")
    messages = await received(consumer, setup, 4)
    await consumer.ack(*messages[1:4])
    await setup.clock.advance(6)
    assert setup.group.offsets[Q0] == 3  # of 10: 6 undelivered and 1 unfinished
    reading = consumer._member.reading(lambda queue: queue == Q0).queues[Q0]  # type: ignore[union-attr]  # started
    assert (reading.position, reading.committed, reading.in_flight) == (4, 3, 1)


async def test_a_new_group_begins_where_the_option_says(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["old"], age_seconds=1000)
    await setup.brokers.put(Q0, ["new"])
    consumer = await setup.join_leasing("x", consume_from=ConsumeFrom.LAST_OFFSET)
    assert bodies(await received(consumer, setup)) == ["new"]


async def test_a_group_that_stores_offsets_is_refused_and_its_members_are_not_disturbed(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["a", "b"])
    setup.group.offsets[Q0] = 1
    consumer = await setup.join_leasing("x")
    with pytest.raises(GroupModeError, match=r"^group billing cannot read topic orders: it has committed offset 1 of "):
        await consumer.receive()
    assert setup.group.members == {}


async def test_messages_of_one_topic_are_received_although_another_is_refused(setup: Setup) -> None:
    setup.routes.set(route_of("refunds", {"a": 1}))
    refunds = queue_of(0, topic="refunds")
    await setup.brokers.put(refunds, numbers(4))
    setup.group.offsets[Q0] = 0
    consumer = await setup.join_leasing("x", subscriptions=["orders", "refunds"], invisible_seconds=10)
    found = [await received(consumer, setup, 1) for _ in range(4)]
    assert [bodies(messages) for messages in found] == [["0"], ["1"], ["2"], ["3"]]
    with pytest.raises(GroupModeError, match="cannot read topic orders"):
        await consumer.receive()
    (problem,) = consumer.health().problems
    assert problem.startswith("group billing cannot read topic orders: it has committed offset 0 of ")


async def test_a_group_that_leases_is_refused_to_consumers_that_store_offsets(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    await setup.brokers.put(Q0, numbers(3))
    leasing = await setup.join_leasing("x")
    await received(leasing, setup, 1)
    pulling = await setup.join_pulling("y")
    assert await passing(pulling.poll(timeout_seconds=5), setup.clock, 10) == ()
    assert "group billing cannot read topic orders: it leases the messages of " in caplog.text


async def test_a_broker_that_lost_its_data_is_read_from_its_first_message(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(5))
    consumer = await setup.join_leasing("x")
    await consumer.ack(*await received(consumer, setup))
    await setup.clock.advance(6)
    setup.brokers.transport.lose_messages(addr_of("a"))
    await setup.brokers.put(Q0, ["new"])
    assert bodies(await received(consumer, setup)) == ["new"]
    await setup.clock.advance(6)
    assert setup.group.offsets[Q0] == 0
    assert setup.group.offsets[Q1] == 0


async def test_a_broker_that_is_down_does_not_hold_up_the_others_and_is_read_again(setup: Setup) -> None:
    setup.routes.set(route_of("orders", {"a": 1, "b": 1}))
    consumer = await setup.join_leasing("x")
    await received(consumer, setup)
    setup.brokers.transport.take_down(addr_of("a"))
    await setup.brokers.put(queue_of(0, broker_name="b"), ["b"])
    assert bodies(await received(consumer, setup)) == ["b"]
    setup.brokers.transport.bring_up(addr_of("a"))
    await setup.brokers.put(Q0, ["a"])
    found = await passing(consumer.receive(timeout_seconds=30), setup.clock, 30)
    assert bodies(found) == ["a"]


async def test_an_acknowledgement_that_failed_can_be_repeated(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["a"])
    consumer = await setup.join_leasing("x")
    (message,) = await received(consumer, setup)
    setup.brokers.transport.take_down(addr_of("a"))
    with pytest.raises(BrokerUnreachableError):
        await consumer.ack(message)
    setup.brokers.transport.bring_up(addr_of("a"))
    await consumer.ack(message)
    assert setup.hook.acknowledged_messages == {"BROKER_UNREACHABLE": 1, "ok": 1}


async def test_removed_messages_are_counted_and_logged(setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
    await setup.brokers.put(Q0, numbers(4))
    consumer = await setup.join_leasing("x", invisible_seconds=10)
    await received(consumer, setup, 1)
    setup.brokers.transport.trim(addr_of("a"), Q0, 3)
    await setup.clock.advance(10)
    assert bodies(await received(consumer, setup)) == ["3"]
    assert setup.hook.trimmed_messages == 3
    assert "3 messages of " in caplog.text


async def test_a_member_joins_with_its_first_receive_and_leaves_when_closed(setup: Setup) -> None:
    consumer = await setup.join_leasing("x")
    assert setup.group.members == {}
    await received(consumer, setup)
    assert list(setup.group.members) == ["x@1"]
    assert consumer.health().is_ready
    described = consumer.describe()
    assert [(each["queueId"], each["leased"]) for each in described["queues"]] == [(0, 0), (1, 0)]
    await passing(consumer.close(), setup.clock, 5)
    assert setup.group.members == {}
    assert setup.group.log[-2:] == ["left", "closed"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("invisible_seconds", 9.9),
        ("invisible_seconds", 43_201),
        ("max_messages", 0),
        ("max_messages", 1_025),
        ("max_reconsume_times", -1),
        ("max_renew_seconds", 0),
        ("on_dead_letter", "log"),
    ],
)
async def test_an_option_out_of_bounds_is_refused(setup: Setup, name: str, value: object) -> None:
    with pytest.raises(InvalidOptionError, match=f"^{name} = "):
        await setup.join_leasing("x", **{name: value})


async def test_arguments_out_of_bounds_are_refused(setup: Setup) -> None:
    consumer = await setup.join_leasing("x")
    with pytest.raises(InvalidOptionError, match=r"^max_messages = 0 "):
        await consumer.receive(0)
    with pytest.raises(InvalidOptionError, match=r"^invisible_seconds = 1 must be from 10 to 43200 \(12 h\)"):
        await consumer.receive(1, 1)


async def test_the_progress_is_sent_again_to_an_agent_that_lost_it(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(3))
    consumer = await setup.join_leasing("x")
    await consumer.ack(*await received(consumer, setup))
    await setup.clock.advance(6)
    setup.group.offsets.clear()
    await setup.clock.advance(6)
    assert setup.group.offsets[Q0] == 3


async def test_a_member_does_not_join_before_a_broker_has_responded(setup: Setup) -> None:
    consumer = await setup.join_leasing("x")
    setup.brokers.transport.take_down(addr_of("a"))
    assert await received(consumer, setup) == ()
    assert setup.group.members == {}
    assert not consumer.health().is_ready


async def test_where_brokers_do_not_notice_a_late_acknowledgement_the_consumer_does(setup: Setup) -> None:
    setup.brokers.transport.notices_late_acknowledgements = False
    await setup.brokers.put(Q0, ["a", "b"])
    consumer = await setup.join_leasing("x")
    a, b = await received(consumer, setup, invisible_seconds=10)
    await consumer.ack(a)
    await setup.clock.advance(10)
    with pytest.raises(LeaseExpiredError):
        await consumer.ack(b)


async def test_a_reset_of_offsets_has_no_effect_on_a_group_that_leases_messages(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    await setup.brokers.put(Q0, numbers(3))
    consumer = await setup.join_leasing("x")
    await consumer.ack(*await received(consumer, setup))
    await setup.clock.advance(6)
    setup.group.reset(Q0, 1)
    await setup.clock.advance(11)
    assert await received(consumer, setup) == ()
    assert setup.group.offsets[Q0] == 3
    assert "it has no effect on group billing, which leases messages" in caplog.text


async def test_a_topic_that_is_unsubscribed_during_a_receive_does_not_end_it(setup: Setup) -> None:
    setup.routes.set(route_of("refunds", {"b": 1}))
    consumer = await setup.join_leasing("x", subscriptions={"orders": "*", "refunds": "*"})
    await received(consumer, setup)
    for name in "ab":
        setup.brokers.transport.hang(addr_of(name))
    receiving = asyncio.ensure_future(consumer.receive(timeout_seconds=3.0))
    await setup.clock.advance(1)
    for topic in ("orders", "refunds"):
        consumer.unsubscribe(topic)
    for name in "ab":
        setup.brokers.transport.bring_up(addr_of(name))
    await setup.clock.advance(3)
    assert await receiving == ()
    consumer.subscribe("orders")
    await setup.brokers.put(Q0, ["a"])
    assert bodies(await received(consumer, setup)) == ["a"]


async def test_a_broker_that_hangs_delays_one_receive_and_not_the_next(setup: Setup) -> None:
    setup.routes.set(route_of("orders", {"a": 1, "b": 1}))
    consumer = await setup.join_leasing("x", request_timeout_seconds=5.0)
    await received(consumer, setup)
    setup.brokers.transport.hang(addr_of("a"))
    for number, seconds in enumerate((5.0, 0.0)):
        await setup.brokers.put(queue_of(0, broker_name="b"), [str(number)])
        receiving = asyncio.ensure_future(consumer.receive(timeout_seconds=60.0))
        await setup.clock.advance(seconds)
        assert receiving.done()
        assert bodies(await receiving) == [str(number)]
