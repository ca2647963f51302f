"""All metrics of the client with their labels, for every metrics library."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Protocol

from pointsman.clock import Clock
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.metrics_hook import MetricsHook

PREFIX = "pointsman_client_"
SEND_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
PULL_BUCKETS = (0.001, 0.01, 0.1, 1.0, 5.0, 10.0, 20.0, 30.0)
TRIES_BUCKETS = (1, 2, 3, 5, 10)

GROUP_AND_TOPIC = ("group", "topic")
BROKER = ("cluster", "broker_name")
QUEUE = ("topic", "cluster", "broker_name", "queue_id")


class _Adds(Protocol):
    def inc(self, amount: float = 1) -> None: ...


class _Sets(Protocol):
    def set(self, value: float) -> None: ...


class _Observes(Protocol):
    def observe(self, amount: float) -> None: ...


class Counter(Protocol):
    """A number that rises, one for each combination of labels."""

    def labels(self, *values: object) -> _Adds:
        """Return the one with these values."""
        ...


class Gauge(Protocol):
    """A current number, one for each combination of labels."""

    def labels(self, *values: object) -> _Sets:
        """Return the one with these values."""
        ...


class Distribution(Protocol):
    """Numbers that are counted and added up, for each combination of labels."""

    def labels(self, *values: object) -> _Observes:
        """Return the one with these values."""
        ...


class Ages:
    """Elapsed times, computed when they are read."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[tuple[str, ...], float] = {}
        """By label values: monotonic seconds."""

    def note(self, values: tuple[str, ...], since: float | None) -> None:
        """Set since when there is what is measured; None: there is none."""
        if since is None:
            self._since.pop(values, None)
        else:
            self._since[values] = since

    def seconds(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """Yield the label values of each with its age, sorted. May be called on any thread."""
        now = self._clock.monotonic()
        for values, at in sorted(self._since.copy().items()):
            yield values, max(0.0, now - at)


class LabelledMetrics(MetricsHook):
    """All metrics of the client. A subclass makes the instruments; names have no prefix."""

    def __init__(self) -> None:
        self._sends = self._counter("sends", "Finished sends, by send status or error code", "topic", "outcome")
        self._send_seconds = self._histogram(
            "send_duration_seconds", "Duration of a send with all its tries", SEND_BUCKETS, "topic"
        )
        self._tries_per_send = self._histogram("tries_per_send", "Tries per send", TRIES_BUCKETS, "topic")
        self._tries = self._counter("send_tries", "Tries of sends, by send status or error code", *BROKER, "outcome")
        self._try_seconds = self._histogram(
            "send_try_duration_seconds", "Duration of one try at a broker", SEND_BUCKETS, *BROKER
        )
        self._queue_try_seconds = self._summary("send_queue_duration_seconds", "Duration of one try, by queue", *QUEUE)
        self._isolations = self._counter("isolations", "Isolations of a broker after slow or failed sends", *BROKER)
        self._isolation_seconds = self._counter(
            "isolation_seconds", "Time for which a broker was isolated; overlaps count twice", *BROKER
        )
        self._isolation_hits = self._counter(
            "isolation_skips", "Queues skipped because their broker was isolated", *BROKER
        )
        self._parked = self._gauge("outbox_messages", "Messages in the outbox, not sent yet", "topic")
        self._transactions = self._counter(
            "transactions",
            "Ended transactions, by state (COMMIT, ROLLBACK, UNKNOWN, UNCONFIRMED) and what ended them (block, check)",
            "topic",
            "state",
            "ended_by",
        )
        self._consumed = self._counter(
            "listener_calls",
            "Finished listener calls, by result: success, later, raised, timeout, rejected",
            *GROUP_AND_TOPIC,
            "result",
        )
        self._consume_seconds = self._summary(
            "listener_duration_seconds", "Duration of listener calls, by queue", "group", *QUEUE
        )
        self._pulled = self._counter("pulled_messages", "Messages pulled from brokers", *GROUP_AND_TOPIC)
        self._pull_seconds = self._histogram(
            "pull_duration_seconds",
            "Duration of a pull, including its wait at the broker",
            PULL_BUCKETS,
            *GROUP_AND_TOPIC,
        )
        self._pull_failures = self._counter("pull_failures", "Failed pulls, by error code", *GROUP_AND_TOPIC, "code")
        self._trimmed = self._counter(
            "trimmed_messages", "Messages removed at the broker before the group read them", *GROUP_AND_TOPIC
        )
        self._filtered = self._counter(
            "filtered_messages",
            "Messages skipped because their tag does not match the subscription",
            *GROUP_AND_TOPIC,
        )
        self._acknowledged = self._counter(
            "acknowledged_messages",
            "Leased messages acknowledged, by result: ok, or the code of the error",
            *GROUP_AND_TOPIC,
            "result",
        )
        self._sent_back = self._counter(
            "sent_back",
            "Messages sent back after a failed listener call, by destination: retry, dlq",
            *GROUP_AND_TOPIC,
            "destination",
        )
        self._rebalances = self._counter("rebalances", "Rebalances, by trigger", *GROUP_AND_TOPIC, "trigger")
        self._lost_locks = self._counter(
            "lost_locks", "Locks of ordered queues that expired without a renewal", *GROUP_AND_TOPIC
        )
        self._queues_held = self._gauge("queues_held", "Queues assigned to this consumer", *GROUP_AND_TOPIC)
        self._idle = self._gauge(
            "idle_member",
            "1 while no queue is assigned to this consumer although the topic has queues; the log has the reason",
            *GROUP_AND_TOPIC,
        )
        self._aside = self._gauge(
            "standing_aside",
            "1 while this consumer holds no queues because its settings differ from those of its group's oldest member",
            "group",
        )
        self._commits = self._counter(
            "offset_commits", "Finished offset commits, by ok or error code", "group", "result"
        )
        self._committed_queues = self._counter(
            "committed_queues", "Queues in finished offset commits, by ok or error code", "group", "result"
        )
        self._name_server_failures = self._counter(
            "name_server_failures", "Calls to a name server without a usable response", "addr"
        )
        self._name_server_list_reads = self._counter(
            "name_server_list_reads",
            "Reads of the list of name servers at an address server, by result: ok, failed",
            "result",
        )
        self._credential_reloads = self._counter(
            "credential_reloads", "Reloads of the credential files, by result: applied, rejected", "result"
        )
        self._route_ages = self._ages(
            "route_age_seconds", "Time since a name server last confirmed the route of a topic", "topic"
        )
        self._blocked = self._ages(
            "blocked_queue_seconds", "Time for which a failing message has blocked an ordered queue", "group", *QUEUE
        )
        self._running = self._ages(
            "listener_call_running_seconds",
            "Time for which the oldest listener call of a queue has run; only of 5 s and more",
            "group",
            *QUEUE,
        )

    def sent(self, *, topic: str, outcome: str, seconds: float, tries: int) -> None:
        """See :class:`MetricsHook`."""
        self._sends.labels(topic, outcome).inc()
        self._send_seconds.labels(topic).observe(seconds)
        self._tries_per_send.labels(topic).observe(tries)

    def send_tried(self, *, queue: MessageQueue, outcome: str, seconds: float) -> None:
        """See :class:`MetricsHook`."""
        self._tries.labels(queue.cluster, queue.broker_name, outcome).inc()
        self._try_seconds.labels(queue.cluster, queue.broker_name).observe(seconds)
        place = (queue.topic, queue.cluster, queue.broker_name, queue.queue_id)
        self._queue_try_seconds.labels(*place).observe(seconds)

    def isolated(self, *, cluster: str, broker_name: str, seconds: float) -> None:
        """See :class:`MetricsHook`."""
        self._isolations.labels(cluster, broker_name).inc()
        self._isolation_seconds.labels(cluster, broker_name).inc(seconds)

    def isolation_hit(self, *, cluster: str, broker_name: str) -> None:
        """See :class:`MetricsHook`."""
        self._isolation_hits.labels(cluster, broker_name).inc()

    def parked(self, *, topic: str, waiting: int) -> None:
        """See :class:`MetricsHook`."""
        self._parked.labels(topic).set(waiting)

    def transaction_ended(self, *, topic: str, state: str, is_checked: bool) -> None:
        """See :class:`MetricsHook`."""
        self._transactions.labels(topic, state, "check" if is_checked else "block").inc()

    def consumed(self, *, group: str, queue: MessageQueue, result: str, seconds: float) -> None:
        """See :class:`MetricsHook`."""
        self._consumed.labels(group, queue.topic, result).inc()
        place = (group, queue.topic, queue.cluster, queue.broker_name, queue.queue_id)
        self._consume_seconds.labels(*place).observe(seconds)

    def queue_blocked(self, *, group: str, queue: MessageQueue, since: float | None) -> None:
        """See :class:`MetricsHook`."""
        self._blocked.note(_place(group, queue), since)

    def call_running(self, *, group: str, queue: MessageQueue, since: float | None) -> None:
        """See :class:`MetricsHook`."""
        self._running.note(_place(group, queue), since)

    def pulled(self, *, group: str, queue: MessageQueue, messages: int, seconds: float) -> None:
        """See :class:`MetricsHook`."""
        self._pulled.labels(group, queue.topic).inc(messages)
        self._pull_seconds.labels(group, queue.topic).observe(seconds)

    def pull_failed(self, *, group: str, queue: MessageQueue, code: str) -> None:
        """See :class:`MetricsHook`."""
        self._pull_failures.labels(group, queue.topic, code).inc()

    def trimmed(self, *, group: str, queue: MessageQueue, messages: int) -> None:
        """See :class:`MetricsHook`."""
        self._trimmed.labels(group, queue.topic).inc(messages)

    def filtered(self, *, group: str, queue: MessageQueue, messages: int) -> None:
        """See :class:`MetricsHook`."""
        self._filtered.labels(group, queue.topic).inc(messages)

    def acknowledged(self, *, group: str, topic: str, messages: int, result: str) -> None:
        """See :class:`MetricsHook`."""
        self._acknowledged.labels(group, topic, result).inc(messages)

    def sent_back(self, *, group: str, topic: str, destination: str) -> None:
        """See :class:`MetricsHook`."""
        self._sent_back.labels(group, topic, destination).inc()

    def rebalanced(self, *, group: str, topic: str, trigger: str) -> None:
        """See :class:`MetricsHook`."""
        self._rebalances.labels(group, topic, trigger).inc()

    def lock_lost(self, *, group: str, queue: MessageQueue) -> None:
        """See :class:`MetricsHook`."""
        self._lost_locks.labels(group, queue.topic).inc()

    def queues_held(self, *, group: str, topic: str, count: int) -> None:
        """See :class:`MetricsHook`."""
        self._queues_held.labels(group, topic).set(count)

    def idle_member(self, *, group: str, topic: str, is_idle: bool) -> None:
        """See :class:`MetricsHook`."""
        self._idle.labels(group, topic).set(is_idle)

    def standing_aside(self, *, group: str, is_aside: bool) -> None:
        """See :class:`MetricsHook`."""
        self._aside.labels(group).set(is_aside)

    def offsets_committed(self, *, group: str, queues: int, result: str) -> None:
        """See :class:`MetricsHook`."""
        self._commits.labels(group, result).inc()
        self._committed_queues.labels(group, result).inc(queues)

    def name_server_failed(self, *, addr: str) -> None:
        """See :class:`MetricsHook`."""
        self._name_server_failures.labels(addr).inc()

    def name_server_list_read(self, *, result: str) -> None:
        """See :class:`MetricsHook`."""
        self._name_server_list_reads.labels(result).inc()

    def credentials_reloaded(self, *, result: str) -> None:
        """See :class:`MetricsHook`."""
        self._credential_reloads.labels(result).inc()

    def route_confirmed(self, *, topic: str, at: float) -> None:
        """See :class:`MetricsHook`."""
        self._route_ages.note((topic,), at)

    def route_dropped(self, *, topic: str) -> None:
        """See :class:`MetricsHook`."""
        self._route_ages.note((topic,), None)

    @abstractmethod
    def _counter(self, name: str, meaning: str, *labels: str) -> Counter: ...

    @abstractmethod
    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge: ...

    @abstractmethod
    def _histogram(self, name: str, meaning: str, buckets: Sequence[float], *labels: str) -> Distribution: ...

    @abstractmethod
    def _summary(self, name: str, meaning: str, *labels: str) -> Distribution: ...

    @abstractmethod
    def _ages(self, name: str, meaning: str, *labels: str) -> Ages: ...


def _place(group: str, queue: MessageQueue) -> tuple[str, ...]:
    return group, queue.topic, queue.cluster, queue.broker_name, str(queue.queue_id)
