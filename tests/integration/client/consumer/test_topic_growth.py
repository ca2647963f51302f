"""Queues and brokers that are added, or come back, with the default settings: none is lost, nothing old is replayed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pointsman_client.core.rebalance import ConsumeFrom, MessageModel
from pointsman_client.core.route import TopicRoute
from tests.kit.client.consumer_setup import Setup, numbers
from tests.kit.client.memory_group import queue_of, route_of
from tests.kit.client.seen import Seen

LAST = ConsumeFrom.LAST_OFFSET
DAY = timedelta(days=1).total_seconds()
LONG_SECONDS = 300.0
"""As good as a day where a consumer runs, whose timers the clock must all pass: longer than any tolerance."""


async def put(setup: Setup, prefix: str, *, each: int, age_seconds: float = 0.0, **brokers: int) -> list[str]:
    """Put ``each`` messages into each queue of these brokers; return their bodies."""
    bodies = []
    for broker, queues in brokers.items():
        for queue_id in range(queues):
            part = numbers(each, f"{prefix}-{broker}{queue_id}-")
            await setup.brokers.put(queue_of(queue_id, broker_name=broker), part, age_seconds=age_seconds)
            bodies += part
    return bodies


async def test_two_members_of_a_new_group_two_seconds_apart_read_none_of_1000_old_messages(setup: Setup) -> None:
    setup.routes.set(route_of("orders", {"a": 4}))
    await put(setup, "old", each=250, age_seconds=61, a=4)
    seen = Seen()
    await setup.join("x", seen, consume_from=LAST)
    await setup.clock.advance(2)
    await setup.join("y", seen, consume_from=LAST)
    await setup.clock.advance(5)
    new = await put(setup, "new", each=5, a=4)
    await setup.clock.advance(2)
    assert sorted(seen.bodies) == sorted(new)


async def test_a_group_that_is_stopped_while_the_topic_grows_reads_the_new_queues_from_their_first_message(
    setup: Setup,
) -> None:
    before = Seen()
    consumer = await setup.join("x", before, consume_from=LAST)
    await setup.clock.advance(2)
    await put(setup, "first", each=5, a=2)
    await setup.clock.advance(2)
    closing = asyncio.ensure_future(consumer.close())
    await setup.until(closing.done)
    assert len(before.bodies) == 10

    setup.routes.set(route_of("orders", {"a": 4, "b": 4}))
    new = await put(setup, "new", each=10, a=4, b=4)
    await setup.clock.advance(DAY)
    seen = Seen()
    await setup.join("x", seen, consume_from=LAST)
    await setup.clock.advance(5)
    assert sorted(seen.bodies) == sorted(new)


async def test_a_queue_that_can_only_be_read_is_read_to_its_end_and_one_that_left_the_route_is_not(
    setup: Setup,
) -> None:
    def only_read(read_queues: int) -> TopicRoute:
        route = route_of("orders", {"a": 2})
        (data,) = route.queue_datas
        return replace(route, queue_datas=(replace(data, read_queue_nums=read_queues, write_queue_nums=1),))

    seen = Seen()
    await setup.join("x", seen)
    await setup.clock.advance(2)
    setup.routes.set(only_read(2))
    await setup.clock.advance(2)
    read = await put(setup, "read", each=5, a=2)
    await setup.clock.advance(2)
    assert sorted(seen.bodies) == sorted(read)

    setup.routes.set(only_read(1))
    await setup.clock.advance(2)
    await put(setup, "late", each=5, a=2)
    await setup.clock.advance(LONG_SECONDS)
    assert sorted(seen.bodies) == sorted([*read, *numbers(5, "late-a0-")])


async def test_growth_under_load_loses_none_of_10000_messages(setup: Setup) -> None:
    seen = Seen()
    await setup.join("x", seen, consume_from=LAST)
    await setup.join("y", seen, consume_from=LAST)
    await setup.clock.advance(2)
    sent: list[str] = []
    shapes = [{"a": 2}, {"a": 4}, {"a": 8}, {"a": 8, "b": 8}]
    for round_ in range(40):
        shape = shapes[round_ // 10]
        each = 250 // sum(shape.values())
        # Producers learn of the growth first: a new queue has messages before a consumer knows it.
        sent += await put(setup, f"r{round_}", each=each, **shape)
        if round_ % 10 == 2:
            setup.routes.set(route_of("orders", shape))
        await setup.clock.advance(0.25)
    sent += await put(setup, "rest", each=(10_000 - len(sent)) // 16 + 1, a=8, b=8)
    await setup.until(lambda: len(seen.bodies) >= len(sent))
    assert len(sent) >= 10_000
    assert set(seen.bodies) == set(sent)


async def test_a_broker_that_was_down_when_the_group_began_replays_nothing_old_when_it_is_back_and_loses_nothing(
    setup: Setup,
) -> None:
    await put(setup, "old", each=500, age_seconds=61, a=2, b=2)
    seen = Seen()
    await setup.join("x", seen, consume_from=LAST)
    await setup.clock.advance(2)
    missed = await put(setup, "missed", each=5, b=2)
    await setup.clock.advance(LONG_SECONDS)
    setup.routes.set(route_of("orders", {"a": 2, "b": 2}))
    new = await put(setup, "new", each=5, a=2, b=2)
    await setup.clock.advance(5)
    assert sorted(seen.bodies) == sorted(missed + new)


async def test_a_queue_waits_while_it_is_not_known_when_its_group_began(setup: Setup) -> None:
    seen = Seen()
    await setup.join("x", seen, consume_from=LAST)
    await setup.clock.advance(2)
    setup.group.begins_answer = False
    setup.routes.set(route_of("orders", {"a": 3}))
    new = await put(setup, "new", each=5, a=3)
    await setup.clock.advance(10)
    assert len(seen.bodies) == 10
    assert queue_of(2) not in setup.group.offsets
    setup.group.begins_answer = True
    await setup.until(lambda: sorted(seen.bodies) == sorted(new))


async def test_a_running_member_remembers_when_its_group_began_after_all_agents_lost_it(setup: Setup) -> None:
    seen = Seen()
    await setup.join("x", seen, consume_from=LAST)
    await setup.clock.advance(LONG_SECONDS)
    setup.group.begins.clear()
    new = await put(setup, "new", each=5, a=3)
    await setup.clock.advance(LONG_SECONDS)
    setup.routes.set(route_of("orders", {"a": 3}))
    await setup.clock.advance(5)
    assert sorted(seen.bodies) == sorted(new)


async def test_a_producer_whose_clock_is_a_minute_behind_loses_nothing_to_a_new_group(setup: Setup) -> None:
    seen = Seen()
    await setup.join("x", seen, consume_from=LAST)
    await setup.clock.advance(1)
    setup.routes.set(route_of("orders", {"a": 3}))
    new = await put(setup, "new", each=2, age_seconds=59, a=3)
    await setup.clock.advance(5)
    assert sorted(seen.bodies) == sorted(new)


@pytest.mark.parametrize("begins_answer", [True, False])
async def test_first_offset_and_timestamp_determine_where_a_new_queue_begins(setup: Setup, begins_answer: bool) -> None:
    setup.group.begins_answer = begins_answer
    await put(setup, "old", each=2, age_seconds=3_600, a=2)
    young = await put(setup, "young", each=2, age_seconds=60, a=2)
    first, since = Seen(), Seen()
    at = setup.clock.utc_now() - timedelta(seconds=120)
    await setup.join("x", first, consume_from=ConsumeFrom.FIRST_OFFSET, subscriptions={"orders": "*"})
    await setup.clock.advance(3)
    assert len(first.bodies) == 8
    setup.group.offsets.clear()
    setup.group.members.clear()
    setup.group.locks.clear()
    await setup.join("y", since, consume_from=ConsumeFrom.TIMESTAMP, consume_timestamp=at)
    await setup.clock.advance(3)
    assert sorted(since.bodies) == sorted(young)


async def test_a_pull_consumer_loses_nothing_to_growth_either(setup: Setup) -> None:
    await put(setup, "old", each=5, age_seconds=61, a=2)
    consumer = await setup.join_pulling("x", consume_from=LAST)
    await setup.clock.advance(2)
    new = await put(setup, "new", each=5, a=3)
    setup.routes.set(route_of("orders", {"a": 3}))
    await setup.clock.advance(5)
    polling = asyncio.ensure_future(consumer.poll(1.0))
    await setup.clock.advance(0)
    assert sorted(message.body.decode() for message in await polling) == sorted(new)


async def test_a_broadcasting_member_reads_new_queues_from_its_own_first_consumption_on(
    setup: Setup, tmp_path: Path
) -> None:
    await put(setup, "old", each=5, age_seconds=61, a=2)
    settings: dict[str, Any] = {
        "consume_from": LAST,
        "message_model": MessageModel.BROADCASTING,
        "offset_file": tmp_path / "offsets.db",
        "make_coordination": None,
    }
    before, after = Seen(), Seen()
    consumer = await setup.join("x", before, **settings)
    first = await put(setup, "first", each=1, a=2)
    await _until_seen(setup, before, len(first))
    await consumer.close()
    new = await put(setup, "new", each=5, a=4)
    setup.routes.set(route_of("orders", {"a": 4}))
    await setup.clock.advance(DAY)
    await setup.join("x", after, **settings)
    await _until_seen(setup, after, len(new))
    assert (sorted(before.bodies), sorted(after.bodies)) == (sorted(first), sorted(new))


async def _until_seen(setup: Setup, seen: Seen, count: int) -> None:
    """The file is on a real disk, so its delay is real time."""
    async with asyncio.timeout(10):
        while len(seen.bodies) < count:
            await setup.clock.advance(0.1)
            await asyncio.sleep(0.005)
