"""A start reads earlier runs back by a process, in slices; an error of any kind leaves a server that serves."""

from __future__ import annotations

import asyncio
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_namesrv.config import HistoryConfig
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.liveness import LivenessRules
from pointsman_namesrv.core.model import Position, Reason
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.replica_state import Phase, ReplicaState
from pointsman_namesrv.history import startup_memory
from pointsman_namesrv.history.newest_rows import Question
from pointsman_namesrv.history.recent import RecentEvents
from pointsman_namesrv.history.row import Record
from pointsman_namesrv.history.startup_memory import EarlierRuns, StartupMemory
from pointsman_namesrv.node_metrics import Metrics
from tests.kit.history.past_runs import NODE, PastRun
from tests.kit.name_server.events import broker_event, facts

LOST = broker_event(EventKind.EXPIRED, reason=Reason.SILENCE)
A = Position("c1", "a", 0)


class Start:
    """A start an hour after the earlier runs of :mod:`tests.kit.history.past_runs` began."""

    def __init__(self, history: Path, *, hours: float = 168.0, enabled: bool = True) -> None:
        self.clock = ManualClock(utc=datetime(2026, 1, 1, 13, tzinfo=UTC))
        self.core = NameServer(rules=LivenessRules(), first_generation=1, started_at=self.clock.monotonic())
        self.recent = RecentEvents()
        self.metrics = Metrics()
        config = HistoryConfig(enabled=enabled, directory=str(history), read_back_hours=hours)
        self.memory = StartupMemory(
            self.core, self.recent, config, node=NODE, boot_id="now", clock=self.clock, metrics=self.metrics
        )

    async def read(self, previous: str = "b1") -> EarlierRuns:
        await self.memory.run(previous_boot_id=previous, in_snapshot={})
        return self.memory.state

    def happened(self, event: Event, seq: int = 1) -> None:
        self.recent.add(Record(event, self.clock.utc_now(), 0, seq))
        self.core.penalties.record(event, now=self.clock.monotonic())
        self.memory.note(event, now=self.clock.monotonic(), in_window=False)

    def penalty(self) -> float:
        score = self.core.penalties.score(A, now=self.clock.monotonic())
        return 0.0 if score is None else score.penalty

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"pointsman_namesrv_history_read_back_{name}", labels)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    (tmp_path / "raw").mkdir()
    return tmp_path


async def test_events_penalties_and_absences_are_those_of_before(history: Path) -> None:
    PastRun(history, "b1").add(broker_event(), uptime=0.0).add(LOST, uptime=600.0).close()
    start = Start(history)
    assert start.memory.state is EarlierRuns.READING
    assert await start.read() is EarlierRuns.READ
    assert [(record.run, record.event.kind, record.boot_id) for record in start.recent.of("a")] == [
        (-1, "REGISTERED", "b1"),
        (-1, "EXPIRED", "b1"),
    ]
    assert start.penalty() == pytest.approx(1_000 * 2 ** (-3_000 / 3_600))
    absent = start.core.departed.get(A)
    assert absent is not None
    assert absent.at == pytest.approx(start.clock.monotonic() - 3_000)
    assert start.memory.sizes()["earlier_rows"] == 3
    assert start.metric("rows") == 3
    assert start.metric("files", result="read") == 1
    assert start.memory.problems() == []


async def test_events_since_the_start_count_after_earlier_ones(history: Path) -> None:
    run = PastRun(history, "b1").add(broker_event(), uptime=0.0)
    run.add(LOST, uptime=600.0).close()
    start = Start(history)
    start.happened(LOST)
    assert start.penalty() == 1_000, "the earlier ones are not known yet"
    assert await start.read() is EarlierRuns.READ
    assert start.penalty() == pytest.approx(1_000 * 2 ** (-3_000 / 3_600)), "the same outage"
    assert start.core.departed.get(A) is None, "this run knows better"
    assert [record.run for record in start.recent.of("a")] == [-1, -1, 0]
    start = Start(history)
    start.happened(broker_event())
    start.happened(broker_event(EventKind.RESTARTED), 2)
    await start.read()
    assert start.penalty() == pytest.approx(1_000 * 2 ** (-3_000 / 3_600) + 1_000)


async def test_what_the_snapshot_contained_makes_way_for_earlier_events(history: Path) -> None:
    PastRun(history, "b1").add(LOST, uptime=600.0).close()
    start = Start(history)
    found = Event(kind=EventKind.CHECKPOINT, reason=Reason.START, broker=LOST.broker)
    start.happened(found)
    assert [record.event.kind for record in start.recent.of("a")] == ["CHECKPOINT"]
    await start.read()
    assert [record.event.kind for record in start.recent.of("a")] == ["EXPIRED"]
    assert start.core.departed.get(A) is not None, "it is not an event of this run"


