"""A consumer with a listener, against brokers and a group in memory, with a clock that moves by hand."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pointsman_client.core.consumer_health import ConsumerHealth
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.rebalance import ConsumeFrom, MessageModel
from pointsman_client.core.retry_rules import ConsumeResult, Reject
from pointsman_client.core.subscription import SqlFilter
from pointsman_client.errors import InvalidOptionError
from pointsman_client.ports.transport import PulledMessages, Reader
from tests.kit.client.consumer_setup import Setup, numbers, queues_of
from tests.kit.client.memory_group import addr_of, queue_of, route_of
from tests.kit.client.seen import Held, Seen
from tests.kit.waiting import eventually

Q0, Q1 = queue_of(0), queue_of(1)


async def test_every_message_is_handed_to_the_listener_and_committed(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(100))
    seen = Seen()
    await setup.join("x", seen)
    await setup.until(lambda: len(seen.bodies) == 100)
    assert sorted(seen.bodies, key=int) == numbers(100)
    await setup.clock.advance(5)
    assert setup.group.offsets[Q0] == 100


async def test_a_condition_is_refused_by_brokers_that_evaluate_none(setup: Setup) -> None:
    condition = SqlFilter("amount > 500")
    problem = r"subscriptions\['orders'\] = 'amount > 500' is a SQL92 condition, which only RocketMQ brokers evaluate"
    for join in (
        setup.join_pulling("x", subscriptions={"orders": condition}),
        setup.join("y", Seen(), subscriptions={"orders": condition}),
    ):
        with pytest.raises(InvalidOptionError, match=problem):
            await join
    consumer = await setup.join("z", Seen())
    with pytest.raises(InvalidOptionError, match=problem):
        consumer.subscribe("orders", condition)
    assert consumer.describe()["subscriptions"] == {"orders": "*"}


async def test_messages_that_come_later_reach_a_pull_that_waits(setup: Setup) -> None:
    seen = Seen()
    await setup.join("x", seen)
    await setup.clock.advance(3)
    await setup.brokers.put(Q1, ["late"])
    await setup.clock.advance(0)
    assert seen.bodies == ["late"]


async def test_a_new_group_begins_with_messages_sent_from_now_on_by_default(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["old"], age_seconds=61)
    seen = Seen()
    await setup.join("x", seen, consume_from=ConsumeFrom.LAST_OFFSET)
    await setup.clock.advance(3)
    await setup.brokers.put(Q0, ["new"])
    await setup.clock.advance(1)
    assert seen.bodies == ["new"]


async def test_each_pull_contains_the_group_and_its_tags(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    readers: set[tuple[str, Any]] = set()
    pull = setup.brokers.transport.pull

    async def record(addr: str, queue: MessageQueue, offset: int, **how: Any) -> PulledMessages:
        readers.add((queue.topic, how["reader"]))
        return await pull(addr, queue, offset, **how)

    monkeypatch.setattr(setup.brokers.transport, "pull", record)
    await setup.join("x", Seen(), subscriptions={"orders": "refunded||paid"})
    await setup.clock.advance(3)
    expected = {("orders", Reader("billing", "paid || refunded")), ("%RETRY%billing", Reader("billing", "*"))}
    assert readers == expected


async def test_an_offset_that_an_operator_reset_at_the_broker_is_read_and_committed(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    await setup.brokers.put(Q0, numbers(5))
    seen = Seen()
    await setup.join("x", seen)
    await setup.until(lambda: setup.group.offsets.get(Q0) == 5)
    pull = setup.brokers.transport.pull
    resets = [PulledMessages((), 2, is_reset=True)]

    async def reset_once(addr: str, queue: MessageQueue, offset: int, **how: Any) -> PulledMessages:
        if queue == Q0 and len(seen.bodies) == 6 and resets:
            return resets.pop()
        return await pull(addr, queue, offset, **how)

    monkeypatch.setattr(setup.brokers.transport, "pull", reset_once)
    await setup.brokers.put(Q0, ["5"])
    await setup.until(lambda: len(seen.bodies) == 10)
    assert seen.bodies == [*numbers(6), "2", "3", "4", "5"]
    await setup.until(lambda: setup.group.offsets[Q0] == 6)


async def test_a_stored_offset_wins_over_where_to_begin(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(5))
    setup.group.offsets[Q0] = 3
    seen = Seen()
    await setup.join("x", seen)
    await setup.clock.advance(3)
    assert seen.bodies == ["3", "4"]


async def test_a_master_that_returns_with_fewer_messages_is_read_from_its_own_agents_offset_not_from_the_first_message(
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
    begin = setup.clock.utc_now() - timedelta(seconds=30)
    await setup.join("x", seen, consume_from=ConsumeFrom.TIMESTAMP, consume_timestamp=begin)
    await setup.clock.advance(3)
    assert seen.bodies == ["young"]


async def test_tags_are_filtered_at_the_client_and_filtered_messages_count_as_finished(setup: Setup) -> None:
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


async def test_listeners_run_concurrently_up_to_the_limit_and_queues_take_turns(setup: Setup) -> None:
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
async def test_a_listener_that_ends_with_an_unusual_exception_counts_as_failed(
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


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_rejected_message_is_a_dead_letter_immediately_with_its_reason_and_the_queue_continues(
    setup: Setup, caplog: pytest.LogCaptureFixture, ordered: bool
) -> None:
    await setup.brokers.put(Q0, ["bad", "good"])
    seen = Seen()
    dead: list[tuple[bytes, str]] = []

    async def listener(message: ReceivedMessage) -> None:
        await seen(message)
        if message.body == b"bad":
            raise Reject("no such order")

    def on_dead_letter(message: ReceivedMessage, error: str) -> None:
        dead.append((message.body, error))
        raise ValueError("of the application")

    await setup.join("x", listener, ordered=ordered, on_dead_letter=on_dead_letter)
    await setup.until(lambda: len(seen.bodies) == 2)
    assert seen.bodies == ["bad", "good"]
    assert dead == [(b"bad", "no such order")]
    assert setup.hook.results == {"rejected": 1, "success": 1}
    pulled = await setup.brokers.transport.pull(
        addr_of("a"), queue_of(0, topic="%DLQ%billing"), 0, max_messages=10, wait_seconds=0, timeout_seconds=1
    )
    assert [(each.body, each.error) for each in pulled.messages] == [(b"bad", "no such order")]
    assert "on_dead_letter failed for message id-bad" in caplog.messages
    await setup.clock.advance(6)
    assert setup.group.offsets[Q0] == 2


async def test_a_broadcasting_member_drops_a_rejected_message_and_says_why(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    await setup.brokers.put(Q0, ["bad"])
    await setup.join("x", Seen(lambda _: ConsumeResult.DEAD_LETTER), message_model=MessageModel.BROADCASTING)
    await setup.until(lambda: setup.hook.results == {"rejected": 1})
    assert not setup.hook.destinations
    assert (
        f"message id-bad of {Q0} was dropped after a failure, since broadcasting has no retries and dead letters: "
        "returned DEAD_LETTER"
    ) in caplog.messages


async def test_a_failed_message_that_no_broker_accepts_is_retried_locally_and_not_finished(setup: Setup) -> None:
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
    try:
        await setup.clock.advance(14 * 60)
        assert seen == [("stuck", 0)]
        await setup.clock.advance(3 * 60)
        assert ("next", 0) in seen
        assert ("stuck", 1) in seen
        assert setup.hook.results["timeout"] == 1
    finally:
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
    async with asyncio.timeout(60):
        await done.wait()
    assert names[0].startswith("pointsman-listener")


async def test_a_plain_function_that_never_returns_loses_its_thread_to_the_others(setup: Setup) -> None:
    stuck, bodies = threading.Event(), []

    def listener(message: ReceivedMessage) -> None:
        bodies.append(message.body.decode())
        if message.body == b"stuck":
            stuck.wait(60)

    await setup.brokers.put(Q0, ["stuck", "next"])
    await setup.join("x", listener, consume_concurrency=1, consume_timeout_seconds=15)
    try:
        await eventually(lambda: bodies == ["stuck"])
        await setup.clock.advance(14)
        assert bodies == ["stuck"]
        await setup.clock.advance(3)
        await eventually(lambda: "next" in bodies)
    finally:
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


# Failover


async def test_w10_when_a_master_crashes_reads_continue_at_the_slave_and_return_to_the_master(setup: Setup) -> None:
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


async def test_deleted_messages_are_counted_and_skipped(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(10))
    setup.group.offsets[Q0] = 2
    setup.brokers.transport.trim(addr_of("a"), Q0, 7)
    seen = Seen()
    await setup.join("x", seen)
    await setup.clock.advance(1)
    assert seen.bodies == ["7", "8", "9"]
    assert setup.hook.trimmed_messages == 5


async def test_after_a_broker_lost_its_messages_the_queue_continues_at_its_first_offset_and_the_commit_follows(
    setup: Setup,
) -> None:
    await setup.brokers.put(Q0, ["new"])
    setup.group.offsets[Q0] = 50
    seen = Seen()
    await setup.join("x", seen)
    await setup.clock.advance(8)
    assert seen.bodies == ["new"]
    assert setup.group.offsets[Q0] == 1


async def test_a_queue_whose_pull_never_ends_is_reacquired_after_two_minutes(
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


async def test_a_queue_of_a_broker_that_hangs_is_read_when_it_responds_again(setup: Setup) -> None:
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


async def test_a_transport_with_an_internal_error_is_retried(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_a_close_continues_when_its_caller_is_cancelled(setup: Setup) -> None:
    before = asyncio.all_tasks()
    await setup.brokers.put(Q0, ["1"])
    held = Held()
    consumer = await setup.join("x", held)
    await setup.clock.advance(1)
    closing = asyncio.ensure_future(consumer.close())
    await setup.clock.advance(1)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    held.go.set()
    await consumer.close()
    assert setup.group.offsets[Q0] == 1
    assert setup.group.log[-1].split()[0] == "closed"
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


async def test_a_broadcasting_member_continues_after_a_restart_from_the_offsets_in_its_file(
    setup: Setup, tmp_path: Path
) -> None:
    await setup.brokers.put(Q0, numbers(3))
    settings: dict[str, Any] = {
        "message_model": MessageModel.BROADCASTING,
        "offset_file": str(tmp_path / "offsets.db"),
        "make_coordination": None,
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


async def test_health_says_what_keeps_a_consumer_from_its_work(setup: Setup) -> None:
    end = asyncio.Event()

    async def listener(_: ReceivedMessage) -> None:
        await end.wait()

    setup.group.is_known = False
    consumer = await setup.join("x", listener)
    assert consumer.health() == ConsumerHealth(("no list of members",), 0)
    assert not consumer.health().is_ready

    setup.group.is_known = True
    setup.group.changed()
    await setup.brokers.put(Q0, ["hangs"])
    await setup.until(lambda: consumer.health() == ConsumerHealth((), 2))
    assert consumer.health().is_ready
    await setup.clock.advance(70.0)
    health = consumer.health()
    assert health.problems == (f"a listener call has run for 70 s, with message id-hangs of {Q0}",)
    assert health.oldest_call_seconds == pytest.approx(70.0)

    end.set()
    await setup.clock.advance(1.0)
    assert consumer.health().is_ready
    await consumer.close()
    assert consumer.health().problems == ("it is not started, or closed",)


async def test_a_member_without_queues_is_ready(setup: Setup) -> None:
    members = [await setup.join(name, Seen()) for name in "xyz"]
    await setup.until(lambda: sorted(each.health().queues for each in members) == [0, 1, 1])
    assert all(each.health().is_ready for each in members)


async def test_a_consumer_none_of_whose_queues_can_be_read_is_not_ready_but_one_with_some_is(setup: Setup) -> None:
    setup.routes.set(route_of("orders", {"a": 1, "b": 1}))
    consumer = await setup.join("x", Seen())
    await setup.until(lambda: consumer.health() == ConsumerHealth((), 2))
    setup.brokers.transport.take_down(addr_of("a"))
    await setup.clock.advance(30.0)
    assert consumer.health().is_ready
    setup.brokers.transport.take_down(addr_of("b"))
    await setup.clock.advance(30.0)
    (problem,) = consumer.health().problems
    assert problem.startswith(f"none of its 2 queues can be read; {queue_of(0)}: ")
