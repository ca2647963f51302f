"""GitHub's workflows: steps are targets of the Makefile or actions pinned by commit, with the rights that they need."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
PINNED = re.compile(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in WORKFLOWS:
        for name, job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].items():
            yield f"{path.name}: {name}", job


def test_every_command_is_a_target_of_the_makefile() -> None:
    commands = [(name, step["run"]) for name, job in jobs() for step in job["steps"] if "run" in step]
    assert len(commands) > 10
    assert [each for each in commands if not re.fullmatch(r"make [a-z-]+", each[1])] == []
    assert {command.removeprefix("make ") for _, command in commands} <= TARGETS


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_by_commit_with_its_version(path: Path) -> None:
    used = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if re.match(r"\s*(- )?uses:", line)]
    assert len(used) > 3
    assert [line for line in used if not PINNED.search(line)] == []


def test_a_job_has_a_deadline_and_states_its_rights() -> None:
    for name, job in jobs():
        assert job["timeout-minutes"] <= 120, name
        assert job["permissions"], name
    for path in WORKFLOWS:
        assert yaml.safe_load(path.read_text(encoding="utf-8"))["permissions"] == {}


def test_a_job_that_publishes_runs_no_program_of_the_repository_and_asks_an_owner() -> None:
    """Otherwise any of our dependencies could publish in our name."""
    index = dict(jobs())["release.yml: index"]
    assert index["permissions"] == {"id-token": "write"}
    assert index["environment"] == "pypi"
    assert [step for step in index["steps"] if "run" in step] == []
