"""The table of mqadmin's commands in ``command-line.md``: every command of it, and what exists here."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from pointsman_ctl.command_line import cli
from tests.fixtures.mqadmin_commands.record import VERSION, recorded

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## Coming from mqadmin\n")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]*) \|$", SECTION, re.MULTILINE)


def problem(typed: str) -> str | None:
    """Return why this is not a command with its options."""
    program, *words = typed.split()
    command: click.Command = cli
    if program != "pointsmanctl" or not words:
        return "is not a command"
    while words and not words[0].startswith("-"):
        if not isinstance(command, click.Group) or words[0] not in command.commands:
            return f"there is no {words[0]!r}"
        command = command.commands[words.pop(0)]
    # What a group does without the name of a command has its own options.
    shown = [*command.commands.values()][:1] if isinstance(command, click.Group) else [command]
    options = {option for each in shown for param in each.params for option in param.opts}
    missing = [word for word in words if word not in options]
    return f"there is no {missing[0]}" if missing else None


def test_the_table_has_every_command_of_mqadmin_in_its_order() -> None:
    assert [name for name, _, _ in ROWS] == recorded()
    assert f"mqadmin {VERSION}" in SECTION


@pytest.mark.parametrize(("name", "counterpart", "remark"), ROWS)
def test_a_counterpart_exists_or_the_row_says_why_there_is_none(name: str, counterpart: str, remark: str) -> None:
    if counterpart == "none":
        assert remark.strip(), name
        return
    typed = re.findall(r"`([^`]+)`", counterpart)
    assert ", ".join(f"`{each}`" for each in typed) == counterpart
    assert [(each, why) for each in typed if (why := problem(each))] == []


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("pointsmanctl", "is not a command"),
        ("mqadmin route", "is not a command"),
        ("pointsmanctl rout", "there is no 'rout'"),
        ("pointsmanctl kv putt", "there is no 'putt'"),
        ("pointsmanctl route TOPIC", "there is no 'TOPIC'"),
        ("pointsmanctl info --config", "there is no --config"),
        ("pointsmanctl info --configuration", None),
    ],
)
def test_what_does_not_exist_is_found(typed: str, why: str | None) -> None:
    assert problem(typed) == why
