"""Outcome of a send: consequences of an attempt for its broker and the next attempt, and the result."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import NamedTuple

from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.transactions import HalfMessage
from pointsman_client.errors import (
    BrokerRefusedError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    PointsmanError,
    ResponseCode,
)

RETRY_RESPONSE_CODES = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        204,  # NO_BUYER_ID
        205,  # NOT_IN_CURRENT_UNIT
        1500,  # GO_AWAY
    }
)
"""RocketMQ's ``retryResponseCodes``: another broker may accept what this one rejected."""


class SendStatus(StrEnum):
    """What the broker reports about a stored message (RocketMQ ``SendStatus``)."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """Stored, but the flush to disk was not confirmed in time."""
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    """Stored, but not confirmed by the required number of replicas in time."""
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    """Stored, but the broker currently has no replica."""


class SendMode(Enum):
    """How a message is sent; this determines the number of attempts."""

    SYNC = "sync"
    ASYNC = "async"
    ONEWAY = "oneway"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Consequences of one attempt."""

    isolation: bool
    """Whether the broker counts as failed; else the latency of the attempt decides."""
    reachable: bool
    try_again: bool
    """Whether another attempt may follow, if one is left."""


_SEND_OK = SendStatus.SEND_OK  # to look a member of an enumeration up takes longer than to compare it
_STORED = Outcome(isolation=False, reachable=True, try_again=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRules:
    """RocketMQ's ``sendDefaultImpl`` as a table, with the settings that change it."""

    retry_response_codes: Collection[int] = RETRY_RESPONSE_CODES
    retry_another_broker_when_not_store_ok: bool = False
    start_detector_enable: bool = True

    def of_status(self, status: SendStatus, mode: SendMode) -> Outcome:
        """Return the outcome of an attempt whose message the broker stored."""
        if status is _SEND_OK:
            return _STORED
        again = self.retry_another_broker_when_not_store_ok and mode is SendMode.SYNC
        return Outcome(isolation=False, reachable=True, try_again=again)

    def of_error(self, error: PointsmanError, mode: SendMode, *, had_addr: bool = True) -> Outcome:
        """Return the outcome of a failed attempt. Without an address no broker was called, so none is isolated.

        A broker that rejects counts as unreachable even without a detector, as in RocketMQ; the flag only matters while
        no broker is available. A rejection ends an asynchronous send.
        """
        if not had_addr:
            return Outcome(isolation=False, reachable=True, try_again=True)
        match error:
            case BrokerUnreachableError() | BrokerTimeoutError():
                return Outcome(isolation=True, reachable=not self.start_detector_enable, try_again=True)
            case BrokerRefusedError():
                again = error.response_code in self.retry_response_codes and mode is SendMode.SYNC
                return Outcome(isolation=True, reachable=False, try_again=again)
            case _:
                return Outcome(isolation=False, reachable=True, try_again=True)


class SendResult(NamedTuple):
    """Where a message was stored, or is parked."""

    message_id: str
    """The same for every attempt, also from the outbox."""
    queue: MessageQueue
    queue_offset: int | None
    """None: it has no offset yet, since it is parked, or a RocketMQ broker delays it."""
    status: SendStatus | None
    """Reported by the broker; None: it is parked in the outbox on this machine's disk, and no broker has it."""
    tries: int
    """Number of attempts; unless the message is parked, the last one succeeded."""
    half: HalfMessage | None = None
    """Of the message of a transaction: where the broker holds it until the transaction ends."""
    recall_handle: str = ""
    """For :meth:`Producer.recall`, of a delayed message; empty: its broker cannot recall it."""

    @property
    def is_parked(self) -> bool:
        """Whether the message is in the outbox."""
        return self.status is None
