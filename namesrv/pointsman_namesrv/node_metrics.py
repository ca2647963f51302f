"""Every metric of the name server, with its meaning. No label takes its values from an unbounded set."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Collection, Iterable, Sequence

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

from pointsman.service.rpc.call_tallies import RPC_BUCKETS, CallMetrics, Tallies
from pointsman_namesrv.core.events import Event
from pointsman_namesrv.core.group import Group, Replica

WATCH_LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
DISK_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 10.0, 60.0)


class RemotingMetrics:
    """Of RocketMQ's own wire."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Tallies(
            "pointsman_namesrv_remoting_requests",
            "Requests over RocketMQ's wire, by code and by the answer's (closed: clients are sent elsewhere)",
            ["code", "result"],
            registry=registry,
        )
        self.connections = Gauge(
            "pointsman_namesrv_remoting_connections", "Open connections of RocketMQ's wire", registry=registry
        )
        self.closed = Counter(
            "pointsman_namesrv_remoting_connections_closed",
            "Connections that we closed: idle, elsewhere (warming or draining), limit, stopping, or what came in place "
            "of a frame (tls, http, proxy, length, form, header) or of TLS (plaintext, handshake: failed or too slow)",
            ["cause"],
            registry=registry,
        )
        self.topics_skipped = Counter(
            "pointsman_namesrv_remoting_topics_skipped",
            "Topics of registrations over RocketMQ's wire that were left out, for they break a rule",
            registry=registry,
        )


