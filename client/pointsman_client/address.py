"""The list of name servers as users write it, and the check of names before a call. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pointsman.wire.names import addr_problem, name_problem
from pointsman_client.errors import InvalidAddressError, InvalidNameError

_SEPARATOR = re.compile(r"[,;]")


def to_name_servers(name_servers: str | Sequence[str]) -> tuple[str, ...]:
    """Read a list of addresses, or one text separated by commas or (as RocketMQ has it) semicolons.

    An address listed twice counts once. Raises :class:`InvalidAddressError` with every fault.
    """
    given: object = name_servers
    if isinstance(given, str):
        listed: list[object] = [*_SEPARATOR.split(given)]
    elif isinstance(given, Iterable) and not isinstance(given, bytes):
        listed = list(given)
    else:
        raise InvalidAddressError(f"name_servers = {given!r} must be a text, or a list of texts, host:port")
    if not_texts := [each for each in listed if not isinstance(each, str)]:
        raise InvalidAddressError(f"name server address {not_texts[0]!r} must be a text, host:port")
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
    problem = name_problem(name) if isinstance(given, str) else "must be a text"
    if problem:
        raise InvalidNameError(kind, name, problem)
