"""The code in ``docs/`` type-checks, its commands and options exist, its TOML is accepted; the core's tutorial runs."""

from __future__ import annotations

import ast
import doctest
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import pointsman_agent.__main__
import pointsman_ctl.command_line
import pointsman_namesrv.__main__
import pointsman_namesrv.core
import pointsman_namesrv.observe.__main__
import pointsman_report.cli
from pointsman.daemon.access.access_settings import Grant
from pointsman.daemon.tls.tls_settings import TlsConfig
from pointsman_agent.config import TopicRow
from pointsman_ctl.options.command_options import DefaultCommandGroup
from pointsman_namesrv.config import AddressServerConfig, RemotingConfig, ServerConfig

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PROGRAMS: dict[str, click.Command] = {
    "pointsmanctl": pointsman_ctl.command_line.cli,
    "pointsman-report": pointsman_report.cli.cli,
    "pointsman-namesrv": pointsman_namesrv.__main__.DAEMON.command(),
    "pointsman-agent": pointsman_agent.__main__.DAEMON.command(),
    "pointsman-observe": pointsman_namesrv.observe.__main__.command,
}
OTHERS = {"apt-get", "cat", "cd", "curl", "export", "grep", "helm", "kill", "kubectl", "make", "mkdir", "pip", "pipx"}
OTHERS |= {".", "echo", "jq", "openssl", "python3", "redis-cli", "redis-server", "sleep", "systemctl", "tail", "uv"}


def blocks(language: str) -> list[tuple[str, str]]:
    """Each code block of a language with its place."""
    found = []
    for path in sorted(DOCS.rglob("*.md")):
        page = path.read_text(encoding="utf-8")
        for piece in re.finditer(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
            line = page.count("\n", 0, piece.start()) + 2
            found.append((f"{path.relative_to(ROOT)}:{line}", piece[1]))
    return found


def test_every_block_is_in_a_language_that_is_checked_here() -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md"))
    opened = re.findall(r"^```(\w*)$", pages, re.MULTILINE)
    assert set(opened[::2]) == {"python", "bash", "toml"}
    assert len(blocks("python")) > 12


def test_the_tutorial_of_the_core_runs() -> None:
    ran = doctest.testmod(pointsman_namesrv.core)
    assert (ran.failed, ran.attempted > 10) == (0, True)


@pytest.mark.timeout(300)
def test_the_python_of_all_pages_type_checks(tmp_path: Path) -> None:
    for number, (where, code) in enumerate(blocks("python")):
        (tmp_path / f"block_{number}.py").write_text(f"# {where}\n{code}", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), *map(str, tmp_path.glob("*.py"))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + "\n".join(where for where, _ in blocks("python"))


@pytest.mark.parametrize(("where", "code"), blocks("python"), ids=lambda each: each.splitlines()[0][:50])
def test_the_python_of_a_page_imports_existing_names(where: str, code: str) -> None:
    imports: list[ast.stmt] = [node for node in ast.parse(code).body if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module(imports, []), where, "exec"), {})


def commands(code: str) -> Iterator[list[str]]:
    """The commands of a shell block, split into words, without here-documents and comments."""
    code = re.sub(r"<<'(\w+)'\n.*?^\1$", "", code, flags=re.DOTALL | re.MULTILINE).replace("\\\n", " ")
    for line in code.splitlines():
        for part in re.split(r"[;&|]+(?=\s|$)", re.sub(r"\$\([^)]*\)", "FILE", line)):
            words = shlex.split(part, comments=True)
            while words and (re.match(r"\w+=", words[0]) or words[0] in {"until", "do", "done", "python"}):
                words = words[1:]
            if words:
                yield words


@pytest.mark.parametrize(("where", "code"), blocks("bash"), ids=lambda each: each.splitlines()[0][:50])
def test_the_commands_of_a_page_exist_with_their_options(where: str, code: str) -> None:
    for name, *words in commands(code):
        if name in PROGRAMS:
            check_options(where, name, words)
        else:
            assert name in OTHERS or name.endswith(".py"), f"{where}: {name}"


def test_no_page_has_a_loop_that_may_never_end_or_ends_a_job_by_its_number() -> None:
    for path in sorted({*ROOT.glob("*.md"), *ROOT.glob("*/*.md"), *DOCS.rglob("*.md"), *ROOT.glob("deploy/**/*.md")}):
        page = path.read_text(encoding="utf-8")
        assert not re.search(r"\b(until|while) .*; *do\b|\bkill (-\w+ )?%", page), path


def default_of(group: DefaultCommandGroup) -> click.Command:
    """What a group does without the name of a command."""
    return next(iter(group.commands.values()))


def check_options(where: str, name: str, words: list[str]) -> None:
    """Follow the subcommands of one call, and find each of its options in one of them."""
    command, known = PROGRAMS[name], set[str]()
    known |= {option for parameter in command.params for option in parameter.opts}
    for word in words:
        if isinstance(command, click.Group) and (inner := command.get_command(click.Context(command), word)):
            command = inner
            known |= {option for parameter in command.params for option in parameter.opts}
        elif word.startswith("-"):
            assert word.partition("=")[0] in known, f"{where}: {name} has no option {word}"
        if isinstance(command, DefaultCommandGroup):
            known |= {option for parameter in default_of(command).params for option in parameter.opts}
    if isinstance(command, DefaultCommandGroup):
        command = default_of(command)
    assert not isinstance(command, click.Group) or name not in {"pointsmanctl", "pointsman-report"}, f"{where}: {words}"


@pytest.mark.parametrize(("where", "text"), blocks("toml"), ids=lambda each: each.splitlines()[0][:50])
def test_the_toml_of_a_page_is_valid_for_its_daemon(where: str, text: str) -> None:
    found = tomllib.loads(text)
    assert found.keys() <= {"topics", "tls", "access", "server", "remoting", "address_server"}, where
    assert list(AddressServerConfig(**found.get("address_server", {})).problems()) == []
    assert list(ServerConfig(**found.get("server", {})).problems()) == []
    assert list(RemotingConfig(**found.get("remoting", {})).problems()) == []
    assert list(TlsConfig(**found.get("tls", {})).problems()) == []
    for row in found.get("access", {}).get("grants", []):
        assert list(Grant(**row).problems()) == []
    for row in found.get("topics", {}).get("topic", []):
        assert list(TopicRow(**row).problems()) == []
