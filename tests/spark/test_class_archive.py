"""``pointsman-report prepare``: Java maps the archive that it writes, and starts without one that does not fit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_800)]

PREPARE = """
import sys
sys.prefix = sys.argv[1]
from pointsman_report.cli import main
sys.exit(main(["prepare"]))
"""
START = """
import sys
from pathlib import Path
sys.prefix = sys.argv[1]
from pointsman_report.spark_session import class_archive, spark_session
with spark_session(None, name="archive") as spark:
    rows = spark.range(3).count()
    maps = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps").read_text()
print(str(class_archive()) in maps, rows)
"""


def run(program: str, prefix: Path) -> str:
    command = [sys.executable, "-c", program, str(prefix)]
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_CONF_DIR"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_java_maps_the_archive_that_prepare_writes_and_starts_without_one_that_does_not_fit(tmp_path: Path) -> None:
    prefix = tmp_path / "an environment"
    assert run(START, prefix) == "False 3"
    archive = prefix / "share" / "pointsman-report" / "classes.jsa"
    assert run(PREPARE, prefix).startswith(f"archive: {archive}\nbytes: ")
    assert [each.name for each in archive.parent.iterdir()] == [archive.name]

    # Written by a small night's Java, used by the one of large histories.
    assert run(START, prefix) == "True 3"
    archive.chmod(0o600)
    with archive.open("rb+") as file:
        file.write(b"of another Java")
    assert run(START, prefix) == "False 3"
