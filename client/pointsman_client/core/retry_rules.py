"""Results of a listener, and handling of failed messages.

RocketMQ's rules: concurrent consumers send a failed message back, with a delay that grows with each failure, and after
16 retries to the group's dead-letter topic. Ordered consumers suspend the queue and retry in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from pointsman.group_topics import RETRY_DELAYS_SECONDS, RETRY_QUEUES, dlq_topic, retry_topic
from pointsman_client.core.message import OutgoingMessage, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue


class ConsumeResult(StrEnum):
    """Result of a listener; None means SUCCESS."""

    SUCCESS = "SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"
    """Retry later: a concurrent consumer sends the message back; for an ordered one this means SUSPEND."""
    SUSPEND = "SUSPEND"
    """Pause the queue, then retry the same message; for a concurrent consumer this means RECONSUME_LATER."""
    DEAD_LETTER = "DEAD_LETTER"
    """Never retry: move the message to the dead letters now. :class:`Reject` does the same with a reason."""


class Reject(Exception):  # no error: the listener decides so
    """Raised by a listener: the message is moved to the dead letters now, with this reason as its error."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Outcome(StrEnum):
    """How a listener call ended; values of a metric label."""

    SUCCESS = "success"
    LATER = "later"
    RAISED = "raised"
    TIMEOUT = "timeout"
    REJECTED = "rejected"
    """The listener wants the message to be a dead letter."""


@dataclass(frozen=True, slots=True)
class CallEnd:
    """Result of one listener call."""

    outcome: Outcome
    error: str = ""
    """Description of the failure, for logs and dead letters."""
    exception: BaseException | None = None
    """The exception raised, if any."""


MAX_RECONSUME_TIMES = RETRY_QUEUES
"""Retries of a concurrent consumer (RocketMQ ``maxReconsumeTimes`` -1)."""

MAX_ERROR_LENGTH = 1_000
"""Characters of the error stored in a dead letter."""

SUSPEND_SECONDS = 1.0
"""How long an ordered queue pauses after a failure (RocketMQ ``suspendCurrentQueueTimeMillis``)."""


class Destination(StrEnum):
    """Destination of a failed message."""

    RETRY = "retry"
    DLQ = "dlq"


@dataclass(frozen=True, slots=True)
class SendBack:
    """A failed message and where to write it."""

    destination: Destination
    topic: str
    queue_id: int
    message: OutgoingMessage

    def queue_of(self, cluster: str, broker_name: str) -> MessageQueue:
        """Return the destination queue on one broker."""
        return MessageQueue(self.topic, cluster, broker_name, self.queue_id)


def send_back(
    group: str,
    failed: ReceivedMessage,
    *,
    max_reconsume_times: int,
    at: datetime,
    error: str = "",
    is_rejected: bool = False,
) -> SendBack:
    """Return the destination of a message that failed again at ``at``, with ``error``; of a rejected one the DLQ.

    The message retains topic, id, creation time and origin; a dead letter also has the error.
    """
    level = failed.reconsume_times
    if is_rejected or level >= max_reconsume_times:
        due_at, destination, topic, queue_id = None, Destination.DLQ, dlq_topic(group), 0
    else:
        # There may be more retries than delays: they use the longest delay, as in RocketMQ.
        queue_id = min(level, RETRY_QUEUES - 1)
        due_at = at + timedelta(seconds=RETRY_DELAYS_SECONDS[queue_id])
        destination, topic = Destination.RETRY, retry_topic(group)
    message = OutgoingMessage(
        message=failed.message,
        message_id=failed.message_id,
        born_at=failed.born_at or at,
        reconsume_times=level + 1,
        due_at=due_at,
        origin=failed.origin or origin_of(failed),
        error=error[:MAX_ERROR_LENGTH] if destination is Destination.DLQ else "",
    )
    return SendBack(destination, topic, queue_id, message)


def origin_of(message: ReceivedMessage) -> str:
    """Return a message's position as ``cluster/broker/topic/queue@offset``; names cannot contain ``/``."""
    queue = message.queue
    return f"{queue.cluster}/{queue.broker_name}/{queue.topic}/{queue.queue_id}@{message.queue_offset}"


def has_exhausted_attempts(failed: ReceivedMessage, *, max_reconsume_times: int | None) -> bool:
    """Whether an ordered consumer stops retrying; ``max_reconsume_times`` None: never (``Integer.MAX_VALUE``)."""
    return max_reconsume_times is not None and failed.reconsume_times >= max_reconsume_times


@dataclass(slots=True)
class BlockedQueue:
    """Failed attempts of this member for the message at the head of a queue."""

    queue_offset: int
    message_id: str
    since: float
    """End of the first attempt; monotonic seconds."""
    attempts: int = 0
    is_logged: bool = False

    def count(self, *, is_requested: bool) -> bool:
        """Count a failed attempt and return whether to log it: attempts 1, 2, 4, 8, ...

        ``is_requested``: the listener requested the retry (SUSPEND), so the first attempt is not logged.
        """
        self.attempts += 1
        is_due = self.attempts & (self.attempts - 1) == 0 and not (is_requested and self.attempts == 1)
        self.is_logged |= is_due
        return is_due

    def describe(self, *, now: float) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {
            "queueOffset": self.queue_offset,
            "messageId": self.message_id,
            "attempts": self.attempts,
            "blockedSeconds": round(now - self.since, 3),
        }


def unblock_hint(group: str, *, max_reconsume_times: int | None, has_dead_letters: bool) -> str:
    """Return a log message on what unblocks the queue."""
    retried = f"retrying every {SUSPEND_SECONDS:g} s until the listener succeeds"
    if max_reconsume_times is None:
        return f"{retried}; set max_reconsume_times to move such a message to the dead-letter topic"
    last = f"moved to {dlq_topic(group)}" if has_dead_letters else "dropped"
    return f"{retried}; after {max_reconsume_times + 1} failed attempts the message is {last}"
