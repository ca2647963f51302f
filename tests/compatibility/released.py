"""An earlier version beside this one: its sources and an environment with its programs, built from its commit once.

The file ``RELEASED`` names the commits. Both are below ``.build/released``; a clone without the commit has neither.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from deploy.rocketmq.processes import alone, run_program

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CACHE = ROOT / ".build" / "released"
SCRIPT_SECONDS = 120.0
INSTALL_SECONDS = 600.0
PARTS = ("proto[daemon]", "client[cli,redis]", "namesrv", "agent[redis]")
"""What runs beside another version; the report reads files, and runs from the sources."""


class NotInThisClone(Exception):
    """The clone lacks the commit of a version; the message says how to get it."""


@dataclass(frozen=True, slots=True)
class Installed:
    """The programs of one version."""

    version: str
    bin: Path
    """Folder of Python and the programs."""
    environment: Mapping[str, str]
    """Of its processes: nothing of another version is in the way."""

    def run(self, *command: str, seconds: float = SCRIPT_SECONDS) -> subprocess.CompletedProcess[str]:
        """Run one of its programs to its end, whatever that is."""
        return subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            env=dict(self.environment),
            cwd=ROOT.anchor,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def script(self, path: Path, *arguments: str | Path) -> str:
        """Run a Python file with it, and return what it prints."""
        done = self.run("python", str(path), *map(str, arguments))
        assert done.returncode == 0, f"{path.name} on {self.version}:\n{done.stdout}\n{done.stderr}"
        return done.stdout


@dataclass(frozen=True, slots=True)
class Release:
    """A version that was released."""

    version: str
    commit: str

    @property
    def fixtures(self) -> Path:
        """The folder of what it wrote, which is under version control."""
        return HERE / self.version

    @property
    def sources(self) -> Path:
        """Its sources, once :meth:`unpacked`."""
        return CACHE / self.version / "source"

    def unpacked(self) -> Path:
        """Return its sources. Raises NotInThisClone."""
        with alone(CACHE):
            if not self.sources.exists():
                self._unpack()
        return self.sources

    def from_sources(self) -> dict[str, str]:
        """Return an environment in which this Python imports its sources, all of them. Raises NotInThisClone."""
        parts = sorted(path.parent for path in self.unpacked().glob("*/pyproject.toml"))
        return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, parts))}

    def installed(self) -> Installed:
        """Return its programs, which are built and installed the first time. Raises NotInThisClone."""
        self.unpacked()
        folder = CACHE / self.version / "environment"
        with alone(CACHE):
            if not folder.exists():
                self._install(folder)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COVERAGE"))}
        return Installed(self.version, folder / "bin", environment)

    def _unpack(self) -> None:
        if not self.is_here():
            raise NotInThisClone(
                f"commit {self.commit} of version {self.version} is not in this clone: git fetch --unshallow"
            )
        archive = subprocess.run(["git", "archive", self.commit], cwd=ROOT, capture_output=True, check=True).stdout
        part = self.sources.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        with tarfile.open(fileobj=BytesIO(archive)) as packed:
            packed.extractall(part, filter="data")
        part.rename(self.sources)

    def is_here(self) -> bool:
        """Whether this clone has the commit."""
        known = ["git", "cat-file", "-e", f"{self.commit}^{{commit}}"]
        return subprocess.run(known, cwd=ROOT, capture_output=True, check=False).returncode == 0

    def _install(self, folder: Path) -> None:
        uv, wheels = str(Path(sys.executable).parent / "uv"), self.sources.parent / "wheels"
        build = [uv, "build", "--quiet", "--all-packages", "--wheel", "--out-dir", str(wheels)]
        run_program(build, cwd=self.sources, seconds=INSTALL_SECONDS)
        part = folder.with_suffix(".part")
        run_program([uv, "venv", "--quiet", "--clear", "--relocatable", "--python", sys.executable, str(part)])
        found = [_wheel(wheels, part_of) for part_of in PARTS]
        constraints = self.sources / "deploy" / "dev" / "constraints.txt"
        install = [uv, "pip", "install", "--quiet", "--python", str(part / "bin" / "python")]
        run_program([*install, "--constraint", str(constraints), *found], seconds=INSTALL_SECONDS)
        part.rename(folder)


def released() -> Sequence[Release]:
    """Return the versions that ``RELEASED`` names, the newest last."""
    lines = (HERE / "RELEASED").read_text(encoding="utf-8").splitlines()
    return [Release(*line.split()) for line in lines if line and not line.startswith("#")]


def this_version() -> Installed:
    """Return the programs of this version."""
    from pointsman_namesrv import __version__  # noqa: PLC0415  # of the code that is tested, not of the records

    return Installed(__version__, Path(sys.executable).parent, dict(os.environ))


def _wheel(folder: Path, part: str) -> str:
    name, bracket, extras = part.partition("[")
    (wheel,) = folder.glob(f"pointsman_{name}-*.whl")
    return f"{wheel}{bracket}{extras}"
