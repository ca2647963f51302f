"""Configurations, commands and Python code that were written for a released version work with this one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pointsman.config import load
from pointsman_report.parameters import Parameters
from tests.compatibility.released import HERE, INSTALL_SECONDS, Installed, Release

pytestmark = pytest.mark.timeout(INSTALL_SECONDS + 120)

PROGRAMS = {"namesrv.example.toml": "pointsman-namesrv", "agent.example.toml": "pointsman-agent"}


@pytest.mark.parametrize("sample", PROGRAMS)
def test_this_version_accepts_every_setting_of_a_released_one(
    sample: str, release: Release, new: Installed, tmp_path: Path
) -> None:
    file = tmp_path / sample
    shutil.copyfile(release.fixtures / sample, file)
    done = new.run(PROGRAMS[sample], "config", "check", "--config", str(file))
    assert (done.returncode, done.stdout) == (0, f"{file}: ok\n"), done.stderr


def test_the_report_accepts_every_parameter_of_a_released_version(release: Release) -> None:
    load(Parameters, file=release.fixtures / "report.example.toml")


@pytest.mark.parametrize("sample", PROGRAMS)
def test_a_released_version_refuses_a_setting_that_it_does_not_know_and_names_it(
    sample: str, old: Installed, release: Release, tmp_path: Path
) -> None:
    file = tmp_path / sample
    text = (release.fixtures / sample).read_text(encoding="utf-8")
    file.write_text(text.replace("[monitoring]\n", "[monitoring]\nof_a_later_version = 1\n"), encoding="utf-8")
    done = old.run(PROGRAMS[sample], "config", "check", "--config", str(file))
    assert done.returncode == 2
    assert "monitoring.of_a_later_version" in done.stderr


@pytest.mark.parametrize("kind", ["commands", "client"])
def test_every_name_of_a_released_version_is_there_with_its_parameters(
    kind: str, release: Release, new: Installed
) -> None:
    """Of commands: their options. Of the client: classes, functions and methods."""
    then = json.loads((release.fixtures / "public_names.json").read_text(encoding="utf-8"))[kind]
    now = json.loads(new.script(HERE / "public_names.py"))[kind]
    assert len(then) > 50
    assert sorted(then.keys() - now.keys()) == []
    assert {name: left for name, has in then.items() if (left := sorted(set(has) - set(now[name])))} == {}
