"""A consumer with a listener, against brokers and a group in memory, with a clock that moves by hand."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pointsman_client.consumer.agents.agent_coordination import agent_coordination
from pointsman_client.consumer.push_consumer import PushConsumer
from pointsman_client.consumer.start_offset import ConsumeFrom
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.rebalance import MessageModel
from pointsman_client.core.retry_rules import ConsumeResult
from tests.fakes.consumer_setup import Setup, consumer_setup, numbers
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_group import addr_of, queue_of, route_of
from tests.fakes.seen import Seen

Q0, Q1 = queue_of(0), queue_of(1)


class Held:
    """A listener that does not return before it is let go."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self.running = 0
        self.most = 0
        self.go = asyncio.Event()

    async def __call__(self, message: ReceivedMessage) -> None:
        self.bodies.append(message.body.decode())
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.go.wait()
        finally:
            self.running -= 1


@pytest.fixture
async def setup(clock: ManualClock) -> AsyncIterator[Setup]:
    async with consumer_setup(clock) as made:
        yield made


async def test_every_message_is_handed_to_the_listener_and_committed(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(100))
    seen = Seen()
    await setup.join("x", seen)
    await setup.until(lambda: len(seen.bodies) == 100)
    assert sorted(seen.bodies, key=int) == numbers(100)
    await setup.clock.advance(5)
    assert setup.group.offsets[Q0] == 100


async def test_messages_that_come_later_reach_a_pull_that_waits(setup: Setup) -> None:
    seen = Seen()
    await setup.join("x", seen)
    await setup.clock.advance(3)
    await setup.brokers.put(Q1, ["late"])
    await setup.clock.advance(0)
    assert seen.bodies == ["late"]


async def test_a_new_group_begins_with_what_is_sent_from_now_on_by_default(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["old"], age_seconds=61)
    seen = Seen()
    await setup.join("x", seen, consume_from=ConsumeFrom.LAST_OFFSET)
    await setup.clock.advance(3)
    await setup.brokers.put(Q0, ["new"])
    await setup.clock.advance(1)
    assert seen.bodies == ["new"]


async def test_a_stored_offset_wins_over_where_to_begin(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(5))
    setup.group.offsets[Q0] = 3
    seen = Seen()
    await setup.join("x", seen)
    await setup.clock.advance(3)
    assert seen.bodies == ["3", "4"]


async def test_a_master_that_is_back_with_less_is_read_from_what_its_own_agent_has_not_from_the_first_message(
    setup: Setup,
) -> None:
    await setup.brokers.put(Q0, numbers(10))
    setup.group.offsets[Q0], setup.group.lower[Q0] = 25, 8
    seen = Seen()
    await setup.join("x", seen)
    await setup.until(lambda: seen.bodies)
    assert seen.bodies == ["8", "9"]


async def test_a_group_begins_at_a_time(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["old"], age_seconds=60)
    await setup.brokers.put(Q0, ["young"], age_seconds=10)
    seen = Seen()
    begin = setup.clock.utc() - timedelta(seconds=30)
    await setup.join("x", seen, consume_from=ConsumeFrom.TIMESTAMP, consume_timestamp=begin)
    await setup.clock.advance(3)
    assert seen.bodies == ["young"]


async def test_tags_are_filtered_at_the_client_and_what_is_not_wanted_counts_as_finished(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["1"], tags="red")
    await setup.brokers.put(Q0, ["2"], tags="blue")
    await setup.brokers.put(Q0, ["3"])
    seen = Seen()
    consumer = await setup.join("x", seen, subscriptions={"orders": "red || green"})
    await setup.clock.advance(6)
    assert seen.bodies == ["1"]
    assert setup.group.offsets[Q0] == 3
    assert setup.hook.filtered_messages == 2
    entry = next(each for each in consumer.describe()["queues"] if each["queueId"] == 0 and each["topic"] == "orders")
    assert entry["filtered"] == 2


async def test_an_offset_never_passes_the_lowest_unfinished_message(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(10))
    held = asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        if message.body == b"4":
            await held.wait()

    await setup.join("x", listener)
    await setup.clock.advance(6)
    assert setup.group.offsets[Q0] == 4
    held.set()
    await setup.clock.advance(6)
    assert setup.group.offsets[Q0] == 10


