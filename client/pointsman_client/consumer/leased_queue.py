"""Leased messages of one queue, for the listener pool."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue


class LeasedQueue:
    """See :class:`~pointsman_client.consumer.offered_queue.OfferedQueue`; it is its own ``process_queue``.

    A message whose lease is over is not handed out any longer: another member may have it.
    """

    is_paused = False
    is_released = False

    def __init__(
        self,
        queue: MessageQueue,
        *,
        is_ordered: bool,
        is_valid: Callable[[ReceivedMessage], bool],
        finished: Callable[[ReceivedMessage], None],
        given_up: Callable[[Sequence[ReceivedMessage]], None],
        is_full: Callable[[], bool],
    ) -> None:
        """``is_valid``: whether a message's lease is not over. ``finished`` is called with each message as delivered.

        ``given_up``: with those behind a message of an ordered queue whose lease is over, since it comes first when it
        is delivered again. ``is_full``: whether no further messages are requested now.
        """
        self.queue = queue
        self._is_ordered = is_ordered
        self._is_valid = is_valid
        self._finished = finished
        self._given_up = given_up
        self._is_full = is_full
        self._waiting: deque[tuple[ReceivedMessage, ReceivedMessage]] = deque()
        """Messages for the listener, and as they were delivered: one that is handed out again counts the failure."""
        self._in_flight: dict[int, tuple[ReceivedMessage, ReceivedMessage]] = {}
        """By the identity of the first: an offset may be delivered again while its listener runs."""
        self.is_dropped = False

    def put(self, message: ReceivedMessage) -> None:
        """Add a delivered message."""
        self._waiting.append((message, message))

    @property
    def process_queue(self) -> LeasedQueue:
        """See :attr:`OfferedQueue.process_queue`."""
        return self

    def is_locked(self, *, now: float) -> bool:  # noqa: ARG002  # the broker keeps it
        """See :meth:`OfferedQueue.is_locked`."""
        return True

    @property
    def waiting(self) -> int:
        """Number of messages that wait for the listener."""
        return len(self._waiting)

    @property
    def in_flight(self) -> int:
        """See :attr:`OfferedMessages.in_flight`."""
        return len(self._in_flight)

    @property
    def unfinished(self) -> int:
        """See :attr:`OfferedMessages.unfinished`."""
        return len(self._waiting) + len(self._in_flight)

    @property
    def is_full(self) -> bool:
        """See :attr:`OfferedMessages.is_full`."""
        return self._is_full()

    def peek(self) -> ReceivedMessage | None:
        """See :meth:`OfferedMessages.peek`."""
        while self._waiting and not self._is_valid(self._waiting[0][1]):
            self._waiting.popleft()
            if self._is_ordered and self._waiting:
                self._given_up(self._take_waiting())
        return self._waiting[0][0] if self._waiting else None

    def take(self) -> ReceivedMessage | None:
        """See :meth:`OfferedMessages.take`."""
        message = self.peek()
        if message is not None:
            self._in_flight[id(message)] = self._waiting.popleft()
        return message

    def delivered(self, message: ReceivedMessage) -> ReceivedMessage:
        """Return a message in flight as it was delivered."""
        return self._in_flight.get(id(message), (message, message))[1]

    def finish(self, message: ReceivedMessage) -> None:
        """See :meth:`OfferedQueue.finish`."""
        found = self._in_flight.pop(id(message), None)
        if found is not None:
            self._finished(found[1])

    def give_back(self, message: ReceivedMessage) -> None:
        """See :meth:`OfferedQueue.give_back`."""
        found = self._in_flight.pop(id(message), None)
        if found is not None and not self.is_dropped:
            again = message._replace(reconsume_times=message.reconsume_times + 1)
            self._waiting = deque(sorted([*self._waiting, (again, found[1])], key=_offset_of))

    def drop(self) -> Sequence[ReceivedMessage]:
        """Hand out no further message; return those that waited, as they were delivered."""
        self.is_dropped = True
        return self._take_waiting()

    def remove(self, is_unwanted: Callable[[ReceivedMessage], bool]) -> Sequence[ReceivedMessage]:
        """Remove messages that wait; return them as they were delivered."""
        removed = [delivered for message, delivered in self._waiting if is_unwanted(message)]
        self._waiting = deque(each for each in self._waiting if not is_unwanted(each[0]))
        return removed

    def _take_waiting(self) -> Sequence[ReceivedMessage]:
        waiting, self._waiting = self._waiting, deque()
        return [delivered for _, delivered in waiting]


def _offset_of(entry: tuple[ReceivedMessage, ReceivedMessage]) -> int:
    return entry[0].queue_offset
