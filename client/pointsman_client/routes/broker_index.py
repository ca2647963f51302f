"""The brokers of all cached routes: who they are, and which addresses no route has any more. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

from pointsman_client.route import BrokerData, BrokerKey, TopicRoute

KeyT = TypeVar("KeyT", BrokerKey, str)


class BrokerIndex:
    """Follows the cached routes. Of a group that stands in several routes the one heard of last counts."""

    def __init__(self) -> None:
        self._groups: dict[BrokerKey, BrokerData] = {}
        self._routes_with: Counter[BrokerKey] = Counter()
        self._routes_naming: Counter[str] = Counter()
        self._gone: set[str] = set()

    def replace(self, old: TopicRoute | None, new: TopicRoute | None) -> None:
        """Take ``new`` for ``old``; None: none was cached, or none is any more."""
        for data in new.broker_datas if new is not None else ():
            self._groups[data.key] = data
            self._routes_with[data.key] += 1
            for replica in data.replicas:
                self._routes_naming[replica.addr] += 1
                self._gone.discard(replica.addr)
        for data in old.broker_datas if old is not None else ():
            if _falls_to_nothing(self._routes_with, data.key):
                del self._groups[data.key]
            for replica in data.replicas:
                if _falls_to_nothing(self._routes_naming, replica.addr):
                    self._gone.add(replica.addr)

    def confirm(self, route: TopicRoute) -> None:
        """Note that a cached route is still what it was: its groups were heard of last."""
        for data in route.broker_datas:
            self._groups[data.key] = data

    def find(self, cluster: str, broker_name: str) -> BrokerData | None:
        """Return a group that some cached route has."""
        return self._groups.get((cluster, broker_name))

    def of_routes(self, routes: Iterable[TopicRoute]) -> tuple[BrokerData, ...]:
        """Return the groups of these cached routes, each once, sorted by cluster and name."""
        keys = {data.key for route in routes for data in route.broker_datas}
        return tuple(self._groups[key] for key in sorted(keys))

    def take_gone(self) -> tuple[str, ...]:
        """Return the addresses of brokers that no cached route has any more; each is told once."""
        gone, self._gone = tuple(sorted(self._gone)), set()
        return gone


def _falls_to_nothing(counts: Counter[KeyT], key: KeyT) -> bool:
    counts[key] -= 1
    if counts[key]:
        return False
    del counts[key]
    return True
