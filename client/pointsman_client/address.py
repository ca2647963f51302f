"""The list of name servers as users write it, and the check of names before a call. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pointsman.wire.names import addr_problem, name_problem
from pointsman_client.errors import InvalidAddressError, InvalidNameError

_SEPARATOR = re.compile(r"[,;]")


def to_name_servers(name_servers: str | Sequence[str]) -> tuple[str, ...]:
    """Read a list of addresses, or one text separated by commas or (as RocketMQ has it) semicolons.

    An address listed twice counts once. Raises :class:`InvalidAddressError` with every fault.
    """
    listed = _SEPARATOR.split(name_servers) if isinstance(name_servers, str) else list(name_servers)
    addrs = [addr.strip() for addr in listed]
    if not any(addrs):
        raise InvalidAddressError("no name server given: pass at least one host:port")
    problems = [f"{addr!r} {problem}" for addr in addrs if (problem := addr_problem(addr))]
    if problems:
        raise InvalidAddressError("name server address " + "; ".join(problems))
    return tuple(dict.fromkeys(addrs))


def check_name(kind: str, name: str) -> None:
    """Raise :class:`InvalidNameError` unless ``name`` follows RocketMQ's grammar."""
    problem = name_problem(name)
    if problem:
        raise InvalidNameError(kind, name, problem)
