"""Durations as operators write them, the consent to a change, and a group that is also a command."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from pointsman_ctl.options.command_options import Consent, DefaultCommandGroup, change_options, read_duration


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("2h", 7_200), ("1d", 86_400), ("7d", 604_800), ("007s", 7)]
)
def test_a_number_and_a_unit_are_seconds(text: str, seconds: int) -> None:
    assert read_duration(text, longest="7d") == seconds


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "invalid duration '': use e.g. 90s, 10m, 2h or 1d"),
        ("m", "invalid duration 'm'"),
        ("1.5h", "invalid duration '1.5h'"),
        ("-5m", "invalid duration '-5m'"),
        ("5 m", "invalid duration '5 m'"),
        ("5M", "invalid duration '5M'"),
        ("1h30m", "invalid duration '1h30m'"),
        ("\N{ARABIC-INDIC DIGIT FIVE}m", "invalid duration"),
        ("9" * 10 + "s", "invalid duration"),
        ("30", "duration '30' has no unit: use 30s, 30m, 30h or 30d"),
        ("0s", "duration must be greater than zero, got '0s'"),
        ("169h", "duration must be at most 7d, got '169h'"),
    ],
)
def test_any_other_value_is_refused_and_quoted(text: str, problem: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        read_duration(text, longest="7d")
    assert problem in refused.value.message


@click.group(cls=DefaultCommandGroup)
def offsets() -> None:
    """A group that was a command."""


@offsets.command()
@click.argument("group", required=False)
@click.option("--retry", is_flag=True)
def show(group: str | None, *, retry: bool) -> None:
    click.echo(f"show {group} {retry}")


@offsets.command()
@click.argument("group")
@change_options
def reset(group: str, consent: Consent) -> None:
    click.echo(f"reset {group} {consent}")


@pytest.mark.parametrize(
    ("words", "out"),
    [
        ([], "show None False"),
        (["billing"], "show billing False"),
        (["--retry", "billing"], "show billing True"),
        (["show", "reset"], "show reset False"),
        (["reset", "billing", "--by", "ann"], "reset billing Consent(by='ann', yes=False, dry_run=False)"),
        (["reset", "-y", "--dry-run", "x", "--by", "ann"], "reset x Consent(by='ann', yes=True, dry_run=True)"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_group_without_the_name_of_a_command_runs_its_first(words: list[str], out: str) -> None:
    assert CliRunner().invoke(offsets, words).output == f"{out}\n"


def test_the_help_of_such_a_group_lists_its_commands() -> None:
    assert "reset" in CliRunner().invoke(offsets, ["--help"]).output