async def test_as_many_listeners_run_at_once_as_allowed_and_queues_take_turns(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(50, "a"))
    await setup.brokers.put(Q1, numbers(50, "b"))
    held = Held()
    await setup.join("x", held, consume_concurrency=4)
    await setup.clock.advance(1)
    assert held.running == held.most == 4
    held.go.set()
    await setup.until(lambda: len(held.bodies) == 100)
    assert held.most == 4
    assert {body[0] for body in held.bodies[8:16]} == {"a", "b"}


async def test_a_queue_that_is_full_is_not_pulled_until_the_listener_catches_up(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(100))
    held = Held()
    consumer = await setup.join("x", held, pull_threshold_for_queue=10, pull_batch_size=5, consume_concurrency=1)
    await setup.clock.advance(20)
    entry = next(each for each in consumer.describe()["queues"] if each["queueId"] == 0 and each["topic"] == "orders")
    assert entry["waiting"] + entry["inFlight"] == 10
    held.go.set()
    await setup.until(lambda: len(held.bodies) == 100)


async def test_a_listener_that_raises_sends_the_message_to_the_retry_topic_with_growing_delays(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["bad"])
    times: list[float] = []

    async def listener(message: ReceivedMessage) -> None:
        assert message.topic == "orders"
        assert message.message_id == "id-bad"
        assert message.reconsume_times == len(times)
        times.append(setup.clock.monotonic())
        if len(times) < 4:
            raise RuntimeError("cannot")

    await setup.join("x", listener)
    await setup.until(lambda: len(times) == 4, seconds=120)
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert waits == [pytest.approx(10, abs=1), pytest.approx(30, abs=1), pytest.approx(60, abs=1)]
    assert setup.hook.destinations == {"retry": 3}
    await setup.clock.advance(6)
    assert setup.group.offsets[Q0] == 1


class NotAnException(BaseException):
    """As pytest's own are."""


@pytest.mark.parametrize("fault", [NotAnException, asyncio.CancelledError])
async def test_a_listener_that_ends_by_no_ordinary_error_has_failed_all_the_same(
    setup: Setup, fault: type[BaseException]
) -> None:
    await setup.brokers.put(Q0, ["bad", "good"])
    bodies: list[str] = []

    async def listener(message: ReceivedMessage) -> None:
        bodies.append(message.body.decode())
        if bodies == ["bad"]:
            raise fault

    await setup.join("x", listener, consume_concurrency=1)
    await setup.until(lambda: bodies == ["bad", "good", "bad"])
    assert setup.hook.results == {"raised": 1, "success": 2}
    await setup.clock.advance(6)
    assert setup.group.offsets[Q0] == 2


async def test_a_message_that_fails_too_often_ends_among_the_dead_letters(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["bad"])
    seen = Seen(lambda _: ConsumeResult.RECONSUME_LATER)
    await setup.join("x", seen, max_reconsume_times=2)
    await setup.until(lambda: setup.hook.destinations["dlq"], seconds=120)
    assert [message.reconsume_times for message in seen.messages] == [0, 1, 2]
    dead = queue_of(0, topic="%DLQ%billing")
    assert await setup.brokers.transport.max_offset(addr_of("a"), dead, timeout_seconds=1) == 1


