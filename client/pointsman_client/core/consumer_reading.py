"""How a consumer reads its queues, as it reports it to operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pointsman_client.core.message_queue import MessageQueue


class QueueReading(NamedTuple):
    """How one queue is read."""

    position: int
    """Offset of the message that is handed out next."""
    committed: int | None
    """None: no offset is committed yet."""
    in_flight: int
    """Messages that the listener or the application has and has not finished."""
    oldest_call_seconds: float | None
    """Time for which the oldest running listener call has run; None: none runs."""
    is_waiting: bool
    """Whether there is nothing to do now: the application paused the queue, or its next message is not due yet."""


@dataclass(frozen=True, slots=True)
class ConsumerReading:
    """How a consumer reads some of its queues, and what it did since it was started."""

    queues: Mapping[MessageQueue, QueueReading] = field(default_factory=dict)
    retries: int = 0
    """Messages sent to the retry topic."""
    dead_letters: int = 0
    """Messages sent to the dead letters."""
    rebalances: Mapping[str, int] = field(default_factory=dict)
    """Changes of the queues of a topic, by trigger."""
