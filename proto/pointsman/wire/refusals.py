"""Refusals of a server: the base of both daemons' refusals, and violations of single fields. Pure data.

Refusal
├── FieldsRefused
│   └── InvalidRequest  INVALID_REQUEST  a field breaks a rule; names each
├── LimitExceeded       LIMIT_EXCEEDED   a bound of the server is reached
├── NotReady            NOT_READY        the server cannot serve that now; retry later or elsewhere
└── TooSlow             TOO_SLOW         a stream did not send what it is for in time

Facts are attributes; the message is built from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

MOST_VIOLATION_BYTES = 3_000
"""A status travels in trailers, which gRPC limits to 8 KiB, in base64; above that a client sees RESOURCE_EXHAUSTED."""


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """Becomes a ``google.rpc.BadRequest.FieldViolation`` on the wire."""

    field: str
    """Path of the field, as ``broker.identity.addr`` or ``topics[3].perm``."""
    description: str
    """The violated rule, with the value."""


class Refusal(Exception):
    """Base of all refusals."""

    code: ClassVar[str]
    """Stable name on the wire."""
    status: ClassVar[str]
    """Name of its gRPC status code (``google.rpc.Code``)."""
    violations: Sequence[FieldViolation] = ()

    @property
    def facts(self) -> Mapping[str, str]:
        """Return what a program needs in addition to the message."""
        return {}


class FieldsRefused(Refusal):
    """One or more invalid fields. At least one violation is needed."""

    def __init__(self, violations: Sequence[FieldViolation]) -> None:
        first = violations[0]
        more = f" (the first of {len(violations)} violations)" if len(violations) > 1 else ""
        super().__init__(f"{first.field} {first.description}{more}")
        self.violations = tuple(violations)


class InvalidRequest(FieldsRefused):
    """One or more fields break a rule."""

    code = "INVALID_REQUEST"
    status = "INVALID_ARGUMENT"


class LimitExceeded(Refusal):
    """A bound of the server is reached."""

    code = "LIMIT_EXCEEDED"
    status = "RESOURCE_EXHAUSTED"
    server: ClassVar[str]
    """How a message names the server."""

    def __init__(self, limit: str, bound: int, *, field: str = "", value: int | None = None, note: str = "") -> None:
        where = f"{field}: " if field else ""
        asked = f", not {value}" if value is not None else ""
        more = f"; {note}" if note else ""
        super().__init__(f"{where}{self.server} allows at most {bound} {limit}{asked}{more}")
        self.limit = limit
        self.bound = bound

    @property
    def facts(self) -> Mapping[str, str]:
        """Return the bound and its value."""
        return {"limit": self.limit, "bound": str(self.bound)}


class NotReady(Refusal):
    """The server cannot serve that now: it warms up, drains or stops. ``facts`` contain the reason."""

    code = "NOT_READY"
    status = "UNAVAILABLE"

    def __init__(self, message: str, **facts: str) -> None:
        super().__init__(message)
        self._facts = facts

    @property
    def facts(self) -> Mapping[str, str]:
        """Return the reason."""
        return self._facts


class TooSlow(Refusal):
    """A stream did not send what it is for in time; nothing was changed."""

    code = "TOO_SLOW"
    status = "DEADLINE_EXCEEDED"


def refuse_if_any(violations: Iterable[FieldViolation]) -> None:
    """Raise InvalidRequest with the violations, if there are any.

    Of very many only the first ones, as many as a response can hold, and the number of the others.
    """
    found: list[FieldViolation] = []
    room, left_out = MOST_VIOLATION_BYTES, 0
    for violation in violations:
        room -= len(violation.field) + len(violation.description)
        if room >= 0:
            found.append(violation)
        else:
            left_out += 1
    if left_out:
        found.append(FieldViolation("...", f"and {left_out} more violations"))
    if found:
        raise InvalidRequest(found)


def field_violations(field: str, value: str, problem: str | None) -> Sequence[FieldViolation]:
    """Return the violation of a field from the problem that a check of its value found (``wire/names.py``)."""
    return () if problem is None else (FieldViolation(field, f"{problem}: {shown(value)}"),)


def shown(value: object) -> str:
    """Format a value for an error: quoted, in ASCII without control characters, at most 80 of them."""
    text = ascii(value[:80] if isinstance(value, str) else value)
    return text if len(text) <= 80 else f"{text[:77]}..."