async def test_a_dead_letter_is_logged_once_and_keeps_where_it_came_from_and_its_last_error(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    await setup.brokers.put(Q0, ["good", "bad"])

    async def listener(message: ReceivedMessage) -> None:
        if message.body == b"bad":
            raise ValueError(f"no stock, attempt {message.reconsume_times + 1}")

    await setup.join("x", listener, max_reconsume_times=2)
    await setup.until(lambda: setup.hook.destinations["dlq"], seconds=120)

    dead = queue_of(0, topic="%DLQ%billing")
    pulled = await setup.brokers.transport.pull(
        addr_of("a"), dead, 0, max_messages=10, wait_seconds=0, timeout_seconds=1
    )
    (letter,) = pulled.messages
    assert (letter.topic, letter.body, letter.reconsume_times) == ("orders", b"bad", 3)
    assert letter.origin == f"{Q0.cluster}/a/orders/0@1"
    assert letter.error == "ValueError: no stock, attempt 3"
    (line,) = [record.getMessage() for record in caplog.records if "dead letters" in record.getMessage()]
    assert line == (
        f"message id-bad of {letter.origin} was moved to the dead letters of group billing after 3 attempts, "
        f"as offset 0 of {dead}; last error: ValueError: no stock, attempt 3"
    )


async def test_a_failed_message_that_no_broker_takes_is_tried_again_here_and_not_finished(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["bad"])
    times: list[float] = []

    async def listener(_: ReceivedMessage) -> None:
        times.append(setup.clock.monotonic())
        if len(times) < 3:
            setup.brokers.transport.take_down(addr_of("a"))
            raise RuntimeError("cannot")
        setup.brokers.transport.bring_up(addr_of("a"))

    await setup.join("x", listener)
    await setup.until(lambda: len(times) == 2)
    assert times[1] - times[0] == pytest.approx(5, abs=1)
    assert setup.group.offsets.get(Q0, 0) == 0
    await setup.until(lambda: len(times) == 3)
    await setup.clock.advance(6)
    assert setup.group.offsets[Q0] == 1


async def test_a_listener_that_never_returns_loses_its_message_and_its_slot_after_the_consume_timeout(
    setup: Setup,
) -> None:
    await setup.brokers.put(Q0, ["stuck", "next"])
    stubborn = asyncio.Event()
    seen: list[tuple[str, int]] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append((message.body.decode(), message.reconsume_times))
        if message.body == b"stuck" and message.reconsume_times == 0:
            while not stubborn.is_set():
                try:
                    await stubborn.wait()
                except asyncio.CancelledError:
                    continue

    await setup.join("x", listener, consume_concurrency=1)
    await setup.clock.advance(14 * 60)
    assert seen == [("stuck", 0)]
    await setup.clock.advance(3 * 60)
    assert ("next", 0) in seen
    assert ("stuck", 1) in seen
    assert setup.hook.results["timeout"] == 1
    stubborn.set()


async def test_a_plain_function_runs_in_a_thread(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["1"])
    names: list[str] = []
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    def listener(_: ReceivedMessage) -> None:
        names.append(threading.current_thread().name)
        loop.call_soon_threadsafe(done.set)

    await setup.join("x", listener)
    async with asyncio.timeout(5):
        await done.wait()
    assert names[0].startswith("pointsman-listener")


async def test_a_plain_function_that_never_returns_loses_its_thread_to_the_others(setup: Setup) -> None:
    stuck, bodies = threading.Event(), []

    def listener(message: ReceivedMessage) -> None:
        bodies.append(message.body.decode())
        if message.body == b"stuck":
            stuck.wait(10)

    await setup.brokers.put(Q0, ["stuck", "next"])
    await setup.join("x", listener, consume_concurrency=1, consume_timeout_seconds=15)
    await setup.clock.advance(14)
    assert bodies == ["stuck"]
    await setup.clock.advance(3)
    async with asyncio.timeout(5):
        while "next" not in bodies:  # noqa: ASYNC110  # another thread does it
            await asyncio.sleep(0.001)
    stuck.set()


async def test_a_message_that_waits_here_for_its_next_try_does_not_wait_for_those_that_are_due_later(
    setup: Setup,
) -> None:
    times: dict[str, list[float]] = {"a": [], "b": []}
    began = setup.clock.monotonic()

    async def listener(message: ReceivedMessage) -> None:
        tries = times[message.body.decode()]
        tries.append(setup.clock.monotonic() - began)
        if len(tries) == 1:
            raise RuntimeError("cannot")
        if len(tries) == 2 and message.body == b"a":
            setup.brokers.transport.take_down(addr_of("a"))
            raise RuntimeError("cannot")

    await setup.join("x", listener)
    await setup.brokers.put(Q0, ["a"])
    await setup.clock.advance(8)
    await setup.brokers.put(Q0, ["b"])
    await setup.clock.advance(20)
    assert times["a"] == [pytest.approx(0, abs=0.5), pytest.approx(10, abs=0.5), pytest.approx(15, abs=0.5)]
    assert times["b"][1] == pytest.approx(18, abs=0.5)
    setup.brokers.transport.bring_up(addr_of("a"))


# Ordered


async def test_ordered_messages_come_one_at_a_time_and_in_order(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(3))
    held = Held()
    await setup.join("x", held, ordered=True)
    await setup.clock.advance(1)
    await setup.brokers.put(Q0, ["3", "4"])
    await setup.clock.advance(1)
    assert held.bodies == ["0"]
    held.go.set()
    await setup.until(lambda: len(held.bodies) == 5)
    assert held.bodies == numbers(5)
    assert held.most == 1


async def test_ordered_queues_do_not_wait_for_each_other(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["0"])
    await setup.brokers.put(Q1, ["1"])
    held = Held()
    await setup.join("x", held, ordered=True)
    await setup.clock.advance(1)
    assert held.running == 2


async def test_an_ordered_consumer_stops_in_time_though_the_question_for_its_lock_hangs(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Seen()
    await setup.join("x", seen, ordered=True)
    await setup.clock.advance(10)
    hangs = asyncio.Event()

    async def hang(*_: object) -> frozenset[Any]:
        await hangs.wait()
        return frozenset()

    monkeypatch.setattr("tests.fakes.memory_group._Locks.lock", hang)
    await setup.clock.advance(21)
    await setup.brokers.put(Q0, ["too late"])
    await setup.clock.advance(5)
    assert seen.bodies == []
    hangs.set()


@pytest.mark.parametrize("fails", ["raises", "suspends"])
async def test_an_ordered_queue_rests_a_second_and_tries_the_same_message_again(setup: Setup, fails: str) -> None:
    await setup.brokers.put(Q0, ["1", "2"])
    tries: list[tuple[str, float]] = []

    async def listener(message: ReceivedMessage) -> ConsumeResult | None:
        tries.append((message.body.decode(), setup.clock.monotonic()))
        if len(tries) > 2:
            return None
        if fails == "raises":
            raise RuntimeError("cannot")
        return ConsumeResult.SUSPEND

    await setup.join("x", listener, ordered=True)
    await setup.until(lambda: len(tries) == 4)
    assert [body for body, _ in tries] == ["1", "1", "1", "2"]
    assert tries[1][1] - tries[0][1] == pytest.approx(1.0)
    assert not setup.hook.destinations


async def test_an_ordered_listener_that_takes_too_long_is_cancelled_and_the_message_tried_in_place(
    setup: Setup,
) -> None:
    await setup.brokers.put(Q0, ["1", "2"])
    tries: list[tuple[str, int]] = []

    async def listener(message: ReceivedMessage) -> None:
        tries.append((message.body.decode(), message.reconsume_times))
        if len(tries) == 1:
            await asyncio.Event().wait()

    await setup.join("x", listener, ordered=True, consume_timeout_seconds=30)
    await setup.until(lambda: len(tries) == 3, seconds=40)
    assert tries == [("1", 0), ("1", 1), ("2", 0)]
    assert setup.hook.results == {"timeout": 1, "success": 2}


async def test_an_ordered_consumer_gives_up_after_the_tries_it_was_told_and_goes_on(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["bad", "good"])
    seen = Seen(lambda message: ConsumeResult.SUSPEND if message.body == b"bad" else None)
    await setup.join("x", seen, ordered=True, max_reconsume_times=2)
    await setup.until(lambda: "good" in seen.bodies)
    assert seen.bodies == ["bad"] * 3 + ["good"]
    assert setup.hook.destinations == {"dlq": 1}


async def test_a_message_that_blocks_an_ordered_queue_is_logged_less_and_less_often_and_counted_until_it_ends(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    await setup.brokers.put(Q0, ["poison", *numbers(12)])
    is_fixed = False

    async def listener(message: ReceivedMessage) -> None:
        if message.body == b"poison" and not is_fixed:
            raise ValueError("cannot")

    def lines(part: str) -> list[str]:
        return [record.getMessage() for record in caplog.records if part in record.getMessage()]

    consumer = await setup.join("x", listener, ordered=True)
    began = setup.clock.monotonic()
    await setup.until(lambda: setup.hook.results["raised"] == 40, seconds=60)
    said = lines("blocks")
    assert [line.split()[1] for line in said] == ["1", "2", "4", "8", "16", "32"]
    assert said[-1] == (
        f"attempt 32 of message id-poison at offset 0 failed: ValueError: cannot; it blocks {Q0} for 31 s, and 12 "
        "messages wait behind it: it is tried again every 1 s until the listener succeeds; set max_reconsume_times to "
        "move such a message to the dead letters"
    )
    assert sum(record.exc_info is not None for record in caplog.records) == 6
    assert setup.hook.blocked == {Q0: pytest.approx(began, abs=0.5)}
    (blocked,) = consumer.describe()["blocked"]
    assert (blocked["queueId"], blocked["messageId"], blocked["attempts"]) == (0, "id-poison", 40)
    assert blocked["blockedSeconds"] == pytest.approx(39, abs=1)

    is_fixed = True
    await setup.until(lambda: setup.hook.results["success"] == 13)
    assert not setup.hook.blocked
    assert consumer.describe()["blocked"] == []
    assert lines("no longer blocks") == [
        f"message id-poison no longer blocks {Q0} here, after 40 failed attempts and 40 s"
    ]


async def test_a_blocked_queue_that_moves_to_another_member_is_not_counted_here_any_longer(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["poison"])
    await setup.brokers.put(Q1, ["poison"])
    seen = Seen(lambda _: ConsumeResult.SUSPEND)
    await setup.join("x", seen, ordered=True)
    await setup.until(lambda: len(setup.hook.blocked) == 2)
    await setup.join("y", Seen(), ordered=True)
    await setup.until(lambda: len(setup.hook.blocked) == 1)


async def test_a_dead_letter_ends_the_block_of_an_ordered_queue(setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
    await setup.brokers.put(Q0, ["poison", "good"])

    async def listener(message: ReceivedMessage) -> None:
        if message.body == b"poison":
            raise ValueError("cannot")

    await setup.join("x", listener, ordered=True, max_reconsume_times=3)
    await setup.until(lambda: setup.hook.results["success"] == 1)
    assert not setup.hook.blocked
    assert any("after failed attempt 4 it moves to %DLQ%billing" in record.getMessage() for record in caplog.records)
    assert setup.hook.destinations == {"dlq": 1}


async def test_an_ordered_consumer_does_nothing_without_the_lock_however_long(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["1"])
    setup.group.locks[Q0] = ("other@1", float("inf"))
    seen = Seen()
    await setup.join("x", seen, ordered=True)
    await setup.clock.advance(120)
    assert seen.bodies == []
    del setup.group.locks[Q0]
    await setup.clock.advance(2)
    assert seen.bodies == ["1"]


async def test_an_ordered_consumer_stops_when_its_lock_was_not_renewed_for_30_seconds(setup: Setup) -> None:
    seen = Seen()
    await setup.join("x", seen, ordered=True)
    await setup.clock.advance(21)
    setup.group.locks_answer = False
    await setup.clock.advance(28)
    await setup.brokers.put(Q0, ["still"])
    await setup.clock.advance(0)
    assert seen.bodies == ["still"]
    await setup.clock.advance(5)
    await setup.brokers.put(Q0, ["not now"])
    await setup.clock.advance(60)
    assert seen.bodies == ["still"]
    setup.group.locks_answer = True
    await setup.clock.advance(25)
    assert seen.bodies == ["still", "not now"]


async def test_an_ordered_consumer_that_lost_its_lock_goes_on_where_the_other_owner_came_to(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(6))
    times: list[float] = []
    bodies: list[str] = []

    async def listener(message: ReceivedMessage) -> ConsumeResult | None:
        bodies.append(message.body.decode())
        times.append(setup.clock.monotonic())
        return ConsumeResult.SUSPEND if bodies[-1] == "2" else None

    await setup.join("x", listener, ordered=True)
    await setup.clock.advance(5)
    setup.group.locks[Q0] = ("other@1", float("inf"))
    await setup.clock.advance(60)
    assert set(bodies) == {"0", "1", "2"}
    assert times[-1] - times[0] <= 30
    setup.group.offsets[Q0] = 5
    del setup.group.locks[Q0]
    await setup.clock.advance(10)
    assert bodies[-1] == "5"
    assert set(bodies) == {"0", "1", "2", "5"}


# Rebalance


def queues_of(consumer: PushConsumer) -> list[int]:
    return [each["queueId"] for each in consumer.describe()["queues"] if each["topic"] == "orders"]


async def test_w12_a_join_a_leave_growth_and_a_subscription_are_seen_at_once_and_nothing_every_20_seconds(
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

    # A member that nobody announced is seen by the clock alone.
    setup.group.members["a@silent"] = lambda: None
    await setup.clock.advance(15)
    before = queues_of(first)
    await setup.clock.advance(6)
    assert (before, queues_of(first)) == ([0, 1, 2, 3], [2, 3])
    assert setup.hook.triggers["period"] == 1


async def test_w12_the_queues_of_a_killed_member_are_taken_at_once_though_its_locks_live(setup: Setup) -> None:
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


async def test_w15_a_surplus_member_idles_and_a_warning_says_so_once(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    setup.group.members |= {"a@1": lambda: None, "b@1": lambda: None}
    consumer = await setup.join("x", Seen())
    await setup.clock.advance(60)
    assert queues_of(consumer) == []
    assert setup.hook.idle == [True]
    assert sum("x@1 of group billing has no queue of topic orders" in text for text in caplog.messages) == 1
    setup.group.vanish("a@1")
    await setup.clock.advance(3)
    assert setup.hook.idle == [True, False]


async def test_without_a_list_of_members_the_queues_stay_as_they_are(setup: Setup) -> None:
    consumer = await setup.join("x", Seen())
    await setup.clock.advance(2)
    setup.group.is_known = False
    setup.group.members["a@1"] = lambda: None
    setup.group.changed()
    await setup.clock.advance(60)
    assert queues_of(consumer) == [0, 1]
    setup.group.is_known = True
    await setup.clock.advance(25)
    assert queues_of(consumer) == [1]


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


async def test_an_ordered_queue_does_not_move_while_its_listener_takes_no_notice_of_its_timeout(setup: Setup) -> None:
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


async def test_a_concurrent_consumer_begins_at_once_when_no_agent_answers_for_the_locks(setup: Setup) -> None:
    setup.group.locks_answer = False
    await setup.brokers.put(Q0, ["1"])
    seen = Seen()
    await setup.join("x", seen)
    await setup.clock.advance(0.5)
    assert seen.bodies == ["1"]


async def test_queues_that_are_let_go_of_together_are_committed_and_unlocked_together(setup: Setup) -> None:
    setup.routes.set(route_of("orders", {"a": 200}))
    consumer = await setup.join("x", Seen())
    await setup.until(lambda: len(setup.group.locks) == 216)
    setup.group.commits = setup.group.unlocks = 0
    closing = asyncio.ensure_future(consumer.close())
    await setup.until(closing.done)
    assert not setup.group.locks
    # A call each would be two hundred seconds with an agent that does not answer.
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


async def test_offsets_that_cannot_be_committed_are_said_once_and_committed_later(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    await setup.brokers.put(Q0, ["1"])
    await setup.join("x", Seen())
    await setup.clock.advance(1)
    setup.group.offsets_answer = False
    await setup.clock.advance(20)
    assert setup.group.offsets[Q0] == 0
    assert caplog.text.count("offsets of group billing on broker c1/a are not committed") == 1
    setup.group.offsets_answer = True
    await setup.clock.advance(5)
    assert setup.group.offsets[Q0] == 1
    assert caplog.text.count("offsets of group billing on broker c1/a are committed again") == 1


async def test_a_topic_that_comes_to_be_later_is_consumed_from_then_on(setup: Setup) -> None:
    seen = Seen()
    await setup.join("x", seen, subscriptions={"refunds": "*"})
    await setup.clock.advance(5)
    setup.routes.set(route_of("refunds", {"a": 1}))
    await setup.brokers.put(queue_of(0, topic="refunds"), ["1"])
    await setup.clock.advance(2)
    assert seen.bodies == ["1"]


async def test_a_topic_that_is_deleted_is_let_go_of_and_one_that_nobody_can_ask_for_is_not(setup: Setup) -> None:
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
    assert "strategy moody cannot share out topic orders" in caplog.text


# Failover


async def test_w10_when_a_master_dies_reads_go_on_at_the_slave_and_return_to_the_master(setup: Setup) -> None:
    transport = setup.brokers.transport
    setup.routes.set(route_of("orders", {"a": 2}, ids=(0, 1)))
    transport.replicate(addr_of("a", 0), addr_of("a", 1))
    seen = Seen()
    consumer = await setup.join("x", seen)
    await setup.brokers.put(Q0, ["1"])
    await setup.clock.advance(1)
    # The route does not know yet.
    transport.take_down(addr_of("a", 0))
    transport.promote(addr_of("a", 1))
    await setup.brokers.put(Q0, ["2"], broker_id=1)
    await setup.until(lambda: seen.bodies == ["1", "2"], seconds=20)
    # Now it does: only the slave is left, read-only.
    setup.routes.set(route_of("orders", {"a": 2}, ids=(1,), perm=4))
    await setup.clock.advance(3)
    assert queues_of(consumer) == [0, 1]
    await setup.brokers.put(Q0, ["3"], broker_id=1)
    await setup.clock.advance(3)
    # The master is back as the slave's replica, and is read again.
    transport.replicate(addr_of("a", 1), addr_of("a", 0))
    transport.bring_up(addr_of("a", 0))
    setup.routes.set(route_of("orders", {"a": 2}, ids=(0, 1)))
    transport.promote(addr_of("a", 0))
    await setup.clock.advance(30)
    transport.take_down(addr_of("a", 1))
    await setup.brokers.put(Q0, ["4"])
    await setup.clock.advance(3)
    assert seen.bodies == ["1", "2", "3", "4"]


async def test_messages_that_are_gone_are_counted_and_passed_over(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(10))
    setup.group.offsets[Q0] = 2
    setup.brokers.transport.trim(addr_of("a"), Q0, 7)
    seen = Seen()
    await setup.join("x", seen)
    await setup.clock.advance(1)
    assert seen.bodies == ["7", "8", "9"]
    assert setup.hook.trimmed_messages == 5


async def test_after_a_broker_lost_its_messages_the_queue_goes_on_at_its_first_and_the_commit_follows(
    setup: Setup,
) -> None:
    await setup.brokers.put(Q0, ["new"])
    setup.group.offsets[Q0] = 50
    seen = Seen()
    await setup.join("x", seen)
    await setup.clock.advance(8)
    assert seen.bodies == ["new"]
    assert setup.group.offsets[Q0] == 1


async def test_a_queue_whose_pull_never_ends_is_taken_anew_after_two_minutes(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    await setup.brokers.put(Q0, ["1"])
    pull, hangs = setup.brokers.transport.pull, [asyncio.Event()]

    async def pull_that_hangs_once(addr: str, queue: MessageQueue, *arguments: Any, **settings: Any) -> Any:
        if queue == Q0 and hangs:
            await hangs.pop().wait()
        return await pull(addr, queue, *arguments, **settings)

    monkeypatch.setattr(setup.brokers.transport, "pull", pull_that_hangs_once)
    seen = Seen()
    await setup.join("x", seen)
    await setup.clock.advance(119)
    assert seen.bodies == []
    await setup.clock.advance(25)
    assert seen.bodies == ["1"]


async def test_a_queue_of_a_broker_that_hangs_is_read_when_it_answers_again(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["1"])
    seen = Seen()
    await setup.join("x", seen)
    await setup.clock.advance(1)
    setup.brokers.transport.hang(addr_of("a"))
    await setup.clock.advance(300)
    setup.brokers.transport.bring_up(addr_of("a"))
    await setup.brokers.put(Q0, ["2"])
    await setup.clock.advance(10)
    assert seen.bodies == ["1", "2"]


async def test_unknown_offsets_begin_no_queue(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["1"])
    setup.group.offsets_answer = False
    seen = Seen()
    await setup.join("x", seen)
    await setup.clock.advance(20)
    assert seen.bodies == []
    setup.group.offsets_answer = True
    await setup.clock.advance(6)
    assert seen.bodies == ["1"]


async def test_a_transport_with_a_fault_of_its_own_is_tried_again(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    await setup.brokers.put(Q0, ["1"])
    pull, faults = setup.brokers.transport.pull, [KeyError("fault")] * 3

    async def faulty_pull(*arguments: Any, **settings: Any) -> Any:
        if faults:
            raise faults.pop()
        return await pull(*arguments, **settings)

    monkeypatch.setattr(setup.brokers.transport, "pull", faulty_pull)
    seen = Seen()
    await setup.join("x", seen)
    await setup.clock.advance(5)
    assert seen.bodies == ["1"]


async def test_a_start_that_fails_leaves_nothing_behind(setup: Setup) -> None:
    before = asyncio.all_tasks()

    def no_coordination(_: object) -> Any:
        raise OSError("no agents")

    with pytest.raises(OSError, match="no agents"):
        await setup.join("x", Seen(), make_coordination=no_coordination)
    assert asyncio.all_tasks() == before


async def test_a_close_that_is_cancelled_leaves_no_task(setup: Setup) -> None:
    before = asyncio.all_tasks()
    await setup.brokers.put(Q0, ["1"])
    consumer = await setup.join("x", Held())
    await setup.clock.advance(1)
    closing = asyncio.ensure_future(consumer.close())
    await setup.clock.advance(1)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await setup.clock.advance(0)
    assert {task for task in asyncio.all_tasks() if not task.done()} - before == set()


# Broadcasting


async def test_broadcasting_members_each_read_everything_and_retry_nothing(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["1"])
    first, second = Seen(lambda _: ConsumeResult.RECONSUME_LATER), Seen()
    model = MessageModel.BROADCASTING
    await setup.join("x", first, message_model=model)
    await setup.join("y", second, message_model=model)
    await setup.clock.advance(60)
    assert (first.bodies, second.bodies) == (["1"], ["1"])
    assert not setup.hook.destinations


async def test_a_broadcasting_member_goes_on_after_a_restart_where_its_file_says(setup: Setup, tmp_path: Path) -> None:
    await setup.brokers.put(Q0, numbers(3))
    settings: dict[str, Any] = {
        "message_model": MessageModel.BROADCASTING,
        "offset_file": tmp_path / "offsets.json",
        "make_coordination": agent_coordination,
    }
    first, second = Seen(), Seen()
    consumer = await setup.join("x", first, **settings)
    async with asyncio.timeout(10):
        while len(first.bodies) < 3:
            await setup.clock.advance(0.1)
            await asyncio.sleep(0.005)
    await consumer.close()
    await setup.brokers.put(Q0, ["new"])
    await setup.join("x", second, **settings)
    async with asyncio.timeout(10):
        while not second.bodies:
            await setup.clock.advance(0.1)
            await asyncio.sleep(0.005)
    assert (first.bodies, second.bodies) == (numbers(3), ["new"])


# The end


async def test_a_close_finishes_what_is_in_flight_commits_unlocks_and_leaves_in_this_order(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["1", "2"])
    held = Held()
    consumer = await setup.join("x", held)
    await setup.clock.advance(1)
    closing = asyncio.ensure_future(consumer.close())
    await setup.clock.advance(1)
    assert not closing.done()
    held.go.set()
    await closing
    assert setup.group.offsets[Q0] == 2
    kinds = [line.split()[0] for line in setup.group.log]
    assert kinds.index("left") > max(at for at, kind in enumerate(kinds) if kind == "unlocked")
    assert kinds[-1] == "closed"
    assert set(setup.hook.queues.values()) == {0}
    assert setup.group.locks == {}
    await consumer.close()


async def test_a_close_ends_in_time_and_leaves_no_task_though_a_listener_never_returns(setup: Setup) -> None:
    before = asyncio.all_tasks()
    await setup.brokers.put(Q0, ["1", "2", "3"])
    held = Held()
    consumer = await setup.join("x", held, consume_concurrency=1)
    await setup.clock.advance(1)
    began = setup.clock.monotonic()
    closing = asyncio.ensure_future(consumer.close())
    await setup.until(closing.done, seconds=12)
    await closing
    assert setup.clock.monotonic() - began <= 10.5
    assert setup.group.offsets.get(Q0, 0) == 0
    assert {task for task in asyncio.all_tasks() if not task.done()} - before <= {closing}
