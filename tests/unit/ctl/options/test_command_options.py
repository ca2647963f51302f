"""Durations as operators write them."""

from __future__ import annotations

import click
import pytest

from pointsman_ctl.options.command_options import read_duration


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
