"""A listener of several messages at a time, against brokers and a group in memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pointsman_client import (
    InvalidOptionError,
    MessageModel,
    PushConsumer,
    ReceivedMessage,
    Reject,
    sync,
)
from pointsman_client.core.retry_rules import ConsumeResult
from pointsman_client.memory import MemoryTransport
from tests.kit.client.consumer_setup import Setup, numbers
from tests.kit.client.memory_group import addr_of, queue_of

Q0, Q1 = queue_of(0), queue_of(1)
DEAD = queue_of(0, topic="%DLQ%billing")


class Batches:
    """A listener that keeps its batches, and returns what ``answer`` gives."""

    def __init__(self, answer: Callable[[Sequence[ReceivedMessage]], ConsumeResult | None] = lambda _: None) -> None:
        self.all: list[list[str]] = []
        self.times: list[list[int]] = []
        self.queues: list[set[object]] = []
        self._answer = answer

    async def __call__(self, messages: Sequence[ReceivedMessage]) -> ConsumeResult | None:
        self.all.append([message.body.decode() for message in messages])
        self.times.append([message.reconsume_times for message in messages])
        self.queues.append({message.queue for message in messages})
        return self._answer(messages)

    @property
    def bodies(self) -> list[str]:
        return [body for batch in self.all for body in batch]


async def test_a_call_has_messages_of_one_queue_in_their_order_and_all_are_committed(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(100))
    await setup.brokers.put(Q1, numbers(100, "b"))
    batches = Batches()
    await setup.join("x", None, batch_listener=batches, consume_message_batch_max_size=30)
    await setup.until(lambda: len(batches.bodies) == 200)
    assert [body for body in batches.bodies if body[0] != "b"] == numbers(100)
    assert [body for body in batches.bodies if body[0] == "b"] == numbers(100, "b")
    assert {len(batch) for batch in batches.all} > {30}
    assert max(map(len, batches.all)) == 30
    assert max(map(len, batches.queues)) == 1
    await setup.clock.advance(5)
    assert (setup.group.offsets[Q0], setup.group.offsets[Q1]) == (100, 100)
    assert setup.hook.results["success"] == len(batches.all)


async def test_the_next_batch_does_not_wait_until_it_is_full(setup: Setup) -> None:
    batches = Batches()
    await setup.join("x", None, batch_listener=batches)
    await setup.brokers.put(Q0, ["one"])
    await setup.until(lambda: batches.all == [["one"]])


async def test_no_offset_passes_a_batch_that_runs(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(10))
    held = asyncio.Event()

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        if messages[0].body == b"4":
            await held.wait()

    await setup.join("x", None, batch_listener=listener, consume_message_batch_max_size=4)
    await setup.clock.advance(6)
    assert setup.group.offsets[Q0] == 4
    held.set()
    await setup.clock.advance(6)
    assert setup.group.offsets[Q0] == 10


async def test_all_messages_of_a_batch_that_fails_are_delivered_again(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(5))
    batches = Batches(lambda messages: ConsumeResult.RECONSUME_LATER if not messages[0].reconsume_times else None)
    await setup.join("x", None, batch_listener=batches)
    await setup.until(lambda: len(batches.bodies) == 10)
    assert sorted(batches.bodies[5:]) == numbers(5)
    assert batches.times[0] == [0] * 5
    assert {times for batch in batches.times[1:] for times in batch} == {1}
    assert setup.hook.destinations == {"retry": 5}


async def test_a_batch_ends_before_a_message_that_is_not_due(setup: Setup) -> None:
    """Messages of the retry topic are due one after the other."""
    await setup.brokers.put(Q0, ["first"])
    batches = Batches(lambda messages: None if messages[0].reconsume_times else ConsumeResult.RECONSUME_LATER)
    await setup.join("x", None, batch_listener=batches)
    await setup.until(lambda: setup.hook.destinations["retry"] == 1)
    await setup.clock.advance(5)
    await setup.brokers.put(Q0, ["second"])
    await setup.until(lambda: setup.hook.destinations["retry"] == 2)
    await setup.until(lambda: len(batches.all) == 4)
    assert batches.all[2:] == [["first"], ["second"]]


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_batch_that_is_rejected_is_in_the_dead_letters(setup: Setup, ordered: bool) -> None:
    def answer(messages: Sequence[ReceivedMessage]) -> None:
        if b"1" in [message.body for message in messages]:
            raise Reject("no such order")

    await setup.brokers.put(Q0, numbers(3))
    dead: list[tuple[bytes, str]] = []
    await setup.join(
        "x",
        None,
        batch_listener=Batches(answer),
        ordered=ordered,
        on_dead_letter=lambda message, error: dead.append((message.body, error)),
    )
    await setup.until(lambda: len(dead) == 3)
    assert sorted(dead) == [(body.encode(), "no such order") for body in numbers(3)]
    assert await setup.brokers.transport.max_offset(addr_of("a"), DEAD, timeout_seconds=1) == 3
    await setup.until(lambda: setup.group.offsets[Q0] == 3)


async def test_an_ordered_batch_is_retried_in_place_before_the_next(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(6))
    batches = Batches(lambda messages: ConsumeResult.SUSPEND if messages[0].reconsume_times < 2 else None)
    await setup.join("x", None, batch_listener=batches, consume_message_batch_max_size=3, ordered=True)
    await setup.until(lambda: len(batches.all) == 6)
    first, second = numbers(6)[:3], numbers(6)[3:]
    assert batches.all == [first, first, first, second, second, second]
    assert batches.times == [[n] * 3 for n in (0, 1, 2, 0, 1, 2)]
    assert setup.hook.destinations == {}


async def test_ordered_messages_that_fail_too_often_are_in_the_dead_letters_and_those_behind_are_not(
    setup: Setup,
) -> None:
    await setup.brokers.put(Q0, numbers(2))
    batches = Batches(lambda messages: None if messages[0].body == b"2" else ConsumeResult.SUSPEND)
    await setup.join("x", None, batch_listener=batches, ordered=True, max_reconsume_times=1)
    await setup.until(lambda: len(batches.all) == 1)
    # It is one of the batch from the second attempt on, and has one attempt fewer behind it.
    await setup.brokers.put(Q0, ["2"])
    await setup.until(lambda: setup.hook.destinations["dlq"] == 2)
    await setup.until(lambda: batches.all[-1] == ["2"])
    assert batches.all == [["0", "1"], ["0", "1", "2"], ["2"]]
    assert batches.times == [[0, 0], [1, 1, 0], [1]]
    await setup.until(lambda: setup.group.offsets[Q0] == 3)


async def test_a_broadcasting_consumer_drops_a_batch_that_fails(
    setup: Setup, caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    await setup.brokers.put(Q0, numbers(3))
    batches = Batches(lambda _: ConsumeResult.RECONSUME_LATER)
    await setup.join(
        "x",
        None,
        batch_listener=batches,
        message_model=MessageModel.BROADCASTING,
        offset_file=tmp_path / "offsets",
    )
    await setup.until(lambda: caplog.text.count("was dropped after a failure") == 3)
    await setup.clock.advance(30)
    assert batches.all == [numbers(3)]


async def test_a_batch_that_takes_too_long_is_delivered_again(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(3))
    seen: list[int] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        seen.append(len(messages))
        if not messages[0].reconsume_times:
            await asyncio.Event().wait()

    await setup.join("x", None, batch_listener=listener, consume_timeout_seconds=5.0)
    await setup.until(lambda: sum(seen) == 6, seconds=60)
    assert setup.hook.results["timeout"] == 1
    assert setup.hook.destinations == {"retry": 3}


async def test_a_plain_function_gets_batches_in_a_thread(setup: Setup) -> None:
    await setup.brokers.put(Q0, numbers(3))
    seen: list[tuple[int, str]] = []
    listener = lambda messages: seen.append((len(messages), threading.current_thread().name))  # noqa: E731
    await setup.join("x", None, batch_listener=listener)
    await setup.until(lambda: seen)
    (batch,) = seen
    assert batch[0] == 3
    assert batch[1] != threading.main_thread().name


async def test_a_message_waits_at_most_as_long_as_the_call_before_it(setup: Setup) -> None:
    """Concurrent: what comes while a batch runs is another call."""
    held = asyncio.Event()
    seen: list[list[bytes]] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        seen.append([message.body for message in messages])
        if messages[0].body == b"slow":
            await held.wait()

    await setup.join("x", None, batch_listener=listener)
    await setup.brokers.put(Q0, ["slow"])
    await setup.until(lambda: seen)
    await setup.brokers.put(Q0, ["next"])
    await setup.until(lambda: [b"next"] in seen)
    held.set()


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({}, "listener"),
        ({"listener": print, "batch_listener": print}, "batch_listener"),
        ({"batch_listener": 1}, "batch_listener"),
        ({"batch_listener": print, "consume_message_batch_max_size": 0}, "consume_message_batch_max_size"),
        ({"batch_listener": print, "consume_message_batch_max_size": 1_025}, "consume_message_batch_max_size"),
    ],
)
@pytest.mark.parametrize("kind", [PushConsumer, sync.PushConsumer])
def test_one_of_the_two_listeners_is_given(kind: Any, options: dict[str, Any], option: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        kind("10.0.0.1:9876", group="billing", subscriptions="orders", transport=MemoryTransport, **options)
    assert caught.value.option == option


def test_the_blocking_consumer_takes_no_async_listener_of_batches() -> None:
    with pytest.raises(InvalidOptionError, match=r"batch_listener = .* must not be async"):
        sync.PushConsumer(
            "10.0.0.1:9876",
            group="billing",
            subscriptions="orders",
            transport=MemoryTransport,
            batch_listener=Batches().__call__,  # type: ignore[arg-type]
        )
