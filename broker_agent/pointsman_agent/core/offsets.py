"""Committed offsets of every group in every queue of this broker: RocketMQ's ``ConsumerOffsetManager``.

An offset is the next message to read. It never goes backwards without a reset; RocketMQ only logs that. Two consumers
of one queue, before and after a rebalance, may commit in any order. A reset by an operator starts a new epoch of the
queue (:mod:`offset_epoch`), so that a commit from before it, from wherever it comes, changes nothing.

Two moments are stored with them: when a group first consumed a topic (the earliest wins), and the last day on which a
client of the group was seen. The first is where a queue without an offset begins, so that a topic may grow; by the
second an offset expires. Both are milliseconds since the epoch, because they outlive processes and machines.

Only the latest unwritten change of each queue is stored, so memory is bounded while the store is down. The writer takes
those changes (:meth:`Offsets.take`), then reports whether they were written.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from pointsman.group_topics import is_retry_topic
from pointsman_agent.core.offset_epoch import epoch_of, next_epoch, offset_of, with_epoch
from pointsman_agent.core.queue import QueueKey

_InnerT = TypeVar("_InnerT")

MAX_OFFSET = 2**64 - 1
MAX_OFFSETS = 200_000
RESERVE_PART = 10
"""Above the limit, this fraction of it is reserved for peers that added less than another peer."""
MAX_PEERS = 10_000
"""Peers whose additions are counted."""

BEGIN_ID = -1
"""Used as queue id: when the group first consumed the topic."""
SEEN_ID = -2
"""Used as queue id, with an empty topic: when a client of the group was last seen."""

DAY_MILLIS = 86_400_000
UNSEEN_DAYS = 30
"""Days without a client of the group before any of its offsets may expire."""


class TooManyOffsets(Exception):
    """The limit of offsets, or of begins of topics, is reached; nothing was changed."""

    def __init__(self, what: str, bound: int) -> None:
        super().__init__(f"at most {bound} {what} are kept")
        self.what = what
        self.bound = bound


class OffsetKey(NamedTuple):
    """Group and queue of an offset; with BEGIN_ID or SEEN_ID, of a moment instead."""

    group: str
    topic: str
    queue_id: int

    @property
    def queue(self) -> QueueKey:
        """The queue alone."""
        return QueueKey(self.topic, self.queue_id)


class OffsetChange(NamedTuple):
    """An offset or a moment to write to the store."""

    key: OffsetKey
    offset: int
    """With its epoch (:func:`~pointsman_agent.core.offset_epoch.with_epoch`)."""
    reset: bool = False
    """Whether to write it even where the value in the store would prevail (:func:`prevails`), unless that has a later
    epoch."""
    removed: bool = False
    """Remove this value, and any that it prevails over; with ``reset`` any value of its epoch."""


def prevails(key: OffsetKey, held: int, offset: int) -> bool:
    """Whether ``held`` prevails over ``offset`` without a reset: the earliest begin, else the highest value.

    Both are with their epochs.
    """
    return held < offset if key.queue_id == BEGIN_ID else held > offset


def apply_changes(table: dict[OffsetKey, int], changes: Iterable[OffsetChange]) -> dict[OffsetKey, int]:
    """Apply changes to a store's table; return the values in the table that prevailed."""
    kept = {}
    for change in changes:
        held = table.get(change.key)
        if held is not None and _stays(held, change):
            kept[change.key] = held
        elif change.removed:
            table.pop(change.key, None)
        else:
            table[change.key] = change.offset
    return kept


def _stays(held: int, change: OffsetChange) -> bool:
    if change.reset:
        return epoch_of(held) > epoch_of(change.offset)
    return prevails(change.key, held, change.offset)


