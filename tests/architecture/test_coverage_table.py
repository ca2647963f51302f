"""``tests/README.md`` names a test of the fast run for each promise and each command."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click

import pointsman_agent.__main__
import pointsman_namesrv.__main__
import pointsman_namesrv.observe.__main__
import pointsman_report.cli
from pointsman_ctl.command_line import TASKS, cli

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "tests" / "README.md"
STORIES = {
    "The verdict of `make demo`",
    "Five questions of an operator, answered on the pages by the clicks that the documentation lists",
    "The commands and the Python of the documentation",
    "A complete night through Spark",
}
NOT_FAST = re.compile(r"\bpytest\.mark\.(slow|chaos)\b")


def rows() -> list[tuple[str, list[str]]]:
    """The subject of each row, and its tests."""
    cells = re.findall(r"^\| (?!-)([^|]+) \| ([^|]*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [(about, re.findall(r"`([^`]+)`", tests)) for about, tests in cells if tests != "tests"]


def promises() -> set[str]:
    return set(re.findall(r"^\| (P\d+) \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE))


def programs() -> set[str]:
    parts = [tomllib.loads(path.read_text(encoding="utf-8"))["project"] for path in ROOT.glob("*/pyproject.toml")]
    scripts = {f"`{name}`" for part in parts for name in part.get("scripts", ())}
    assert len(scripts) == 5
    return scripts | {f"`pointsmanctl`, {task}" for task, _ in TASKS}


def words_of(command: click.Command) -> Iterator[str]:
    """The commands of a program, as they are typed."""
    if isinstance(command, click.Group):
        for below in command.commands.values():
            yield from (f"{command.name} {words}" for words in words_of(below))
    else:
        yield str(command.name)


def commands() -> set[str]:
    daemons = (
        pointsman_namesrv.__main__.DAEMON,
        pointsman_namesrv.observe.__main__.DAEMON,
        pointsman_agent.__main__.DAEMON,
    )
    typed = [words for daemon in daemons for words in words_of(daemon.command())]
    typed += [f"pointsman-report {name}" for name in pointsman_report.cli.cli.commands]
    return {f"`{each}`" for each in [*typed, *(f"pointsmanctl {name}" for name in cli.commands)]}


def problem(about: str, test: str) -> str | None:
    """Return why a test cannot be named in a row."""
    path, _, name = test.partition("::")
    if not (ROOT / path).is_file():
        return "there is no such file"
    source = (ROOT / path).read_text(encoding="utf-8")
    marks, found = "", False
    for node in ast.parse(source).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="pytestmark")]):
                marks += ast.unparse(node.value)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() if node.name == name:
                found = True
                decorators = [ast.unparse(each) for each in node.decorator_list]
                # A slow case of a parametrized test leaves the others in the fast run.
                marks += " ".join(each for each in decorators if "parametrize(" not in each)
            case ast.Assign(targets=[ast.Name() as target]) if target.id == name:
                found = True
    if not found:
        return "there is no such test"
    if not_fast := NOT_FAST.search(marks):
        return f"marked {not_fast[1]}, so it is not in the fast run"
    typed = re.findall(r"^`\S+ ([^`]+)`", about)
    return None if all(f'"{word}"' in source for words in typed for word in words.split()) else "its file never runs it"


def test_each_promise_and_command_has_a_row_and_every_row_has_a_subject() -> None:
    """The promises are those of README.md, the commands those of the programs."""
    wanted = promises() | programs() | commands() | STORIES
    found = {re.sub(r"^(P\d+): .*", r"\1", about) for about, _ in rows()}
    assert not wanted - found, f"tests/README.md has no row for {sorted(wanted - found)}"
    assert not found - wanted, f"tests/README.md has rows for what is not there: {sorted(found - wanted)}"


def test_every_row_names_tests_of_the_fast_run() -> None:
    wrong = [f"{about}: no test is named" for about, tests in rows() if not tests]
    for about, tests in rows():
        wrong += [f"{about}: {test}: {why}" for test in tests if (why := problem(about, test)) is not None]
    assert not wrong, "\n".join(["tests/README.md:", *wrong])


def test_the_test_files_of_each_promise_exist() -> None:
    named = re.findall(r"`(tests/[^`:]+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
