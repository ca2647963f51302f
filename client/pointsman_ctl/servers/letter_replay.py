"""Sends dead letters again, in small batches, each of which is recorded after it was sent.

A run that was killed is finished by another one, of any operator, which sends again at most the batch that was not
recorded: MAX_BATCH messages at each broker.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from pointsman.clock import Clock
from pointsman.group_topics import is_group_topic, retry_topic
from pointsman_client import (
    BrokerRefusedError,
    InvalidInputError,
    Message,
    MessageQueue,
    NoBrokerUpError,
    OutgoingMessage,
    PointsmanError,
    ReceivedMessage,
    ResponseCode,
    TopicNotFoundError,
)
from pointsman_ctl.servers.dead_letters import DeadLetters, LetterQueue
from pointsman_ctl.servers.letter_selection import Selection
from pointsman_ctl.servers.number_ranges import NumberRange, NumberRanges
from pointsman_ctl.servers.replay_record import ReplayEntry, of_queue, to_body
from pointsman_ctl.servers.stored_messages import BrokerKind, HeldQueue, StaticTopicError, StoredMessages, outgoing

MAX_BATCH = 32
BATCH_BYTES = 4 * 1024 * 1024
MAX_NOT_SENT = 1_000
"""Dead letters that a broker does not accept: at this number a run ends."""
REPLAY_OF = "POINTSMAN_REPLAY_OF"
"""Property of a replayed message: the position of its dead letter, ``CLUSTER/BROKER/TOPIC/QUEUE@OFFSET``. Two messages
with the same one are the same dead letter, sent twice."""


class SentTo(StrEnum):
    """Where dead letters are replayed to."""

    GROUP = "group"
    """The retry topic of the group, which no other group reads."""
    TOPIC = "topic"
    """The topic that they were sent to, for all its groups."""


class ReplayFailedError(PointsmanError):
    """A run ended before all was sent."""

    code = "REPLAY_FAILED"

    def __init__(self, sent: int, why: PointsmanError) -> None:
        super().__init__(f"sent {sent}, then: {why}")
        self.sent = sent


class NotAllSentError(PointsmanError):
    """A run sent all but some that cannot be sent."""

    code = "NOT_ALL_SENT"

    def __init__(self, sent: int, not_sent: Sequence[NotSent]) -> None:
        named = "; ".join(f"{each.number}: {each.problem}" for each in not_sent[:10])
        more = f"; and {len(not_sent) - 10} more" if len(not_sent) > 10 else ""
        super().__init__(f"sent {sent}, not sent {len(not_sent)}, by offset: {named}{more}")
        self.sent = sent
        self.not_sent = not_sent


class ConcurrentRunError(PointsmanError):
    """Another run of the same kind is at work."""

    code = "CONCURRENT_RUN"

    def __init__(self, by: str) -> None:
        super().__init__(f"{by} replays the same messages at the same time: run the command again when that has ended")


class SentBackError(PointsmanError):
    """The broker moved what was sent to the retry topic to the dead letters again."""

    code = "SENT_BACK"

    def __init__(self, group: str) -> None:
        super().__init__(
            f"the broker moved it to the dead letters again, because members of {group} have locked queues: "
            "the group is ordered; use --to topic"
        )


class NotSendableError(PointsmanError):
    """A dead letter has no queue to be sent to."""

    code = "NOT_SENDABLE"


class NotSent(NamedTuple):
    """A message that was not sent, and is left as it is."""

    number: int
    """Its offset, or the number of its line."""
    problem: str


class Addressed(NamedTuple):
    """A message and where it goes."""

    number: int
    queue: HeldQueue
    message: OutgoingMessage


class Pace:
    """Limits how many messages all parts of a run send per second."""

    def __init__(self, per_second: float | None, clock: Clock) -> None:
        self.per_second = per_second
        self._clock = clock
        self._next_at = clock.monotonic()

    @property
    def batch(self) -> int:
        """How many to send together: what a second has, within MAX_BATCH."""
        return MAX_BATCH if self.per_second is None else max(1, min(MAX_BATCH, int(self.per_second)))

    async def wait(self, count: int) -> None:
        """Return when ``count`` messages may be sent."""
        if self.per_second is None:
            return
        now = self._clock.monotonic()
        at = max(now, self._next_at)
        self._next_at = at + count / self.per_second
        if at > now:
            await self._clock.sleep(at - now)


@dataclass(slots=True)
class Sending:
    """What has become of the messages of a run."""

    sent: int = 0
    not_sent: list[NotSent] = field(default_factory=list)

    def leave(self, number: int, problem: str) -> None:
        """Note a message that is not sent. Raises NotAllSentError at MAX_NOT_SENT."""
        self.not_sent.append(NotSent(number, problem))
        if len(self.not_sent) >= MAX_NOT_SENT:
            raise NotAllSentError(self.sent, self.not_sent)


class Run(NamedTuple):
    """What the parts of one run share."""

    run_id: str
    by: str
    pace: Pace
    on_sent: Callable[[int], object]
    """Called with the number of messages of each batch that was sent."""


class RecordedSender:
    """Sends batches and records each; for one source at one broker."""

    def __init__(
        self, messages: StoredMessages, letters: DeadLetters, run: Run, *, source: str, record: HeldQueue, end: int
    ) -> None:
        """``end``: of the record, when it was read."""
        self.sending = Sending()
        self._messages = messages
        self._letters = letters
        self._run = run
        self._source = source
        self._record = record
        self._record_end = end
        self._is_begun = False

    async def send(self, batch: Sequence[Addressed]) -> None:
        """Send a batch, in order within each queue, and record what was sent of it.

        Raises PointsmanError where a broker fails, and ConcurrentRunError.
        """
        if not batch:
            return
        if not self._is_begun:
            await self._note(())
            self._is_begun = True
        await self._run.pace.wait(len(batch))
        by_queue: defaultdict[HeldQueue, list[Addressed]] = defaultdict(list)
        for each in batch:
            by_queue[each.queue].append(each)
        sent = NumberRanges()
        ended = await asyncio.gather(
            *(self._append(held, part, sent) for held, part in by_queue.items()), return_exceptions=True
        )
        if len(sent):
            self.sending.sent += len(sent)
            await self._note(sent.ranges)
            self._run.on_sent(len(sent))
        for failure in ended:
            if failure is not None:
                raise failure

    async def _append(self, held: HeldQueue, part: Sequence[Addressed], sent: NumberRanges) -> None:
        # A batch on RocketMQ has one time of birth, and no retry topic accepts one.
        size = len(part) if held.kind is BrokerKind.REDIS else 1
        for at in range(0, len(part), size):
            together = part[at : at + size]
            try:
                await self._messages.send(held, [each.message for each in together])
            except (InvalidInputError, BrokerRefusedError) as error:
                is_refused = isinstance(error, InvalidInputError) or error.response_code == ResponseCode.MESSAGE_ILLEGAL
                if not is_refused or size > 1:
                    raise
                self.sending.leave(together[0].number, str(error))
            else:
                for each in together:
                    sent.add(each.number, each.number)

    async def _note(self, numbers: tuple[NumberRange, ...]) -> None:
        entry = ReplayEntry(self._run.run_id, self._run.by, self._source, numbers)
        message = outgoing(Message(self._record.queue.topic, to_body(entry)))
        (offset,) = (await self._messages.send(self._record, [message])).queue_offsets
        if offset is None:
            return
        begin, self._record_end = self._record_end, offset + 1
        async for other in self._letters.entries(self._record, begin, offset):
            if other.run != entry.run and other.source == entry.source and other.numbers:
                raise ConcurrentRunError(other.by)


class Destinations:
    """The queues that dead letters are sent to."""

    def __init__(self, messages: StoredMessages, group: str, to: SentTo, *, cluster: str = "") -> None:
        self.to = to
        self._messages = messages
        self._group = group
        self._cluster = cluster
        self._topics: dict[str, tuple[HeldQueue, ...]] = {}
        self._turns: defaultdict[str, int] = defaultdict(int)

    async def of(self, letter: ReceivedMessage, queue: LetterQueue) -> HeldQueue:
        """Return the queue for a dead letter. Raises NotSendableError, and what routes raise."""
        if self.to is SentTo.GROUP:
            # The first retry queue, at the same broker: its delay ends soonest.
            at = queue.held.queue
            retry = MessageQueue(retry_topic(self._group), at.cluster, at.broker_name, 0)
            return replace(queue.held, queue=retry, is_readable=True, is_writable=True)
        topic = letter.topic
        if is_group_topic(topic):
            raise NotSendableError("the topic that it was sent to is not stored in it; use --to group")
        if topic not in self._topics:
            self._topics[topic] = await self._writable(topic)
        writable = self._topics[topic]
        if not writable:
            raise NotSendableError(f"topic {topic} has no queue that can be written; use --to group")
        return self._origin(letter, writable) or self._next(topic, writable, queue)

    async def _writable(self, topic: str) -> tuple[HeldQueue, ...]:
        try:
            found = await self._messages.queues(topic, self._cluster)
        except (TopicNotFoundError, NoBrokerUpError, StaticTopicError):
            return ()
        return tuple(each for each in found if each.is_writable)

    @staticmethod
    def _origin(letter: ReceivedMessage, writable: Sequence[HeldQueue]) -> HeldQueue | None:
        """Return the queue that it was first read from, so that messages of a key stay in one queue."""
        place = letter.origin.partition("@")[0]
        return next((each for each in writable if place == _place(each.queue)), None)

    def _next(self, topic: str, writable: Sequence[HeldQueue], queue: LetterQueue) -> HeldQueue:
        near = [each for each in writable if each.queue.broker_key == queue.held.queue.broker_key] or writable
        self._turns[topic] += 1
        return near[self._turns[topic] % len(near)]


class Replay:
    """Replays the dead letters of one queue."""

    def __init__(
        self,
        messages: StoredMessages,
        letters: DeadLetters,
        queue: LetterQueue,
        destinations: Destinations,
        run: Run,
        clock: Clock,
    ) -> None:
        self._messages = messages
        self._letters = letters
        self._queue = queue
        self._destinations = destinations
        self._pace = run.pace
        self._clock = clock
        source = of_queue(queue.held.queue.queue_id)
        self._sender = RecordedSender(messages, letters, run, source=source, record=queue.record, end=queue.record_end)

    async def run(self, selection: Selection) -> int:
        """Replay what is meant and was not replayed; return how many.

        Raises NotAllSentError, when some cannot be sent and the others were, and ReplayFailedError.
        """
        sending = self._sender.sending
        batch: list[Addressed] = []
        size, is_first = 0, True
        try:
            async for letter in self._letters.read(self._queue, selection, on_unreadable=sending.leave):
                addressed = await self._addressed(letter)
                if addressed is None:
                    continue
                batch.append(addressed)
                size += len(letter.body)
                # The first one alone: a RocketMQ broker may not accept what goes to a retry topic.
                if is_first or len(batch) >= self._pace.batch or size >= BATCH_BYTES:
                    await self._sender.send(batch)
                    if is_first:
                        await self._check_not_sent_back(letter)
                    batch, size, is_first = [], 0, False
            await self._sender.send(batch)
        except NotAllSentError:
            raise
        except PointsmanError as error:
            raise ReplayFailedError(sending.sent, error) from error
        if sending.not_sent:
            raise NotAllSentError(sending.sent, sending.not_sent)
        return sending.sent

    async def _addressed(self, letter: ReceivedMessage) -> Addressed | None:
        try:
            held = await self._destinations.of(letter, self._queue)
        except NotSendableError as error:
            self._sender.sending.leave(letter.queue_offset, str(error))
            return None
        is_to_group = self._destinations.to is SentTo.GROUP
        message = replayed(letter, now=self._clock.utc_now(), with_origin=is_to_group)
        return Addressed(letter.queue_offset, held, message)

    async def _check_not_sent_back(self, letter: ReceivedMessage) -> None:
        """Raise SentBackError if the first message has become a dead letter again already."""
        held = self._queue.held
        if self._destinations.to is not SentTo.GROUP or held.kind is not BrokerKind.ROCKETMQ:
            return
        _, end = await self._messages.bounds(held)
        async for later in self._messages.read(held, self._queue.end, end):
            if later.properties.get(REPLAY_OF) == position(letter):
                raise SentBackError(self._letters.group)


def position(letter: ReceivedMessage) -> str:
    """Return where a dead letter is."""
    return f"{_place(letter.queue)}@{letter.queue_offset}"


def replayed(letter: ReceivedMessage, *, now: datetime, with_origin: bool) -> OutgoingMessage:
    """Return the message that a dead letter is sent again as: with its id and times, and all its attempts to come.

    ``with_origin``: also where it was first read, for a retry topic.
    """
    message = Message.unchecked(
        letter.topic, letter.body, letter.tags, letter.keys, {**letter.properties, REPLAY_OF: position(letter)}
    )
    return OutgoingMessage(
        message, letter.message_id, letter.born_at or now, origin=letter.origin if with_origin else ""
    )


async def each_at_its_broker(
    queues: Sequence[LetterQueue], work: Callable[[LetterQueue], Awaitable[int]]
) -> list[int | PointsmanError]:
    """Work on all queues at the same time, which have different brokers; return the result or the failure of each."""

    async def one(queue: LetterQueue) -> int | PointsmanError:
        try:
            return await work(queue)
        except PointsmanError as failure:
            return failure

    return await asyncio.gather(*map(one, queues))


def _place(queue: MessageQueue) -> str:
    return f"{queue.cluster}/{queue.broker_name}/{queue.topic}/{queue.queue_id}"
