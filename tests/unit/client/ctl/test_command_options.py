"""Durations as operators write them."""

from __future__ import annotations

import click
import pytest

from pointsman_ctl.command_options import read_duration


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("2h", 7_200), ("1d", 86_400), ("7d", 604_800), ("007s", 7)]
)
def test_a_number_and_a_unit_are_seconds(text: str, seconds: int) -> None:
    assert read_duration(text, longest="7d") == seconds


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "'' is no duration: write a whole number and a unit, as 90s, 10m, 2h or 1d"),
        ("m", "'m' is no duration"),
        ("1.5h", "'1.5h' is no duration"),
        ("-5m", "'-5m' is no duration"),
        ("5 m", "'5 m' is no duration"),
        ("5M", "'5M' is no duration"),
        ("1h30m", "'1h30m' is no duration"),
        ("\N{ARABIC-INDIC DIGIT FIVE}m", "is no duration"),
        ("9" * 10 + "s", "is no duration"),
        ("30", "'30' has no unit: write 30s, 30m, 30h or 30d"),
        ("0s", "'0s' must be more than zero"),
        ("169h", "'169h' is longer than 7d"),
    ],
)
def test_any_other_value_is_refused_and_quoted(text: str, problem: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        read_duration(text, longest="7d")
    assert problem in refused.value.message
