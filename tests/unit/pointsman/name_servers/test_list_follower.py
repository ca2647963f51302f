"""When a list of name servers is read, and what applies when its user cannot take it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from pointsman.manual_clock import ManualClock
from pointsman.name_servers import NameServerSourceError
from pointsman.name_servers.list_follower import RETRY_SECONDS, NameServerFollower
from tests.kit.waiting import eventually

ONE, TWO = "10.0.0.1:9876", "10.0.0.2:9876"


class ScriptedList:
    """A source and a user of a list."""

    def __init__(self) -> None:
        self.listed: tuple[str, ...] = ()
        self.refused = ""
        self.addrs: tuple[str, ...] = ()
        self.problems: list[str] = []

    def read(self) -> tuple[str, ...]:
        return self.listed

    async def use(self, addrs: tuple[str, ...]) -> None:
        if self.refused:
            raise NameServerSourceError(self.refused)
        self.addrs = addrs

    def on_read(self, problem: str) -> None:
        self.problems.append(problem)

    async def was_read(self, times: int) -> None:
        await eventually(lambda: len(self.problems) == times, what=f"read {times}")


@asynccontextmanager
async def following(scripted: ScriptedList, clock: ManualClock, next_wait: Callable[[], float]) -> AsyncIterator[None]:
    follower = NameServerFollower(scripted, scripted, clock=clock, next_wait=next_wait, at_most=16)
    task = asyncio.create_task(follower.run())
    try:
        await scripted.was_read(1)
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_until_there_is_a_list_it_is_read_more_often_and_then_at_the_given_waits(clock: ManualClock) -> None:
    scripted, waits = ScriptedList(), iter([30.0, 30.0, 28.5, 30.0])
    async with following(scripted, clock, lambda: next(waits)):
        await clock.advance(RETRY_SECONDS - 0.1)
        assert scripted.problems == ["the list is empty"]
        await clock.advance(0.1)
        await scripted.was_read(2)
        scripted.listed = (ONE,)
        await clock.advance(RETRY_SECONDS)
        await scripted.was_read(3)
        assert scripted.addrs == (ONE,)
        await clock.advance(28.4)
        assert len(scripted.problems) == 3
        await clock.advance(0.1)
        await scripted.was_read(4)


async def test_a_list_that_its_user_cannot_take_is_a_problem_and_is_offered_again(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    scripted = ScriptedList()
    scripted.addrs, scripted.listed, scripted.refused = (ONE,), (TWO,), "the disk is full"
    with caplog.at_level(logging.INFO):
        async with following(scripted, clock, lambda: 10.0):
            await clock.advance(10.0)
            await scripted.was_read(2)
            scripted.refused = ""
            await clock.advance(10.0)
            await scripted.was_read(3)
    assert scripted.problems == ["the disk is full", "the disk is full", ""]
    assert [record.getMessage() for record in caplog.records] == [
        f"name server list cannot be read; {ONE} stays in use: the disk is full",
        f"name server list changed from {ONE} to {TWO}",
    ]


async def test_a_list_in_use_that_is_read_again_in_another_order_is_not_offered(clock: ManualClock) -> None:
    scripted = ScriptedList()
    scripted.addrs, scripted.listed, scripted.refused = (TWO, ONE), (ONE, TWO, ONE), "it must not be offered"
    async with following(scripted, clock, lambda: 10.0):
        assert scripted.problems == [""]
        assert scripted.addrs == (TWO, ONE)
