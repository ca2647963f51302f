"""What a listener may answer, and what becomes of a message that it failed on.

RocketMQ's rules: concurrent consumers send it back, with a delay that grows with each failure, and after 16 tries to
the group's dead letters; ordered ones suspend the queue and try it in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from pointsman.wire.group_topics import RETRY_DELAYS_SECONDS, RETRY_QUEUES, dlq_topic, retry_topic
from pointsman_client.core.message import OutgoingMessage, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue


class ConsumeResult(StrEnum):
    """A listener's answer; None is taken as SUCCESS."""

    SUCCESS = "SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"
    """Try it again later: a concurrent consumer sends it back; an ordered one takes it as SUSPEND."""
    SUSPEND = "SUSPEND"
    """Let the queue rest, then try the same message again; a concurrent consumer takes it as RECONSUME_LATER."""


MAX_RECONSUME_TIMES = RETRY_QUEUES
"""Tries after the first one, of a concurrent consumer (RocketMQ ``maxReconsumeTimes`` -1)."""

MAX_ERROR_LENGTH = 1_000
"""Characters of an error that a dead letter keeps."""

SUSPEND_SECONDS = 1.0
"""How long an ordered queue rests after a failure (RocketMQ ``suspendCurrentQueueTimeMillis``)."""


class Destination(StrEnum):
    """Where a failed message goes."""

    RETRY = "retry"
    DLQ = "dlq"


@dataclass(frozen=True, slots=True)
class SendBack:
    """One failed message on its way."""

    destination: Destination
    topic: str
    queue_id: int
    message: OutgoingMessage

    def queue_of(self, cluster: str, broker_name: str) -> MessageQueue:
        """The queue on one broker."""
        return MessageQueue(self.topic, cluster, broker_name, self.queue_id)


def send_back(
    group: str, failed: ReceivedMessage, *, max_reconsume_times: int, at: datetime, error: str = ""
) -> SendBack:
    """Decide where a message goes that failed once more at ``at``, with ``error``.

    It keeps its topic, its id, its birth and where it was first read; a dead letter keeps the error too.
    """
    level = failed.reconsume_times
    if level >= max_reconsume_times:
        due_at, destination, topic, queue_id = None, Destination.DLQ, dlq_topic(group), 0
    else:
        # More tries than delays are allowed: they take the longest delay, as in RocketMQ.
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
    """Where a message stands, as ``cluster/broker/topic/queue@offset``: no name of RocketMQ's grammar has ``/``."""
    queue = message.queue
    return f"{queue.cluster}/{queue.broker_name}/{queue.topic}/{queue.queue_id}@{message.queue_offset}"


def has_exhausted_attempts(failed: ReceivedMessage, *, max_reconsume_times: int | None) -> bool:
    """Whether an ordered consumer gives up on a message; None: never (RocketMQ's ``Integer.MAX_VALUE``)."""
    return max_reconsume_times is not None and failed.reconsume_times >= max_reconsume_times


@dataclass(slots=True)
class BlockedQueue:
    """Attempts of one message at the head of a queue, by this member."""

    queue_offset: int
    message_id: str
    since: float
    """When its first attempt ended; monotonic seconds."""
    attempts: int = 0
    is_logged: bool = False

    def count(self, *, is_requested: bool) -> bool:
        """Count a failed attempt and return whether to log it: attempts 1, 2, 4, 8, ...

        ``is_requested``: the listener asked for another attempt (SUSPEND), so the first one is not worth a line.
        """
        self.attempts += 1
        is_due = self.attempts & (self.attempts - 1) == 0 and not (is_requested and self.attempts == 1)
        self.is_logged |= is_due
        return is_due

    def describe(self, *, now: float) -> dict[str, Any]:
        """As JSON values."""
        return {
            "queueOffset": self.queue_offset,
            "messageId": self.message_id,
            "attempts": self.attempts,
            "blockedSeconds": round(now - self.since, 3),
        }


def unblock_hint(group: str, *, max_reconsume_times: int | None, has_dead_letters: bool) -> str:
    """Say what ends the block: a sentence for the log."""
    again = f"it is tried again every {SUSPEND_SECONDS:g} s until the listener succeeds"
    if max_reconsume_times is None:
        return f"{again}; set max_reconsume_times to move such a message to the dead letters"
    last = f"it moves to {dlq_topic(group)}" if has_dead_letters else "it is dropped"
    return f"{again}, and after failed attempt {max_reconsume_times + 1} {last}"
