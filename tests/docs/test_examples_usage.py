"""The client's examples, without running them: their usage, and numbers that belong together."""

from __future__ import annotations

import runpy
import sys
import textwrap
from pathlib import Path

import pytest
import yaml

EXAMPLES = Path(__file__).parents[2] / "client" / "examples"
PROGRAMS = sorted(path for path in EXAMPLES.glob("*.py") if "__main__" in path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_an_example_without_arguments_prints_its_usage(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(path)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path), run_name="__main__")
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith(f"usage: {path.name}")
    assert "required: name_servers" in error


def test_a_pod_may_take_as_long_as_the_worker_takes_to_end() -> None:
    text = (EXAMPLES / "kubernetes_worker.py").read_text(encoding="utf-8")
    pod = yaml.safe_load(textwrap.dedent(text.partition("Of the pod::\n")[2].partition('"""')[0]))
    (container,) = pod["containers"]
    close_seconds = runpy.run_path(str(EXAMPLES / "kubernetes_worker.py"))["CLOSE_SECONDS"]
    assert pod["terminationGracePeriodSeconds"] > container["lifecycle"]["preStop"]["sleep"]["seconds"] + close_seconds
    paths = [container[name]["httpGet"]["path"] for name in ("readinessProbe", "livenessProbe")]
    assert paths == ["/readyz", "/livez"]


def test_there_are_examples() -> None:
    assert len(PROGRAMS) >= 6
