"""Search for messages: by the index of RocketMQ brokers, and in Redis streams by reading them, the newest first."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from pointsman.redis_queues import stream_key
from pointsman_client import PointsmanError, ReceivedMessage
from pointsman_client.rocketmq import MAX_INDEXED
from pointsman_ctl.servers.stored_messages import BrokerKind, HeldQueue, StoredMessages, of_every

INDEX_LIMIT = MAX_INDEXED
"""Messages that the index of a RocketMQ broker returns."""
CHUNK = 256
"""Messages of a queue that are read before the next queue has its turn."""
_PLACE = re.compile(r"(?P<key>.+)@(?P<offset>[0-9]{1,19})")
"""An entry without an id is known by its stream and offset."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is looked for: one of both."""

    message_id: str = ""
    key: str = ""

    def is_met_by(self, message: ReceivedMessage) -> bool:
        """Whether the message has the id or the key."""
        if self.key:
            return self.key in message.keys
        return self.message_id in {message.message_id, message.offset_message_id}

    def __str__(self) -> str:
        return f"key {self.key}" if self.key else f"id {self.message_id}"


@dataclass(slots=True)
class ScannedQueue:
    """How far a queue was read, backwards from its end."""

    held: HeldQueue
    first: int
    """Offset of the first stored message."""
    end: int
    position: int
    """Messages before it were not looked at."""
    oldest: datetime | None = None
    """Birth of the oldest message that was looked at; None: unknown, or none was."""

    @property
    def is_whole(self) -> bool:
        """Whether all of it was looked at."""
        return self.position <= self.first

    @property
    def scanned(self) -> int:
        """Offsets that were looked at."""
        return self.end - self.position


@dataclass(slots=True)
class Found:
    """The result of a search."""

    messages: list[ReceivedMessage] = field(default_factory=list)
    indexes: list[HeldQueue] = field(default_factory=list)
    """One queue of each broker whose index was queried."""
    scanned: list[ScannedQueue] = field(default_factory=list)
    cut: list[HeldQueue] = field(default_factory=list)
    """Those of ``indexes`` that may have older messages: a broker returns at most INDEX_LIMIT."""
    failures: dict[str, PointsmanError] = field(default_factory=dict)
    """By CLUSTER/BROKER/N, or CLUSTER/BROKER."""

    @property
    def is_whole(self) -> bool:
        """Whether every stored message was looked at."""
        return not (self.failures or self.cut) and all(each.is_whole for each in self.scanned)


@dataclass(frozen=True, slots=True)
class SearchBounds:
    """Where a search ends."""

    limit: int
    """Messages found."""
    most: int
    """Offsets looked at in Redis streams, of all queues together."""


Progress = Callable[[int, int], None]
"""Called with the number of offsets looked at and the number that may be."""


async def search(
    messages: StoredMessages, queues: Sequence[HeldQueue], wanted: Wanted, bounds: SearchBounds, *, progress: Progress
) -> Found:
    """Look for messages: in the index of RocketMQ brokers, and in Redis streams backwards from their ends."""
    found = Found()
    redis = [each for each in queues if each.kind is BrokerKind.REDIS]
    await _ask_indexes(messages, [each for each in queues if each.kind is BrokerKind.ROCKETMQ], wanted, found)
    if redis and len(found.messages) < bounds.limit and not await _is_at_its_place(messages, redis, wanted, found):
        await _scan(messages, redis, wanted, found, bounds, progress)
    found.messages = sorted(found.messages, key=_newest_first)[: bounds.limit]
    return found


async def _ask_indexes(messages: StoredMessages, queues: Sequence[HeldQueue], wanted: Wanted, found: Found) -> None:
    brokers = {each.addr: each for each in reversed(queues)}
    chosen = {each.queue for each in queues}
    asked = await of_every(
        list(brokers.values()), lambda held: messages.indexed(held, key=wanted.key, message_id=wanted.message_id)
    )
    for held, result in asked:
        if isinstance(result, PointsmanError):
            found.failures["/".join(held.queue.broker_key)] = result
        else:
            found.indexes.append(held)
            if len(result) >= INDEX_LIMIT:
                found.cut.append(held)
            found.messages += [each for each in result if each.queue in chosen]


async def _is_at_its_place(messages: StoredMessages, queues: Sequence[HeldQueue], wanted: Wanted, found: Found) -> bool:
    """Whether the id names a place, and the message there is without an id; then it is found without a scan."""
    match = _PLACE.fullmatch(wanted.message_id)
    if match is None:
        return False
    at = int(match["offset"])
    for held in queues:
        if stream_key(held.queue.topic, held.queue.queue_id) == match["key"]:
            async for message in messages.read(held, at, at + 1):
                if wanted.is_met_by(message):
                    found.messages.append(message)
    return bool(found.messages)


async def _scan(
    messages: StoredMessages,
    queues: Sequence[HeldQueue],
    wanted: Wanted,
    found: Found,
    bounds: SearchBounds,
    progress: Progress,
) -> None:
    for held, ends in await of_every(queues, messages.bounds):
        if isinstance(ends, PointsmanError):
            found.failures[held.name] = ends
        else:
            first, end = ends
            found.scanned.append(ScannedQueue(held, first, end, end))
    whole = sum(each.end - each.first for each in found.scanned)
    left = bounds.most
    while left > 0 and len(found.messages) < bounds.limit:
        unread = [each for each in found.scanned if not each.is_whole and each.held.name not in found.failures]
        if not unread:
            break
        # A turn of every queue: the newest messages of all come before the older ones of any.
        count = min(CHUNK, max(1, left // len(unread)))
        turn = {each.held: each for each in unread[:left]}
        for held, result in await of_every(list(turn), partial(_read_back, messages, turn, count, wanted)):
            if isinstance(result, PointsmanError):
                found.failures[held.name] = result
            else:
                found.messages += result
        left = bounds.most - sum(each.scanned for each in found.scanned)
        progress(bounds.most - left, min(bounds.most, whole))


async def _read_back(
    messages: StoredMessages, turn: Mapping[HeldQueue, ScannedQueue], count: int, wanted: Wanted, held: HeldQueue
) -> list[ReceivedMessage]:
    queue = turn[held]
    begin = max(queue.first, queue.position - count)
    matching = []
    oldest: datetime | None = None
    async for message in messages.read(queue.held, begin, queue.position):
        if oldest is None:
            oldest = message.born_at
        if wanted.is_met_by(message):
            matching.append(message)
    queue.oldest = oldest or queue.oldest
    queue.position = begin
    return matching


def _newest_first(message: ReceivedMessage) -> tuple[float, HeldQueue | object]:
    born = message.born_at.timestamp() if message.born_at else 0.0
    return -born, (message.queue, -message.queue_offset)
