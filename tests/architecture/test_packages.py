"""Each top-level folder is a distribution: one version, declared imports, no package with the name of the folder."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = [tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(ROOT.glob("*/pyproject.toml"))]
FOLDERS = [path.parent.name for path in sorted(ROOT.glob("*/pyproject.toml"))]
BROUGHT_BY = {
    "click": "click",
    "google": "protobuf",
    "grpc": "grpcio",
    "grpc_health": "grpcio-health-checking",
    "grpc_reflection": "grpcio-reflection",
    "grpc_status": "grpcio-status",
    "jinja2": "jinja2",
    "jsonschema": "jsonschema",
    "markupsafe": "jinja2",
    "matplotlib": "matplotlib",
    "opentelemetry": "opentelemetry-api",
    "pointsman": "pointsman-proto",
    "pointsman_client": "pointsman-client",
    "prometheus_client": "prometheus-client",
    "py4j": "pyspark",
    "pyspark": "pyspark",
    "redis": "redis",
    "rich": "rich",
    "uvloop": "uvloop",
}
"""By import name: its distribution."""
OF_PROTO = {"grpcio", "protobuf"}
"""What the extra `grpc` of pointsman-proto brings, and with it `daemon`."""
OF_THE_TESTER = {"pytest"}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=;~! ]", requirement)[0] for requirement in requirements}


def declared(part: dict[str, dict[str, object]]) -> set[str]:
    project = part["project"]
    extras: dict[str, list[str]] = project.get("optional-dependencies", {})  # type: ignore[assignment]
    found = names(project["dependencies"])  # type: ignore[arg-type]
    return found.union(*(names(extra) for extra in extras.values()))


def imported(package: Path) -> set[str]:
    """The top-level names that a package imports from outside Python and itself."""
    found = set[str]()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {package.name}


def packages(folder: str) -> list[Path]:
    part = PARTS[FOLDERS.index(folder)]
    return [ROOT / folder / name for name in part["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]


def test_all_have_one_version_and_require_each_other_in_it() -> None:
    root = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    version = root["project"]["version"]
    found = {path.name: importlib.import_module(path.name).__version__ for each in FOLDERS for path in packages(each)}
    assert set(found.values()) == {version}
    assert len(found) == 6
    text = "\n".join(
        path.read_text(encoding="utf-8") for path in [ROOT / "pyproject.toml", *ROOT.glob("*/pyproject.toml")]
    )
    assert set(re.findall(r'"pointsman-[a-z]+(?:\[[a-z,]+\])?([=<>~!]=?[^"]*)"', text)) == {f"=={version}"}


def test_every_part_is_in_the_workspace_and_installed_by_the_root() -> None:
    root = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert sorted(root["tool"]["uv"]["workspace"]["members"]) == FOLDERS
    ours = {part["project"]["name"] for part in PARTS}
    assert set(root["tool"]["uv"]["sources"]) == ours
    assert names(root["project"]["dependencies"]) | {"pointsman-proto"} == ours


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_distribution_requires_all_that_it_imports(folder: str) -> None:
    part = PARTS[FOLDERS.index(folder)]
    has = declared(part) | {part["project"]["name"]} | OF_THE_TESTER
    if re.search(r"pointsman-proto\[(grpc|daemon)\]", str(part["project"]["dependencies"])):
        has |= OF_PROTO
    for package in packages(folder):
        assert {BROUGHT_BY.get(each, each) for each in imported(package)} - has == set()


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_distribution_is_typed_and_has_a_licence_and_a_readme(folder: str) -> None:
    assert (ROOT / folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert (ROOT / folder / "README.md").is_file()
    for package in packages(folder):
        assert (package / "py.typed").is_file()


@pytest.mark.parametrize("name", ["namesrv", "broker_agent", "spark_jobs"])
def test_no_folder_is_a_package(name: str, tmp_path: Path) -> None:
    """Otherwise a leftover import of that name would give an empty namespace package."""
    ended = subprocess.run(
        [sys.executable, "-c", f"import {name}"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert f"No module named '{name}'" in ended.stderr
