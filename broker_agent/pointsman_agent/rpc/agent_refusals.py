"""What the agent refuses its clients, and why.

Refusal (``wire/refusals.py``, with the ones that both daemons have)
├── OutOfRange         OUT_OF_RANGE         a value is sound, but beyond what there is now; names each
├── LimitExceeded      LIMIT_EXCEEDED       a bound of this agent is reached
├── NotFound           NOT_FOUND            there is no such thing here
├── HeldByOther        HELD_BY_OTHER        another client or operator holds what the call would change
└── Unavailable        BACKEND_UNAVAILABLE  what this agent needs for the answer is out of reach

Facts are attributes; the text is built from them.
"""

from __future__ import annotations

from collections.abc import Mapping

from pointsman.wire import refusals
from pointsman.wire.refusals import FieldsRefused, NotReady, Refusal


class OutOfRange(FieldsRefused):
    """One or more values lie beyond what there is now."""

    code = "OUT_OF_RANGE"
    status = "OUT_OF_RANGE"


class LimitExceeded(refusals.LimitExceeded):
    """A bound of this agent is reached."""

    server = "this agent"


class NotFound(Refusal):
    """There is no such thing here."""

    code = "NOT_FOUND"
    status = "NOT_FOUND"


class HeldByOther(Refusal):
    """Another client or operator holds what the call would change."""

    code = "HELD_BY_OTHER"
    status = "FAILED_PRECONDITION"

    def __init__(self, what: str, *, holder: str) -> None:
        super().__init__(f"{what} is held by {holder}")
        self.holder = holder

    @property
    def facts(self) -> Mapping[str, str]:
        """The holder."""
        return {"holder": self.holder}


class Unavailable(Refusal):
    """What this agent needs for the answer is out of reach; nothing was changed."""

    code = "BACKEND_UNAVAILABLE"
    status = "UNAVAILABLE"


def stopping() -> NotReady:
    """Return the refusal of an agent that stops."""
    return NotReady("this agent is stopping; ask another one", state="stopping")
