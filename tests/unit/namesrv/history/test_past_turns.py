"""Whose question comes next: those that used the worker least, and no asker has the queue alone."""

from __future__ import annotations

import asyncio

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_namesrv.history import past_turns
from pointsman_namesrv.history.past_turns import FIRST_ESTIMATE_SECONDS, HALF_LIFE_SECONDS, Asker, NoRoom, PastTurns

MOST = 4


class Askers:
    """Questions by name, each of which takes some seconds of the clock once it is its turn."""

    def __init__(self, clock: ManualClock) -> None:
        self.turns = PastTurns(MOST, clock=clock)
        self.answered: list[str] = []
        self.refused: list[str] = []
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []

    async def ask(self, *askers: str, seconds: float = 2.0) -> None:
        """Ask in this order, a question each; an asker may be named with its group and a slash."""
        for asker in askers:
            self._tasks.append(asyncio.create_task(self._one(asker, seconds)))
            for _ in range(2):  # the one that is refused notices it
                await asyncio.sleep(0)

    async def _one(self, asker: str, seconds: float) -> None:
        try:
            async with self.turns.turn(Asker(asker.partition("/")[0], asker)):
                await self._clock.sleep(seconds)
                self.answered.append(asker)
        except NoRoom:
            self.refused.append(asker)

    def cancel(self, number: int) -> None:
        self._tasks[number].cancel()

    async def end(self) -> list[str]:
        """Let all end; return whose questions were answered since the last call."""
        while not all(task.done() for task in self._tasks):
            await self._clock.advance(0.5)
        self.answered, found = [], self.answered
        return found


@pytest.fixture
def askers(clock: ManualClock) -> Askers:
    return Askers(clock)


async def test_those_who_ask_with_pauses_do_not_wait_for_one_who_does_not(askers: Askers) -> None:
    await askers.ask("greedy", "greedy", "greedy", "zoe", "max")
    assert await askers.end() == ["greedy", "zoe", "max", "greedy", "greedy"]


async def test_the_questions_of_one_asker_are_answered_in_their_order(askers: Askers) -> None:
    for seconds in (1.0, 2.0, 3.0):
        await askers.ask("zoe", seconds=seconds)
    assert await askers.end() == ["zoe"] * 3
    assert askers.turns.seconds == pytest.approx(((FIRST_ESTIMATE_SECONDS * 3 + 1) / 4 * 9 + 6 + 12) / 16)


async def test_at_the_bound_the_last_question_of_who_asks_most_is_refused_and_not_the_newcomers(
    askers: Askers,
) -> None:
    await askers.ask(*["greedy"] * (MOST + 1), "zoe")
    assert askers.refused == ["greedy"]
    assert askers.turns.waiting == MOST
    assert await askers.end() == ["greedy", "zoe", *["greedy"] * (MOST - 1)]


async def test_at_the_bound_one_asker_alone_is_refused_and_so_is_the_last_of_equals(askers: Askers) -> None:
    await askers.ask(*["greedy"] * (MOST + 2))
    assert askers.refused == ["greedy"]
    await askers.end()

    askers.refused.clear()
    await askers.ask("a", "b", "c", "d", "e", "f")
    assert askers.refused == ["f"]
    await askers.end()


async def test_who_used_the_worker_comes_after_who_did_not_though_each_has_one_question(askers: Askers) -> None:
    greedy = [f"greedy-{number}" for number in range(MOST + 1)]
    await askers.ask(*greedy)
    await askers.end()
    await askers.ask(*greedy, "zoe")
    assert askers.refused == ["greedy-4"], "it used the worker last"
    assert (await askers.end())[:2] == ["greedy-0", "zoe"]


async def test_a_host_with_many_connections_holds_up_no_other_host(askers: Askers) -> None:
    greedy = [f"greedy/{number}" for number in range(MOST + 1)]
    await askers.ask(*greedy, "zoe/1", "max/1")
    assert askers.refused == ["greedy/4", "greedy/3"]
    assert await askers.end() == ["greedy/0", "zoe/1", "max/1", "greedy/1", "greedy/2"]


