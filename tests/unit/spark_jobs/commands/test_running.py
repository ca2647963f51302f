"""Progress of a run, on a terminal and in a log."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from pointsman_report.commands import running
from pointsman_report.commands.running import Progress
from tests.kit.waiting import until


@dataclass
class Stage:
    numTasks: int = 8  # noqa: N815 - Spark's name
    numCompletedTasks: int = 3  # noqa: N815 - Spark's name


@dataclass
class Spark:
    """The part of a session that progress reads."""

    stages: dict[int, Stage | None] = field(default_factory=lambda: {1: Stage(), 2: Stage(2, 1), 3: None})
    is_gone: bool = False

    @property
    def sparkContext(self) -> Spark:  # noqa: N802 - Spark's name
        return self

    def statusTracker(self) -> Spark:  # noqa: N802 - Spark's name
        return self

    def getActiveStageIds(self) -> list[int]:  # noqa: N802 - Spark's name
        if self.is_gone:
            raise Py4JNetworkError("answer from Java side is empty")
        return list(self.stages)

    def getStageInfo(self, stage: int) -> Stage | None:  # noqa: N802 - Spark's name
        return self.stages[stage]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("QUIET_SECONDS", "POLL_INTERVAL_SECONDS", "LINE_SECONDS"):
        monkeypatch.setattr(running, name, 0.01)


def watched(stream: io.StringIO, spark: Spark, *, quiet: bool = False) -> Any:
    session: Any = spark
    return Progress(session, quiet=quiet, stream=stream)


def test_a_log_gets_lines() -> None:
    log = io.StringIO()
    progress = watched(log, Spark())
    progress.log("read")
    with progress:
        until(lambda: log.getvalue().count("\n") > 2)
    first, second, *_ = log.getvalue().splitlines()
    assert first == "read"
    assert second.endswith("s  ... 4 of 10 Spark tasks done")
    assert "\r" not in log.getvalue()


def test_a_terminal_gets_one_line_that_is_cleared_before_other_output() -> None:
    terminal = Terminal()
    with watched(terminal, Spark(stages={})) as progress:
        until(lambda: "planning" in terminal.getvalue())
        progress.log("read")
    assert "\r\x1b[Kread\n" in terminal.getvalue()
    assert terminal.getvalue().count("\n") == 1
    assert not terminal.getvalue().endswith("planning")


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()], ids=["log", "terminal"])
def test_quiet_is_quiet(stream: io.StringIO) -> None:
    with watched(stream, Spark(), quiet=True) as progress:
        progress.log("read")
    assert stream.getvalue() == ""


def test_a_stopped_session_ends_the_progress_silently() -> None:
    log = io.StringIO()
    with watched(log, Spark(is_gone=True)) as progress:
        thread = progress._thread
        thread.join(5)
        assert not thread.is_alive()
    assert log.getvalue() == ""
