"""The keys of the command line's JSON, and where its help documents them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from pointsman_ctl.command_line import cli, run

DATA_KEYED = {
    *("labels", "sizes", "ratesPerSecond", "brokersByState", "detail", "brokerAddrs", "filterServerTable"),
    *("before", "after", "properties", "runtime"),
}
"""Their keys are names of the user's own, or of the server's."""


def undocumented_keys(
    document: object, command: list[str], *elsewhere: str, capsys: pytest.CaptureFixture[str]
) -> set[str]:
    """Return the keys of an answer that the command's help does not name, nor that of the commands it refers to."""
    found = set(_keys_of(document))
    assert found
    words: set[str] = set()
    for documented in (_typed(command), *(other.split() for other in elsewhere)):
        capsys.readouterr()
        assert run([*documented, "--help"]) == 0
        words |= set(re.findall(r"\w+", capsys.readouterr().out.partition("JSON")[2].partition("Examples:")[0]))
    return found - words


def _typed(command: list[str]) -> list[str]:
    """Return the words of a command without its arguments; what a group does without a command is its first one."""
    group = cli.commands[command[0]]
    if not isinstance(group, click.Group):
        return command[:1]
    return command[:2] if command[1] in group.commands else [command[0], next(iter(group.commands))]


def _keys_of(document: object) -> Iterator[str]:
    if isinstance(document, dict):
        for key, value in document.items():
            yield key
            if key not in DATA_KEYED and key != "error":
                yield from _keys_of(value)
    elif isinstance(document, list):
        for item in document:
            yield from _keys_of(item)
