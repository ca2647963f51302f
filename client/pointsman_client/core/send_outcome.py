"""How a send ends: what a try means for its broker and the next try, and the result for the caller."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, StrEnum

from pointsman_client.core.message_queue import MessageQueue
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
"""RocketMQ's ``retryResponseCodes``: another broker may take what this one refused."""


class SendStatus(StrEnum):
    """What the broker did with a message that it took (RocketMQ ``SendStatus``)."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """Taken, but not known to be on the disk in time."""
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    """Taken, but not known to be on as many replicas as wanted in time."""
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    """Taken, but the broker has no replica now."""


class SendMode(Enum):
    """How a message is sent: it decides how often it is tried."""

    SYNC = "sync"
    ASYNC = "async"
    ONEWAY = "oneway"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What follows from one try."""

    isolation: bool
    """Whether the broker counts as failed; else its latency counts."""
    reachable: bool
    try_again: bool
    """Whether another try may follow, if there is one left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRules:
    """RocketMQ's ``sendDefaultImpl`` as a table, with the settings that change it."""

    retry_response_codes: Collection[int] = RETRY_RESPONSE_CODES
    retry_another_broker_when_not_store_ok: bool = False
    start_detector_enable: bool = True

    def of_status(self, status: SendStatus, mode: SendMode) -> Outcome:
        """The broker took the message."""
        again = status is not SendStatus.SEND_OK and self.retry_another_broker_when_not_store_ok
        return Outcome(isolation=False, reachable=True, try_again=again and mode is SendMode.SYNC)

    def of_error(self, error: PointsmanError, mode: SendMode, *, had_addr: bool = True) -> Outcome:
        """The try failed. Without an address nobody was asked, which says nothing about the broker.

        A broker that refuses counts as unreachable even without a detector that would find it again, as in RocketMQ;
        the flag only matters while no broker is available. An asynchronous send takes a broker's no for an answer.
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


@dataclass(frozen=True, slots=True)
class SendResult:
    """Where a message is that was sent, or is kept until it can be."""

    message_id: str
    """The same for every try, and when it is sent from the outbox."""
    queue: MessageQueue
    queue_offset: int | None
    """None: it is parked, and has no offset yet."""
    status: SendStatus | None
    """The broker's word; None: it is parked in the outbox on this machine's disk, and no broker has it."""
    tries: int
    """How often brokers were asked; unless it is parked, the last one took it."""

    @property
    def is_parked(self) -> bool:
        """Whether it waits in the outbox."""
        return self.status is None
