"""Following a source: the last valid state, passed on once per version, and problems that do not flood the log."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from prometheus_client import CollectorRegistry

from pointsman.manual_clock import ManualClock
from pointsman_agent.core.topic_set import TopicConfig, TopicSet
from pointsman_agent.topic_source import TopicSourceError
from pointsman_agent.topic_source.source_metrics import SourceMetrics
from pointsman_agent.topic_source.topic_follower import TopicFollower

INTERVAL = 5.0
TIMEOUT = 3.0


def topics(*names: str) -> TopicSet:
    return TopicSet.from_content((TopicConfig(name, 4, 4, 6) for name in names), state_version=0)


class ScriptedSource:
    """Returns ``answer``, raises it, or hangs when it is None; a read lasts ``seconds``."""

    def __init__(self, answer: TopicSet | Exception | None) -> None:
        self.answer = answer
        self.seconds = 0.0
        self.reads = 0
        self.clock: ManualClock | None = None

    async def read(self) -> TopicSet:
        self.reads += 1
        if self.answer is None:
            await asyncio.Event().wait()
        if self.seconds and self.clock is not None:
            await self.clock.sleep(self.seconds)
        if isinstance(self.answer, Exception):
            raise self.answer
        assert self.answer is not None
        return self.answer


class Running:
    """A follower on a manual clock, and what it passed on."""

    def __init__(self, source: ScriptedSource, clock: ManualClock) -> None:
        self.source = source
        self.clock = clock
        source.clock = clock
        self.changes: list[TopicSet] = []
        self.registry = CollectorRegistry()
        self.follower = TopicFollower(
            source,
            clock=clock,
            interval=INTERVAL,
            timeout=TIMEOUT,
            on_change=self.changes.append,
            metrics=SourceMetrics(self.registry, clock=clock),
        )

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def reads(self) -> dict[str, float | None]:
        return {
            result: self.metric("pointsman_agent_topic_source_reads_total", result=result)
            for result in ("changed", "unchanged", "failed")
        }


@asynccontextmanager
async def running(answer: TopicSet | Exception | None, clock: ManualClock) -> AsyncIterator[Running]:
    run = Running(ScriptedSource(answer), clock)
    task = asyncio.create_task(run.follower.run())
    await clock.advance(0)
    try:
        yield run
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_change_is_passed_on_once_and_the_same_version_is_not(clock: ManualClock) -> None:
    async with running(topics("a"), clock) as run:
        await clock.advance(10 * INTERVAL)
        run.source.answer = topics("a", "b")
        await clock.advance(3 * INTERVAL)

        assert run.changes == [topics("a"), topics("a", "b")]
        assert run.follower.topics == topics("a", "b")
        assert run.reads() == {"changed": 2.0, "unchanged": 12.0, "failed": 0.0}


@pytest.mark.parametrize(
    "failure", [TopicSourceError("gone"), KeyError("a bug"), None], ids=["said", "unknown", "hangs"]
)
async def test_a_source_that_fails_keeps_the_last_good_state(failure: Exception | None, clock: ManualClock) -> None:
    async with running(topics("a"), clock) as run:
        run.source.answer = failure
        await clock.advance(20 * INTERVAL)

        assert run.follower.topics == topics("a")
        assert run.follower.state.problem in {"gone", "KeyError: 'a bug'", "no response within 3 s"}
        assert run.metric("pointsman_agent_topic_source_age_seconds") == 20 * INTERVAL

        run.source.answer = topics("b")
        await clock.advance(INTERVAL + TIMEOUT)
        assert run.changes == [topics("a"), topics("b")]
        assert run.follower.state.problem == ""


async def test_a_failing_first_read_gives_nothing_until_there_is_one(clock: ManualClock) -> None:
    async with running(TopicSourceError("not there"), clock) as run:
        first = asyncio.create_task(run.follower.first())
        await clock.advance(100 * INTERVAL)

        assert not first.done()
        assert (run.changes, run.follower.topics) == ([], None)
        age = run.metric("pointsman_agent_topic_source_age_seconds")
        assert age is not None
        assert math.isnan(age)

        run.source.answer = topics("a")
        await clock.advance(INTERVAL)
        assert await first == topics("a")


async def test_failure_and_recovery_are_logged_once_each(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="pointsman_agent.topic_source.topic_follower")
    async with running(topics("a"), clock) as run:
        for _ in range(2):
            run.source.answer = TopicSourceError("gone")
            await clock.advance(100 * INTERVAL)
            run.source.answer = topics("a")
            await clock.advance(10 * INTERVAL)

    failing = "topics cannot be read; keeping the last valid topics"
    assert [record.message for record in caplog.records] == ["topics changed", *[failing, "topic source recovered"] * 2]


async def test_changing_problems_are_logged_once_per_minute(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(TopicSourceError("0"), clock) as run:
        for number in range(1, 61):
            run.source.answer = TopicSourceError(str(number))
            await clock.advance(INTERVAL)

    assert 5 <= len(caplog.records) <= 6
    assert {record.message for record in caplog.records} == {
        "topics cannot be read; the broker is registered when they can be"
    }


async def test_an_immediate_poll_does_not_wait_for_the_interval(clock: ManualClock) -> None:
    async with running(topics("a"), clock) as run:
        run.source.answer = topics("b")
        for _ in range(5):
            run.follower.poll_now()
        await clock.advance(0)

        assert run.changes == [topics("a"), topics("b")]
        assert run.source.reads == 2


async def test_an_immediate_poll_during_a_poll_is_one_more_poll(clock: ManualClock) -> None:
    async with running(topics("a"), clock) as run:
        run.source.seconds = 1.0
        run.follower.poll_now()
        await clock.advance(0.5)
        run.follower.poll_now()
        await clock.advance(0.6)

        assert run.source.reads == 3


@pytest.mark.parametrize(
    ("seconds", "next_after"), [(0.1, INTERVAL), (2.0, 20.0)], ids=["a-quick-look", "a-look-that-takes-long"]
)
async def test_polling_uses_a_small_part_of_the_time(seconds: float, next_after: float, clock: ManualClock) -> None:
    async with running(topics("a"), clock) as run:
        run.source.seconds = seconds
        await clock.advance(INTERVAL + seconds)
        assert run.source.reads == 2

        await clock.advance(next_after - 0.01)
        assert run.source.reads == 2
        await clock.advance(0.02)
        assert run.source.reads == 3


async def test_a_poll_that_hung_needs_no_pause(clock: ManualClock) -> None:
    async with running(None, clock) as run:
        await clock.advance(TIMEOUT + INTERVAL)

        assert run.source.reads == 2


async def test_the_end_of_the_task_leaves_nothing_running(clock: ManualClock) -> None:
    counted: Callable[[], int] = lambda: len(asyncio.all_tasks())  # noqa: E731
    before = counted()
    async with running(None, clock):
        await clock.advance(1)
    await asyncio.sleep(0)

    assert counted() == before
