"""Files of a released version are read by this one, and those of this one by that: an upgrade can be rolled back.

A version that cannot hold to this changes the format's number (``FORMAT_VERSION``, ``SCHEMA_VERSION``,
``WAREHOUSE_VERSION``), so that the other one refuses the file instead of misreading it: what it then does is in
docs/compatibility.md, and tested in tests/integration/test_durable_stores.py.
"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pointsman_report.schemas import TABLES, WAREHOUSE_VERSION
from tests.compatibility.released import HERE, INSTALL_SECONDS, Installed, NotInThisClone, Release

pytestmark = pytest.mark.timeout(INSTALL_SECONDS + 120)

SCRIPT = HERE / "stored_files.py"
HISTORY = "history/raw/dt=2026-01-28/ns1_9876-0000000000000001-1.jsonl.gz"


def content_of(installed: Installed, folder: Path) -> object:
    return json.loads(installed.script(SCRIPT, "read", folder))


def recorded(release: Release) -> object:
    found = json.loads((release.fixtures / "stored.json").read_text(encoding="utf-8"))
    assert sorted(found) == ["broadcast", "broadcast_begins", "history", "offsets", "outbox", "settings", "snapshot"]
    assert all(found.values())
    return found


def test_this_version_reads_every_file_of_a_released_one(release: Release, new: Installed, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(release.fixtures / "stored", tmp_path / "stored"))
    assert content_of(new, folder) == recorded(release)
    assert not (folder / "damaged").exists()


def test_a_released_version_reads_every_file_of_this_one(
    release: Release, old: Installed, new: Installed, tmp_path: Path
) -> None:
    new.script(SCRIPT, "write", tmp_path / "stored")
    assert content_of(old, tmp_path / "stored") == recorded(release)
    assert not (tmp_path / "stored" / "damaged").exists()


def test_a_released_version_reads_its_files_after_this_one_has_used_them(
    release: Release, old: Installed, new: Installed, tmp_path: Path
) -> None:
    """This version opens each for writing, as a name server, an agent and a client do after an upgrade."""
    folder = Path(shutil.copytree(release.fixtures / "stored", tmp_path / "stored"))
    content_of(new, folder)
    assert content_of(old, folder) == recorded(release)


def test_the_report_validates_the_history_of_the_other_version(
    release: Release, new: Installed, tmp_path: Path
) -> None:
    good = "1 files: 17 good rows, 0 bad lines\n"
    assert validated(release.fixtures / "stored" / HISTORY, dict(new.environment)) == good
    try:
        from_sources = release.from_sources()
    except NotInThisClone as error:
        pytest.skip(str(error))
    new.script(SCRIPT, "write", tmp_path)
    assert release.version in report(from_sources, "--version")
    assert validated(tmp_path / HISTORY, from_sources) == good


def test_a_row_with_a_field_and_an_event_of_a_later_version_is_valid(release: Release, tmp_path: Path) -> None:
    lines = gzip.decompress((release.fixtures / "stored" / HISTORY).read_bytes()).splitlines()
    later = json.loads(lines[-1]) | {"event": "OF_A_LATER_VERSION", "of_a_later_version": 1, "seq": 99}
    file = tmp_path / "later.jsonl"
    file.write_bytes(b"\n".join([*lines, json.dumps(later).encode(), b""]))
    try:
        from_sources = release.from_sources()
    except NotInThisClone as error:
        pytest.skip(str(error))
    assert validated(file, from_sources) == "1 files: 18 good rows, 0 bad lines\n"


def validated(file: Path, environment: dict[str, str]) -> str:
    return report(environment, "validate", str(file))


def report(environment: dict[str, str], *words: str) -> str:
    command = [sys.executable, "-m", "pointsman_report", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_warehouse_of_the_same_number_has_the_same_tables(release: Release) -> None:
    """A warehouse of another number is refused with the remedy (``checked_label``), never misread."""
    then = json.loads((release.fixtures / "warehouse.json").read_text(encoding="utf-8"))
    now = {name: [table.schema.simpleString(), list(table.keys)] for name, table in TABLES.items()}
    assert len(now) > 30
    if then["warehouse_version"] == WAREHOUSE_VERSION:
        assert now == then["tables"]
    else:
        assert then["warehouse_version"] < WAREHOUSE_VERSION
