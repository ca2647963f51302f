"""The pulled messages of one queue, and the offset up to which they can be committed.

RocketMQ's ``ProcessQueue``. A pulled message is *unfinished* until its listener has processed it: first *waiting*, then
*in flight*. The offset to commit is the lowest unfinished one, so a crash repeats messages and loses none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from pointsman_client.core.message import ReceivedMessage

PULL_EXPIRED_SECONDS = 120.0
"""Time without a pull after which the queue is released and re-acquired (RocketMQ ``PULL_MAX_IDLE_TIME``)."""

LOCK_LIFETIME_SECONDS = 30.0
"""How long the client relies on a lock without renewal: half of the agent's grant (``lockMaxLiveTime``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """Limits at which pulling a queue pauses until its listener has caught up."""

    messages: int = 1_000
    """RocketMQ ``pullThresholdForQueue``."""
    size_bytes: int = 100 * 1024 * 1024
    """Total size of the bodies; RocketMQ ``pullThresholdSizeForQueue``."""
    span: int = 2_000
    """Offsets between the lowest and the highest unfinished message; RocketMQ ``consumeConcurrentlyMaxSpan``."""


class ProcessQueue:
    """One queue's messages. Each offset is in flight at most once at a time.

    Messages in flight are compared by identity: after :meth:`move_to` another one may have the same offset. Those in
    flight before it still count until they are finished or given back, without another effect: while their listener
    runs, a queue must not be handed over, nor its next message be handed out in order.
    """

    def __init__(self, start_offset: int, *, limits: FlowLimits, now: float) -> None:
        self._limits = limits
        self._unfinished: dict[int, ReceivedMessage] = {}
        """In offset order."""
        self._waiting: deque[ReceivedMessage] = deque()
        self._in_flight: dict[int, ReceivedMessage] = {}
        self._in_flight_before: list[ReceivedMessage] = []
        """From before the last moves."""
        self._highest = start_offset
        self._size_bytes = 0
        self._dropped = False
        self.next_pull_offset = start_offset
        self.last_pull_at = now
        """Time of the last pull, or when only the flow limits prevented one."""

    # From the broker

    def put(self, messages: Sequence[ReceivedMessage], next_offset: int) -> None:
        """Add pulled messages, in offset order; missing offsets count as finished."""
        for message in messages:
            self._highest = message.queue_offset
            self._unfinished[self._highest] = message
            self._size_bytes += len(message.body)
        self._waiting.extend(messages)
        self.next_pull_offset = next_offset

    def move_to(self, offset: int) -> None:
        """Continue at another offset; pulled messages are dropped."""
        self._unfinished.clear()
        self._waiting.clear()
        self._in_flight_before += self._in_flight.values()
        self._in_flight.clear()
        self._size_bytes = 0
        self.next_pull_offset = offset

    @property
    def is_full(self) -> bool:
        """Whether a flow limit is reached."""
        if not self._unfinished:
            return False
        return (
            len(self._unfinished) >= self._limits.messages
            or self._size_bytes >= self._limits.size_bytes
            or self._highest - next(iter(self._unfinished)) >= self._limits.span
        )

    def is_pull_expired(self, *, now: float) -> bool:
        """Whether the queue should be released and re-acquired because pulls have stopped."""
        return now - self.last_pull_at > PULL_EXPIRED_SECONDS

    # To the listener

    def peek(self) -> ReceivedMessage | None:
        """Return the message that :meth:`take` would return."""
        return self._waiting[0] if self._waiting else None

    def take(self) -> ReceivedMessage | None:
        """Return the waiting message of the lowest offset and mark it as in flight; None: no message waits."""
        if not self._waiting:
            return None
        message = self._waiting.popleft()
        self._in_flight[message.queue_offset] = message
        return message

    def finish(self, message: ReceivedMessage) -> bool:
        """Record that a message is processed; False if it was not in flight here, or before a move."""
        offset = message.queue_offset
        if self._in_flight.get(offset) is not message:
            self._end_before(message)
            return False
        del self._in_flight[offset], self._unfinished[offset]
        self._size_bytes -= len(message.body)
        return True

    def give_back(self, message: ReceivedMessage) -> bool:
        """Return a failed message from in flight to waiting, in its order; False as for :meth:`finish`."""
        offset = message.queue_offset
        if self._in_flight.get(offset) is not message:
            self._end_before(message)
            return False
        del self._in_flight[offset]
        # Replacing the value of a key retains its position.
        again = self._unfinished[offset] = message._replace(reconsume_times=message.reconsume_times + 1)
        if not self._dropped:
            self._waiting = deque(sorted((again, *self._waiting), key=_offset_of))
        return True

    def _end_before(self, message: ReceivedMessage) -> None:
        self._in_flight_before = [each for each in self._in_flight_before if each is not message]

    # To the store

    @property
    def commit_offset(self) -> int:
        """The lowest unfinished offset; if all are finished, the offset of the next pull."""
        return next(iter(self._unfinished), self.next_pull_offset)

    @property
    def position(self) -> int:
        """The lowest offset not yet in flight or finished."""
        return self._waiting[0].queue_offset if self._waiting else self.next_pull_offset

    # Release

    def drop(self) -> None:
        """Stop returning messages; those in flight may still be finished."""
        self._dropped = True
        self._waiting.clear()

    @property
    def is_dropped(self) -> bool:
        """Whether the queue is no longer assigned to this member."""
        return self._dropped

    @property
    def waiting(self) -> int:
        """Number of messages waiting for a listener."""
        return len(self._waiting)

    @property
    def in_flight(self) -> int:
        """Number of messages being processed by a listener."""
        return len(self._in_flight) + len(self._in_flight_before)

    @property
    def unfinished(self) -> int:
        """Number of messages pulled and not finished."""
        return len(self._unfinished)

    @property
    def size_bytes(self) -> int:
        """Bytes of the bodies of unfinished messages."""
        return self._size_bytes


def _offset_of(message: ReceivedMessage) -> int:
    return message.queue_offset


class LockTime:
    """When a queue's lock was last granted."""

    def __init__(self) -> None:
        self._granted_at: float | None = None

    def granted(self, *, now: float) -> None:
        """Record a grant; ``now``: time of the request, so that the client's lock ends before the agent's."""
        self._granted_at = now

    def is_held(self, *, now: float) -> bool:
        """Whether the client may rely on it."""
        return self._granted_at is not None and now - self._granted_at <= LOCK_LIFETIME_SECONDS
