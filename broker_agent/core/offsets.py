"""How far each group has read each queue of this broker: RocketMQ's ``ConsumerOffsetManager``.

An offset is the next message to read. It never goes backwards unless a reset says so, which RocketMQ only logs: two
consumers of one queue, before and after a rebalance, may commit in any order.

What the store does not hold yet is remembered once a queue, the latest only, so nothing grows while the store is away.
The writer takes those changes (:meth:`Offsets.take`), then says what became of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from broker_agent.core.queue import QueueKey

MAX_OFFSET = 2**64 - 1
MAX_OFFSETS = 200_000


class TooManyOffsets(Exception):
    """As many offsets are kept as are allowed; nothing was committed."""

    def __init__(self, bound: int) -> None:
        super().__init__(f"at most {bound} offsets are kept")
        self.bound = bound


class OffsetKey(NamedTuple):
    """Whose offset in which queue."""

    group: str
    topic: str
    queue_id: int

    @property
    def queue(self) -> QueueKey:
        """The queue alone."""
        return QueueKey(self.topic, self.queue_id)


class OffsetChange(NamedTuple):
    """An offset that the store is to hold."""

    key: OffsetKey
    offset: int
    reset: bool = False
    """Whether it holds even where the store has a higher one."""


class Offsets:
    """Every committed offset; at most ``max_offsets`` by commits, and whatever the store held before."""

    def __init__(self, *, max_offsets: int = MAX_OFFSETS) -> None:
        self.before_first_change: Callable[[], None] | None = None
        """Called before the first of the changes that :meth:`take` will give, so that nobody need ask in between."""
        self._max_offsets = max_offsets
        self._groups: dict[str, dict[QueueKey, int]] = {}
        self._count = 0
        self._unwritten: dict[OffsetKey, OffsetChange] = {}
        self._in_flight: dict[OffsetKey, OffsetChange] = {}

    def __len__(self) -> int:
        """How many offsets there are."""
        return self._count

    @property
    def unwritten(self) -> int:
        """How many changes the store is not known to hold; at most two an offset."""
        return len(self._unwritten) + len(self._in_flight)

    def commit(self, group: str, offsets: Mapping[QueueKey, int], *, reset: bool = False) -> dict[QueueKey, int]:
        """Commit; return the queues that keep a higher offset than the one sent, with it. None does with ``reset``.

        Raises TooManyOffsets.
        """
        committed = self._groups.get(group, {})
        missing = sum(queue not in committed for queue in offsets)
        if missing and self._count + missing > self._max_offsets:
            raise TooManyOffsets(self._max_offsets)
        kept = {}
        for queue, offset in offsets.items():
            held = committed.get(queue)
            if held is not None and held > offset and not reset:
                kept[queue] = held
            elif held != offset or reset:  # the store may have another one, which a reset overrides
                committed[queue] = offset
                key = OffsetKey(group, *queue)
                earlier = self._unwritten.get(key)
                # What follows a reset that the store has not heard of must hold there as well.
                is_reset = reset or (earlier is not None and earlier.reset)
                if not self._unwritten and self.before_first_change is not None:
                    self.before_first_change()
                self._unwritten[key] = OffsetChange(key, offset, is_reset)
        self._count += missing
        if committed:
            self._groups[group] = committed
        return kept

    def get(self, group: str, queues: Iterable[QueueKey]) -> dict[QueueKey, int]:
        """The committed offsets of those of ``queues`` that have one."""
        committed = self._groups.get(group, {})
        return {queue: committed[queue] for queue in queues if queue in committed}

    def page(
        self, *, limit: int, group: str = "", after: tuple[str, str, int] | None = None
    ) -> list[tuple[OffsetKey, int]]:
        """List up to ``limit`` offsets behind ``after``, sorted by key; of all groups when ``group`` is empty."""
        found: list[tuple[OffsetKey, int]] = []
        for name in [group] if group else sorted(self._groups):
            if after is not None and name < after[0]:
                continue
            committed = self._groups.get(name, {})
            behind = QueueKey(*after[1:]) if after is not None and name == after[0] else None
            queues = (queue for queue in committed if behind is None or queue > behind)
            first = heapq.nsmallest(limit - len(found), queues)
            found += [(OffsetKey(name, *queue), committed[queue]) for queue in first]
            if len(found) == limit:
                break
        return found

    def commits(self) -> Iterator[tuple[str, str, int, int]]:
        """Give every offset as (group, topic, queue id, offset), of each group as it was when its turn came.

        May be read with rests, in which offsets are committed.
        """
        for group in tuple(self._groups):
            for queue, offset in tuple(self._groups[group].items()):
                yield group, queue.topic, queue.queue_id, offset

    # --- towards the store ------------------------------------------------------------------------------------

    def take(self) -> Sequence[OffsetChange]:
        """Take what the store is to hold, each queue once; follow with :meth:`written` or :meth:`not_written`."""
        if self._in_flight:
            raise RuntimeError("the changes taken before are still on their way")
        self._in_flight, self._unwritten = self._unwritten, {}
        return tuple(self._in_flight.values())

    def written(self, higher: Mapping[OffsetKey, int]) -> None:
        """Take in that the store holds what was taken, save for those where it keeps a ``higher`` one.

        Those another agent of this broker wrote, before it handed over or after.
        """
        self._in_flight = {}
        for key, offset in higher.items():
            if self._groups.get(key.group, {}).get(key.queue, 0) < offset and not self._is_reset(key):
                self._put(key, offset)
                self._unwritten.pop(key, None)

    def not_written(self) -> None:
        """Take in that nobody knows which of the changes taken the store holds: all are to be written again."""
        again = self._in_flight
        for key, later in self._unwritten.items():
            earlier = again.get(key)
            again[key] = OffsetChange(key, later.offset, later.reset or (earlier is not None and earlier.reset))
        self._in_flight, self._unwritten = {}, again

    def absorb(self, stored: Iterable[tuple[OffsetKey, int]]) -> None:
        """Take in what the store holds: at the start, and while somebody else writes it.

        An offset that the store has not been told yet stays. What was read in one go may come in parts.
        """
        for key, offset in stored:
            if key not in self._unwritten and key not in self._in_flight:
                self._put(key, offset)

    def check_invariants(self) -> None:
        """Raise AssertionError where the tables contradict each other; for tests."""
        if not all(self._groups.values()):
            raise AssertionError("a group without offsets is kept")
        if self._count != sum(map(len, self._groups.values())):
            raise AssertionError(f"counted {self._count} offsets")
        for key, change in self._unwritten.items():
            if self._groups[key.group][key.queue] != change.offset:
                raise AssertionError(f"{key} is to be written as {change.offset}, which it is not")

    def _put(self, key: OffsetKey, offset: int) -> None:
        committed = self._groups.setdefault(key.group, {})
        self._count += key.queue not in committed
        committed[key.queue] = offset

    def _is_reset(self, key: OffsetKey) -> bool:
        change = self._unwritten.get(key)
        return change is not None and change.reset
