"""Questions of many queues that go out together."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from pointsman_client.aio import BatchedQuery
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
