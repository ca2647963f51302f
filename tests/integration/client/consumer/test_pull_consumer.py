"""The pull consumer against brokers and a group in memory, with a clock that moves by hand."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_client.consumer.pull_consumer import PullConsumer
from pointsman_client.errors import BrokerUnreachableError, ClientClosedError, InvalidOptionError
from tests.kit.client.consumer_setup import Setup, numbers
from tests.kit.client.memory_group import addr_of, queue_of

Q0, Q1 = queue_of(0), queue_of(1)


async def assigned(setup: Setup) -> PullConsumer:
    consumer = await setup.join_pulling("x", subscriptions=None)
    await consumer.assign([Q0])
    await setup.clock.advance(0)
    return consumer


async def bodies_of_poll(consumer: PullConsumer, clock: ManualClock) -> list[str]:
    polling = asyncio.ensure_future(consumer.poll(timeout_seconds=1.0))
    await clock.advance(1)
    return [message.body.decode() for message in await polling]


async def test_a_message_is_finished_when_the_next_one_is_requested(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(3))
    consumer = await setup.join_pulling("x")
    await setup.clock.advance(1)
    seen = []
    async for message in consumer:
        seen.append(message.body.decode())
        await setup.clock.advance(6)
        assert setup.group.offsets[Q0] == len(seen) - 1
        if len(seen) == 3:
            break
    assert seen == numbers(3)


async def test_the_message_handed_out_last_is_delivered_again_after_a_close(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(3))
    consumer = await setup.join_pulling("x")
    await setup.clock.advance(1)
    await anext(consumer)
    await anext(consumer)
    await consumer.close()
    assert setup.group.offsets[Q0] == 1
    with pytest.raises(ClientClosedError):
        await consumer.poll()
    with pytest.raises(StopAsyncIteration):
        await anext(consumer)


async def test_an_iteration_that_waits_ends_with_a_close(setup: Setup) -> None:
    consumer = await setup.join_pulling("x")
    waiting = asyncio.ensure_future(anext(consumer, None))
    await setup.clock.advance(40)
    assert not waiting.done()
    await consumer.close()
    assert await waiting is None


async def test_a_poll_hands_out_what_is_there_and_finishes_the_one_before(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(50))
    consumer = await setup.join_pulling("x")
    await setup.clock.advance(1)
    assert await bodies_of_poll(consumer, setup.clock) == numbers(32)
    await setup.clock.advance(6)
    assert setup.group.offsets[Q0] == 0
    assert await bodies_of_poll(consumer, setup.clock) == numbers(50)[32:]
    await setup.clock.advance(6)
    assert setup.group.offsets[Q0] == 32
    assert await bodies_of_poll(consumer, setup.clock) == []
    await setup.clock.advance(6)
    assert setup.group.offsets[Q0] == 50


async def test_a_poll_returns_as_soon_as_a_message_arrives(setup: Setup) -> None:
    consumer = await setup.join_pulling("x")
    polling = asyncio.ensure_future(consumer.poll(timeout_seconds=10))
    await setup.clock.advance(2)
    await setup.brokers.put(Q1, ["1"])
    await setup.clock.advance(0)
    assert [message.queue for message in await polling] == [Q1]


async def test_without_auto_commit_only_a_commit_commits_and_it_counts_what_was_handed_out(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(3))
    consumer = await setup.join_pulling("x", auto_commit=False)
    await setup.clock.advance(1)
    await anext(consumer)
    await anext(consumer)
    await setup.clock.advance(20)
    assert setup.group.offsets == {}
    await consumer.commit()
    assert setup.group.offsets[Q0] == 2
    assert await consumer.committed(Q0) == 2
    await anext(consumer)
    await consumer.close()
    assert setup.group.offsets[Q0] == 2


async def test_a_commit_that_fails_raises_its_cause(setup: Setup) -> None:
    consumer = await setup.join_pulling("x")
    await setup.clock.advance(1)
    setup.group.offsets_answer = False
    with pytest.raises(BrokerUnreachableError):
        await consumer.commit()


async def test_assigned_queues_are_read_without_joining_the_group(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["0"])
    await setup.brokers.put(Q1, ["1"])
    consumer = await assigned(setup)
    assert setup.group.members == {}
    assert await bodies_of_poll(consumer, setup.clock) == ["0"]
    await consumer.assign([Q1])
    assert consumer.assignment == (Q1,)
    assert await bodies_of_poll(consumer, setup.clock) == ["1"]
    assert setup.group.locks == {}


async def test_a_consumer_that_shares_queues_cannot_be_assigned_some(setup: Setup) -> None:
    consumer = await setup.join_pulling("x")
    with pytest.raises(InvalidOptionError, match="subscriptions"):
        await consumer.assign([Q0])


async def test_a_commit_counts_for_a_queue_that_moves_to_another_member_at_that_moment(setup: Setup) -> None:
    await setup.brokers.put(Q1, numbers(3))
    first = await setup.join_pulling("x", auto_commit=False)
    await setup.clock.advance(1)
    assert await bodies_of_poll(first, setup.clock) == numbers(3)
    second = await setup.join_pulling("y", auto_commit=False)
    await setup.clock.advance(2)
    assert first.assignment == (Q0,)
    await first.commit()
    await setup.clock.advance(2)
    assert second.assignment == (Q1,)
    assert setup.group.offsets[Q1] == 3
    assert await bodies_of_poll(second, setup.clock) == []


async def test_a_seek_back_hands_messages_out_again_and_the_commit_follows(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(5))
    consumer = await assigned(setup)
    assert await bodies_of_poll(consumer, setup.clock) == numbers(5)
    await consumer.commit()
    assert (consumer.position(Q0), setup.group.offsets[Q0]) == (5, 5)
    consumer.seek(Q0, 3)
    await consumer.commit()
    assert setup.group.offsets[Q0] == 3
    assert await bodies_of_poll(consumer, setup.clock) == ["3", "4"]
    await consumer.commit()
    assert setup.group.offsets[Q0] == 5


async def test_a_seek_before_the_first_poll_can_be_committed(setup: Setup) -> None:
    """That is how a group's offsets are set, forwards or backwards."""
    setup.group.offsets[Q0] = 100
    consumer = await setup.join_pulling("x", subscriptions=None, auto_commit=False)
    for offset in (10, 30):
        await consumer.assign([Q0])
        consumer.seek(Q0, offset)
        await consumer.commit()
        assert setup.group.offsets[Q0] == offset
        await consumer.assign([])


