"""Listeners of all kinds, and how their results and exceptions count."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from pointsman_client.consumer.listener import ListenerCaller
from pointsman_client.core.message import Message, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.retry_rules import CallEnd, ConsumeResult, Outcome, Reject
from tests.kit.waiting import eventually

MESSAGE = ReceivedMessage(Message("orders", b"1"), MessageQueue("orders", "c1", "a", 0), 0, "id-1", None)
TRACE: contextvars.ContextVar[str] = contextvars.ContextVar("TRACE", default="")

ANSWERS = [
    (None, Outcome.SUCCESS),
    (ConsumeResult.SUCCESS, Outcome.SUCCESS),
    (ConsumeResult.RECONSUME_LATER, Outcome.LATER),
    (ConsumeResult.SUSPEND, Outcome.LATER),
    (ConsumeResult.DEAD_LETTER, Outcome.REJECTED),
    (True, Outcome.RAISED),
    ("SUCCESS", Outcome.RAISED),
]


@pytest.fixture
async def made() -> AsyncIterator[list[ListenerCaller]]:
    callers: list[ListenerCaller] = []
    yield callers
    for caller in callers:
        caller.close()


@pytest.mark.parametrize(("answer", "outcome"), ANSWERS)
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_listeners_result_decides(
    made: list[ListenerCaller], answer: Any, outcome: Outcome, is_async: bool
) -> None:
    async def asynchronous(_: ReceivedMessage) -> Any:
        return answer

    made.append(ListenerCaller(asynchronous if is_async else lambda _: answer, threads=1))
    assert made[0].is_plain is not is_async
    assert (await made[0].call(MESSAGE)).outcome is outcome


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (ConsumeResult.SUSPEND, "returned SUSPEND"),
        (True, "returned True, which is neither a ConsumeResult nor None"),
        (ValueError("no stock"), "ValueError: no stock"),
    ],
)
async def test_the_end_of_a_call_has_the_listeners_result(
    made: list[ListenerCaller], answer: object, error: str
) -> None:
    async def listener(_: ReceivedMessage) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    made.append(ListenerCaller(listener, threads=1))
    end = await made[0].call(MESSAGE)
    assert (end.error, end.exception) == (error, answer if isinstance(answer, Exception) else None)


@pytest.mark.parametrize("error", [ValueError("no"), StopIteration(), SystemExit(3)])
async def test_an_exception_of_a_plain_function_is_a_failure_and_its_thread_continues(
    made: list[ListenerCaller], error: BaseException
) -> None:
    threads: list[str] = []

    def listener(_: ReceivedMessage) -> None:
        threads.append(threading.current_thread().name)
        raise error

    made.append(ListenerCaller(listener, threads=1))
    if isinstance(error, SystemExit):
        with pytest.raises(SystemExit):
            await made[0].call(MESSAGE)
    else:
        assert (await made[0].call(MESSAGE)).outcome is Outcome.RAISED
        assert (await made[0].call(MESSAGE)).outcome is Outcome.RAISED
        assert len(set(threads)) == 1


async def test_an_object_with_an_async_call_and_a_bound_one_are_awaited(made: list[ListenerCaller]) -> None:
    class Service:
        async def __call__(self, message: ReceivedMessage) -> ConsumeResult:
            return await self.handle("x", message)

        async def handle(self, _: str, message: ReceivedMessage) -> ConsumeResult:
            assert message is MESSAGE
            return ConsumeResult.RECONSUME_LATER

    service = Service()
    made += [ListenerCaller(service, threads=1), ListenerCaller(partial(service.handle, "x"), threads=1)]
    assert [caller.is_plain for caller in made] == [False, False]
    assert [(await caller.call(MESSAGE)).outcome for caller in made] == [Outcome.LATER, Outcome.LATER]


async def test_a_plain_function_that_returns_a_coroutine_is_awaited_in_the_loop(made: list[ListenerCaller]) -> None:
    async def work() -> ConsumeResult:
        assert threading.current_thread() is threading.main_thread()
        return ConsumeResult.RECONSUME_LATER

    made.append(ListenerCaller(lambda _: work(), threads=1))
    assert (await made[0].call(MESSAGE)).outcome is Outcome.LATER


async def test_threads_are_bounded_and_see_the_callers_context(made: list[ListenerCaller]) -> None:
    running, most, lock, seen = 0, 0, threading.Lock(), set()
    gate = threading.Event()

    def listener(_: ReceivedMessage) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        seen.add(TRACE.get())
        gate.wait(5)
        with lock:
            running -= 1

    made.append(ListenerCaller(listener, threads=3))
    TRACE.set("t-1")
    calls = [asyncio.ensure_future(made[0].call(MESSAGE)) for _ in range(10)]
    await eventually(lambda: most >= 3, seconds=5)
    gate.set()
    assert [end.outcome for end in await asyncio.gather(*calls)] == [Outcome.SUCCESS] * 10
    assert most == 3
    assert seen == {"t-1"}


async def test_a_thread_that_does_not_return_is_replaced(made: list[ListenerCaller]) -> None:
    stuck = threading.Event()

    def listener(_: ReceivedMessage) -> None:
        stuck.wait(10)

    made.append(ListenerCaller(listener, threads=1))
    first = asyncio.ensure_future(made[0].call(MESSAGE))
    await asyncio.sleep(0)
    first.cancel()
    made[0].abandon_thread()
    second = asyncio.ensure_future(made[0].call(MESSAGE))
    await asyncio.sleep(0)
    alive = [thread for thread in threading.enumerate() if thread.name.startswith("pointsman-listener")]
    assert len(alive) >= 2
    assert all(thread.daemon for thread in alive)
    stuck.set()
    assert (await second).outcome is Outcome.SUCCESS


async def test_a_hanging_thread_is_replaced_even_after_many_quick_calls(
    made: list[ListenerCaller],
) -> None:
    stuck, hangs = threading.Event(), False

    def listener(_: ReceivedMessage) -> None:
        if hangs:
            stuck.wait(10)

    made.append(ListenerCaller(listener, threads=1))
    for _ in range(1_000):
        await made[0].call(MESSAGE)
    hangs = True
    hanging = asyncio.ensure_future(made[0].call(MESSAGE))
    await asyncio.sleep(0.05)
    hangs = False
    hanging.cancel()
    made[0].abandon_thread()
    try:
        async with asyncio.timeout(5):
            assert (await made[0].call(MESSAGE)).outcome is Outcome.SUCCESS
    finally:
        stuck.set()


async def test_a_call_that_is_given_up_before_a_thread_is_free_is_not_made(made: list[ListenerCaller]) -> None:
    gate, bodies = threading.Event(), []

    def listener(message: ReceivedMessage) -> None:
        bodies.append(message.message_id)
        gate.wait(10)

    made.append(ListenerCaller(listener, threads=1))
    first, second, third = (
        asyncio.ensure_future(made[0].call(MESSAGE._replace(message_id=name))) for name in ("a", "b", "c")
    )
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.sleep(0)
    gate.set()
    assert [(await first).outcome, (await third).outcome] == [Outcome.SUCCESS] * 2
    assert bodies == ["a", "c"]


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_listener_rejects_a_message_with_a_reason(made: list[ListenerCaller], is_async: bool) -> None:
    def plain(_: ReceivedMessage) -> None:
        raise Reject("no such order")

    async def asynchronous(message: ReceivedMessage) -> None:
        plain(message)

    made.append(ListenerCaller(asynchronous if is_async else plain, threads=1))
    assert await made[0].call(MESSAGE) == CallEnd(Outcome.REJECTED, "no such order")
