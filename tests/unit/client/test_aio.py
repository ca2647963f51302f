"""Tasks, callbacks, waits and queries that share one call."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_client.aio import BatchedQuery, Callbacks, Wakeup, done_within
from pointsman_client.core.message_queue import MessageQueue


def queue(number: int) -> MessageQueue:
    return MessageQueue("orders", "c1", "a", number)


class Agent:
    """Responds when ``go`` is set, and records its requests."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.go = asyncio.Event()
        self.error: Exception | None = None
        self.was_cancelled = False

    async def ask(self, queues: Collection[MessageQueue]) -> int:
        self.asked.append([each.queue_id for each in queues])
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        if self.error is not None:
            raise self.error
        return len(self.asked)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_queries_of_one_turn_share_a_request_and_those_of_the_next_turn_get_another() -> None:
    agent = Agent()
    question = BatchedQuery(agent.ask)
    first = [asyncio.ensure_future(question.about(queue(number))) for number in range(3)]
    await turns()
    second = asyncio.ensure_future(question.about(queue(3)))
    await turns()
    agent.go.set()
    assert await asyncio.gather(*first) == [2, 2, 2]
    assert await second == 2
    assert agent.asked == [[0, 1, 2], [3]]


async def test_a_cancelled_caller_leaves_the_response_to_the_others() -> None:
    agent = Agent()
    question = BatchedQuery(agent.ask)
    leaver, stayer = (asyncio.ensure_future(question.about(queue(number))) for number in range(2))
    await turns()
    leaver.cancel()
    await turns()
    agent.go.set()
    assert await stayer == 1


async def test_when_all_are_cancelled_the_question_is_too() -> None:
    agent = Agent()
    asking = asyncio.ensure_future(BatchedQuery(agent.ask).about(queue(0)))
    await turns()
    asking.cancel()
    await turns()
    assert agent.was_cancelled


async def test_all_callers_get_the_error() -> None:
    agent = Agent()
    agent.error = ValueError("no")
    agent.go.set()
    question = BatchedQuery(agent.ask)
    answers = await asyncio.gather(question.about(queue(0)), question.about(queue(1)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [ValueError, ValueError]
    with pytest.raises(ValueError, match="no"):
        await question.about(queue(2))


async def test_a_caller_left_alone_by_cancellations_gets_its_own_response() -> None:
    agent = Agent()
    agent.go.set()
    question = BatchedQuery(agent.ask)
    leaver = asyncio.ensure_future(question.about(queue(0)))
    await asyncio.sleep(0)
    leaver.cancel()
    comer = asyncio.ensure_future(question.about(queue(1)))
    assert await comer == 1
    assert agent.asked == [[1]]


async def test_queries_made_during_a_request_can_wait_and_share_the_next_one() -> None:
    agent = Agent()
    question = BatchedQuery(agent.ask, one_at_a_time=True)
    asking = []
    for number in range(4):
        asking.append(asyncio.ensure_future(question.about(queue(number), queue(number + 10))))
        await turns()
    agent.go.set()
    assert await asyncio.gather(*asking) == [1, 2, 2, 2]
    assert agent.asked == [[0, 10], [1, 11, 2, 12, 3, 13]]


async def test_each_is_called_soon_and_not_within_the_callers_frame() -> None:
    callbacks: Callbacks[str] = Callbacks()
    heard: list[str] = []
    callbacks.add(heard.append)
    callbacks.add(heard.append)
    callbacks.notify("news")
    assert heard == []
    await asyncio.sleep(0)
    assert heard == ["news", "news"]


async def test_a_removed_callback_is_not_called_and_removing_twice_is_allowed() -> None:
    callbacks: Callbacks[str] = Callbacks()
    heard: list[str] = []
    remove, _ = callbacks.add(heard.append), callbacks.add(heard.append)
    remove()
    remove()
    callbacks.notify("news")
    await asyncio.sleep(0)
    assert heard == ["news"]


async def test_a_callback_that_raises_does_not_affect_the_others() -> None:
    callbacks: Callbacks[str] = Callbacks()
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: faults.append(context["exception"]))
    heard: list[str] = []

    def broken(_news: str) -> None:
        raise ValueError("mine")

    callbacks.add(broken)
    callbacks.add(heard.append)
    callbacks.notify("news")
    await asyncio.sleep(0)
    assert heard == ["news"]
    assert [str(fault) for fault in faults] == ["mine"]


async def test_a_call_ends_the_wait_and_time_does_too(clock: ManualClock) -> None:
    wakeup = Wakeup(clock)
    woken, late = asyncio.ensure_future(wakeup.wait(10)), None
    await clock.advance(9)
    assert not woken.done()
    wakeup.wake()
    assert await woken is True
    late = asyncio.ensure_future(wakeup.wait(10))
    await clock.advance(10)
    assert await late is False


async def test_a_call_before_the_wait_is_not_lost_and_counts_once(clock: ManualClock) -> None:
    wakeup = Wakeup(clock)
    wakeup.wake()
    wakeup.wake()
    assert await wakeup.wait(10) is True
    again = asyncio.ensure_future(wakeup.wait(1))
    await clock.advance(0)
    assert not again.done()
    await clock.advance(1)
    assert await again is False


async def test_a_cancelled_wait_leaves_nothing_behind(clock: ManualClock) -> None:
    before = asyncio.all_tasks()
    waiting = asyncio.ensure_future(Wakeup(clock).wait(10))
    await clock.advance(0)
    waiting.cancel()
    await clock.advance(0)
    assert asyncio.all_tasks() == before


async def test_work_done_in_time_is_reported_and_late_work_continues(clock: ManualClock) -> None:
    work = asyncio.ensure_future(clock.sleep(5))
    late = asyncio.ensure_future(done_within(work, 4, clock=clock))
    await clock.advance(4)
    assert await late is False

    in_time = asyncio.ensure_future(done_within(work, 4, clock=clock))
    await clock.advance(1)
    assert await in_time is True
    assert not work.cancelled()
