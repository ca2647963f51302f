"""One fault of a request: which field, and what is wrong with it. Pure data, shared by server and client."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """Becomes a ``google.rpc.BadRequest.FieldViolation`` on the wire."""

    field: str
    """Path of the field, as ``broker.identity.addr`` or ``topics[3].perm``."""
    description: str
    """What is wrong, with the value."""


def shown(value: object) -> str:
    """A value as an error shows it: quoted, in ASCII without control characters, at most 80 of them."""
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def bounded(violations: Iterable[FieldViolation], *, most_bytes: int) -> list[FieldViolation]:
    """The first violations, as many as an answer can carry, and how many more there are."""
    found: list[FieldViolation] = []
    room, left_out = most_bytes, 0
    for violation in violations:
        room -= len(violation.field) + len(violation.description)
        if room >= 0:
            found.append(violation)
        else:
            left_out += 1
    if left_out:
        found.append(FieldViolation("...", f"and {left_out} more faults"))
    return found
