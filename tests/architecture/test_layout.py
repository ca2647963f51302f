"""The layout of the code: modules short enough to read, unique module names, calls that cross few modules."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from tests.architecture import walks

ROOT = Path(__file__).parents[2]
MOST_LINES = 700
PRODUCT = ("proto", "namesrv", "broker_agent", "client", "spark_jobs")
ENTRIES = {"__init__", "__main__", "app", "config", "testing"}
"""Names that mean the same in each program. So does what `pointsman_client.sync` mirrors."""


def modules(*folders: str) -> list[Path]:
    """Every module that is not generated."""
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path.relative_to(ROOT) for path in found if "_pb2" not in path.name and "examples" not in path.parts]


def test_no_module_is_longer_than_can_be_read_in_one_go() -> None:
    lines = {path: len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in modules(*PRODUCT, "tests")}
    assert len(lines) > 500
    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}


def test_the_name_of_a_module_is_unique() -> None:
    named = defaultdict(list)
    for path in modules(*PRODUCT):
        if path.parent.name != "sync":
            named[path.stem].append(path)
    assert {name: paths for name, paths in named.items() if len(paths) > 1 and name not in ENTRIES} == {}


async def test_a_call_crosses_at_most_its_limit_of_files_and_functions() -> None:
    for name, walk in (await walks.measure()).items():
        most_files, most_functions = walks.LIMITS[name]
        assert 3 < len(walk.files) <= most_files, name
        assert len(walk.functions) <= most_functions, name
