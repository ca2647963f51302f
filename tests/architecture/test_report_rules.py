"""The report's functions are documented, those of tables with grain and key; its stages name tables by constants."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from pointsman_report.schemas import TABLES

PACKAGE = Path(__file__).parents[2] / "spark_jobs" / "pointsman_report"
GRAIN = re.compile(r"\bOne row per [^.;]+; (key: [^.]+|no key\b[^.]*)\.")


def functions(*folders: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Each public function of a module, with its place."""
    for path in sorted(path for folder in folders for path in (PACKAGE / folder).rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                is_overload = "overload" in map(ast.unparse, node.decorator_list)
                if not is_overload:
                    yield f"{path.relative_to(PACKAGE)}:{node.name}", node


def test_every_public_function_has_a_docstring() -> None:
    found = dict(functions("."))
    assert len(found) > 250
    assert [place for place, node in found.items() if not ast.get_docstring(node)] == []


def test_a_function_that_returns_a_table_states_its_grain_and_key() -> None:
    returning = {
        place: " ".join(str(ast.get_docstring(node)).split())
        for place, node in functions("transforms", "jobs")
        if node.returns is not None and ast.unparse(node.returns) == "DataFrame"
    }
    assert len(returning) > 70
    assert [place for place, text in returning.items() if not GRAIN.search(text)] == []


def test_no_stage_names_a_table_by_a_string() -> None:
    """A wrong constant is an error for the type checker, a wrong string only for a run."""
    strings = [
        f"{path.name}:{node.lineno}"
        for path in (PACKAGE / "jobs").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in TABLES
    ]
    assert strings == []
