"""What the agent refuses its clients, and why.

Refusal
├── InvalidRequest     INVALID_REQUEST      a field breaks a rule; names each
├── OutOfRange         OUT_OF_RANGE         a value is sound, but beyond what there is now; names each
├── LimitExceeded      LIMIT_EXCEEDED       a bound of this agent is reached
├── NotFound           NOT_FOUND            there is no such thing here
├── HeldByOther        HELD_BY_OTHER        somebody else holds what the call would change
├── NotReady           NOT_READY            this agent cannot answer that now; later, or another one, may
├── TooSlow            TOO_SLOW             a stream did not send what it is for in time
└── Unavailable        BACKEND_UNAVAILABLE  what this agent needs for the answer is out of reach

Facts are attributes; the text is built from them. ``rpc/status.py`` maps each to its gRPC status.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from pointsman.wire.violation import FieldViolation


class Refusal(Exception):
    """Base of all refusals."""

    code: ClassVar[str]
    """Stable name on the wire."""

    @property
    def facts(self) -> Mapping[str, str]:
        """What a program needs beside the text."""
        return {}


class _FieldsRefused(Refusal):
    def __init__(self, violations: Sequence[FieldViolation]) -> None:
        first = violations[0]
        more = f" (the first of {len(violations)} faults)" if len(violations) > 1 else ""
        super().__init__(f"{first.field} {first.description}{more}")
        self.violations = tuple(violations)


class InvalidRequest(_FieldsRefused):
    """One or more fields break a rule. At least one violation is needed."""

    code = "INVALID_REQUEST"


class OutOfRange(_FieldsRefused):
    """One or more values lie beyond what there is now. At least one violation is needed."""

    code = "OUT_OF_RANGE"


class LimitExceeded(Refusal):
    """A bound of this agent is reached."""

    code = "LIMIT_EXCEEDED"

    def __init__(self, limit: str, bound: int, *, field: str = "", value: int | None = None, advice: str = "") -> None:
        where = f"{field}: " if field else ""
        asked = f", not {value}" if value is not None else ""
        super().__init__(f"{where}this agent allows at most {bound} {limit}{asked}{advice and ': '}{advice}")
        self.limit = limit
        self.bound = bound

    @property
    def facts(self) -> Mapping[str, str]:
        """Which bound, and how high it is."""
        return {"limit": self.limit, "bound": str(self.bound)}


class NotFound(Refusal):
    """There is no such thing here."""

    code = "NOT_FOUND"


class HeldByOther(Refusal):
    """Somebody else holds what the call would change."""

    code = "HELD_BY_OTHER"

    def __init__(self, what: str, *, holder: str) -> None:
        super().__init__(f"{what} is held by {holder}")
        self.holder = holder

    @property
    def facts(self) -> Mapping[str, str]:
        """The holder."""
        return {"holder": self.holder}


class NotReady(Refusal):
    """This agent cannot answer that now: it warms up, or it stops."""

    code = "NOT_READY"

    def __init__(self, message: str, *, state: str) -> None:
        super().__init__(message)
        self.state = state

    @property
    def facts(self) -> Mapping[str, str]:
        """Why not."""
        return {"state": self.state}


class TooSlow(Refusal):
    """A stream did not send what it is for in time; nothing was changed."""

    code = "TOO_SLOW"


class Unavailable(Refusal):
    """What this agent needs for the answer is out of reach; nothing was changed."""

    code = "BACKEND_UNAVAILABLE"
