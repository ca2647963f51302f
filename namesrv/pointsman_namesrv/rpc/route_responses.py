"""Responses to route queries, built once per change and not per call.

A response is current while no change has happened since the last check. After a change it is compared by the revision
counter of its topic and rebuilt only if that moved.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from dataclasses import dataclass

from pointsman.wire.refusals import refuse_if_any
from pointsman_namesrv.core.node_refusals import TopicNotFound
from pointsman_namesrv.core.request_rules import name_violations, text_violations
from pointsman_namesrv.core.route_table import RouteTable
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.rpc.route_codec import RouteResponse, route_response

ENTRY_OVERHEAD_BYTES = 450
"""Estimated size of entry, response, digest, key tuple and dictionary slot (sys.getsizeof)."""

_Key = tuple[str, str, str]


@dataclass(slots=True)
class _Entry:
    response: RouteResponse
    counter: int
    good_at_change: int
    size: int


class RouteResponses:
    """Responses by (topic, cluster, zone), the least recently used ones dropped above ``max_bytes``."""

    def __init__(
        self, routes: RouteTable, *, boot: int, max_bytes: int, metrics: Metrics, unix_offset: float = 0.0
    ) -> None:
        """``unix_offset``: from monotonic seconds to Unix time, for the times of absent brokers."""
        self.boot = boot
        """Identifies this run in every revision; random."""
        self._routes = routes
        self.unix_offset = unix_offset
        self._max_bytes = max_bytes
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self._bytes = 0
        self._count_built = metrics.route_answers_built.inc
        self._size = metrics.route_cache_bytes

    @property
    def bytes(self) -> int:
        """Return the estimated memory of the cached responses."""
        return self._bytes

    def current(self, topic: str, cluster: str = "", zone: str = "") -> RouteResponse:
        """Return the current response. Raises InvalidRequest for names outside the grammar, TopicNotFound."""
        key = (topic, cluster, zone)
        entry = self._entries.get(key)
        if entry is not None and self._is_good(entry, topic):
            self._entries.move_to_end(key)
            return entry.response
        return self._build(key)

    def _is_good(self, entry: _Entry, topic: str) -> bool:
        change = self._routes.change
        if entry.good_at_change == change:
            return True
        if self._routes.counter(topic) != entry.counter:
            return False
        entry.good_at_change = change
        return True

    def _build(self, key: _Key) -> RouteResponse:
        topic, cluster, zone = key
        self._drop(key)
        refuse_if_any(name_violations("topic", topic))
        if cluster:
            refuse_if_any(name_violations("cluster", cluster))
        refuse_if_any(text_violations("zone", zone))
        route = self._routes.current(topic, cluster=cluster, zone=zone)
        response = route_response(route, boot=self.boot, unix_offset=self.unix_offset)
        size = len(response.route) + len(response.unchanged) + sum(map(sys.getsizeof, key)) + ENTRY_OVERHEAD_BYTES
        self._count_built()
        self._keep(key, _Entry(response, route.counter, self._routes.change, size))
        return response

    def _keep(self, key: _Key, entry: _Entry) -> None:
        self._entries[key] = entry
        self._bytes += entry.size
        while self._bytes > self._max_bytes and self._entries:
            _, dropped = self._entries.popitem(last=False)
            self._bytes -= dropped.size
        self._size.set(self._bytes)

    def _drop(self, key: _Key) -> None:
        stale = self._entries.pop(key, None)
        if stale is not None:
            self._bytes -= stale.size
            self._size.set(self._bytes)

    def check_invariants(self) -> None:
        """Compare the cached responses with new ones; for tests."""
        assert self._bytes == sum(entry.size for entry in self._entries.values()) <= self._max_bytes  # noqa: S101
        for key, entry in self._entries.items():
            if self._is_good(entry, key[0]):
                try:
                    fresh = self._routes.current(key[0], cluster=key[1], zone=key[2])
                except TopicNotFound:
                    raise AssertionError(f"{key} is cached, but the topic does not exist") from None
                response = route_response(fresh, boot=self.boot, unix_offset=self.unix_offset)
                assert entry.response == response  # noqa: S101
