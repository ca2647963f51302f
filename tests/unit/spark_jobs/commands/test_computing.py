"""The command that draws the stages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pointsman_report.cli import main

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
