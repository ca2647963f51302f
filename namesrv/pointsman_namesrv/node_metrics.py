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

from pointsman.daemon.rpc.call_tallies import RPC_BUCKETS, CallMetrics, Tallies
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.group import Group, Replica
from pointsman_namesrv.core.model import Reason

WATCH_LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
DISK_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
PAST_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
OUTAGES = (
    (EventKind.EXPIRED, Reason.SILENCE),
    (EventKind.EXPIRED, Reason.STREAM_BROKEN),
    (EventKind.PROBE_FAILED, Reason.PROBE),
    (EventKind.PROBE_FAILED, Reason.REFUSED),
)
LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 10.0, 60.0)


class RemotingMetrics:
    """Metrics of RocketMQ's own wire."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Tallies(
            "pointsman_namesrv_remoting_requests",
            "Requests on the remoting port, by request code and response code (closed: the node was not READY)",
            ["code", "result"],
            registry=registry,
        )
        self.connections = Gauge(
            "pointsman_namesrv_remoting_connections", "Open connections on the remoting port", registry=registry
        )
        self.closed = Counter(
            "pointsman_namesrv_remoting_connections_closed",
            "Connections on the remoting port closed by the server, by cause: idle, not_serving, limit, slow, error, "
            "denied, stopping, or what arrived instead of a valid frame (tls, http, proxy, length, encoding, header) "
            "or TLS handshake (plaintext, handshake)",
            ["cause"],
            registry=registry,
        )
        self.topics_skipped = Counter(
            "pointsman_namesrv_remoting_topics_skipped",
            "Topics skipped in registrations on the remoting port because they violate a rule",
            registry=registry,
        )


class PastMetrics:
    """Metrics of questions about the past."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.questions = Counter(
            "pointsman_namesrv_past_questions",
            "Queries of the past, by kind and outcome: completed, too_large, failed, refused (too many waited)",
            ["kind", "outcome"],
            registry=registry,
        )
        self.seconds = Histogram(
            "pointsman_namesrv_past_question_seconds",
            "Duration of a query of the past, without waiting for others",
            buckets=PAST_BUCKETS,
            registry=registry,
        )
        self.worker_starts = Counter(
            "pointsman_namesrv_past_worker_starts",
            "Starts of the worker process for queries of the past",
            registry=registry,
        )


