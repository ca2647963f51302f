"""Every metric of the name server, with its meaning. No label takes its values from an unbounded set."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
)

from namesrv.core.events import Event
from namesrv.core.group import Group, Replica

RPC_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


class Metrics:
    """One registry a process, so that tests run several servers side by side."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.build = Info("namesrv_build", "Version of the running name server", registry=self.registry)
        self.ready = Gauge("namesrv_ready", "1 while this server answers route queries", registry=self.registry)
        self.brokers = Gauge(
            "namesrv_brokers", "Registered brokers (replicas)", ["cluster", "state", "role"], registry=self.registry
        )
        self._shown: set[tuple[str, str, str]] = set()
        self.topics = Gauge("namesrv_topics", "Topics with a broker in the routes", registry=self.registry)
        self.events = Counter(
            "namesrv_events",
            "Events, by name and reason as in the history",
            ["event", "reason"],
            registry=self.registry,
        )
        self.beats = Counter("namesrv_heartbeats", "Heartbeats, by answer", ["result"], registry=self.registry)
        self.rpcs = Counter("namesrv_rpcs", "Finished calls", ["method", "code"], registry=self.registry)
        self.rpc_seconds = Histogram(
            "namesrv_rpc_duration_seconds",
            "Time in the handler of an answered unary call",
            ["method"],
            buckets=RPC_BUCKETS,
            registry=self.registry,
        )
        self.streams = Gauge("namesrv_keep_alive_streams", "Open KeepAlive streams", registry=self.registry)
        self.route_answers = Counter(
            "namesrv_route_answers", "Route answers sent from the cache or built", ["source"], registry=self.registry
        )
        self.route_cache_bytes = Gauge(
            "namesrv_route_cache_bytes", "Bytes of cached route answers", registry=self.registry
        )
        self.sweep_seconds = Histogram(
            "namesrv_sweep_duration_seconds",
            "Time of one sweep for silent brokers",
            buckets=RPC_BUCKETS,
            registry=self.registry,
        )
        self.history_rows = Counter("namesrv_history_rows", "Rows written to the history", registry=self.registry)
        self.history_dropped = Counter(
            "namesrv_history_rows_dropped",
            "Rows lost because the queue was full or the disk refused",
            registry=self.registry,
        )
        self.history_queue = Gauge("namesrv_history_queue_rows", "Rows waiting to be written", registry=self.registry)

    def count_events(self, events: Iterable[Event]) -> None:
        """Count what happened."""
        for event in events:
            self.events.labels(event.kind, event.reason or "").inc()

    def show_brokers(self, members: Iterable[tuple[Group, Replica]]) -> None:
        """Set the broker gauges to what is now."""
        tally = Tally(
            (replica.identity.cluster, replica.state.value, "slave" if replica.identity.broker_id else "master")
            for _, replica in members
        )
        # A scrape may come at any moment: it must never see fewer brokers than there are.
        for labels, count in tally.items():
            self.brokers.labels(*labels).set(count)
        for labels in self._shown - tally.keys():
            self.brokers.remove(*labels)
        self._shown = set(tally)
