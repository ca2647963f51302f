"""Query commands: errors before anything is read, and what they read with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pointsman_report.cli import main
from tests.spark.histories import NameServer, broker, moment, write_history

AT = "2026-03-02T00:02Z"


@pytest.mark.parametrize("command", ["route-at", "explain"])
def test_a_moment_in_the_future_is_refused(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [command, "orders", "--at=2999-01-01T12:00Z", "--warehouse=nowhere"]

    assert main(words) == 2
    assert "--at 2999-01-01 12:00:00+00:00 is in the future" in capsys.readouterr().err


@pytest.fixture
def history(tmp_path: Path) -> Path:
    server = NameServer().start()
    server.say("REGISTERED", moment(10), broker("a"))
    detail = {"part": 1, "parts": 1, "full": True, "topics": {"orders": [4, 8, 6, 0]}, "removed": []}
    server.say("TOPICS", moment(11), broker("a"), detail=detail)
    server.say("NAMESRV_ALIVE", moment(120))
    return write_history(tmp_path / "history", server.rows)


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the Spark sessions that would have been started."""
    started: list[str] = []

    def start(*_: object, name: str, **__: object) -> None:
        started.append(name)
        raise KeyboardInterrupt

    monkeypatch.setattr("pointsman_report.commands.running.spark_session", start)
    return started


@pytest.mark.parametrize("command", ["route-at", "explain"])
def test_files_of_this_machine_are_read_without_java(
    command: str, history: Path, sessions: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "orders", f"--at={AT}", f"--history={history}", "--output=json"]) == 0

    found = json.loads(capsys.readouterr().out)
    route = found.get("route", found)
    assert [one["broker_name"] for one in route["brokers"]] == ["a"]
    assert sessions == []


def test_days_of_this_machine_are_compared_without_java(
    tmp_path: Path, sessions: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", "2026-03-02", "2026-03-03", f"--warehouse={tmp_path}"]

    assert main(words) == 2
    assert "2026-03-02 and 2026-03-03 were not computed" in capsys.readouterr().err
    assert sessions == []
    assert main([*words, "--engine=spark"]) == 2
    assert sessions == ["pointsman-report compare"]


@pytest.mark.parametrize(
    "words",
    [["--engine=spark"], ["--master=local[1]"], ["--memory=1g"], ["--conf=spark.x=y"], ["--history=hdfs:///h"]],
    ids=" ".join,
)
def test_spark_is_started_where_it_is_asked_for_and_for_other_file_systems(
    words: list[str], history: Path, sessions: list[str]
) -> None:
    assert main(["route-at", "orders", f"--at={AT}", f"--history={history}", *words]) == 2

    assert sessions == ["pointsman-report route-at"]
