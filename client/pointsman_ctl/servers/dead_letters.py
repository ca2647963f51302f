"""The dead letters of a consumer group, at every broker that has some, and which of them were replayed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field, replace

from pointsman.group_topics import DLQ_PREFIX, dlq_topic
from pointsman_client import (
    MessageQueue,
    PointsmanError,
    ReceivedMessage,
    TopicNotFoundError,
    UnreadableMessageError,
)
from pointsman_ctl.servers.letter_selection import Selection
from pointsman_ctl.servers.number_ranges import NumberRanges
from pointsman_ctl.servers.replay_record import ReplayEntry, of_queue, read_body, record_topic
from pointsman_ctl.servers.stored_messages import HeldQueue, StoredMessages

OnUnreadable = Callable[[int, str], None]
"""Gets the offset of a message that cannot be read, and why."""


class DeadLettersNotReadableError(PointsmanError):
    """The dead-letter topic of a RocketMQ broker has no read permission."""

    code = "DEAD_LETTERS_NOT_READABLE"

    def __init__(self, held: HeldQueue) -> None:
        queue = held.queue
        super().__init__(
            f"the dead letters at {queue.cluster}/{queue.broker_name} cannot be read: topic {queue.topic} "
            f"has no read permission there; give it with mqadmin updateTopicPerm -b {held.addr} -t {queue.topic} -p 6"
        )


@dataclass(frozen=True, slots=True)
class LetterQueue:
    """One queue of dead letters as it is now: what is stored, and what of it was replayed."""

    held: HeldQueue
    begin: int
    end: int
    """After the last one: later ones are not of this run, so one that fails again is not replayed again."""
    record: HeldQueue
    """The record of replays at the same broker."""
    record_end: int
    done: NumberRanges = field(default_factory=NumberRanges)
    """Offsets that were replayed."""

    @property
    def broker(self) -> str:
        """``CLUSTER/BROKER``."""
        return f"{self.held.queue.cluster}/{self.held.queue.broker_name}"

    @property
    def stored(self) -> int:
        """How many dead letters are stored; offsets of removed ones in between count, too."""
        return self.end - self.begin

    @property
    def left(self) -> int:
        """How many of them were not replayed."""
        return self.stored - self.done.count(self.begin, self.end)


class DeadLetters:
    """The dead letters of one group."""

    def __init__(self, messages: StoredMessages, group: str) -> None:
        self.group = group
        self._messages = messages
        self._record_topic = record_topic(group)

    async def queues(self, cluster: str = "") -> tuple[HeldQueue, ...]:
        """Return the queues of its dead letters; empty: it has none. Raises as :meth:`StoredMessages.queues`."""
        try:
            return await self._messages.queues(dlq_topic(self.group), cluster)
        except TopicNotFoundError:
            return ()

    async def of_queue(self, held: HeldQueue) -> LetterQueue:
        """Return the state of one queue. Raises DeadLettersNotReadableError, and what reads raise."""
        if not held.is_readable:
            raise DeadLettersNotReadableError(held)
        begin, end = await self._messages.bounds(held)
        record = self.record_at(held)
        done, record_end = await self.recorded(record, of_queue(held.queue.queue_id))
        return LetterQueue(held, begin, end, record, record_end, done)

    def record_at(self, held: HeldQueue) -> HeldQueue:
        """Return the queue of the record at the broker of another queue; it exists from its first entry on."""
        queue = MessageQueue(self._record_topic, held.queue.cluster, held.queue.broker_name, 0)
        return replace(held, queue=queue, is_readable=True, is_writable=True)

    async def recorded(self, record: HeldQueue, source: str) -> tuple[NumberRanges, int]:
        """Return what was sent of a source, and the end of the record."""
        begin, end = await self._messages.bounds(record)
        done = NumberRanges()
        async for entry in self.entries(record, begin, end):
            if entry.source == source:
                for first, last in entry.numbers:
                    done.add(first, last)
        return done, end

    async def entries(self, record: HeldQueue, begin: int, end: int) -> AsyncIterator[ReplayEntry]:
        """Yield the entries of a record; other messages in its topic are ignored."""
        if begin < end:
            async for message in self._messages.read(record, begin, end):
                entry = read_body(message.body)
                if entry is not None:
                    yield entry

    async def read(
        self,
        queue: LetterQueue,
        selection: Selection,
        *,
        with_done: bool = False,
        on_unreadable: OnUnreadable | None = None,
    ) -> AsyncGenerator[ReceivedMessage, None]:
        """Yield the dead letters that are meant, in their order; ``with_done``: also those that were replayed.

        A message that cannot be read is passed to ``on_unreadable`` and skipped; without it, it raises
        UnreadableMessageError.
        """
        offset = queue.begin if with_done else queue.done.first_missing(queue.begin)
        while offset < queue.end:
            try:
                async for letter in self._messages.read(queue.held, offset, queue.end):
                    offset = letter.queue_offset + 1
                    if (with_done or letter.queue_offset not in queue.done) and selection.matches(letter):
                        yield letter
            except UnreadableMessageError as error:
                if on_unreadable is None:
                    raise
                on_unreadable(error.offset, error.problem)
                offset = error.offset + 1
            else:
                return


def group_of(topic: str) -> str:
    """Return the group whose dead letters a topic has; empty: it is another topic."""
    return topic.removeprefix(DLQ_PREFIX) if topic.startswith(DLQ_PREFIX) else ""