async def test_a_seek_further_back_while_another_seek_is_committed_is_committed_too(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(100))
    setup.group.offsets[Q0] = 100
    consumer = await assigned(setup)
    consumer.seek(Q0, 10)
    setup.group.commits_pass.clear()
    committing = asyncio.ensure_future(consumer.commit())
    await setup.clock.advance(0)
    consumer.seek(Q0, 5)
    await setup.clock.advance(1)
    setup.group.commits_pass.set()
    await committing
    await setup.clock.advance(6)
    assert setup.group.offsets[Q0] == 5


async def test_a_seek_ends_a_pull_that_waits_at_the_broker(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(2))
    consumer = await assigned(setup)
    await bodies_of_poll(consumer, setup.clock)
    consumer.seek(Q0, 1)
    polling = asyncio.ensure_future(consumer.poll(timeout_seconds=1))
    await setup.clock.advance(0)
    assert [message.body for message in await polling] == [b"1"]


async def test_a_seek_before_the_start_is_known_is_not_lost(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(5))
    setup.group.offsets_answer = False
    consumer = await assigned(setup)
    consumer.seek(Q0, 4)
    setup.group.offsets_answer = True
    await setup.clock.advance(5)
    assert await bodies_of_poll(consumer, setup.clock) == ["4"]


async def test_a_seek_to_a_time_finds_the_first_message_born_then(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["old"], age_seconds=60)
    await setup.brokers.put(Q0, ["young"], age_seconds=10)
    consumer = await assigned(setup)
    assert await consumer.seek_to_time(Q0, setup.clock.utc_now() - timedelta(seconds=30)) == 1
    await setup.clock.advance(0)
    assert await bodies_of_poll(consumer, setup.clock) == ["young"]


async def test_a_queue_that_is_not_held_cannot_be_moved(setup: Setup) -> None:
    consumer = await assigned(setup)
    with pytest.raises(InvalidOptionError, match="not held"):
        consumer.seek(Q1, 0)


async def test_a_paused_queue_hands_nothing_out_until_it_is_resumed(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["1"])
    consumer = await assigned(setup)
    consumer.pause([Q0])
    assert await bodies_of_poll(consumer, setup.clock) == []
    await setup.brokers.put(Q0, ["2"])
    await setup.clock.advance(200)
    assert await bodies_of_poll(consumer, setup.clock) == []
    consumer.resume([Q0])
    await setup.clock.advance(0)
    assert await bodies_of_poll(consumer, setup.clock) == ["1", "2"]


async def test_members_share_the_queues_and_describe_shows_which(setup: Setup) -> None:
    await setup.brokers.put(Q1, ["1"])
    first, second = await setup.join_pulling("x"), await setup.join_pulling("y")
    await setup.clock.advance(3)
    assert (first.assignment, second.assignment) == ((Q0,), (Q1,))
    assert await bodies_of_poll(second, setup.clock) == ["1"]
    await setup.clock.advance(30)
    description = second.describe()
    assert description["members"] == ["x@1", "y@1"]
    assert description["queues"] == [
        {
            "topic": "orders", "cluster": "c1", "brokerName": "a", "queueId": 1, "locked": True, "paused": False,
            "filtered": 0, "committed": 0, "position": 1, "finishedUpTo": 0, "waiting": 0, "inFlight": 1, "lag": 1,
        }
    ]  # fmt: skip


async def test_a_trimmed_offset_moves_to_the_first_message(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(5))
    setup.brokers.transport.trim(addr_of("a"), Q0, 3)
    consumer = await assigned(setup)
    consumer.seek(Q0, 1)
    await setup.clock.advance(0)
    assert await bodies_of_poll(consumer, setup.clock) == ["3", "4"]
    assert setup.hook.trimmed_messages == 2
