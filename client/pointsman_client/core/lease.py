"""Leases of messages: a message that one member has for a limited time, and that comes back unless it finishes it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue


class ConsumeMode(StrEnum):
    """How a push consumer gets its messages (RocketMQ ``MessageRequestMode``)."""

    PULL = "PULL"
    """A queue is assigned to one member, which stores how far it is."""
    POP = "POP"
    """No queues are assigned: a message is leased to any member, which acknowledges it."""


MIN_INVISIBLE_SECONDS = 10.0
"""Shortest lease that a consumer may request, as with RocketMQ's ``SimpleConsumer``."""
MAX_INVISIBLE_SECONDS = 12 * 3600.0
"""Longest lease, likewise."""


class Lease(NamedTuple):
    """One delivery of a message."""

    queue: MessageQueue
    queue_offset: int
    receipt: str
    """The transport's text for this delivery. A later delivery of the same message has another one."""


class LeasedMessage(NamedTuple):
    """A message and its lease. ``reconsume_times`` of the message is the number of deliveries before this one."""

    message: ReceivedMessage
    lease: Lease


class GroupBacklog(NamedTuple):
    """How far a group with leases is in one queue."""

    next_offset: int
    """Offset of the first message that was never delivered."""
    unfinished: int
    """Messages that were delivered and are not acknowledged."""

    @property
    def finished_offset(self) -> int:
        """The offset before which as many messages are as the group has finished: the queue's end minus the lag.

        It never goes back: a delivery adds one to both numbers, an acknowledgement takes one off the second.
        """
        return max(0, self.next_offset - self.unfinished)
