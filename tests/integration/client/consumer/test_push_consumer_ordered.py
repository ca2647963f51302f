"""A consumer that gets the messages of each queue in order, under its lock; a clock that moves by hand."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pointsman_client.consumer.push_consumer import PushConsumer
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.retry_rules import ConsumeResult
from tests.kit.client.consumer_setup import Setup, numbers
from tests.kit.client.memory_group import queue_of
from tests.kit.client.seen import Held, Seen

Q0, Q1 = queue_of(0), queue_of(1)


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

    monkeypatch.setattr("tests.kit.client.memory_group._Locks.lock", hang)
    await setup.clock.advance(21)
    await setup.brokers.put(Q0, ["too late"])
    await setup.clock.advance(5)
    assert seen.bodies == []
    hangs.set()


@pytest.mark.parametrize("fails", ["raises", "suspends"])
async def test_an_ordered_queue_pauses_for_a_second_and_retries_the_same_message(setup: Setup, fails: str) -> None:
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


async def test_an_ordered_listener_that_takes_too_long_is_cancelled_and_the_message_retried_in_place(
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


async def test_an_ordered_consumer_stops_retrying_after_the_configured_attempts_and_continues(setup: Setup) -> None:
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
    blocks = lines("blocks")
    assert [line.split()[1] for line in blocks] == ["1", "2", "4", "8", "16", "32"]
    assert blocks[-1] == (
        f"attempt 32 of message id-poison at offset 0 failed: ValueError: cannot; it blocks {Q0} for 31 s, and 12 "
        "messages wait behind it: retrying every 1 s until the listener succeeds; set max_reconsume_times to "
        "move such a message to the dead-letter topic"
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
    assert any(
        "after 4 failed attempts the message is moved to %DLQ%billing" in record.getMessage()
        for record in caplog.records
    )
    assert setup.hook.destinations == {"dlq": 1}


async def test_an_ordered_consumer_does_nothing_without_the_lock_for_any_time(setup: Setup) -> None:
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


async def test_an_ordered_consumer_that_lost_its_lock_continues_where_the_other_owner_stopped(setup: Setup) -> None:
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
    assert setup.hook.lost_locks == 1


async def test_an_ordered_queue_that_is_pinned_to_another_member_is_handed_over_between_two_messages(
    setup: Setup,
) -> None:
    await setup.brokers.put(Q0, numbers(4))
    first, second = Held(), Seen()

    def held(consumer: PushConsumer) -> list[object]:
        return list(consumer.describe()["queues"])

    holder = await setup.join("x", first, ordered=True)
    await setup.clock.advance(1)
    other = await setup.join("y", second, ordered=True)
    await setup.until(lambda: held(other))
    assert first.bodies == ["0"]
    setup.group.queue_pins = ((Q0, "y@1"),)
    setup.group.changed()
    await setup.clock.advance(10)
    assert second.bodies == []
    first.go.set()
    await setup.until(lambda: len(second.bodies) == 3)
    assert (first.bodies, second.bodies, first.most) == (["0"], ["1", "2", "3"], 1)
    setup.group.queue_pins = ()
    setup.group.changed()
    await setup.until(lambda: len(held(holder)) == 1 and len(held(other)) == 1)
