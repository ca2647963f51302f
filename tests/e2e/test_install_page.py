"""The commands of "Install", as pasted, with wheels of this version; downloads come from the package index.

Every other way is run where its programs are: images and compose in tests/images, deb and rpm in tests/packages.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.test_docs_as_pasted import blocks

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
PAGE = "install.md"
PASTE_SECONDS = 600
WITHOUT_A_NETWORK = ["unshare", "--net", "--map-root-user"]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``make wheels`` builds, without its tests."""
    folder = tmp_path_factory.mktemp("wheels")
    uv = str(Path(sys.executable).parent / "uv")
    command = [uv, "build", "--quiet", "--all-packages", "--wheel", "--out-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=PASTE_SECONDS)
    return folder


@pytest.fixture
def here(dist: Path, tmp_path: Path) -> Path:
    """The top folder of the sources, of which the commands need ``dist`` alone."""
    shutil.copytree(dist, tmp_path / "dist", ignore=lambda _folder, names: [n for n in names if not n.endswith(".whl")])
    return tmp_path


def paste(block: str, folder: Path, *before: str) -> str:
    """Run a block as an interactive shell would, but end at the first error; return what it prints."""
    commands = "".join(line for line in block.splitlines(keepends=True) if not line.startswith("make wheels"))
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [*before, "bash", "-euc", commands],
        cwd=folder,
        env=clean | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        capture_output=True,
        text=True,
        timeout=PASTE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
    return done.stdout


def starts(folder: Path, *programs: str) -> None:
    """Check that each is there with this version."""
    from pointsman_namesrv import __version__  # noqa: PLC0415

    for program in programs:
        printed = paste(f"venv/bin/{program} --version", folder)
        assert printed.split() == [program, __version__]


PROGRAMS = ("pointsman-namesrv", "pointsman-observe", "pointsman-agent", "pointsmanctl", "pointsman-report")


def test_a_laptop_has_all_programs(here: Path) -> None:
    (laptop,) = blocks("bash", PAGE, "On a laptop")
    paste(laptop, here)
    starts(here, *PROGRAMS)
    paste("venv/bin/python -c 'import redis, pointsman_client.redis_streams'", here)


def test_getting_started_installs_all_programs(here: Path) -> None:
    (install,) = blocks("bash", "getting-started.md", "Install")
    paste(install, here)
    starts(here, *PROGRAMS)


@pytest.mark.parametrize("package", ["pointsman_client", "pointsman_namesrv", "pointsman_agent", "pointsman_report"])
def test_each_part_is_installed_alone(package: str, here: Path) -> None:
    (parts,) = blocks("bash", PAGE, "One part alone")
    (line,) = [line for line in parts.splitlines() if f"{package}-" in line]
    paste("python3 -m venv venv", here)
    paste(f". venv/bin/activate\n{line}", here)
    if package == "pointsman_client":
        paste("venv/bin/python -c 'import pointsman_client.redis_streams'", here)
    else:
        starts(here, package.replace("_", "-"))


def test_a_machine_without_a_network_installs_from_the_folder(here: Path) -> None:
    with_network, without = blocks("bash", PAGE, "Without a network")
    if subprocess.run([*WITHOUT_A_NETWORK, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a network namespace cannot be made here")
    paste(with_network, here)
    shutil.rmtree(here / "dist")
    paste(without, here, *WITHOUT_A_NETWORK)
    starts(here, "pointsman-namesrv", "pointsman-observe", "pointsman-agent", "pointsmanctl")