async def test_connections_of_one_host_share_its_part(askers: Askers) -> None:
    await askers.ask(*["host/greedy"] * 4, "host/zoe")
    assert await askers.end() == ["host/greedy", "host/zoe", *["host/greedy"] * 3]


async def test_who_repeats_refused_questions_without_pause_comes_after_who_does_not(askers: Askers) -> None:
    await askers.ask("host/first", *[f"host/{number}" for number in range(MOST)])
    await askers.ask(*["host/greedy"] * 3)
    assert askers.refused == ["host/greedy"] * 3
    await askers.end()
    await askers.ask("host/new", "host/greedy", "host/other")
    assert await askers.end() == ["host/new", "host/other", "host/greedy"]


async def test_a_group_is_not_put_off_by_what_was_refused_to_it(askers: Askers) -> None:
    await askers.ask("a/0", *[f"a/{number}" for number in range(MOST + 20)], seconds=1.0)
    assert len(askers.refused) == 20
    await askers.end()
    await askers.ask("b/0", seconds=8.0)
    await askers.end()
    await askers.ask("c/0", "b/0", "a/new")
    assert await askers.end() == ["c/0", "a/new", "b/0"]


async def test_what_was_used_is_forgotten_with_time(askers: Askers, clock: ManualClock) -> None:
    await askers.ask("zoe", seconds=8.0)
    await askers.end()
    await askers.ask("max", seconds=1.0)
    await askers.end()
    await askers.ask("other", "zoe", "max")
    assert await askers.end() == ["other", "max", "zoe"]
    await clock.advance(10 * HALF_LIFE_SECONDS)
    await askers.ask("max", seconds=1.0)
    await askers.end()
    await askers.ask("other", "max", "zoe")
    assert await askers.end() == ["other", "zoe", "max"]


async def test_a_question_that_its_caller_gave_up_leaves_its_place_to_others(askers: Askers) -> None:
    await askers.ask("a", "b", "c")
    askers.cancel(1)
    await asyncio.sleep(0)
    assert askers.turns.waiting == 1
    assert await askers.end() == ["a", "c"]


async def test_a_turn_whose_caller_gives_up_as_it_comes_is_passed_on(clock: ManualClock) -> None:
    turns, order = PastTurns(MOST, clock=clock), list[str]()

    async def ask(asker: str) -> None:
        async with turns.turn(Asker(asker, asker)):
            order.append(asker)

    async with turns.turn(Asker("first", "first")):
        second, third = asyncio.create_task(ask("second")), asyncio.create_task(ask("third"))
        await asyncio.sleep(0)
    second.cancel()  # after its turn came, before it ran
    await asyncio.gather(second, third, return_exceptions=True)
    assert order == ["third"]
    await ask("fourth")
    assert order == ["third", "fourth"]


async def test_a_question_that_is_given_up_as_a_turn_ends_does_not_get_it(clock: ManualClock) -> None:
    turns, order = PastTurns(MOST, clock=clock), list[str]()

    async def ask(asker: str) -> None:
        async with turns.turn(Asker(asker, asker)):
            order.append(asker)

    async with turns.turn(Asker("first", "first")):
        second, third = asyncio.create_task(ask("second")), asyncio.create_task(ask("third"))
        await asyncio.sleep(0)
        second.cancel()  # before the turn ends; it has not run since
    await asyncio.gather(second, third, return_exceptions=True)
    assert order == ["third"]
    assert turns.waiting == 0


async def test_only_some_askers_are_remembered(askers: Askers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_turns, "MAX_ASKERS", 2)
    for asker in ("a", "b", "c"):
        await askers.ask(asker)
        await askers.end()
    assert set(askers.turns._of_askers._seconds) == {"b", "c"}
