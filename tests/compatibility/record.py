"""Record what a released version writes, once, in the folder of its name.

``python -m tests.compatibility.record 0.1.0`` has that version's own code write everything, so that no later version
takes part: the files of ``stored_files.py``, with the content that it reads from them; the descriptors of its protos;
its sample configurations, which have every setting; the tables of its warehouse; its commands and its client's names.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.compatibility.released import HERE, Release, released

TABLES = """
import json
from pointsman_report.schemas import TABLES, WAREHOUSE_VERSION
tables = {name: [table.schema.simpleString(), table.keys] for name, table in TABLES.items()}
print(json.dumps({"warehouse_version": WAREHOUSE_VERSION, "tables": tables}, indent=1, sort_keys=True))
"""


SAMPLES = ("namesrv.example.toml", "agent.example.toml", "report.example.toml")


def record(release: Release) -> None:
    """Write the folder of a release."""
    old, folder = release.installed(), release.fixtures
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    old.script(HERE / "stored_files.py", "write", folder / "stored")
    stored = old.script(HERE / "stored_files.py", "read", folder / "stored")
    (folder / "stored.json").write_text(stored, encoding="utf-8")
    for backup in (folder / "stored").glob("*.bak"):
        backup.unlink()
    protos = [buf(), "build", str(release.sources / "proto"), "--exclude-source-info", "--output", "-"]
    (folder / "protos.binpb").write_bytes(printed(protos, os.environ))
    from_sources = release.from_sources()
    (folder / "warehouse.json").write_bytes(printed([sys.executable, "-c", TABLES], from_sources))
    names = printed([sys.executable, str(HERE / "public_names.py")], from_sources)
    (folder / "public_names.json").write_bytes(names)
    for sample in SAMPLES:
        shutil.copyfile(release.sources / "deploy" / "config" / sample, folder / sample)


def buf() -> str:
    """Return the program of the package buf-bin in the development environment."""
    found = shutil.which("buf", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
    assert found is not None, "buf is missing: make setup"
    return found


def printed(command: Sequence[str], environment: Mapping[str, str]) -> bytes:
    """Return what a command prints."""
    return subprocess.run(command, env=dict(environment), stdout=subprocess.PIPE, timeout=60, check=True).stdout


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", choices=[each.version for each in released()])
    chosen = parser.parse_args().version
    record(next(each for each in released() if each.version == chosen))
