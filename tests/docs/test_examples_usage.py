"""The client's examples without their arguments: a usage, not a traceback."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

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


def test_there_are_examples() -> None:
    assert len(PROGRAMS) >= 6
