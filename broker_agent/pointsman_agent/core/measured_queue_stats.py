"""Put rates and depths of a broker's queues, and the lag of consumer groups.

Input comes in pieces, so that no step takes long with many queues: the ends of some queues at a time to a
:class:`QueueMeter`, then queues and lags to a :class:`Tally`. The result is bounded: totals, and the top of each list.
Equal entries are ordered by name, so the same broker gives the same report.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from pointsman_agent.core.membership_changes import NO_CHANGES, ChangeCounts
from pointsman_agent.core.queue import QueueKey

TOP = 20
"""Entries in each list (design, section 3)."""
MAX_PERIOD = 7 * 86_400.0
MAX_MESSAGES = 2**63 - 1
"""Limit of message counts: readers of the history use signed 64-bit integers."""
BEHIND_SECONDS = 60.0
"""A queue whose lag grows is behind if it is more than what arrives in this time."""


def falls_behind(lag: int, *, put_rate: float, commit_rate: float) -> bool:
    """Return whether a group falls behind in a queue: more arrives than it reads, and its lag is not short."""
    return commit_rate < put_rate and lag > put_rate * BEHIND_SECONDS


@dataclass(frozen=True, slots=True)
class QueueEnd:
    """Where a queue begins and ends."""

    min_offset: int
    """Of its first message."""
    max_offset: int
    """Offset after its last message."""
    depth: int
    """Number of messages in it."""


@dataclass(frozen=True, slots=True)
class QueuePuts:
    """Put rate and depth of one queue."""

    topic: str
    queue_id: int
    put_rate: float
    """Messages per second."""
    depth: int
    bytes: int = 0
    """Memory that it takes at the broker; 0: not known."""


@dataclass(frozen=True, slots=True)
class QueueLag:
    """Lag of a group in one queue."""

    group: str
    topic: str
    queue_id: int
    lag: int
    """Messages between the committed offset and the end."""
    put_rate: float
    committed: int
    oldest_unread: float | None = None
    """Age of the message at the committed offset in seconds; None: not known."""


@dataclass(frozen=True, slots=True)
class TopicTotals:
    """Totals of a topic; a highest value far above the mean shows uneven queues."""

    topic: str
    queue_count: int
    idle_queue_count: int
    """Queues without new messages."""
    put_rate: float
    highest_put_rate: float
    depth: int
    highest_depth: int


@dataclass(frozen=True, slots=True)
class GroupTotals:
    """A group in all queues of one topic in which it has committed an offset."""

    group: str
    topic: str
    queue_count: int
    lag: int
    highest_lag: int
    member_count: int
    """Clients in the group; 0 if none is known."""
    put_rate: float
    """Messages per second that arrive in these queues."""
    commit_rate: float | None
    """Messages per second by which its offsets rise; None: not known yet."""
    behind_queue_count: int
    """Queues in which it falls behind."""
    stuck_queue_count: int
    """Queues in which a member is stuck."""
    membership_changes: int
    """In the last ten minutes, see :class:`pointsman_agent.core.membership_changes.MembershipChanges`."""
    membership_changes_in_hour: int


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Statistics of a broker's queues: totals of all measured ones, and the top entries."""

    period: float
    """Seconds over which put rates are averaged, for the queue that was measured longest; at most a week."""
    queue_count: int
    unmeasured_queue_count: int
    topic_count: int
    depth: int
    put_rate: float
    lag: int
    """Of all groups together."""
    top_put_rates: tuple[QueuePuts, ...]
    """Queues with new messages, by descending rate."""
    top_lags: tuple[QueueLag, ...]
    """Queues with lag, by descending lag."""
    top_topics: tuple[TopicTotals, ...]
    """Topics by descending put rate, then by depth."""
    top_groups: tuple[GroupTotals, ...]
    """Groups by descending lag in a topic."""


class GroupLoad(NamedTuple):
    """What a group has to read from this broker."""

    lag: int = 0
    put_rate: float = 0.0
    commit_rate: float | None = None
    """None: not known yet."""
    behind_queue_count: int = 0
    stuck_queue_count: int = 0

    def plus(self, lag: int, put_rate: float, commit_rate: float | None, behind: int, stuck: int) -> GroupLoad:
        """Return it with another topic."""
        return GroupLoad(
            min(self.lag + lag, MAX_MESSAGES),
            self.put_rate + put_rate,
            self.commit_rate if commit_rate is None else (self.commit_rate or 0.0) + commit_rate,
            self.behind_queue_count + behind,
            self.stuck_queue_count + stuck,
        )


@dataclass(slots=True)
class _Course:
    """Measurements of one queue."""

    at: float
    end: QueueEnd
    last_rate: float = 0.0
    """Between the last two measurements."""
    puts: int = 0
    seconds: float = 0.0
    """Both since the period began."""


