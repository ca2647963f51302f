"""What to do with a message for one certain queue while that queue cannot be written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pointsman_client.errors import InvalidOptionError
from pointsman_client.message_queue import MessageQueue
from pointsman_client.option_check import check_function
from pointsman_client.producer.outbox import Outbox

ChooseFallback = Callable[[MessageQueue, tuple[MessageQueue, ...]], MessageQueue]
"""From the queue that cannot be written and the topic's writable queues to the one to use instead."""


@dataclass(frozen=True, slots=True)
class Park:
    """Keep it in a file and send it when the queue can be written again, in order; it is not lost with the process."""

    outbox: Outbox

    def __post_init__(self) -> None:
        outbox: object = self.outbox
        if not isinstance(outbox, Outbox):
            raise InvalidOptionError("outbox", outbox, "must be an Outbox: Park(Outbox(path))")


@dataclass(frozen=True, slots=True)
class Fallback:
    """Send it to another queue instead: at once, and out of order."""

    queue: MessageQueue | ChooseFallback

    def __post_init__(self) -> None:
        if not isinstance(self.queue, MessageQueue):
            check_function("queue", self.queue, "must be a MessageQueue, or a function that chooses one")

    def queue_instead_of(self, queue: MessageQueue, writable: tuple[MessageQueue, ...]) -> MessageQueue:
        """The other queue."""
        return self.queue if isinstance(self.queue, MessageQueue) else self.queue(queue, writable)


OnUnavailable = Literal["raise"] | Park | Fallback
"""``"raise"``: :class:`QueueUnavailableError`."""
