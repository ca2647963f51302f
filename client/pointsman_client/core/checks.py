"""Checks of arguments: durations, numbers, zones, functions, addresses, names."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterable, Sequence

from pointsman.wire.names import addr_problem, name_problem, text_problem
from pointsman_client.errors import InvalidAddressError, InvalidNameError, InvalidOptionError

ROCKETMQ_SCHEME = "rocketmq://"
"""Prefix of the address of a name server that is queried over RocketMQ's remoting protocol."""
_ROCKETMQ_PORT = 9876
_WITHOUT_PORT = re.compile(r"rocketmq://(?:\[[^\[\]]*\]|[^\[\]:/]+)")

_SEPARATOR = re.compile(r"[,;]")
_SEPARATOR_AT_END = re.compile(r"[,;]\s*$")


def to_name_servers(name_servers: str | Sequence[str]) -> tuple[str, ...]:
    """Parse a list of addresses, or a str with commas or (as in RocketMQ) semicolons between them or at its end.

    Duplicates are removed. A RocketMQ name server is ``rocketmq://host:port``, its port 9876 if omitted. Raises
    :class:`InvalidAddressError` with all errors.
    """
    given: object = name_servers
    if isinstance(given, str):
        listed: list[object] = [*_SEPARATOR.split(_SEPARATOR_AT_END.sub("", given))]
    elif isinstance(given, Iterable) and not isinstance(given, bytes):
        listed = list(given)
    else:
        raise InvalidAddressError(f"name_servers must be a 'host:port' str or a list of them, got {given!r}")
    if not_str := [each for each in listed if not isinstance(each, str)]:
        raise InvalidAddressError(f"name server address must be a 'host:port' str, got {not_str[0]!r}")
    addrs = [str(addr).strip() for addr in listed]
    if not any(addrs):
        raise InvalidAddressError("no name server given: pass at least one host:port")
    addrs = [f"{addr}:{_ROCKETMQ_PORT}" if _WITHOUT_PORT.fullmatch(addr) else addr for addr in addrs]
    of_rocketmq = [addr for addr in addrs if addr.startswith(ROCKETMQ_SCHEME)]
    if of_rocketmq and len(of_rocketmq) < len(addrs):
        other = next(addr for addr in addrs if addr not in of_rocketmq)
        raise InvalidAddressError(
            f"name server addresses must be of one kind, but {of_rocketmq[0]!r} is of RocketMQ and {other!r} is not: "
            f"write {ROCKETMQ_SCHEME} before each address or before none"
        )
    problems = [
        f"{addr!r} {problem}" for addr in addrs if (problem := addr_problem(addr.removeprefix(ROCKETMQ_SCHEME)))
    ]
    if problems:
        raise InvalidAddressError("name server address " + "; ".join(problems))
    return tuple(dict.fromkeys(addrs))


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


def check_name(kind: str, name: str) -> None:
    """Raise :class:`InvalidNameError` unless ``name`` follows RocketMQ's grammar."""
    given: object = name
    problem = name_problem(name) if isinstance(given, str) else "must be a str"
    if problem:
        raise InvalidNameError(kind, name, problem)


def check_function(option: str, value: object, problem: str) -> None:
    """Raise :class:`InvalidOptionError` unless the value is a function that is not async."""
    if not callable(value):
        raise InvalidOptionError(option, value, problem)
    if inspect.iscoroutinefunction(value):
        raise InvalidOptionError(option, value, "must not be async: its result is not awaited")