class Metrics:
    """One registry a process, so that tests run several servers side by side."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.build = Info("pointsman_namesrv_build", "Version of the running name server", registry=self.registry)
        self.ready = Gauge(
            "pointsman_namesrv_ready", "1 while this server answers route queries", registry=self.registry
        )
        self.brokers = Gauge(
            "pointsman_namesrv_brokers",
            "Registered brokers (replicas)",
            ["cluster", "state", "role"],
            registry=self.registry,
        )
        self._shown: set[tuple[str, str, str]] = set()
        self.topics = Gauge("pointsman_namesrv_topics", "Topics with a broker in the routes", registry=self.registry)
        self.events = Counter(
            "pointsman_namesrv_events",
            "Events, by name and reason as in the history",
            ["event", "reason"],
            registry=self.registry,
        )
        self.beats = Tallies(
            "pointsman_namesrv_heartbeats", "Heartbeats, by answer", ["result"], registry=self.registry
        )
        self.queue_stats = Counter(
            "pointsman_namesrv_queue_stats_reports",
            "Reports of queue statistics, by answer",
            ["result"],
            registry=self.registry,
        )
        self.calls = CallMetrics("pointsman_namesrv", self.registry)
        self.streams = Gauge("pointsman_namesrv_keep_alive_streams", "Open KeepAlive streams", registry=self.registry)
        self.route_answers_built = Counter(
            "pointsman_namesrv_route_answers_built",
            "Route answers built; all others were ready",
            registry=self.registry,
        )
        self.route_cache_bytes = Gauge(
            "pointsman_namesrv_route_cache_bytes", "Bytes of cached route answers", registry=self.registry
        )
        self.route_queries = Tallies(
            "pointsman_namesrv_route_queries",
            "Topics asked for, by answer: ok, unchanged, not_found, not_ready",
            ["result"],
            registry=self.registry,
        )
        self.limits_exceeded = Counter(
            "pointsman_namesrv_limits_exceeded",
            "Calls refused at a bound of this server",
            ["limit"],
            registry=self.registry,
        )
        self.remoting = RemotingMetrics(self.registry)
        self.watchers = Gauge("pointsman_namesrv_watchers", "Open route watches", registry=self.registry)
        self.watched_topics = Gauge(
            "pointsman_namesrv_watched_topics", "Topics of all open route watches together", registry=self.registry
        )
        self.watch_lag = Histogram(
            "pointsman_namesrv_watch_lag_seconds",
            "From finding a change to having written it to a watcher; a sample when there are many",
            buckets=WATCH_LAG_BUCKETS,
            registry=self.registry,
        )
        self.watch_coalesced = Counter(
            "pointsman_namesrv_watch_coalesced",
            "News that replaced news that a watcher had not read",
            registry=self.registry,
        )
        self.heartbeat_age = Gauge(
            "pointsman_namesrv_heartbeat_age_seconds",
            "Time since the last sign of life: median, 99th percentile and longest of all brokers; set at each sweep",
            ["quantile"],
            registry=self.registry,
        )
        self.guard_active = Gauge(
            "pointsman_namesrv_expiry_guard_active",
            "1 while the guard of a cluster keeps brokers in the routes, 2 when for longer than its limit",
            ["cluster"],
            registry=self.registry,
        )
        self._guarded: set[str] = set()
        self.loop_lag = Histogram(
            "pointsman_namesrv_event_loop_lag_seconds",
            "How late the event loop was, looked at twice a second",
            buckets=LAG_BUCKETS,
            registry=self.registry,
        )
        self.paused = Counter(
            "pointsman_namesrv_paused_seconds",
            "Time in which this process stood still and that was credited to all brokers",
            registry=self.registry,
        )
        self.sweep_seconds = Histogram(
            "pointsman_namesrv_sweep_duration_seconds",
            "Time of one sweep for silent brokers",
            buckets=RPC_BUCKETS,
            registry=self.registry,
        )
        self.history_rows = Counter(
            "pointsman_namesrv_history_rows", "Rows written to the history", registry=self.registry
        )
        self.history_dropped = Counter(
            "pointsman_namesrv_history_rows_dropped",
            "Rows lost: queue_full (the disk is too slow), disk (it refuses), fault (they are no JSON)",
            ["cause"],
            registry=self.registry,
        )
        for cause in ("queue_full", "disk", "fault"):
            self.history_dropped.labels(cause)
        self.history_bytes = Counter(
            "pointsman_namesrv_history_bytes",
            "Bytes written to the history, before they are packed",
            registry=self.registry,
        )
        self.history_fsync = Histogram(
            "pointsman_namesrv_history_fsync_seconds",
            "Time to bring what was appended to the disk",
            buckets=DISK_BUCKETS,
            registry=self.registry,
        )
        self.history_failing = Gauge(
            "pointsman_namesrv_history_failing", "1 while the history cannot be written", registry=self.registry
        )
        self.history_removed = Counter(
            "pointsman_namesrv_history_files_removed",
            "Files removed to keep retain_days (days) or retain_bytes (bytes; unshipped: it still waited for ship)",
            ["cause"],
            registry=self.registry,
        )
        self.history_shipped = Counter(
            "pointsman_namesrv_history_shipped",
            "Runs of the ship command by result (shipped, failed, timeout), and files given up",
            ["result"],
            registry=self.registry,
        )
        self.history_unshipped = Gauge(
            "pointsman_namesrv_history_unshipped_files",
            "Closed files that wait for the ship command",
            registry=self.registry,
        )
        self.history_queue = Gauge(
            "pointsman_namesrv_history_queue_rows", "Rows waiting to be written", registry=self.registry
        )
        self.history_queue_bytes = Gauge(
            "pointsman_namesrv_history_queue_bytes", "Memory held by them, estimated", registry=self.registry
        )
        self.snapshot_age = Gauge(
            "pointsman_namesrv_snapshot_age_seconds",
            "Time since the last moment that the snapshot on disk holds in full; 0 without one",
            registry=self.registry,
        )
        self.snapshot_brokers = Gauge(
            "pointsman_namesrv_snapshot_brokers",
            "Brokers in the snapshot on disk, those that were lost included",
            registry=self.registry,
        )
        self.snapshot_bytes = Gauge(
            "pointsman_namesrv_snapshot_bytes", "Bytes of the snapshot on disk", registry=self.registry
        )
        self.snapshot_errors = Counter(
            "pointsman_namesrv_snapshot_errors",
            "Rounds in which something of the snapshot could not be written",
            registry=self.registry,
        )
        self.settings_errors = Counter(
            "pointsman_namesrv_settings_errors",
            "Writes of operator settings that the disk refused or did not finish in time",
            registry=self.registry,
        )
        self.settings_refused = Counter(
            "pointsman_namesrv_settings_refused",
            "Operator settings, or whole databases of them, that were damaged or not valid at the start",
            registry=self.registry,
        )
        self.snapshot_refused = Counter(
            "pointsman_namesrv_snapshot_refused",
            "Brokers of the snapshot that were refused at the start, 1 for a damaged file",
            registry=self.registry,
        )

    def totals(self) -> dict[str, int]:
        """Counters that people watch as rates, by name."""
        counters = {
            "route_queries_total": self.route_queries,
            "heartbeats_total": self.beats,
            "events_total": self.events,
        }
        return {
            name: sum(
                int(sample.value)
                for metric in counter.collect()
                for sample in metric.samples
                if sample.name.endswith("_total")
            )
            for name, counter in counters.items()
        }

    def count_events(self, events: Iterable[Event]) -> None:
        """Count what happened."""
        for event in events:
            self.events.labels(event.kind, event.reason or "").inc()

    def show_ages(self, ages: Sequence[float]) -> None:
        """Set the ages of the last signs of life, seconds, sorted."""
        for quantile, share in (("0.5", 0.5), ("0.99", 0.99), ("1", 1.0)):
            self.heartbeat_age.labels(quantile).set(ages[min(len(ages) - 1, int(share * len(ages)))] if ages else 0.0)

    def show_guard(self, active: Collection[str], overdue: Collection[str], known: Collection[str]) -> None:
        """Set the guard's gauges: the clusters in which it is on, those in which for too long, and those there are."""
        for cluster in self._guarded - set(known):
            self.guard_active.remove(cluster)
        self._guarded = (self._guarded & set(known)) | set(active)
        for cluster in self._guarded:
            self.guard_active.labels(cluster).set((cluster in active) + (cluster in overdue))

    def show_brokers(self, members: Iterable[tuple[Group, Replica]]) -> None:
        """Set the broker gauges to what is now."""
        tally = Tally(
            (replica.identity.cluster, replica.state.phase, "slave" if replica.identity.broker_id else "master")
            for _, replica in members
        )
        # A scrape may come at any moment: it must never see fewer brokers than there are.
        for labels, count in tally.items():
            self.brokers.labels(*labels).set(count)
        for gone in self._shown - tally.keys():
            self.brokers.remove(*gone)
        self._shown = set(tally)
