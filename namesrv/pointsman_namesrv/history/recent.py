"""The last events of each broker name, in memory, for operators who ask why something happened."""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Iterator

from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.model import GroupKey, Position, Reason
from pointsman_namesrv.history.row import Record

ROUTINE = frozenset(
    {EventKind.HEARTBEAT, EventKind.HEARTBEATS, EventKind.TOPICS, EventKind.CHECKPOINT, EventKind.QUEUE_STATS}
)
"""Routine or large events. They would displace the rows that explain a change."""

PER_BROKER = 50
MAX_EVENTS = 100_000
RESTARTS = frozenset({EventKind.NAMESRV_STARTED, EventKind.NAMESRV_STOPPED})
"""Events of this node that every broker's list contains: between them nothing was recorded."""


class RecentEvents:
    """At most ``per_broker`` events of a name and ``in_all`` in total; the name longest without an event is dropped
    first.

    An event with the objects that it refers to takes about 600 bytes.
    """

    def __init__(self, *, per_broker: int = PER_BROKER, in_all: int = MAX_EVENTS) -> None:
        self._per_broker = per_broker
        self._in_all = in_all
        self._count = 0
        self._events: OrderedDict[GroupKey, deque[Record]] = OrderedDict()
        self._restarts: deque[Record] = deque(maxlen=per_broker)

    def add(self, record: Record) -> None:
        """Store a record that is about a broker, a broker name or a cluster, unless it is routine.

        What a restarted server found in its snapshot is not routine for a broker that nothing else is known of.
        """
        event = record.event
        if event.kind in RESTARTS:
            self._restarts.append(record)
        key = event.broker.identity.group_key if event.broker is not None else event.group
        if key is None or (event.kind in ROUTINE and (not _was_found(event) or self._knows(key, event))):
            return
        kept = self._events.setdefault(key, deque(maxlen=self._per_broker))
        self._count += len(kept) < self._per_broker
        kept.append(record)
        self._events.move_to_end(key)
        while self._count > self._in_all:
            _, oldest = self._events.popitem(last=False)
            self._count -= len(oldest)

    def add_earlier(self, record: Record) -> None:
        """Store a record that is older than all others, of any name, if there is room for it."""
        event = record.event
        if event.kind in RESTARTS and len(self._restarts) < self._per_broker:
            self._restarts.appendleft(record)
        key = event.broker.identity.group_key if event.broker is not None else event.group
        if key is None or event.kind in ROUTINE or self._count >= self._in_all:
            return
        kept = self._events.get(key)
        if kept is None:
            kept = self._events[key] = deque(maxlen=self._per_broker)
            self._events.move_to_end(key, last=False)
        if len(kept) < self._per_broker:
            kept.appendleft(record)
            self._count += 1

    def drop_found(self) -> Iterator[None]:
        """Drop what was found in the snapshot where earlier events are known by now; one step for each name."""
        for key in list(self._events):
            kept = self._events.get(key)
            if kept is not None:
                self._drop_found_of(kept)
            yield

    def _drop_found_of(self, kept: deque[Record]) -> None:
        seen: set[Position] = set()
        for record in list(kept):
            broker = record.event.broker
            if broker is None:
                continue
            if _was_found(record.event) and broker.identity.position in seen:
                kept.remove(record)
                self._count -= 1
            seen.add(broker.identity.position)

    def _knows(self, key: GroupKey, event: Event) -> bool:
        brokers = (record.event.broker for record in self._events.get(key, ()))
        position = None if event.broker is None else event.broker.identity.position
        return any(broker is not None and broker.identity.position == position for broker in brokers)

    def of(self, broker_name: str, *, cluster: str = "") -> list[Record]:
        """Return the records of a broker name, oldest first; without a cluster, those of every cluster with that name.

        Events of the complete cluster are included, and restarts of this node since the first of these events. A name
        that had no event itself has none.
        """
        if cluster:
            keys = [GroupKey(cluster, broker_name)]
        else:
            keys = [key for key in self._events if key.broker_name == broker_name]
        known = [key for key in keys if key in self._events]
        wanted = {*known, *(GroupKey(key.cluster, "") for key in known)}
        found = [record for key in wanted for record in self._events.get(key, ())]
        first = min((record.order for record in found), default=None)
        if first is not None:
            found += (record for record in self._restarts if record.order > first)
        return sorted(found, key=lambda record: record.order)

    def names(self) -> list[GroupKey]:
        """Return the names with events, the one with the latest last; an empty broker name: the cluster itself."""
        return list(self._events)

    def own(self, key: GroupKey) -> tuple[Record, ...]:
        """Return the records of a name alone, oldest first, without those of its cluster and without restarts."""
        return tuple(self._events.get(key, ()))

    def latest(self, count: int, *, cluster: str = "") -> list[Record]:
        """Return the last ``count`` records of a cluster, or of all, oldest first. ``count`` must be at least 1."""
        found: list[tuple[tuple[int, int], Record]] = []
        for key in reversed(self._events):
            if cluster and key.cluster != cluster:
                continue
            kept = self._events[key]
            if len(found) == count and kept[-1].order < found[0][0]:
                break  # the names are in the order of their last events
            for record in reversed(kept):
                if len(found) < count:
                    heapq.heappush(found, (record.order, record))
                elif record.order > found[0][0]:
                    heapq.heapreplace(found, (record.order, record))
                else:
                    break
        return [record for _, record in sorted(found, key=lambda each: each[0])]


def _was_found(event: Event) -> bool:
    return event.kind is EventKind.CHECKPOINT and event.reason is Reason.START
