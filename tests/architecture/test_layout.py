"""The layout of the code: modules short enough to read, unique module names, tests beside them, short calls."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.architecture import mirror, walks

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


OTHER_TREES = {"bench", "deploy"}
"""What is tested there is no package."""
WITHOUT_MODULE = {
    "client/test_bad_input.py": "what every class of the package refuses before it connects",
    "client/test_public_names.py": "the names of the package itself",
    "client/sync/test_parity.py": "the blocking classes as a whole beside the async ones",
}


def test_each_unit_test_is_named_as_a_module_at_the_same_path() -> None:
    tests = {path.relative_to(mirror.UNIT).as_posix() for path in mirror.UNIT.rglob("test_*.py")}
    placed = [Path(test) for test in sorted(tests - WITHOUT_MODULE.keys()) if Path(test).parts[0] not in OTHER_TREES]
    assert len(placed) > 150
    assert [test for test in placed if not mirror.module_of(test).exists()] == []
    assert WITHOUT_MODULE.keys() <= tests


def test_the_tests_of_a_module_are_its_unit_test_and_those_that_import_it() -> None:
    found = [path.as_posix() for path in mirror.tests_of(ROOT / "broker_agent/pointsman_agent/core/queue_locks.py")]
    assert found[0] == "tests/unit/broker_agent/core/test_queue_locks.py"
    assert "tests/integration/broker_agent/groups/test_queue_locks.py" in found
    whole_folders = mirror.tests_of(ROOT / "client/pointsman_client/producer/sender.py")
    assert Path("tests/integration/client/producer") in whole_folders
    with pytest.raises(ValueError, match="is in none of proto/pointsman, "):
        mirror.tests_of(ROOT / "Makefile")


def test_waiting_for_a_condition_is_written_once() -> None:
    definition = re.compile(r"^(?:async )?def (until|eventually)\(", re.MULTILINE)
    written = {
        f"{path}:{name}"
        for path in modules("tests")
        for name in definition.findall((ROOT / path).read_text(encoding="utf-8"))
    }
    assert written == {"tests/kit/waiting.py:eventually", "tests/kit/waiting.py:until"}
