"""The worker process and its bounds: one question at a time, eight that wait, memory and time."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from pointsman.clock import SystemClock
from pointsman.manual_clock import ManualClock
from pointsman_namesrv.history import past_worker_link
from pointsman_namesrv.history.past_turns import Asker
from pointsman_namesrv.history.past_worker_link import (
    MAX_WAITING,
    HistoryOff,
    PastUnreadable,
    PastWorkerLink,
    QuestionTooLarge,
    TooManyQuestions,
)
from pointsman_namesrv.node_metrics import PastMetrics
from tests.kit.history.own_files import write_own_files
from tests.kit.waiting import eventually, running
from tests.spark.histories import NameServer, broker, moment

ZOE = Asker("zoe", "zoe")
QUESTION = {"kind": "broker", "broker_name": "a", "at": moment(60).isoformat(), "limit": 10}


def nothing_waits() -> None:
    pass


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
async def link(tmp_path: Path, registry: CollectorRegistry) -> AsyncIterator[PastWorkerLink]:
    server = NameServer().start(moment(0))
    server.say("REGISTERED", moment(1), broker("a"))
    write_own_files(tmp_path, server.rows)
    link = PastWorkerLink(
        tmp_path, node="ns1:9876", clock=SystemClock(), metrics=PastMetrics(registry), write_now=nothing_waits
    )
    yield link
    await link.stop()


def outcomes(registry: CollectorRegistry, outcome: str) -> float:
    labels = {"kind": "broker", "outcome": outcome}
    return registry.get_sample_value("pointsman_namesrv_past_questions_total", labels) or 0.0


def starts(registry: CollectorRegistry) -> float:
    return registry.get_sample_value("pointsman_namesrv_past_worker_starts_total") or 0.0


def pid_of(link: PastWorkerLink) -> int:
    assert link._process is not None
    return link._process.pid


async def test_it_starts_with_the_first_question_and_answers_all_with_one_process(
    link: PastWorkerLink, registry: CollectorRegistry
) -> None:
    answers = await asyncio.gather(*(link.ask(QUESTION, ZOE) for _ in range(MAX_WAITING + 1)))

    assert all(answer == answers[0] for answer in answers)
    assert [event["event"] for event in answers[0]["events"]] == ["REGISTERED"]
    assert (starts(registry), outcomes(registry, "completed")) == (1, MAX_WAITING + 1)
    assert os.getpriority(os.PRIO_PROCESS, pid_of(link)) > 0


async def test_a_question_beyond_those_that_may_wait_is_refused_with_the_time_to_retry(
    link: PastWorkerLink, registry: CollectorRegistry
) -> None:
    asked = [asyncio.ensure_future(link.ask(QUESTION, ZOE)) for _ in range(MAX_WAITING + 1)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyQuestions) as refused:
        await link.ask(QUESTION, ZOE)

    assert refused.value.status == "RESOURCE_EXHAUSTED"
    assert float(refused.value.facts["retry_after_seconds"]) >= 1.0
    await asyncio.gather(*asked)
    assert await link.ask(QUESTION, ZOE)
    assert outcomes(registry, "refused") == 1


async def test_a_worker_that_was_killed_is_replaced_by_the_next_question(
    link: PastWorkerLink, registry: CollectorRegistry
) -> None:
    await link.ask(QUESTION, ZOE)
    os.kill(pid_of(link), signal.SIGKILL)
    process = link._process
    await eventually(lambda: process is not None and process.returncode is not None)

    assert await link.ask(QUESTION, ZOE)
    assert starts(registry) == 2


async def test_a_worker_that_ends_during_a_question_fails_only_that_one(link: PastWorkerLink) -> None:
    await link.ask(QUESTION, ZOE)
    os.kill(pid_of(link), signal.SIGSTOP)
    asked = asyncio.ensure_future(link.ask(QUESTION, ZOE))
    await asyncio.sleep(0.05)
    os.kill(pid_of(link), signal.SIGKILL)

    with pytest.raises(PastUnreadable):
        await asked
    assert await link.ask(QUESTION, ZOE)


async def test_a_question_that_takes_too_long_is_ended_with_its_worker(
    link: PastWorkerLink, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    await link.ask(QUESTION, ZOE)
    monkeypatch.setattr(past_worker_link, "DEADLINE_SECONDS", 0.2)
    stopped = pid_of(link)
    os.kill(stopped, signal.SIGSTOP)

    with pytest.raises(QuestionTooLarge, match=r"0\.2 s"):
        await link.ask(QUESTION, ZOE)
    monkeypatch.undo()
    assert await link.ask(QUESTION, ZOE)
    assert pid_of(link) != stopped
    assert outcomes(registry, "too_large") == 1


async def test_a_question_that_its_caller_gave_up_does_not_hold_up_the_next(link: PastWorkerLink) -> None:
    await link.ask(QUESTION, ZOE)
    os.kill(pid_of(link), signal.SIGSTOP)
    asked = asyncio.ensure_future(link.ask(QUESTION, ZOE))
    await asyncio.sleep(0.05)
    asked.cancel()

    assert await link.ask(QUESTION, ZOE)


async def test_an_answer_beyond_the_memory_is_refused_and_the_next_is_given(
    link: PastWorkerLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_worker_link, "MEMORY_BYTES", 48 * 1024 * 1024)
    monkeypatch.setattr(past_worker_link, "DEADLINE_SECONDS", 300.0)  # a busy machine reads 30 MB slowly
    server = NameServer(boot_id="b2").start(moment(100))
    for number in range(2_000):
        server.say("LATE_HEARTBEAT", moment(101 + number / 1_000), broker("large"), detail={"text": "x" * 15_000})
    write_own_files(tmp_path, server.rows)

    with pytest.raises(QuestionTooLarge):
        await link.ask({**QUESTION, "broker_name": "large", "at": moment(200).isoformat()}, ZOE)
    assert await link.ask(QUESTION, ZOE)


async def test_closed_files_are_indexed_while_no_question_waits(link: PastWorkerLink, tmp_path: Path) -> None:
    server = NameServer(boot_id="b2").start(moment(86_400 + 100))
    write_own_files(tmp_path, server.rows, is_open=False)
    await link.ask(QUESTION, ZOE)

    await eventually(lambda: len(list((tmp_path / "index").rglob("*.json"))) == 1)
    assert await link.ask(QUESTION, ZOE)


async def test_closed_files_are_indexed_before_the_first_question_and_after_a_worker_was_killed(
    tmp_path: Path, registry: CollectorRegistry, clock: ManualClock
) -> None:
    read = asyncio.Event()

    async def until_read() -> None:
        await read.wait()

    def indexes() -> int:
        return len(list((tmp_path / "index").rglob("*.json")))

    link = PastWorkerLink(
        tmp_path, node="ns1:9876", clock=clock, metrics=PastMetrics(registry), write_now=nothing_waits
    )
    write_own_files(tmp_path, NameServer(boot_id="b2").start(moment(86_500)).rows, is_open=False)
    async with running(link.run(until_read)):
        await clock.advance(3 * past_worker_link.IDLE_SECONDS)
        assert starts(registry) == 0, "the start reads the history"
        read.set()
        await eventually(lambda: indexes() == 1, clock=clock, step=past_worker_link.IDLE_SECONDS)
        assert starts(registry) == 1
        os.kill(pid_of(link), signal.SIGKILL)
        write_own_files(tmp_path, NameServer(boot_id="b3").start(moment(172_900)).rows, is_open=False)
        await eventually(lambda: indexes() == 2, clock=clock, step=past_worker_link.IDLE_SECONDS)
        assert (starts(registry), outcomes(registry, "completed")) == (2, 0)
    await link.stop()


async def test_a_malformed_question_is_a_failure_and_no_end(link: PastWorkerLink, registry: CollectorRegistry) -> None:
    with pytest.raises(PastUnreadable):
        await link.ask({**QUESTION, "at": "yesterday"}, ZOE)
    assert await link.ask(QUESTION, ZOE)
    assert starts(registry) == 1


async def test_without_a_history_it_says_so(registry: CollectorRegistry) -> None:
    link = PastWorkerLink(
        None, node="ns1:9876", clock=SystemClock(), metrics=PastMetrics(registry), write_now=nothing_waits
    )
    with pytest.raises(HistoryOff, match="records no history"):
        await link.ask(QUESTION, ZOE)
    assert starts(registry) == 0


async def test_the_stop_ends_the_worker_and_no_question_starts_another(link: PastWorkerLink) -> None:
    await link.ask(QUESTION, ZOE)
    worker = pid_of(link)
    await link.stop()

    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)
    with pytest.raises(PastUnreadable):
        await link.ask(QUESTION, ZOE)