class Offsets:
    """Every committed offset. Commits stop at ``max_offsets``; a store may have loaded more.

    Offsets are never removed to free space: a group would lose its progress because of another one. So the limit has a
    reserve: once it is reached, the peer that added most is refused first.
    """

    def __init__(self, *, max_offsets: int = MAX_OFFSETS) -> None:
        self.before_first_change: Callable[[], None] | None = None
        """Called before the first change after :meth:`take`, so that the writer need not poll."""
        self._max_offsets = max_offsets
        self._groups: dict[str, dict[QueueKey, int]] = {}
        self._commit_times: dict[str, dict[QueueKey, int]] = {}
        self._epochs: dict[str, dict[QueueKey, int]] = {}
        """Of queues that an operator has reset, also where the offset is removed: a late commit may still come."""
        self._count = 0
        self._added: dict[str, int] = {}
        """Offsets and begins that each peer added, since the start of the process."""
        self._begins: dict[str, dict[str, int]] = {}
        self._begin_count = 0
        self._seen: dict[str, int] = {}
        self._unwritten: dict[OffsetKey, OffsetChange] = {}
        self._in_flight: dict[OffsetKey, OffsetChange] = {}

    def __len__(self) -> int:
        """Number of offsets."""
        return self._count

    @property
    def unwritten(self) -> int:
        """Number of changes not known to be in the store; at most two for each offset."""
        return len(self._unwritten) + len(self._in_flight)

    def commit(
        self,
        group: str,
        offsets: Mapping[QueueKey, int],
        *,
        epochs: Mapping[QueueKey, int] | None = None,
        reset: bool = False,
        peer: str = "",
        now: int | None = None,
    ) -> dict[QueueKey, int]:
        """Commit offsets; return the queues that retain another one, with it.

        A queue retains an offset of a later epoch, and without ``reset`` a higher one of the same epoch. ``epochs``:
        those of the offsets; a queue without one has its present epoch. ``peer``: the sender, empty for this agent.
        ``now``: milliseconds of the wall clock; None: these are copies of earlier commits, and no time of a commit is
        recorded. Raises TooManyOffsets.
        """
        committed = self._groups.get(group, {})
        missing = sum(queue not in committed for queue in offsets)
        self._add(peer, "offsets", held=self._count, missing=missing)
        kept = {}
        for queue, offset in offsets.items():
            held, present = committed.get(queue), self.epoch(group, queue)
            epoch = present if epochs is None else epochs.get(queue, present)
            if held is not None and (epoch < present or (epoch == present and held > offset and not reset)):
                kept[queue] = held
                continue
            if epoch > present:
                self._epochs.setdefault(group, {})[queue] = epoch
            # The store may hold another one, which a reset overrides.
            if held != offset or epoch > present or reset:
                committed[queue] = offset
                self._note(OffsetChange(OffsetKey(group, *queue), with_epoch(offset, max(epoch, present)), reset))
        self._count += missing
        if committed:
            self._groups[group] = committed
        if now is not None and len(kept) < len(offsets):
            taken = (queue for queue in offsets if queue not in kept)
            self._commit_times.setdefault(group, {}).update(dict.fromkeys(taken, now))
        return kept

    def reset(self, group: str, offsets: Mapping[QueueKey, int], *, now: int, peer: str = "") -> dict[QueueKey, int]:
        """Set offsets for an operator; return the new epoch of each queue. As :meth:`commit` otherwise."""
        epochs = {queue: next_epoch(self.epoch(group, queue), now=now) for queue in offsets}
        self.commit(group, offsets, epochs=epochs, reset=True, peer=peer, now=now)
        return epochs

    def epoch(self, group: str, queue: QueueKey) -> int:
        """Return the epoch of an offset; 0: it was not reset by an operator."""
        return self._epochs.get(group, {}).get(queue, 0)

    def begin(self, group: str, moments: Mapping[str, int], *, peer: str = "") -> dict[str, int]:
        """Record when a group consumed topics; return the earliest known moment of each.

        ``peer`` as of :meth:`commit`. Raises TooManyOffsets.
        """
        begins = self._begins.get(group, {})
        missing = sum(topic not in begins for topic in moments)
        self._add(peer, "begins of topics", held=self._begin_count, missing=missing)
        for topic, moment in moments.items():
            if moment < begins.get(topic, moment + 1):
                self._change(OffsetKey(group, topic, BEGIN_ID), moment)
        return self.begins(group, moments)

    def begins(self, group: str, topics: Iterable[str]) -> dict[str, int]:
        """Return when the group first consumed those of ``topics`` for which that is known."""
        begins = self._begins.get(group, {})
        return {topic: begins[topic] for topic in topics if topic in begins}

    def begin_committed(self, group: str, queues: Iterable[QueueKey], *, now: int) -> None:
        """Record a begin of now for the topics of ``queues`` without one: not every client records it."""
        for topic in {queue.topic for queue in queues} - self._begins.get(group, {}).keys():
            if not is_retry_topic(topic):
                self._change(OffsetKey(group, topic, BEGIN_ID), now)

    def saw(self, groups: Iterable[str], *, now: int) -> None:
        """Record that groups have clients, once a day, for groups that have an offset or a begin."""
        for group in groups:
            is_known = group in self._groups or group in self._begins
            if is_known and now - self._seen.get(group, now - DAY_MILLIS) >= DAY_MILLIS:
                self._change(OffsetKey(group, "", SEEN_ID), now)

    def unseen(self, *, now: int) -> dict[str, list[QueueKey]]:
        """Return groups without a client for UNSEEN_DAYS, with the queues in which they have offsets.

        A group that was never seen counts as seen now.
        """
        known = self._groups.keys() | self._begins.keys()
        self.saw(known - self._seen.keys(), now=now)
        since = now - UNSEEN_DAYS * DAY_MILLIS
        return {group: [*self._groups.get(group, ())] for group in sorted(known) if self._seen[group] < since}

    def expire(self, group: str, first_offsets: Mapping[QueueKey, int]) -> int:
        """Remove the offsets of an unseen group that lie before the first offset of their queue; return how many.

        No message is lost by it: such a queue begins at its first offset. A topic's begin goes with its last offset.
        """
        committed = self._groups.get(group, {})
        expired = [queue for queue, offset in committed.items() if offset < first_offsets.get(queue, 0)]
        for queue in expired:
            self._remove(OffsetKey(group, *queue))
        for topic in self._begins.get(group, {}).keys() - {queue.topic for queue in self._groups.get(group, ())}:
            self._remove(OffsetKey(group, topic, BEGIN_ID))
        if group not in self._groups and group not in self._begins:
            self._remove(OffsetKey(group, "", SEEN_ID))
        return len(expired)

    def delete(self, group: str, *, is_ours: bool = True) -> int:
        """Remove everything of a group; return the number of its offsets. ``is_ours``: from the store, too.

        What the store has is removed whatever it is: another agent of this broker may have written it.
        """
        queues, begins = [*self._groups.get(group, ())], [*self._begins.get(group, ())]
        keys = [OffsetKey(group, *queue) for queue in queues]
        keys += [OffsetKey(group, topic, BEGIN_ID) for topic in begins]
        for key in (*keys, OffsetKey(group, "", SEEN_ID)):
            self._remove(key, reset=True, is_noted=is_ours)
        return len(queues)

    def discard(
        self,
        group: str,
        offsets: Mapping[QueueKey, int],
        begins: Mapping[str, int],
        *,
        epochs: Mapping[QueueKey, int] | None = None,
    ) -> None:
        """Remove those of these offsets and begins that still have the given value, and epoch."""
        of = epochs or {}
        named = {OffsetKey(group, *queue): with_epoch(offset, of.get(queue, 0)) for queue, offset in offsets.items()}
        named |= {OffsetKey(group, topic, BEGIN_ID): moment for topic, moment in begins.items()}
        for key, value in named.items():
            if self._value(key) == value:
                self._remove(key)

    def remove_queues(self, queues: Collection[QueueKey]) -> int:
        """Remove the offsets of all groups in queues that are removed with their messages; return how many.

        A queue that is created again begins at 0: with its old offset a group would skip its messages.
        """
        keys = [
            OffsetKey(group, *queue)
            for group, committed in self._groups.items()
            for queue in queues
            if queue in committed
        ]
        for key in keys:
            self._remove(key)
        return len(keys)

    @property
    def is_empty(self) -> bool:
        """Whether there is neither an offset nor a begin."""
        return not (self._groups or self._begins)

    def groups(self) -> list[str]:
        """Groups that have an offset or a begin, sorted."""
        return sorted(self._groups.keys() | self._begins.keys())

    def of(self, group: str) -> tuple[dict[QueueKey, int], dict[str, int]]:
        """Every offset and every begin of a group."""
        return dict(self._groups.get(group, {})), dict(self._begins.get(group, {}))

    def get(self, group: str, queues: Iterable[QueueKey]) -> dict[QueueKey, int]:
        """The committed offsets of those of ``queues`` that have one."""
        committed = self._groups.get(group, {})
        return {queue: committed[queue] for queue in queues if queue in committed}

    def of_group(self, group: str) -> Mapping[QueueKey, int]:
        """The committed offsets of a group; it must not be changed, nor kept."""
        return self._groups.get(group, {})

    def commit_times(self, group: str) -> Mapping[QueueKey, int]:
        """When a group's offsets were last committed since the start of the process, in milliseconds since the epoch.

        It must not be changed, nor kept.
        """
        return self._commit_times.get(group, {})

    def page(
        self, *, limit: int, group: str = "", after: tuple[str, str, int] | None = None
    ) -> list[tuple[OffsetKey, int]]:
        """List up to ``limit`` offsets after ``after``, sorted by key; of all groups if ``group`` is empty."""
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
        """Yield every offset as (group, topic, queue id, offset), each group as of its turn.

        The caller may pause in between, while offsets are committed.
        """
        for group in tuple(self._groups):
            for queue, offset in tuple(self._groups[group].items()):
                yield group, queue.topic, queue.queue_id, offset

    def uncommitted(self, queues: Mapping[str, int]) -> Iterator[tuple[str, str, int, int]]:
        """Yield 0 in the same form for each queue without an offset, of the topics that a group has begun.

        ``queues``: number of queues by topic. The caller may pause as in :meth:`commits`.
        """
        for group in tuple(self._begins):
            for topic in tuple(self._begins.get(group, ())):
                for queue_id in range(queues.get(topic, 0)):
                    if QueueKey(topic, queue_id) not in self._groups.get(group, {}):
                        yield group, topic, queue_id, 0

    # --- for the store ----------------------------------------------------------------------------------------

    def take(self) -> Sequence[OffsetChange]:
        """Return the changes to write, one for each queue; then call :meth:`written` or :meth:`not_written`."""
        if self._in_flight:
            raise RuntimeError("the changes taken before are still being written")
        self._in_flight, self._unwritten = self._unwritten, {}
        return tuple(self._in_flight.values())

    def written(self, higher: Mapping[OffsetKey, int]) -> None:
        """Record that the changes taken were written, except where the store retains a ``higher`` value.

        Another agent of this broker wrote those, before or after a hand-over.
        """
        self._in_flight = {}
        for key, offset in higher.items():
            held, later = self._value(key), self._unwritten.get(key)
            is_newer = later is not None and (later.reset or later.removed)
            if not is_newer and (held is None or prevails(key, offset, held)):
                self._put(key, offset)
                self._unwritten.pop(key, None)

    def not_written(self) -> None:
        """Record that the changes taken may or may not have been written: all are written again."""
        again = self._in_flight
        for key, later in self._unwritten.items():
            again[key] = _after(again.get(key), later)
        self._in_flight, self._unwritten = {}, again

    def absorb(self, stored: Iterable[tuple[OffsetKey, int]]) -> None:
        """Merge the content of the store: at the start, and while another agent may write it.

        An offset that is not written yet takes precedence. The result of one read may be passed in several parts.
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
        if not all(self._commit_times.values()):
            raise AssertionError("a group without times of commits is kept")
        if any(times.keys() - self._groups.get(group, {}).keys() for group, times in self._commit_times.items()):
            raise AssertionError("the time of a commit is kept without its offset")
        if not all(self._begins.values()) or self._begin_count != sum(map(len, self._begins.values())):
            raise AssertionError(f"counted {self._begin_count} begins of topics")
        for key, change in self._unwritten.items():
            if self._value(key) != (None if change.removed else change.offset):
                raise AssertionError(f"{key} is to be written as {change}, which it is not")

    def _add(self, peer: str, what: str, *, held: int, missing: int) -> None:
        """Count what a peer adds. Raises TooManyOffsets, and then counts nothing."""
        if not missing:
            return
        added, beyond = self._added.get(peer, 0) + missing, held + missing - self._max_offsets
        if beyond > 0 and (beyond > self._max_offsets // RESERVE_PART or added >= max(self._added.values(), default=0)):
            raise TooManyOffsets(what, self._max_offsets)
        if peer not in self._added and len(self._added) >= MAX_PEERS:
            del self._added[min(self._added, key=self._added.__getitem__)]
        self._added[peer] = added

    def _value(self, key: OffsetKey) -> int | None:
        if key.queue_id == SEEN_ID:
            return self._seen.get(key.group)
        if key.queue_id == BEGIN_ID:
            return self._begins.get(key.group, {}).get(key.topic)
        offset = self._groups.get(key.group, {}).get(key.queue)
        return None if offset is None else with_epoch(offset, self.epoch(key.group, key.queue))

    def _put(self, key: OffsetKey, value: int) -> None:
        if key.queue_id == SEEN_ID:
            self._seen[key.group] = value
        elif key.queue_id == BEGIN_ID:
            begins = self._begins.setdefault(key.group, {})
            self._begin_count += key.topic not in begins
            begins[key.topic] = value
        else:
            committed = self._groups.setdefault(key.group, {})
            self._count += key.queue not in committed
            committed[key.queue] = offset_of(value)
            if epoch := epoch_of(value):
                self._epochs.setdefault(key.group, {})[key.queue] = epoch

    def _change(self, key: OffsetKey, value: int) -> None:
        self._note(OffsetChange(key, value))
        self._put(key, value)

    def _remove(self, key: OffsetKey, *, reset: bool = False, is_noted: bool = True) -> None:
        value = self._value(key)
        if value is None:
            return
        if is_noted:
            self._note(OffsetChange(key, value, reset=reset, removed=True))
        else:
            self._unwritten.pop(key, None)
        if key.queue_id == SEEN_ID:
            del self._seen[key.group]
        elif key.queue_id == BEGIN_ID:
            self._begin_count -= 1
            _drop(self._begins, key.group, key.topic)
        else:
            self._count -= 1
            _drop(self._groups, key.group, key.queue)
            if key.queue in self._commit_times.get(key.group, ()):
                _drop(self._commit_times, key.group, key.queue)

    def _note(self, change: OffsetChange) -> None:
        if not self._unwritten and self.before_first_change is not None:
            self.before_first_change()
        self._unwritten[change.key] = _after(self._unwritten.get(change.key), change)


def _after(earlier: OffsetChange | None, later: OffsetChange) -> OffsetChange:
    """Merge two unwritten changes: after a reset or a removal the later one must be written unconditionally."""
    if earlier is None:
        return later
    return later._replace(reset=later.reset or earlier.reset or earlier.removed)


def _drop(table: dict[str, dict[_InnerT, int]], group: str, inner: _InnerT) -> None:
    del table[group][inner]
    if not table[group]:
        del table[group]