class QueueMeter:
    """Measures put rates: the latest of each queue, and the average over a period that the caller begins."""

    def __init__(self) -> None:
        self._courses: dict[QueueKey, _Course] = {}

    def take(self, ends: Mapping[QueueKey, QueueEnd], *, now: float) -> None:
        """Record the ends of some queues at ``now``, monotonic seconds.

        A queue whose first or last offset decreased was deleted and created again: its measurement restarts.
        """
        for queue, end in ends.items():
            course = self._courses.get(queue)
            if course is None or _is_another(end, course.end):
                self._courses[queue] = _Course(now, end)
            elif now > course.at:
                puts, seconds = end.max_offset - course.end.max_offset, now - course.at
                course.last_rate = puts / seconds
                course.puts += puts
                course.seconds += seconds
                course.at, course.end = now, end

    def keep_only(self, queues: Collection[QueueKey]) -> None:
        """Drop queues that are not among ``queues``: the broker no longer has them, or does not report them."""
        for queue in self._courses.keys() - queues:
            del self._courses[queue]

    def begin_period(self) -> None:
        """Begin a new averaging period."""
        for course in self._courses.values():
            course.puts, course.seconds = 0, 0.0

    def end_of(self, queue: QueueKey) -> QueueEnd | None:
        """Return the last known end of a queue; None if it is not measured."""
        course = self._courses.get(queue)
        return None if course is None else course.end

    def last_rate(self, queue: QueueKey) -> float:
        """Return messages per second between the last two measurements; 0 after only one."""
        course = self._courses.get(queue)
        return 0.0 if course is None else course.last_rate

    def average_rate(self, queue: QueueKey) -> float:
        """Return messages per second over the part of the period in which the queue was measured."""
        course = self._courses.get(queue)
        return course.puts / course.seconds if course is not None and course.seconds else 0.0

    def measured_seconds(self, queue: QueueKey) -> float:
        """Return the length of that part in seconds."""
        course = self._courses.get(queue)
        return 0.0 if course is None else course.seconds

    def __len__(self) -> int:
        return len(self._courses)

    def __iter__(self) -> Iterator[QueueKey]:
        return iter(self._courses)


_Entry = TypeVar("_Entry")


class _Top(Generic[_Entry]):
    """The first entries of a list by ``key``, without storing the list."""

    def __init__(self, key: Callable[[_Entry], tuple[object, ...]]) -> None:
        self._key = key
        self._entries: list[_Entry] = []

    def add(self, entry: _Entry) -> None:
        """Add one entry."""
        self._entries.append(entry)
        if len(self._entries) >= 10 * TOP:
            self._cut()

    def finish(self) -> tuple[_Entry, ...]:
        """Return the first entries in their order."""
        self._cut()
        return tuple(self._entries)

    def _cut(self) -> None:
        self._entries.sort(key=self._key)
        del self._entries[TOP:]


@dataclass(slots=True)
class _Sum:
    """A total and the highest of its parts."""

    count: int = 0
    idle: int = 0
    total: int = 0
    highest: int = 0
    rate: float = 0.0
    highest_rate: float = 0.0
    commit_rate: float | None = None
    behind: int = 0

    def add(self, messages: int) -> None:
        """Add the depth or the lag of one queue."""
        self.count += 1
        self.total += messages
        self.highest = max(self.highest, messages)


