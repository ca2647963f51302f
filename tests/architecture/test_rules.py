"""Rules of this project that no linter knows: files that pages name, reasons for broad handlers, docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import GROUPS
from tests.property.mutants import CORE, MUTANTS

ROOT = Path(__file__).parents[2]
PRODUCT = (
    "proto/pointsman/history",
    "proto/pointsman/http2",
    "proto/pointsman/wire",
    "proto/pointsman/storage",
    "proto/pointsman/daemon",
    "namesrv",
    "broker_agent",
    "client",
    "spark_jobs",
)
CATCH_EVERYTHING = {"Exception", "BaseException", "ExceptionGroup", "BaseExceptionGroup"}


def sources(*folders: str) -> Iterator[tuple[str, str]]:
    """The path and the text of each module."""
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(found) > 300
    return ((path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in found)


def broad_handlers(tree: ast.AST) -> Iterator[ast.ExceptHandler]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            types = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            if any(each is None or (isinstance(each, ast.Name) and each.id in CATCH_EVERYTHING) for each in types):
                yield node


def orphans(tree: ast.AST) -> Iterator[ast.stmt]:
    """String literals that are neither the first statement of a module, class or function nor follow an assignment."""
    for node in ast.walk(tree):
        is_documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for _, body in ast.iter_fields(node):
            for at, statement in enumerate(body if isinstance(body, list) else []):
                match statement:
                    case ast.Expr(value=ast.Constant(value=str())):
                        follows = isinstance(body[at - 1], ast.Assign | ast.AnnAssign) if at else is_documented
                        if not follows:
                            yield statement


def test_a_page_has_no_placeholder() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *(ROOT / "deploy").rglob("README.md")]
    assert len(pages) > 8
    found = {page: re.findall(r"@[A-Z]+@", page.read_text(encoding="utf-8")) for page in pages}
    assert {page.name: each for page, each in found.items() if each} == {}


def test_the_files_named_in_the_architecture_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?<!\*)\b[\w/]+\.py\b", text))
    assert len(named) > 40
    there = [f"/{path}" for path, _ in sources(*PRODUCT, "proto/pointsman/rocketmq")]
    assert {name for name in named if not any(path.endswith(f"/{name}") for path in there)} == set()


def test_the_index_of_deploy_names_every_folder() -> None:
    index = (ROOT / "deploy" / "README.md").read_text(encoding="utf-8")
    folders = [path.name for path in (ROOT / "deploy").iterdir() if path.is_dir() and path.name != "__pycache__"]
    assert [folder for folder in folders if f"| [{folder}](" not in index] == []


def test_a_broad_handler_has_its_reason_on_the_same_line() -> None:
    """BLE001 wants a reason only where the error is neither logged nor raised again."""
    reason = re.compile(r":  (# noqa: BLE001  )?# (?!noqa)\w")
    bare = []
    for path, text in sources(*PRODUCT):
        lines = text.splitlines()
        at = [node.lineno for node in broad_handlers(ast.parse(text))]
        bare += [f"{path}:{line}" for line in at if not reason.search(lines[line - 1])]
    assert bare == []


def test_users_of_the_shared_history_of_the_spark_tests_are_in_the_group_that_computes_it_once() -> None:
    fixtures = {"stories", "again", "night"}
    assert all(f"def {name}(" in (ROOT / "tests/spark/conftest.py").read_text(encoding="utf-8") for name in fixtures)
    users = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests/spark").glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.FunctionDef) and fixtures & {arg.arg for arg in node.args.args})
        or (isinstance(node, ast.Constant) and node.value in fixtures)
    }
    assert "tests/spark/test_stories.py" in users
    assert users <= GROUPS["history"]


def test_every_docstring_belongs_to_a_definition() -> None:
    folders = (*PRODUCT, "deploy", "tests")
    found = [f"{path}:{each.lineno}" for path, text in sources(*folders) for each in orphans(ast.parse(text))]
    assert found == []


def test_each_mutant_replaces_one_line_of_the_core() -> None:
    sources_of = {mutant.file: (ROOT / CORE / mutant.file).read_text(encoding="utf-8") for mutant in MUTANTS}
    assert [mutant.rule for mutant in MUTANTS if sources_of[mutant.file].count(mutant.line) != 1] == []
