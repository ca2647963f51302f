"""The messages of one queue between broker and listener, and how far its consumption may be committed.

RocketMQ's ``ProcessQueue``. Whatever was pulled is *unfinished* until a listener is done with it, and of that first
*waiting*, then *in flight*. The offset to commit is the lowest unfinished one: a crash repeats messages and loses none.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pointsman_client.core.message import ReceivedMessage

PULL_EXPIRED_SECONDS = 120.0
"""Without a pull for longer, the queue is taken anew (RocketMQ ``PULL_MAX_IDLE_TIME``)."""

LOCK_LIFETIME_SECONDS = 30.0
"""How long the client trusts a lock that it did not renew: half of what the agent grants (``lockMaxLiveTime``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """At one of them a queue is not pulled further until its listener has caught up."""

    messages: int = 1_000
    """RocketMQ ``pullThresholdForQueue``."""
    size_bytes: int = 100 * 1024 * 1024
    """Of the bodies; RocketMQ ``pullThresholdSizeForQueue``."""
    span: int = 2_000
    """Offsets between the lowest and the highest unfinished message; RocketMQ ``consumeConcurrentlyMaxSpan``."""


class ProcessQueue:
    """One queue's messages. Offsets handed out are unique until finished, given back or cleared."""

    def __init__(self, start_offset: int, *, limits: FlowLimits, now: float) -> None:
        self._limits = limits
        self._unfinished: OrderedDict[int, ReceivedMessage] = OrderedDict()
        self._waiting: deque[int] = deque()
        self._in_flight: set[int] = set()
        self._highest = start_offset
        self._size_bytes = 0
        self._dropped = False
        self.next_pull_offset = start_offset
        self.last_pull_at = now
        """When a pull was last made, or could have been but for the flow limits."""

    # From the broker

    def put(self, messages: Sequence[ReceivedMessage], next_offset: int) -> None:
        """Take what a pull brought, in offset order; offsets that are left out count as finished."""
        for message in messages:
            self._unfinished[message.queue_offset] = message
            self._waiting.append(message.queue_offset)
            self._size_bytes += len(message.body)
            self._highest = message.queue_offset
        self.next_pull_offset = next_offset

    def move_to(self, offset: int) -> None:
        """Go on from another offset; what was pulled is forgotten, in flight or not."""
        self._unfinished.clear()
        self._waiting.clear()
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
        """Whether no pull was made for so long that the queue should be taken anew."""
        return now - self.last_pull_at > PULL_EXPIRED_SECONDS

    # To the listener

    def peek(self) -> ReceivedMessage | None:
        """The message that :meth:`take` would give."""
        return self._unfinished[self._waiting[0]] if self._waiting else None

    def take(self) -> ReceivedMessage | None:
        """The waiting message of the lowest offset, which is in flight from now on; None: none waits."""
        if not self._waiting:
            return None
        offset = self._waiting.popleft()
        self._in_flight.add(offset)
        return self._unfinished[offset]

    def finish(self, message: ReceivedMessage) -> bool:
        """Note that a message needs nothing more; False if it was not in flight here."""
        offset = message.queue_offset
        if not self._is_in_flight(message):
            return False
        self._in_flight.discard(offset)
        self._size_bytes -= len(self._unfinished.pop(offset).body)
        return True

    def give_back(self, message: ReceivedMessage) -> bool:
        """Let a message in flight wait again, one failure richer; it is the next of its queue if it was before."""
        offset = message.queue_offset
        if not self._is_in_flight(message):
            return False
        self._in_flight.discard(offset)
        # Replacing the value of a key keeps its place in the order.
        self._unfinished[offset] = replace(message, reconsume_times=message.reconsume_times + 1)
        if not self._dropped:
            self._waiting = deque(sorted((offset, *self._waiting)))
        return True

    def _is_in_flight(self, message: ReceivedMessage) -> bool:
        # The object, not the offset: after a move the same offset may be in flight anew.
        return message.queue_offset in self._in_flight and self._unfinished[message.queue_offset] is message

    # To the store

    @property
    def commit_offset(self) -> int:
        """The lowest unfinished offset; where the next pull begins, if all is finished."""
        return next(iter(self._unfinished), self.next_pull_offset)

    @property
    def position(self) -> int:
        """The lowest offset that was not handed out yet."""
        return self._waiting[0] if self._waiting else self.next_pull_offset

    # Its end

    def drop(self) -> None:
        """Hand out nothing more; what is in flight may still be finished."""
        self._dropped = True
        self._waiting.clear()

    @property
    def is_dropped(self) -> bool:
        """Whether the queue is another member's, or nobody's, from now on."""
        return self._dropped

    @property
    def waiting(self) -> int:
        """Messages that wait for a listener."""
        return len(self._waiting)

    @property
    def in_flight(self) -> int:
        """Messages that a listener has."""
        return len(self._in_flight)

    @property
    def unfinished(self) -> int:
        """Messages pulled and not finished."""
        return len(self._unfinished)

    @property
    def size_bytes(self) -> int:
        """Bytes of the bodies of unfinished messages."""
        return self._size_bytes


class LockTime:
    """When a queue's lock was last granted."""

    def __init__(self) -> None:
        self._granted_at: float | None = None

    def granted(self, *, now: float) -> None:
        """Note a grant; ``now``: when it was asked for, so that the client's lock ends before the agent's."""
        self._granted_at = now

    def is_held(self, *, now: float) -> bool:
        """Whether the client may rely on it."""
        return self._granted_at is not None and now - self._granted_at <= LOCK_LIFETIME_SECONDS
