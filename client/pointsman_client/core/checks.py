"""Checks of arguments: durations, numbers, zones, functions, addresses, names."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from pointsman.address_list import url_problem
from pointsman.names import ROCKETMQ_SCHEME, name_problem, read_name_servers, text_problem
from pointsman_client.errors import InvalidAddressError, InvalidNameError, InvalidOptionError

_LIST_URL = re.compile(r"(?P<kind>rocketmq\+)?(?P<url>https?://[^/]+/.+)")


def to_list_url(name_servers: str | Sequence[str]) -> tuple[str, str]:
    """Return the URL of a list and the scheme of the servers in it; empty: addresses are given, or what is invalid.

    ``rocketmq+http://...`` is a list of RocketMQ's name servers. Raises :class:`InvalidAddressError`.
    """
    given: object = name_servers
    if isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 1:
        given = given[0]
    match = _LIST_URL.fullmatch(given.strip()) if isinstance(given, str) else None
    if match is None:
        return "", ""
    url = match["url"]
    if problem := url_problem(url):
        # One with a user name is not shown: it may have a password.
        raise InvalidAddressError(f"the URL of a list of name servers {problem}" + ("" if "@" in url else f": {url!r}"))
    return url, ROCKETMQ_SCHEME if match["kind"] else ""


def to_name_servers(name_servers: str | Sequence[str]) -> tuple[str, ...]:
    """Read a list of addresses, as :func:`~pointsman.names.read_name_servers` does.

    Raises :class:`InvalidAddressError` with all errors.
    """
    given: object = name_servers
    if not isinstance(given, Iterable) or isinstance(given, bytes):
        raise InvalidAddressError(f"name_servers must be a 'host:port' str or a list of them, got {given!r}")
    listed = given if isinstance(given, str) else [*given]
    if not_str := [each for each in listed if not isinstance(each, str)]:
        raise InvalidAddressError(f"name server address must be a 'host:port' str, got {not_str[0]!r}")
    try:
        return read_name_servers(listed)
    except ValueError as error:
        raise InvalidAddressError(str(error)) from None


def check_seconds(option: str, value: float) -> None:
    """Raise :class:`InvalidOptionError` unless the value is positive and finite."""
    number: object = value
    if not isinstance(number, int | float) or not (math.isfinite(number) and number > 0):
        raise InvalidOptionError(option, value, "must be a positive number of seconds")


def check_number(option: str, value: int, *, at_least: int = 1, at_most: int | None = None) -> None:
    """Raise :class:`InvalidOptionError` unless the value is from ``at_least`` to ``at_most``; None: no maximum."""
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


_name_problem = lru_cache(maxsize=1000)(name_problem)
"""Cached: each message is checked, and an application has few topics."""


def check_name(kind: str, name: str) -> None:
    """Raise :class:`InvalidNameError` unless ``name`` follows RocketMQ's grammar."""
    given: object = name
    problem = _name_problem(name) if isinstance(given, str) else "must be a str"
    if problem:
        raise InvalidNameError(kind, name, problem)


def check_function(option: str, value: object, problem: str) -> None:
    """Raise :class:`InvalidOptionError` unless the value is a function that is not async."""
    if not callable(value):
        raise InvalidOptionError(option, value, problem)
    if inspect.iscoroutinefunction(value):
        raise InvalidOptionError(option, value, "must not be async: its result is not awaited")
