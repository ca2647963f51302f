"""An ordered queue whose first message fails: for how long, and which of its attempts are logged. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pointsman.wire.group_topics import dlq_topic
from pointsman_client.consumer.retry_rules import SUSPEND_SECONDS


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


def how_it_ends(group: str, *, max_reconsume_times: int | None, has_dead_letters: bool) -> str:
    """Say what ends the block: a sentence for the log."""
    again = f"it is tried again every {SUSPEND_SECONDS:g} s until the listener succeeds"
    if max_reconsume_times is None:
        return f"{again}; set max_reconsume_times to move such a message to the dead letters"
    last = f"it moves to {dlq_topic(group)}" if has_dead_letters else "it is dropped"
    return f"{again}, and after failed attempt {max_reconsume_times + 1} {last}"
