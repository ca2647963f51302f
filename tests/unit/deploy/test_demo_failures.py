"""A demo that fails names the wait that ended it, and the command that continues from its history."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from deploy.demo import move, rocketmq, story
from deploy.demo.__main__ import Demo
from deploy.demo.processes import ProcessFailed, patience


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(story, "ROOT", tmp_path)
    # The demo logs into its folder; the test run has its own handlers.
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    return tmp_path


async def test_a_wait_that_ends_is_named() -> None:
    with pytest.raises(ProcessFailed, match=r"timed out after 0.01 s waiting for redis-a to start"):
        async with patience(0.01, "redis-a to start"):
            await asyncio.sleep(60)


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (
            ProcessFailed("timed out after 600 s waiting for pointsman-report to end; slow machine?"),
            "waiting for pointsman-report",
        ),
        (TimeoutError(), "TimeoutError"),
    ],
)
async def test_a_failure_has_a_text_and_the_command_to_continue(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failure: Exception, message: str
) -> None:
    async def run(self: Demo) -> None:
        (self.folder / "history").mkdir()
        raise failure

    monkeypatch.setattr(Demo, "run", run)

    assert await story.main(Demo) == 1
    lines = capsys.readouterr().err.splitlines()
    assert message in lines[0]
    (folder,) = (root / ".build" / "demo").iterdir()
    assert lines[1] == f"logs: {folder / 'logs'}"
    assert " -m pointsman_report nightly --date " in lines[3] or " -m pointsman_report backfill --from " in lines[3]
    for number in (1, 2):
        assert f"--history {folder}/history/namesrv-{number}" in lines[3]
    assert f"--warehouse {folder}/warehouse --report {folder}/report" in lines[3]


@pytest.mark.usefixtures("root")
async def test_without_a_history_there_is_nothing_to_continue_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run(_: Demo) -> None:
        raise ProcessFailed("redis-server is needed")

    monkeypatch.setattr(Demo, "run", run)

    assert await story.main(Demo) == 1
    assert "continue" not in capsys.readouterr().err


@pytest.mark.parametrize("demo", [rocketmq.RocketMQDemo, move.MoveDemo])
async def test_missing_requirements_of_rocketmq_are_reported_in_one_line(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], demo: type[story.Story]
) -> None:
    monkeypatch.setenv("PATH", str(root))

    assert await story.main(demo) == 1
    message, logs = capsys.readouterr().err.splitlines()
    assert message.startswith("the demo failed: needs java, javac, mvn: install JDK 17 and Maven")
    assert logs.startswith(f"logs: {root}/.build/{demo.name}/")
