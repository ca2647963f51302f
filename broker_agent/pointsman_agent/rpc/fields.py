"""Checks of single fields, as violations that name the field and its value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pointsman.wire.client_id import client_id_problem
from pointsman.wire.names import name_problem, text_problem
from pointsman.wire.violation import FieldViolation, bounded, shown
from pointsman_agent.rpc.refusals import InvalidRequest

MAX_BY_LENGTH = 128
MOST_VIOLATION_BYTES = 2_000
"""An answer names as many faults: it travels in trailers, three times over, of which gRPC takes 8 KiB."""


def refuse_if_any(violations: Iterable[FieldViolation]) -> None:
    """Raise InvalidRequest with the violations, if there are any; of very many the first, and how many more."""
    found = bounded(violations, most_bytes=MOST_VIOLATION_BYTES)
    if found:
        raise InvalidRequest(found)


def name_violations(field: str, name: str) -> Iterator[FieldViolation]:
    """Check the name of a group or topic."""
    yield from _fault(field, name, name_problem(name))


def client_id_violations(field: str, client_id: str) -> Iterator[FieldViolation]:
    """Check the id of a client."""
    yield from _fault(field, client_id, client_id_problem(client_id))


def by_violations(field: str, by: str) -> Iterator[FieldViolation]:
    """Check who asks, as they say themselves; it may be empty."""
    yield from _fault(field, by, text_problem(by, longest=MAX_BY_LENGTH))


def _fault(field: str, value: str, problem: str | None) -> Iterator[FieldViolation]:
    if problem is not None:
        yield FieldViolation(field, f"{problem}: {shown(value)}")
