"""One fault of a request: which field, and what is wrong with it. Pure data, shared by server and client."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """Becomes a ``google.rpc.BadRequest.FieldViolation`` on the wire."""

    field: str
    """Path of the field, as ``broker.identity.addr`` or ``topics[3].perm``."""
    description: str
    """What is wrong, with the value."""
