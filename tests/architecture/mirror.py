"""Which tests belong to a module: ``python -m tests.architecture.mirror FILE...`` prints them, for ``make test-of``.

Its unit test is at the same path under ``tests/unit``. Its other tests are those of ``tests/property``,
``tests/integration`` and ``tests/spark`` that import it. A module without any has those of its folder.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "tests" / "unit"
TREES = {
    "pointsman": "proto/pointsman",
    "namesrv": "namesrv/pointsman_namesrv",
    "broker_agent": "broker_agent/pointsman_agent",
    "client": "client/pointsman_client",
    "ctl": "client/pointsman_ctl",
    "spark_jobs": "spark_jobs/pointsman_report",
    "chaos": "tests/chaos",
}
"""Folders of ``tests/unit`` and what they mirror."""


def module_of(test: Path) -> Path:
    """The module that a unit test, relative to ``tests/unit``, is named after; it need not exist."""
    tree, *folders, name = test.parts
    return ROOT.joinpath(TREES[tree], *folders, name.removeprefix("test_"))


def tests_of(module: Path) -> list[Path]:
    """The tests of one module, relative to the root; ValueError if it is in no tree."""
    tree, top = next(
        ((name, ROOT / folder) for name, folder in TREES.items() if module.is_relative_to(ROOT / folder)), ("", ROOT)
    )
    if not tree:
        raise ValueError(f"{module} is in none of {', '.join(TREES.values())}")
    inside = module.relative_to(top)
    found = [UNIT / tree / inside.with_name(f"test_{inside.name}")]
    parts = list(module.relative_to(top.parent).with_suffix("").parts)
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    package, _, last = name.rpartition(".")
    imported = re.compile(rf"^from (?:{re.escape(name)} import|{re.escape(package)} import .*\b{last}\b)", re.MULTILINE)
    for folder in ("property", "integration", "spark"):
        tests = sorted((ROOT / "tests" / folder).rglob("test_*.py"))
        found += [test for test in tests if imported.search(test.read_text(encoding="utf-8"))]
    if found[1:] or found[0].exists():
        return [test.relative_to(ROOT) for test in found if test.exists()]
    folders = (ROOT / "tests" / layer / tree / inside.parent for layer in ("unit", "integration"))
    return [folder.relative_to(ROOT) for folder in folders if folder.exists()]


def main(files: list[str]) -> int:
    """Print the tests of each file; 2 if there are none."""
    try:
        found = dict.fromkeys(test for file in files for test in tests_of(Path(file).resolve()))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if not found:
        print(f"no test names or imports {' '.join(files) or 'it: give a file of the product'}", file=sys.stderr)
        return 2
    print(*found, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
