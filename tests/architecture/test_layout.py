"""The layout of the code: modules short enough to read, unique module names, tests beside them, short calls."""

from __future__ import annotations

import re
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


UNIT_TREES = {
    "pointsman": "proto/pointsman",
    "namesrv": "namesrv/pointsman_namesrv",
    "broker_agent": "broker_agent/pointsman_agent",
    "client": "client/pointsman_client",
    "ctl": "client/pointsman_ctl",
    "spark_jobs": "spark_jobs/pointsman_report",
    "chaos": "tests/chaos",
}
OTHER_TREES = {"bench", "deploy"}
"""What is tested there is no package."""
WITHOUT_MODULE = {
    "client/test_bad_input.py": "what every class of the package refuses before it connects",
    "client/sync/test_parity.py": "the blocking classes as a whole beside the async ones",
}


def test_each_unit_test_is_named_as_a_module_at_the_same_path() -> None:
    folder = ROOT / "tests" / "unit"
    tests = {path.relative_to(folder).as_posix() for path in folder.rglob("test_*.py")}
    misplaced = [
        test
        for test in sorted(tests - WITHOUT_MODULE.keys())
        if (tree := test.partition("/")[0]) not in OTHER_TREES
        and not (ROOT / UNIT_TREES[tree] / Path(test).relative_to(tree).with_name(Path(test).name[5:])).exists()
    ]
    assert len(tests) > 150
    assert misplaced == []
    assert WITHOUT_MODULE.keys() <= tests


def test_waiting_for_a_condition_is_written_once() -> None:
    definition = re.compile(r"^(?:async )?def (until|eventually)\(", re.MULTILINE)
    written = {
        f"{path}:{name}"
        for path in modules("tests")
        for name in definition.findall((ROOT / path).read_text(encoding="utf-8"))
    }
    assert written == {"tests/kit/waiting.py:eventually", "tests/kit/waiting.py:until"}