@dataclass(slots=True)
class Tally:
    """Adds up queues and lags. Each queue is added once, each (group, queue) once."""

    _topics: dict[str, _Sum] = field(default_factory=dict)
    _groups: dict[tuple[str, str], _Sum] = field(default_factory=dict)
    _queues: _Sum = field(default_factory=_Sum)
    _lag: int = 0
    _period: float = 0.0
    _puts: _Top[QueuePuts] = field(
        default_factory=lambda: _Top(lambda each: (-each.put_rate, each.topic, each.queue_id))
    )
    _lags: _Top[QueueLag] = field(
        default_factory=lambda: _Top(lambda each: (-each.lag, each.group, each.topic, each.queue_id))
    )

    def add_queue(self, queue: QueueKey, *, depth: int, put_rate: float, seconds: float = 0.0) -> None:
        """Add a queue with its put rate, measured for ``seconds``."""
        topic, queue_id = queue
        for of in (self._queues, self._topics.setdefault(topic, _Sum())):
            of.add(depth)
            of.rate += put_rate
            of.highest_rate = max(of.highest_rate, put_rate)
            of.idle += not put_rate
        self._period = max(self._period, seconds)
        if put_rate:
            self._puts.add(QueuePuts(topic, queue_id, put_rate, min(depth, MAX_MESSAGES)))

    def add_commit(
        self,
        group: str,
        queue: QueueKey,
        committed: int,
        *,
        max_offset: int,
        put_rate: float,
        commit_rate: float | None = None,
        is_waiting: bool = False,
    ) -> None:
        """Add the lag of a group in a queue that ends at ``max_offset``.

        ``commit_rate``: None, not known yet. ``is_waiting``: its member has nothing to do there now.
        """
        topic, queue_id = queue
        # An offset beyond the end was committed after the measurement, or the broker lost messages: the lag is 0.
        lag = min(max(0, max_offset - committed), MAX_MESSAGES)
        of_group = self._groups.setdefault((group, topic), _Sum())
        of_group.add(lag)
        of_group.rate += put_rate
        if commit_rate is not None:
            of_group.commit_rate = (of_group.commit_rate or 0.0) + commit_rate
            of_group.behind += not is_waiting and falls_behind(lag, put_rate=put_rate, commit_rate=commit_rate)
        self._lag += lag
        if lag:
            self._lags.add(QueueLag(group, topic, queue_id, lag, put_rate, committed))

    def loads(self, stuck: Mapping[tuple[str, str], int]) -> dict[str, GroupLoad]:
        """Return what each group has to read; ``stuck``: queues by group and topic in which a member is stuck."""
        loads: dict[str, GroupLoad] = {}
        for (group, topic), each in self._groups.items():
            loads[group] = loads.get(group, GroupLoad()).plus(
                min(each.total, MAX_MESSAGES), each.rate, each.commit_rate, each.behind, stuck.get((group, topic), 0)
            )
        return loads

    def finish(
        self,
        *,
        unmeasured: int = 0,
        members: Mapping[str, int] | None = None,
        changes: Mapping[str, ChangeCounts] | None = None,
        stuck: Mapping[tuple[str, str], int] | None = None,
    ) -> QueueStats:
        """Return the result.

        ``unmeasured``: queues with unknown ends; ``members``, ``changes``: clients and recent changes of membership by
        group; ``stuck``: see :meth:`loads`.
        """
        fastest = heapq.nsmallest(TOP, self._topics.items(), key=_by_rate)
        farthest = heapq.nsmallest(TOP, self._groups.items(), key=_by_lag)
        return QueueStats(
            period=min(self._period, MAX_PERIOD),
            queue_count=self._queues.count,
            unmeasured_queue_count=unmeasured,
            topic_count=len(self._topics),
            depth=min(self._queues.total, MAX_MESSAGES),
            put_rate=self._queues.rate,
            lag=min(self._lag, MAX_MESSAGES),
            top_put_rates=self._puts.finish(),
            top_lags=self._lags.finish(),
            top_topics=tuple(_topic_totals(topic, of_topic) for topic, of_topic in fastest),
            top_groups=tuple(
                _group_totals(*key, of_group, members or {}, changes or {}, stuck or {}) for key, of_group in farthest
            ),
        )


def _by_rate(entry: tuple[str, _Sum]) -> tuple[object, ...]:
    topic, of_topic = entry
    return -of_topic.rate, -of_topic.total, topic


def _by_lag(entry: tuple[tuple[str, str], _Sum]) -> tuple[object, ...]:
    key, of_group = entry
    return -of_group.total, key


def _is_another(end: QueueEnd, before: QueueEnd) -> bool:
    return end.max_offset < before.max_offset or end.min_offset < before.min_offset


def _topic_totals(topic: str, of_topic: _Sum) -> TopicTotals:
    return TopicTotals(
        topic=topic,
        queue_count=of_topic.count,
        idle_queue_count=of_topic.idle,
        put_rate=of_topic.rate,
        highest_put_rate=of_topic.highest_rate,
        depth=min(of_topic.total, MAX_MESSAGES),
        highest_depth=min(of_topic.highest, MAX_MESSAGES),
    )


def _group_totals(
    group: str,
    topic: str,
    of_group: _Sum,
    members: Mapping[str, int],
    changes: Mapping[str, ChangeCounts],
    stuck: Mapping[tuple[str, str], int],
) -> GroupTotals:
    changed = changes.get(group, NO_CHANGES)
    return GroupTotals(
        group=group,
        topic=topic,
        queue_count=of_group.count,
        lag=min(of_group.total, MAX_MESSAGES),
        highest_lag=of_group.highest,
        member_count=members.get(group, 0),
        put_rate=of_group.rate,
        commit_rate=of_group.commit_rate,
        behind_queue_count=of_group.behind,
        stuck_queue_count=stuck.get((group, topic), 0),
        membership_changes=changed.lately,
        membership_changes_in_hour=changed.in_hour,
    )