async def test_a_broker_is_absent_only_if_that_is_the_last_that_was_known_of_it(history: Path) -> None:
    run = PastRun(history, "b1").add(LOST, uptime=600.0)
    provisional = replace(facts(), state=ReplicaState(Phase.PROVISIONAL, Reason.SNAPSHOT))
    run.add(Event(kind=EventKind.ADDRESS_CONFLICT, broker=provisional), uptime=601.0).close()
    start = Start(history)
    await start.read()
    assert start.core.departed.get(A) is not None, "a snapshot stated the other state"
    run.add(broker_event(), uptime=602.0).close()
    start = Start(history)
    await start.read()
    assert start.core.departed.get(A) is None


@pytest.mark.parametrize("off", [{"enabled": False}, {"hours": 0.0}], ids=str)
async def test_nothing_is_read_where_that_is_off(history: Path, off: dict[str, float]) -> None:
    PastRun(history, "b1").add(LOST, uptime=600.0).close()
    start = Start(history, **off)  # type: ignore[arg-type]  # one of both
    assert await start.read() is EarlierRuns.OFF
    await start.memory.until_read()
    assert (start.recent.of("a"), start.memory.sizes()) == ([], {})


async def test_a_first_start_needs_no_process(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PastRun(history, "now").close()
    monkeypatch.setattr(startup_memory, "_started", None)
    assert await Start(history).read("") is EarlierRuns.READ


async def test_a_process_that_does_not_start_leaves_the_server_as_it_is(
    history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PastRun(history, "b1").add(LOST, uptime=600.0).close()
    monkeypatch.setattr(startup_memory.sys, "executable", "/missing")  # type: ignore[attr-defined]  # the module's own
    start = Start(history)
    start.happened(broker_event(name="b"))
    assert await start.read() is EarlierRuns.FAILED
    assert "could not be read" in start.memory.problems()[0]
    assert [record.event.kind for record in start.recent.of("b")] == ["REGISTERED"]


async def test_what_was_read_before_the_process_died_is_used(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PastRun(history, "b1").add(LOST, uptime=600.0).close()
    started = startup_memory._started

    def dies(question: Question) -> subprocess.Popen[bytes]:
        whole = started(question)
        output, _ = whole.communicate()
        first = output.splitlines()[0].decode()
        return subprocess.Popen(["echo", first], stdout=subprocess.PIPE)  # as if it had ended there

    monkeypatch.setattr(startup_memory, "_started", dies)
    start = Start(history)
    assert await start.read() is EarlierRuns.FAILED
    assert start.penalty() > 0
    assert start.core.departed.get(A) is not None


async def test_a_stop_during_the_reading_ends_the_process(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PastRun(history, "b1").close()
    running: list[subprocess.Popen[bytes]] = []

    def hangs(_: Question) -> subprocess.Popen[bytes]:
        running.append(subprocess.Popen(["sleep", "600"], stdout=subprocess.PIPE))  # any that hangs
        return running[0]

    monkeypatch.setattr(startup_memory, "_started", hangs)
    start = Start(history)
    reading = asyncio.create_task(start.read())
    while not running:  # noqa: ASYNC110  # a thread starts it
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.02)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert running[0].returncode is not None


async def test_a_process_that_hangs_is_killed(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PastRun(history, "b1").close()
    running: list[subprocess.Popen[bytes]] = []

    def hangs(_: Question) -> subprocess.Popen[bytes]:
        running.append(subprocess.Popen(["sleep", "600"], stdout=subprocess.PIPE))  # any that hangs
        return running[0]

    monkeypatch.setattr(startup_memory, "_started", hangs)
    monkeypatch.setattr(startup_memory, "MAX_SECONDS", 0.1)
    monkeypatch.setattr(startup_memory, "GRACE_SECONDS", 0.0)
    start = Start(history)
    assert await start.read() is EarlierRuns.FAILED
    assert running[0].returncode is not None
    assert start.memory.problems() == [
        "the history of earlier runs could not be read: the disk did not respond in time"
    ]


async def test_very_many_events_since_the_start_leave_the_penalties_of_this_run(
    history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(startup_memory, "MAX_WAITING", 2)
    PastRun(history, "b1").add(LOST, uptime=600.0).close()
    start = Start(history)
    for seq in range(1, 5):
        start.happened(broker_event(EventKind.RESTARTED, name="b"), seq)
    start.happened(broker_event(EventKind.UNREGISTERED, reason=Reason.ADMIN), 5)
    await start.read()
    assert start.penalty() == 0.0
    assert start.core.departed.get(A) is None, "an operator retired it"
    assert start.core.penalties.score(A._replace(broker_name="b"), now=start.clock.monotonic()) is not None


async def test_differences_from_the_snapshot_are_logged_and_counted(
    history: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(startup_memory, "MAX_LOGGED", 1)
    also = broker_event(EventKind.EXPIRED, name="b", reason=Reason.SILENCE)
    PastRun(history, "b1").add(LOST, uptime=600.0).add(also, uptime=700.0).close()
    start = Start(history)
    await start.read()
    assert start.memory.sizes()["earlier_states_different"] == 2
    (logged,) = [record for record in caplog.records if record.message.startswith("snapshot and history differed")]
    assert logged.facts["broker"] == str(A)  # type: ignore[attr-defined]  # the log's own field
