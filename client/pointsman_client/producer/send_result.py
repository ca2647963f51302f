"""What a producer answers for a message that it has sent, or keeps until it can."""

from __future__ import annotations

from dataclasses import dataclass

from pointsman_client.message_queue import MessageQueue
from pointsman_client.transports.transport import SendStatus


@dataclass(frozen=True, slots=True)
class SendResult:
    """Where a message is."""

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
