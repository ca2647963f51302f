"""The last events of each broker name, in memory, for operators who ask why something happened."""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque

from pointsman_namesrv.core.events import EventKind
from pointsman_namesrv.core.model import GroupKey, Reason
from pointsman_namesrv.history.row import Record

ROUTINE = frozenset(
    {EventKind.HEARTBEAT, EventKind.HEARTBEATS, EventKind.TOPICS, EventKind.CHECKPOINT, EventKind.QUEUE_STATS}
)
"""Routine or large events. They would displace the rows that explain a change."""


class RecentEvents:
    """At most ``per_broker`` events of a name and ``in_all`` in total; the name longest without an event is dropped
    first.

    An event with the objects that it refers to takes about 600 bytes.
    """

    def __init__(self, *, per_broker: int = 50, in_all: int = 100_000) -> None:
        self._per_broker = per_broker
        self._in_all = in_all
        self._count = 0
        self._events: OrderedDict[GroupKey, deque[Record]] = OrderedDict()

    def add(self, record: Record) -> None:
        """Store a record that is about a broker, a broker name or a cluster, unless it is routine.

        What a restarted server found in its snapshot is not routine: for a broker that stays absent there is nothing
        else.
        """
        event = record.event
        key = event.broker.identity.group_key if event.broker is not None else event.group
        was_found = event.kind is EventKind.CHECKPOINT and event.reason is Reason.START
        if key is None or (event.kind in ROUTINE and not was_found):
            return
        kept = self._events.setdefault(key, deque(maxlen=self._per_broker))
        self._count += len(kept) < self._per_broker
        kept.append(record)
        self._events.move_to_end(key)
        while self._count > self._in_all:
            _, oldest = self._events.popitem(last=False)
            self._count -= len(oldest)

    def of(self, broker_name: str, *, cluster: str = "") -> list[Record]:
        """Return the records of a broker name, oldest first; without a cluster, those of every cluster with that name.

        Events of the complete cluster are included. A name that had no event itself has none.
        """
        if cluster:
            keys = [GroupKey(cluster, broker_name)]
        else:
            keys = [key for key in self._events if key.broker_name == broker_name]
        known = [key for key in keys if key in self._events]
        wanted = {*known, *(GroupKey(key.cluster, "") for key in known)}
        found = [record for key in wanted for record in self._events.get(key, ())]
        return sorted(found, key=lambda record: record.seq)

    def latest(self, count: int, *, cluster: str = "") -> list[Record]:
        """Return the last ``count`` records of a cluster, or of all, oldest first. ``count`` must be at least 1."""
        found: list[tuple[int, Record]] = []
        for key in reversed(self._events):
            if cluster and key.cluster != cluster:
                continue
            kept = self._events[key]
            if len(found) == count and kept[-1].seq < found[0][0]:
                break  # the names are in the order of their last events
            for record in reversed(kept):
                if len(found) < count:
                    heapq.heappush(found, (record.seq, record))
                elif record.seq > found[0][0]:
                    heapq.heapreplace(found, (record.seq, record))
                else:
                    break
        return [record for _, record in sorted(found, key=lambda each: each[0])]
