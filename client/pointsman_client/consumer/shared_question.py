"""One question about many queues, each of which asks for itself: what is asked in one turn of the loop is one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Generic, TypeVar

SubjectT = TypeVar("SubjectT")
AnswerT = TypeVar("AnswerT")


class SharedQuestion(Generic[SubjectT, AnswerT]):
    """Thousands of queues that are taken up or let go of at once would else be thousands of calls."""

    def __init__(
        self, ask: Callable[[Collection[SubjectT]], Awaitable[AnswerT]], *, one_at_a_time: bool = False
    ) -> None:
        """``one_at_a_time``: what is asked while a question is on its way is one, too."""
        self._ask = ask
        self._turn: AbstractAsyncContextManager[None] = asyncio.Lock() if one_at_a_time else nullcontext()
        self._next: _Round[SubjectT, AnswerT] | None = None

    async def about(self, *subjects: SubjectT) -> AnswerT:
        """The answer to the question in which ``subjects`` are some of several; raises what asking raises."""
        current = self._next
        if current is None:
            current = self._next = _Round()
            current.task = asyncio.create_task(self._run(current), name="pointsman-shared-question")
        current.subjects.update(dict.fromkeys(subjects))
        assert current.task is not None  # noqa: S101  made with the round
        current.waiting += 1
        try:
            # One who is cancelled must not take the answer from the others.
            return await asyncio.shield(current.task)
        finally:
            current.waiting -= 1
            if not current.waiting:
                self._end(current)
                current.task.cancel()

    async def _run(self, current: _Round[SubjectT, AnswerT]) -> AnswerT:
        await asyncio.sleep(0)
        async with self._turn:
            self._end(current)
            return await self._ask(list(current.subjects))

    def _end(self, current: _Round[SubjectT, AnswerT]) -> None:
        """Let nobody join any more."""
        if self._next is current:
            self._next = None


class _Round(Generic[SubjectT, AnswerT]):
    def __init__(self) -> None:
        self.subjects: dict[SubjectT, None] = {}
        self.waiting = 0
        self.task: asyncio.Task[AnswerT] | None = None
