"""Commands that compute: the drawing of their stages, and the post of the summary after a run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pointsman_report import webhook
from pointsman_report.cli import main
from pointsman_report.commands.computing import notify

URL = "https://chat.example.com/hooks/secret"
PAGE = Path(__file__).parents[4] / "ARCHITECTURE.md"


def test_the_graph_in_the_architecture_is_the_one_that_is_drawn_without_java() -> None:
    command = [sys.executable, "-m", "pointsman_report", "stages"]
    path = {"PATH": "", "PYTHONPATH": ":".join(sys.path)}
    drawn = subprocess.run(command, env=path, check=True, capture_output=True, text=True).stdout

    assert f"```mermaid\n{drawn}```\n" in PAGE.read_text(encoding="utf-8")


def test_as_json_each_stage_has_its_inputs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stages", "--output", "json"]) == 0
    stages = {stage["writes"]: stage for stage in json.loads(capsys.readouterr().out)["stages"]}

    assert stages["hot_queues"]["reads"] == ["topic_load", "group_lag", "topic_intervals"]
    assert stages["opinions"]["reads_earlier_days_of"] == ["broker_state"]


def test_an_archive_that_cannot_be_written_is_one_line_on_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (prefix := tmp_path / "file").touch()
    monkeypatch.setattr("sys.prefix", str(prefix))

    assert main(["prepare"]) == 2
    path = prefix / "share" / "pointsman-report" / "classes.jsa"
    assert capsys.readouterr().err.startswith(f"pointsman-report: cannot write {path}: ")


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (webhook.PostError("https://chat.example.com: HTTP status 404, attempts: 1"), "HTTP status 404, attempts: 1"),
        (KeyboardInterrupt(), "interrupted"),
    ],
    ids=["refused", "interrupt"],
)
def test_a_post_that_fails_is_one_line_on_standard_error(
    fault: BaseException, problem: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def post(_: str, __: bytes) -> int:
        raise fault

    monkeypatch.setattr(webhook, "post", post)
    logged: list[str] = []

    notify(URL, b"{}", log=logged.append)

    assert logged == []
    assert capsys.readouterr().err == (
        f"pointsman-report: the summary was not posted to https://chat.example.com: {problem}; the report is complete\n"
    )


def test_a_post_that_succeeds_is_one_progress_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(webhook, "post", lambda _, __: 2)
    logged: list[str] = []

    notify(URL, b"{}", log=logged.append)

    assert logged == ["          summary posted to https://chat.example.com, attempts: 2"]
    assert capsys.readouterr().err == ""
