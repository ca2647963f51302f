"""Refusals of the agent.

Refusal (``wire/refusals.py``, with those of both daemons)
├── OutOfRange         OUT_OF_RANGE         a value is valid, but beyond the current end; names each
├── LimitExceeded      LIMIT_EXCEEDED       a limit of this agent is reached
├── NotFound           NOT_FOUND            the object does not exist here
├── PinRefused         PIN_REFUSED          a queue of this group cannot be pinned, at least by its present members
├── ResetRefused       RESET_REFUSED        offsets of this group cannot be reset so now
├── NotStored          NOT_STORED           it is in effect, but not stored: a crash of this agent would undo it
├── GroupInUse         GROUP_IN_USE         the group has members, which would commit again
├── HeldByOther        HELD_BY_OTHER        another client or operator holds what the call would change
├── TopicUnwritable    TOPIC_UNWRITABLE     the topic source cannot be changed here
├── QueueInUse         QUEUE_IN_USE         a queue that the topic still has would be removed
└── Unavailable        BACKEND_UNAVAILABLE  a backend of this agent is unreachable

Facts are attributes; the text is built from them.
"""

from __future__ import annotations

from collections.abc import Mapping

from pointsman.wire import refusals
from pointsman.wire.refusals import FieldsRefused, NotReady, Refusal


class OutOfRange(FieldsRefused):
    """One or more values are beyond the current end."""

    code = "OUT_OF_RANGE"
    status = "OUT_OF_RANGE"


class LimitExceeded(refusals.LimitExceeded):
    """A limit of this agent is reached."""

    server = "this agent"


class NotFound(Refusal):
    """The object does not exist here."""

    code = "NOT_FOUND"
    status = "NOT_FOUND"


class PinRefused(Refusal):
    """A queue of this group cannot be pinned."""

    code = "PIN_REFUSED"
    status = "FAILED_PRECONDITION"


class ResetRefused(Refusal):
    """Offsets of this group cannot be reset so now; nothing was changed."""

    code = "RESET_REFUSED"
    status = "FAILED_PRECONDITION"


class NotStored(Refusal):
    """What was changed is in effect, but not stored: a crash of this agent would undo it."""

    code = "NOT_STORED"
    status = "UNAVAILABLE"


class GroupInUse(Refusal):
    """The group has members, which would commit again."""

    code = "GROUP_IN_USE"
    status = "FAILED_PRECONDITION"


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


class TopicUnwritable(Refusal):
    """The topic source cannot be changed here; nothing was changed."""

    code = "TOPIC_UNWRITABLE"
    status = "FAILED_PRECONDITION"


class QueueInUse(Refusal):
    """The topic still has a queue that would be removed; nothing was changed."""

    code = "QUEUE_IN_USE"
    status = "FAILED_PRECONDITION"


class Unavailable(Refusal):
    """A backend of this agent is unreachable; nothing was changed."""

    code = "BACKEND_UNAVAILABLE"
    status = "UNAVAILABLE"


def stopping() -> NotReady:
    """Return the refusal of an agent that stops."""
    return NotReady("this agent is stopping; use another one", state="stopping")
