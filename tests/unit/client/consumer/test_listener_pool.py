"""Listener calls that share a task."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pointsman.clock import Clock, SystemClock
from pointsman.manual_clock import ManualClock, settle
from pointsman_client.consumer.held_queue import HeldQueue, QueueContext
from pointsman_client.consumer.listener import Listener, ListenerCaller
from pointsman_client.consumer.listener_pool import ListenerPool
from pointsman_client.core.message import Message, ReceivedMessage
from pointsman_client.core.process_queue import FlowLimits, ProcessQueue
from tests.kit.client.consumer_setup import Recorded
from tests.kit.client.memory_group import queue_of

Q0 = queue_of(0)


class Made:
    """A pool, and a queue with messages in it."""

    def __init__(self, listener: Listener, *, clock: Clock, concurrency: int, is_ordered: bool) -> None:
        self.hook = Recorded()
        self.pool = ListenerPool(
            ListenerCaller(listener, threads=1),
            None,
            group="billing",
            concurrency=concurrency,
            is_ordered=is_ordered,
            batch_size=None,
            needs_lock=False,
            max_reconsume_times=None,
            consume_timeout_seconds=900.0,
            clock=clock,
            hook=self.hook,
        )
        self.held = HeldQueue(Q0, cast("QueueContext", SimpleNamespace(clock=clock, rng=random.Random(1))))
        self.messages = ProcessQueue(0, limits=FlowLimits(), now=0.0)
        self.held.process_queue = self.messages

    def put(self, count: int) -> None:
        first = self.messages.next_pull_offset
        offsets = range(first, first + count)
        message = Message("orders", b"x")
        self.messages.put([ReceivedMessage(message, Q0, at, str(at), None) for at in offsets], offsets.stop)
        self.pool.offer(self.held)


Make = Callable[..., Made]


@pytest.fixture
async def make(clock: ManualClock) -> AsyncIterator[Make]:
    made: list[Made] = []

    def make_one(listener: Listener, *, clock: Clock = clock, concurrency: int = 4, is_ordered: bool = False) -> Made:
        made.append(Made(listener, clock=clock, concurrency=concurrency, is_ordered=is_ordered))
        return made[-1]

    yield make_one
    for each in made:
        await each.pool.close()


@pytest.mark.parametrize("is_ordered", [False, True])
@pytest.mark.parametrize("waits", [False, True])
async def test_no_call_sees_context_variables_that_another_set(make: Make, waits: bool, is_ordered: bool) -> None:
    variable = contextvars.ContextVar("variable", default="")
    variable.set("of the consumer")
    seen: list[str] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(variable.get())
        variable.set(message.message_id)
        if waits:
            await asyncio.sleep(0)

    made = make(listener, is_ordered=is_ordered)
    variable.set("of another task")
    made.put(5)
    await settle()
    assert seen == ["of the consumer"] * 5


async def test_a_context_variable_that_cannot_be_compared_is_a_change(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    class Array:
        def __eq__(self, other: object) -> bool:
            raise ValueError("the truth value is ambiguous")

        __hash__ = None  # type: ignore[assignment]

    variable = contextvars.ContextVar[Array]("variable")
    variable.set(first := Array())
    seen: list[bool] = []

    async def listener(_: ReceivedMessage) -> None:
        seen.append(variable.get() is first)
        variable.set(Array())

    made = make(listener)
    made.put(5)
    await settle()
    assert seen == [True] * 5
    assert caplog.messages == []


async def test_calls_that_change_nothing_share_a_task(make: Make) -> None:
    tasks: set[asyncio.Task[Any] | None] = set()
    variable = contextvars.ContextVar("variable", default=0)

    async def listener(_: ReceivedMessage) -> None:
        tasks.add(asyncio.current_task())
        token = variable.set(1)
        variable.reset(token)

    made = make(listener)
    made.put(10)
    await settle()
    assert made.messages.commit_offset == 10
    assert len(tasks) == 1


async def test_a_listener_that_waits_does_not_delay_the_next_messages(make: Make) -> None:
    running, most = 0, 0
    end = asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if message.queue_offset >= 3:  # the first ones do not wait
            await end.wait()
        running -= 1

    made = make(listener)
    made.put(5)
    await settle()
    made.put(5)
    await settle()
    assert (running, most, made.pool.running) == (4, 4, 4)
    end.set()
    await settle()
    assert (running, made.pool.running, made.messages.commit_offset) == (0, 0, 10)


async def test_listeners_that_never_wait_let_the_event_loop_run(make: Make) -> None:
    clock = SystemClock()
    turns_at_end = []
    turns = 0

    async def listener(_: ReceivedMessage) -> None:
        until = clock.monotonic() + 0.001
        while clock.monotonic() < until:
            pass
        turns_at_end.append(turns)

    made = make(listener, clock=clock, concurrency=2)
    made.put(50)
    async with asyncio.timeout(30):
        while len(turns_at_end) < 50:
            turns += 1
            await asyncio.sleep(0)
    assert turns_at_end[-1] >= 20


async def test_a_call_that_was_cancelled_ends_alone(make: Make) -> None:
    """Whether the listener ends with it or not."""
    seen: list[int] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.queue_offset)
        task = asyncio.current_task()
        assert task is not None
        if message.queue_offset == 2:
            task.cancel()
            await asyncio.sleep(0)
        if message.queue_offset == 5:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(0)
        assert task.cancelling() == (message.queue_offset == 5)

    made = make(listener, concurrency=1)
    made.put(10)
    await settle()
    assert seen == list(range(10))
    assert made.messages.commit_offset == 10


async def test_a_queue_that_is_dropped_hands_out_nothing_more(make: Make) -> None:
    seen: list[int] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.queue_offset)
        if message.queue_offset == 2:
            made.messages.drop()

    made = make(listener)
    made.put(10)
    await settle()
    assert seen == [0, 1, 2]


async def test_a_closed_pool_calls_nothing(make: Make) -> None:
    seen: list[int] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.queue_offset)

    made = make(listener)
    made.put(10)
    await made.pool.close()
    made.put(10)
    await settle()
    assert seen == []


async def test_a_call_that_runs_for_long_is_reported_and_logged_once(
    make: Make, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    end = asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        if message.queue_offset == 1:
            await end.wait()

    made = make(listener)
    made.pool.start()
    assert made.pool.oldest_call_seconds == 0.0
    made.put(3)
    await settle()
    began_at = clock.monotonic()
    await clock.advance(4.0)
    assert (made.hook.running, made.pool.problems(), made.pool.oldest_call_seconds) == ({}, [], 4.0)

    await clock.advance(2.0)
    assert made.hook.running == {Q0: began_at}
    for _ in range(20):
        await clock.advance(5.0)
    assert caplog.messages == [f"a listener call has run for 65 s, with message 1 at offset 1 of {Q0}"]
    assert made.pool.problems() == [f"a listener call has run for 106 s, with message 1 of {Q0}"]

    end.set()
    await clock.advance(5.0)
    assert (made.hook.running, made.pool.problems(), made.pool.oldest_call_seconds) == ({}, [], 0.0)


async def test_a_closed_pool_reports_no_running_call(make: Make, clock: ManualClock) -> None:
    async def listener(_: ReceivedMessage) -> None:
        await asyncio.Event().wait()

    made = make(listener)
    made.pool.start()
    made.put(1)
    await settle()
    await clock.advance(5.0)
    assert made.hook.running
    await made.pool.close()
    assert made.hook.running == {}
