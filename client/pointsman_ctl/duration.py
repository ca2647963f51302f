"""Lengths of time as people write them: 90s, 10m, 2h, 1d. Pure."""

from __future__ import annotations

import re

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"([0-9]{1,9})([smhd])")
_NUMBER = re.compile(r"[0-9]{1,9}")


def duration_problem(text: str, *, longest: str) -> str | None:
    """Say what is wrong with a duration, or None; ``longest`` is itself one, as ``7d``."""
    match = _DURATION.fullmatch(text)
    if match is None:
        if _NUMBER.fullmatch(text):
            return f"{text!r} has no unit: write {text}s, {text}m, {text}h or {text}d"
        return f"{text!r} is no duration: write a whole number and a unit, as 90s, 10m, 2h or 1d"
    if int(match[1]) == 0:
        return f"{text!r} must be more than zero"
    if to_seconds(text) > to_seconds(longest):
        return f"{text!r} is longer than {longest}"
    return None


def to_seconds(text: str) -> int:
    """Read a duration that :func:`duration_problem` accepts."""
    return int(text[:-1]) * _UNITS[text[-1]]
