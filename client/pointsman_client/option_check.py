"""Checks of settings that every part of the client has: times, numbers, zones. Pure."""

from __future__ import annotations

import inspect
import math

from pointsman.wire.names import text_problem
from pointsman_client.errors import InvalidOptionError


def check_seconds(option: str, value: float) -> None:
    """Raise :class:`InvalidOptionError` unless the value is a time that can be waited: positive and finite."""
    number: object = value
    if not isinstance(number, int | float) or not (math.isfinite(number) and number > 0):
        raise InvalidOptionError(option, value, "must be a positive number of seconds")


def check_number(option: str, value: int, *, at_least: int = 1, at_most: int | None = None) -> None:
    """Raise :class:`InvalidOptionError` unless the value is from ``at_least`` to ``at_most``; None: to any number."""
    number: object = value
    if not isinstance(number, int):
        raise InvalidOptionError(option, value, "must be a whole number")
    if value < at_least or (at_most is not None and value > at_most):
        problem = f"must be at least {at_least}" if at_most is None else f"must be from {at_least} to {at_most}"
        raise InvalidOptionError(option, value, problem)


def check_zone(option: str, value: str) -> None:
    """Raise :class:`InvalidOptionError` unless the value is the name of a zone, or empty."""
    given: object = value
    problem = text_problem(given) if isinstance(given, str) else "must be a str"
    if problem:
        raise InvalidOptionError(option, value, problem)


def check_function(option: str, value: object, problem: str) -> None:
    """Raise :class:`InvalidOptionError` unless the value can be called where nobody awaits what it returns."""
    if not callable(value):
        raise InvalidOptionError(option, value, problem)
    if inspect.iscoroutinefunction(value):
        raise InvalidOptionError(option, value, "must be a plain function: nobody would await its result")
