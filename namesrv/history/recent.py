"""The last events of each broker name, in memory, for the person who asks why."""

from __future__ import annotations

from collections import OrderedDict, deque

from namesrv.core.model import GroupKey
from namesrv.history.row import Record


class RecentEvents:
    """At most ``per_broker`` events of at most ``brokers`` names; the name longest without an event goes first."""

    def __init__(self, *, per_broker: int = 50, brokers: int = 20_000) -> None:
        self._per_broker = per_broker
        self._brokers = brokers
        self._events: OrderedDict[GroupKey, deque[Record]] = OrderedDict()

    def add(self, record: Record) -> None:
        """Keep a record that is about a broker."""
        if record.event.broker is None:
            return
        key = record.event.broker.identity.group_key
        kept = self._events.setdefault(key, deque(maxlen=self._per_broker))
        kept.append(record)
        self._events.move_to_end(key)
        if len(self._events) > self._brokers:
            self._events.popitem(last=False)

    def of(self, broker_name: str, *, cluster: str = "") -> list[Record]:
        """Records of a broker name, oldest first; without a cluster, those of every cluster that has the name."""
        if cluster:
            return list(self._events.get(GroupKey(cluster, broker_name), ()))
        found = [record for key, kept in self._events.items() if key.broker_name == broker_name for record in kept]
        return sorted(found, key=lambda record: record.seq)
