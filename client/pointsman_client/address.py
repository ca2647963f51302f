"""The list of name servers as users write it, and the check of names before a call. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pointsman.wire.names import addr_problem, name_problem
from pointsman_client.errors import InvalidAddressError, InvalidNameError

_SEPARATOR = re.compile(r"[,;]")
_SEPARATOR_AT_END = re.compile(r"[,;]\s*$")


def to_name_servers(name_servers: str | Sequence[str]) -> tuple[str, ...]:
    """Read a list of addresses, or one str separated by commas or (as RocketMQ has it) semicolons, one at its end too.

    An address listed twice counts once. Raises :class:`InvalidAddressError` with every fault.
    """
    given: object = name_servers
    if isinstance(given, str):
        listed: list[object] = [*_SEPARATOR.split(_SEPARATOR_AT_END.sub("", given))]
    elif isinstance(given, Iterable) and not isinstance(given, bytes):
        listed = list(given)
    else:
        raise InvalidAddressError(f"name_servers must be a 'host:port' str or a list of them, got {given!r}")
    if not_texts := [each for each in listed if not isinstance(each, str)]:
        raise InvalidAddressError(f"name server address must be a 'host:port' str, got {not_texts[0]!r}")
    addrs = [str(addr).strip() for addr in listed]
    if not any(addrs):
        raise InvalidAddressError("no name server given: pass at least one host:port")
    problems = [f"{addr!r} {problem}" for addr in addrs if (problem := addr_problem(addr))]
    if problems:
        raise InvalidAddressError("name server address " + "; ".join(problems))
    return tuple(dict.fromkeys(addrs))


def check_name(kind: str, name: str) -> None:
    """Raise :class:`InvalidNameError` unless ``name`` follows RocketMQ's grammar."""
    given: object = name
    problem = name_problem(name) if isinstance(given, str) else "must be a str"
    if problem:
        raise InvalidNameError(kind, name, problem)
