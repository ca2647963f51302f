"""Metrics of queues. Only the top queues have labels; a queue that leaves the top is removed from the metrics."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge

from pointsman_agent.core.measured_queue_stats import QueueStats


class QueueStatsMetrics:
    """Registers all metrics in ``registry``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._queues = Gauge(
            "pointsman_agent_queues", "Queues of this broker with known minimum and maximum offsets.", registry=registry
        )
        self._unmeasured = Gauge(
            "pointsman_agent_queues_unmeasured", "Queues of this broker without known offsets.", registry=registry
        )
        self._depth = Gauge(
            "pointsman_agent_queue_depth_messages", "Messages in all queues of this broker.", registry=registry
        )
        self._put_rate = Gauge(
            "pointsman_agent_queue_puts_per_second",
            "Messages added per second to all queues, at the last measurement.",
            registry=registry,
        )
        self._lag = Gauge(
            "pointsman_agent_queue_lag_messages",
            "Messages not consumed yet, of all groups and queues.",
            registry=registry,
        )
        self._top_put_rate = _TopGauge(
            "pointsman_agent_top_queue_puts_per_second",
            "Messages added per second, for the 20 queues with the highest rate.",
            ["topic", "queue"],
            registry,
        )
        self._top_depth = _TopGauge(
            "pointsman_agent_top_queue_depth_messages",
            "Messages in the 20 queues with the highest rate.",
            ["topic", "queue"],
            registry,
        )
        self._top_lag = _TopGauge(
            "pointsman_agent_top_queue_lag_messages",
            "Messages not consumed yet, for the 20 queues with the highest lag.",
            ["group", "topic", "queue"],
            registry,
        )
        self._group_lag = _TopGauge(
            "pointsman_agent_group_lag_messages",
            "Messages not consumed yet, for the 20 pairs of group and topic with the highest lag.",
            ["group", "topic"],
            registry,
        )
        self._top_bytes = _TopGauge(
            "pointsman_agent_top_queue_bytes",
            "Memory of the 20 queues with the highest rate, as the broker estimates it.",
            ["topic", "queue"],
            registry,
        )
        self._oldest_unread = _TopGauge(
            "pointsman_agent_top_queue_oldest_unread_seconds",
            "Age of the oldest message not consumed yet, for the 20 queues with the highest lag.",
            ["group", "topic", "queue"],
            registry,
        )
        self._topic_put_rate = _TopGauge(
            "pointsman_agent_topic_puts_per_second",
            "Messages added per second, for the 20 topics with the highest rate.",
            ["topic"],
            registry,
        )
        self._topic_highest_put_rate = _TopGauge(
            "pointsman_agent_topic_highest_queue_puts_per_second",
            "Messages added per second to the fastest queue of each of these topics.",
            ["topic"],
            registry,
        )
        self._topic_queues = _TopGauge(
            "pointsman_agent_topic_queues", "Queues of each of these topics on this broker.", ["topic"], registry
        )
        self._group_put_rate = _TopGauge(
            "pointsman_agent_group_puts_per_second",
            "Messages added per second to the queues of a group and topic; same pairs as of the lag.",
            ["group", "topic"],
            registry,
        )
        self._group_commit_rate = _TopGauge(
            "pointsman_agent_group_commits_per_second",
            "Messages per second by which the committed offsets of a group rise; same pairs as of the lag.",
            ["group", "topic"],
            registry,
        )
        self._group_members = _TopGauge(
            "pointsman_agent_group_members",
            "Members of the groups of these pairs, known to this agent.",
            ["group"],
            registry,
        )
        self._took = Gauge(
            "pointsman_agent_queue_measurement_seconds", "Duration of the last measurement.", registry=registry
        )
        self._measurement_interval = Gauge(
            "pointsman_agent_queue_measurement_interval_seconds",
            "Time between two measurements; longer than configured while a measurement takes long.",
            registry=registry,
        )
        self._measurements = Counter(
            "pointsman_agent_queue_measurements_total",
            "Measurements of all queues, by result: measured, failed.",
            ["result"],
            registry=registry,
        )
        self._reports = Counter(
            "pointsman_agent_queue_stats_reports_total",
            "Queue statistics reports sent, by result: recorded, unknown_broker, stale_generation, unregistered, "
            "failed, timeout.",
            ["result"],
            registry=registry,
        )

    def count_measurement(self, result: str) -> None:
        """Count a finished measurement."""
        self._measurements.labels(result).inc()

    def count_report(self, result: str) -> None:
        """Count a report to one name server by its result."""
        self._reports.labels(result).inc()

    def show(self, stats: QueueStats, *, took: float, interval: float) -> None:
        """Publish a measurement that took ``took`` seconds; the next follows after ``interval`` seconds."""
        self._took.set(took)
        self._measurement_interval.set(interval)
        self._queues.set(stats.queue_count)
        self._unmeasured.set(stats.unmeasured_queue_count)
        self._depth.set(stats.depth)
        self._put_rate.set(stats.put_rate)
        self._lag.set(stats.lag)
        puts = stats.top_put_rates
        self._top_put_rate.show(((each.topic, str(each.queue_id)), each.put_rate) for each in puts)
        self._top_depth.show(((each.topic, str(each.queue_id)), each.depth) for each in puts)
        self._top_bytes.show(((each.topic, str(each.queue_id)), each.bytes) for each in puts if each.bytes)
        lags = [((each.group, each.topic, str(each.queue_id)), each) for each in stats.top_lags]
        self._top_lag.show((labels, each.lag) for labels, each in lags)
        self._oldest_unread.show((labels, age) for labels, each in lags if (age := each.oldest_unread) is not None)
        topics = [((each.topic,), each) for each in stats.top_topics]
        self._topic_put_rate.show((labels, each.put_rate) for labels, each in topics)
        self._topic_highest_put_rate.show((labels, each.highest_put_rate) for labels, each in topics)
        self._topic_queues.show((labels, each.queue_count) for labels, each in topics)
        groups = [((each.group, each.topic), each) for each in stats.top_groups]
        self._group_lag.show((labels, each.lag) for labels, each in groups)
        self._group_put_rate.show((labels, each.put_rate) for labels, each in groups)
        self._group_commit_rate.show(
            (labels, rate) for labels, each in groups if (rate := each.commit_rate) is not None
        )
        self._group_members.show(((each.group,), each.member_count) for _, each in groups)


class _TopGauge:
    """A gauge with a changing set of labels."""

    def __init__(self, name: str, documentation: str, labels: list[str], registry: CollectorRegistry) -> None:
        self._gauge = Gauge(name, documentation, labels, registry=registry)
        self._shown: set[tuple[str, ...]] = set()

    def show(self, values: Iterable[tuple[tuple[str, ...], float]]) -> None:
        """Publish these values and no others."""
        shown = set[tuple[str, ...]]()
        for labels, value in values:
            self._gauge.labels(*labels).set(value)
            shown.add(labels)
        for labels in self._shown - shown:
            self._gauge.remove(*labels)
        self._shown = shown
