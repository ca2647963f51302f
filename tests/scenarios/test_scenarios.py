"""Play every scenario file. ``pytest tests/scenarios --rewrite`` writes what is printed into the files: commit
such a change only if you understand each line of it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.driver import Player, load, render

FILES = sorted(Path(__file__).parent.rglob("*.scenario"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scenario(file: Path, pytestconfig: pytest.Config) -> None:
    steps = load(file)
    player = Player()
    outputs = [player.play(step) for step in steps]
    if pytestconfig.getoption("--rewrite"):
        file.write_text(render(steps, outputs), encoding="utf-8")
        return
    for step, output in zip(steps, outputs, strict=True):
        assert output == step.expected, f"{file.name}: {step.commands}"


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 10
