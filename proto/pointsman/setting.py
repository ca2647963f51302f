"""Rules for settings of every daemon. Each yields its problem as ``name: what is wrong``, for ``problems()``."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pointsman.names import addr_problem


def fault(name: str, value: object, problem: str | None) -> Iterator[str]:
    """Yield the problem of a field with its value, if there is one."""
    if problem is not None:
        yield f"{name}: {value!r} {problem}"


def outside(name: str, value: float, lowest: float, highest: float) -> Iterator[str]:
    """A number that is not from ``lowest`` to ``highest``."""
    # Asked this way round, "nan" is a fault as well.
    if not lowest <= value <= highest:
        yield f"{name}: {value} is not from {lowest} to {highest}"


def not_one_of(name: str, value: str, choices: Collection[str]) -> Iterator[str]:
    """A word that is none of the choices."""
    if value not in choices:
        yield f"{name}: {value!r} is none of {', '.join(choices)}"


def unusable_listen(name: str, addr: str) -> Iterator[str]:
    """An address that cannot be listened on. Port 0 is none to reach, but a fine one to listen on: any free one."""
    yield from fault(name, addr, addr_problem(f"{addr.removesuffix(':0')}:1" if addr.endswith(":0") else addr))
