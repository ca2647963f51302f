"""The report of each version computes nights on top of the other's tables, and gives the same answers from them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.compatibility.released import INSTALL_SECONDS, NotInThisClone, Release

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(INSTALL_SECONDS + 900)]

NIGHT_SECONDS = 400


def report(environment: Mapping[str, str], *words: str) -> str:
    """Run a command of the report to its end, with findings or without, and return what it prints."""
    command = [sys.executable, "-m", "pointsman_report", *words]
    done = subprocess.run(
        command, env=dict(environment), capture_output=True, text=True, timeout=NIGHT_SECONDS, check=False
    )
    assert done.returncode in {0, 1}, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout


def answers(environment: Mapping[str, str], warehouse: Path, *, to: str) -> list[object]:
    """What a version answers from the tables alone, without Java."""
    words = ["--warehouse", str(warehouse), "--output", "json", "--quiet"]
    history = report(environment, "history", "c1/broker-a/0", "--days", "3", "--to", to, *words)
    route = report(environment, "route-at", "orders", "--at", "2026-01-28T09:00:08Z", *words)
    return [json.loads(history), json.loads(route)]


def test_nights_of_both_versions_follow_each_other_in_one_warehouse(release: Release, tmp_path: Path) -> None:
    try:
        old = release.from_sources()
    except NotInThisClone as error:
        pytest.skip(str(error))
    new, warehouse = dict(os.environ), tmp_path / "warehouse"
    history = ["--history", str(release.fixtures / "stored" / "history"), "--warehouse", str(warehouse)]

    report(old, "nightly", *history, "--date", "2026-01-28")
    first = answers(old, warehouse, to="2026-01-28")
    assert "PROBE_FAILED" in json.dumps(first)
    assert answers(new, warehouse, to="2026-01-28") == first

    report(new, "nightly", *history, "--date", "2026-01-29")
    report(old, "nightly", *history, "--date", "2026-01-30")
    assert answers(old, warehouse, to="2026-01-30") == answers(new, warehouse, to="2026-01-30")
