"""namesrv/README.md: the memory of all bounds together is the sum of its rows, and fits the systemd unit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "namesrv" / "README.md").read_text(encoding="utf-8")
UNIT = (ROOT / "deploy" / "systemd" / "pointsman-namesrv.service").read_text(encoding="utf-8")
CHART = (ROOT / "deploy" / "helm" / "pointsman" / "values.yaml").read_text(encoding="utf-8")
TABLE = README.partition("**All bounds together**")[2].partition("\n\n| what ")[2].partition("\n\n")[0]


def megabytes(cell: str) -> float:
    number, unit = re.findall(r"([\d.]+) ([MG]B)", cell)[0]
    return float(number) * (1_000 if unit == "GB" else 1)


def test_the_sums_are_those_of_the_rows_and_the_unit_allows_them() -> None:
    rows = [[cell.strip() for cell in line.split("|")[3:5]] for line in TABLE.splitlines()[2:]]
    assert len(rows) > 15
    # An empty cell: the listener makes no difference. One without a size: it has no such bound.
    lane = [megabytes(lane) for lane, _ in rows]
    grpcio = [megabytes(other or lane) if "bounded" not in other else 0.0 for lane, other in rows]
    [allowed] = re.findall(r"^MemoryMax=(\d+)M$", UNIT, re.MULTILINE)
    assert f"`MemoryMax={allowed}M`" in README
    assert f"limits: {{memory: {allowed}Mi}}" in CHART
    for *sizes, total in (lane, grpcio):
        assert sum(sizes) == pytest.approx(total, abs=10)
        assert total * 1e6 < int(allowed) * 2**20