class Metrics:
    """One registry per process object, so that tests run several servers side by side."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for of_process in (ProcessCollector, PlatformCollector, GCCollector):
            of_process(registry=self.registry)
        self.build = Info("pointsman_namesrv_build", "Version of the running name server", registry=self.registry)
        self.ready = Gauge(
            "pointsman_namesrv_ready", "1 while the node is READY and serves route queries", registry=self.registry
        )
        self.brokers = Gauge(
            "pointsman_namesrv_brokers",
            "Registered broker replicas, by cluster, state and role",
            ["cluster", "state", "role"],
            registry=self.registry,
        )
        self._shown: set[tuple[str, str, str]] = set()
        self.address_conflicts = Gauge(
            "pointsman_namesrv_address_conflicts",
            "Addresses that several registered brokers have",
            registry=self.registry,
        )
        self.topics = Gauge(
            "pointsman_namesrv_topics", "Topics with at least one routed broker", registry=self.registry
        )
        self.events = Counter(
            "pointsman_namesrv_events",
            "Broker and node events, by event name and reason as in the history",
            ["event", "reason"],
            registry=self.registry,
        )
        self.beats = Tallies(
            "pointsman_namesrv_heartbeats", "Heartbeats received, by result", ["result"], registry=self.registry
        )
        self.queue_stats = Counter(
            "pointsman_namesrv_queue_stats_reports",
            "Queue statistics reports received, by result",
            ["result"],
            registry=self.registry,
        )
        self.live_queues = Counter(
            "pointsman_namesrv_live_queue_reports",
            "Measurements of a broker's queues received with heartbeats, by result: kept, too_large (alone or with all "
            "others), invalid (found when it was requested)",
            ["result"],
            registry=self.registry,
        )
        self.calls = CallMetrics("pointsman_namesrv", self.registry)
        self.streams = Gauge("pointsman_namesrv_keep_alive_streams", "Open KeepAlive streams", registry=self.registry)
        self.route_answers_built = Counter(
            "pointsman_namesrv_route_responses_built",
            "Route responses built; all others came from the cache",
            registry=self.registry,
        )
        self.route_cache_bytes = Gauge(
            "pointsman_namesrv_route_cache_bytes", "Size of the cached route responses", registry=self.registry
        )
        self.route_queries = Tallies(
            "pointsman_namesrv_route_queries",
            "Route lookups by result: ok, unchanged, not_found, not_ready",
            ["result"],
            registry=self.registry,
        )
        self.limits_exceeded = Counter(
            "pointsman_namesrv_limits_exceeded",
            "Calls rejected because a limit was reached, by limit",
            ["limit"],
            registry=self.registry,
        )
        self.remoting = RemotingMetrics(self.registry)
        self.watchers = Gauge("pointsman_namesrv_watchers", "Open route watches", registry=self.registry)
        self.watched_topics = Gauge(
            "pointsman_namesrv_watched_topics", "Topics watched by all open route watches", registry=self.registry
        )
        self.watch_lag = Histogram(
            "pointsman_namesrv_watch_lag_seconds",
            "Delay from a route change to its push to a watcher (sampled)",
            buckets=WATCH_LAG_BUCKETS,
            registry=self.registry,
        )
        self.watch_coalesced = Counter(
            "pointsman_namesrv_watch_changes_coalesced",
            "Route changes merged before a slow watcher read them",
            registry=self.registry,
        )
        self.heartbeat_age = Gauge(
            "pointsman_namesrv_heartbeat_age_seconds",
            "Age of the last heartbeat of all brokers: p50, p99 and maximum",
            ["quantile"],
            registry=self.registry,
        )
        self.flapping = Gauge(
            "pointsman_namesrv_flapping_brokers",
            "Brokers whose flap penalty exceeded 3,000 and is not below 1,000 yet",
            registry=self.registry,
        )
        self.guard_active = Gauge(
            "pointsman_namesrv_expiry_guard_active",
            "Expiry guard by cluster: 0 off, 1 on, 2 on for longer than guard.limit_seconds",
            ["cluster"],
            registry=self.registry,
        )
        self._guarded: set[str] = set()
        self.peer_equal = Gauge(
            "pointsman_namesrv_peer_equal",
            "1 if routes and settings equal those of the peer, 0 if they differ, NaN while the peer is unreachable",
            ["peer"],
            registry=self.registry,
        )
        self.loop_lag = Histogram(
            "pointsman_namesrv_event_loop_lag_seconds",
            "Event loop lag, sampled twice per second",
            buckets=LAG_BUCKETS,
            registry=self.registry,
        )
        self.paused = Counter(
            "pointsman_namesrv_paused_seconds",
            "Time for which this process was stalled; broker expiry deadlines are extended by the same time",
            registry=self.registry,
        )
        self.sweep_seconds = Histogram(
            "pointsman_namesrv_sweep_duration_seconds",
            "Duration of one sweep for expired brokers",
            buckets=RPC_BUCKETS,
            registry=self.registry,
        )
        self.history_rows = Counter("pointsman_namesrv_history_rows", "History rows written", registry=self.registry)
        self.history_dropped = Counter(
            "pointsman_namesrv_history_rows_dropped",
            "History rows dropped, by cause: queue_full, disk (write failed), invalid (not JSON)",
            ["cause"],
            registry=self.registry,
        )
        self.history_bytes = Counter(
            "pointsman_namesrv_history_bytes",
            "History bytes written, before compression",
            registry=self.registry,
        )
        self.history_fsync = Histogram(
            "pointsman_namesrv_history_fsync_duration_seconds",
            "Duration of an fsync of the history file",
            buckets=DISK_BUCKETS,
            registry=self.registry,
        )
        self.history_failing = Gauge(
            "pointsman_namesrv_history_failing", "1 while the history cannot be written to disk", registry=self.registry
        )
        self.history_removed = Counter(
            "pointsman_namesrv_history_files_removed",
            "History files removed by retention, by cause: days, bytes, unshipped (bytes, before they were shipped)",
            ["cause"],
            registry=self.registry,
        )
        self.history_shipped = Counter(
            "pointsman_namesrv_history_ship_runs",
            "Runs of the ship command, by result: shipped, failed, timeout; given_up counts files not retried",
            ["result"],
            registry=self.registry,
        )
        self.history_unshipped = Gauge(
            "pointsman_namesrv_history_unshipped_files",
            "Closed history files not shipped yet",
            registry=self.registry,
        )
        self.history_queue = Gauge(
            "pointsman_namesrv_history_queue_rows", "History rows queued for the disk", registry=self.registry
        )
        self.history_queue_bytes = Gauge(
            "pointsman_namesrv_history_queue_bytes",
            "Estimated memory of the queued history rows",
            registry=self.registry,
        )
        self.snapshot_age = Gauge(
            "pointsman_namesrv_snapshot_age_seconds",
            "Age of the snapshot on disk; 0 without a snapshot",
            registry=self.registry,
        )
        self.snapshot_brokers = Gauge(
            "pointsman_namesrv_snapshot_brokers",
            "Brokers in the snapshot on disk, departed ones included",
            registry=self.registry,
        )
        self.snapshot_bytes = Gauge(
            "pointsman_namesrv_snapshot_bytes", "Size of the snapshot on disk", registry=self.registry
        )
        self.snapshot_errors = Counter(
            "pointsman_namesrv_snapshot_write_errors",
            "Snapshot writes that failed",
            registry=self.registry,
        )
        self.settings_errors = Counter(
            "pointsman_namesrv_settings_write_errors",
            "Writes of operator settings that failed or timed out",
            registry=self.registry,
        )
        self.settings_refused = Counter(
            "pointsman_namesrv_settings_rejected",
            "Operator settings rejected at the start because they were damaged or invalid",
            registry=self.registry,
        )
        self.snapshot_refused = Counter(
            "pointsman_namesrv_snapshot_rejected",
            "Snapshot brokers rejected at the start; 1 for a damaged file",
            registry=self.registry,
        )

        self._define_read_back()
        self._begin_at_zero()

    def _define_read_back(self) -> None:
        self.history_read_back_rows = Gauge(
            "pointsman_namesrv_history_read_back_rows",
            "History rows of earlier runs read at the start",
            registry=self.registry,
        )
        self.history_read_back_files = Gauge(
            "pointsman_namesrv_history_read_back_files",
            "History files of earlier runs at the start, by result: read, damaged, huge, removed, other_node",
            ["result"],
            registry=self.registry,
        )
        self.history_read_back_seconds = Gauge(
            "pointsman_namesrv_history_read_back_seconds",
            "Duration of reading the history of earlier runs at the start; 0 while it is being read",
            registry=self.registry,
        )

    def _begin_at_zero(self) -> None:
        """Show counters with alerts from the start: the increase of a counter that begins at 1 is 0."""
        for kind, reason in OUTAGES:
            self.events.labels(kind, reason)
        for cause in ("queue_full", "disk", "invalid"):
            self.history_dropped.labels(cause)
        for cause in ("days", "bytes", "unshipped"):
            self.history_removed.labels(cause)

    def totals(self) -> dict[str, int]:
        """Return the counters that operators read as rates, by name."""
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
        """Count events."""
        for event in events:
            self.events.labels(event.kind, event.reason or "").inc()

    def show_ages(self, ages: Sequence[float]) -> None:
        """Set the ages of the last heartbeats, seconds, sorted."""
        for quantile, share in (("0.5", 0.5), ("0.99", 0.99), ("1", 1.0)):
            self.heartbeat_age.labels(quantile).set(ages[min(len(ages) - 1, int(share * len(ages)))] if ages else 0.0)

    def show_guard(self, active: Collection[str], overdue: Collection[str], known: Collection[str]) -> None:
        """Set the guard's gauges: clusters in which it is on, in which it is overdue, and which have any."""
        for cluster in self._guarded - set(known):
            self.guard_active.remove(cluster)
        self._guarded = (self._guarded & set(known)) | set(active)
        for cluster in self._guarded:
            self.guard_active.labels(cluster).set((cluster in active) + (cluster in overdue))

    def show_brokers(self, members: Iterable[tuple[Group, Replica]]) -> None:
        """Set the broker gauges to the current state."""
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
