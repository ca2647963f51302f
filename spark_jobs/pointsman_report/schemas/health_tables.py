"""Health of clusters, heartbeats and queues."""

from __future__ import annotations

from pointsman_report.schemas.table_types import DAY, DOUBLE, INSTANCE, LONG, TEXT, Table, broker_day, struct

HEARTBEAT_PUNCTUALITY = Table(
    "heartbeat_punctuality",
    INSTANCE,
    broker_day(
        beats=LONG,
        heartbeat_interval_ms=LONG,
        min_ms=DOUBLE,
        p50_ms=DOUBLE,
        p95_ms=DOUBLE,
        p99_ms=DOUBLE,
        max_ms=DOUBLE,
        late=LONG,
        clock_ahead_ms=DOUBLE,
    ),
)
"""Times between a broker's heartbeats at all observers; quantiles are interpolated linearly within a bucket.

``heartbeat_interval_ms`` is the interval the broker last announced (null: in no checkpoint of the day), ``late`` the
late heartbeats at the name server with the most. ``clock_ahead_ms``: how far the agent's clock is ahead of the name
servers' clocks (negative: behind), minus the network delay; null if not recorded.
"""

HEARTBEAT_HISTOGRAM = Table(
    "heartbeat_histogram", ("cluster", "up_to_ms"), struct(dt=DAY, cluster=TEXT, up_to_ms=LONG, beats=LONG)
)
"""Times between heartbeats of a cluster's brokers; ``up_to_ms`` null: above the last edge."""

QUEUE_STATS = Table(
    "queue_stats",
    INSTANCE,
    broker_day(
        samples=LONG,
        measured_seconds=DOUBLE,
        queues=LONG,
        topics=LONG,
        depth=LONG,
        put_rate=DOUBLE,
        put_rate_max=DOUBLE,
        lag=LONG,
        lag_max=LONG,
    ),
)
"""A broker's queues over the day: rates are messages per second, the mean weighted by time; ``depth`` and ``lag`` are
the last reported."""

TOPIC_LOAD = Table(
    "topic_load",
    ("cluster", "topic"),
    struct(
        dt=DAY,
        cluster=TEXT,
        topic=TEXT,
        brokers=LONG,
        queues=LONG,
        idle_queues=LONG,
        put_rate=DOUBLE,
        highest_put_rate=DOUBLE,
        skew=DOUBLE,
        hottest_broker_name=TEXT,
        hottest_queue_id=LONG,
        hottest_put_rate=DOUBLE,
    ),
)
"""Messages into a topic; ``skew`` = rate of the fastest queue / mean rate of its queues; 1 is even.

``queues`` is the last number reported; ``idle_queues`` got no message in any report of the day. ``highest_put_rate`` is
the mean of the fastest queue's rate in each report, possibly of different queues; ``hottest_...`` is the queue with the
most messages of the day, null if no report names one.
"""

GROUP_LAG = Table(
    "group_lag",
    ("cluster", "consumer_group", "topic"),
    struct(
        dt=DAY,
        cluster=TEXT,
        consumer_group=TEXT,
        topic=TEXT,
        queues=LONG,
        members=LONG,
        lag_first=LONG,
        lag_last=LONG,
        lag_max=LONG,
        highest_lag=LONG,
        farthest_broker_name=TEXT,
        farthest_queue_id=LONG,
    ),
)
"""Lag of a consumer group, summed over brokers: ``lag_first`` in each broker's first report of it, ``lag_last`` in each
broker's last report of the day, ``lag_max`` in the worst twenty minutes.

``queues`` and ``members`` are the last numbers reported. ``highest_lag`` is that of the worst queue at the end,
``farthest_...`` is that queue, null if no report names one.
"""

HOT_QUEUES = Table(
    "hot_queues",
    ("cluster", "kind", "topic", "consumer_group", "broker_name", "queue_id"),
    struct(
        dt=DAY,
        cluster=TEXT,
        kind=TEXT,
        topic=TEXT,
        consumer_group=TEXT,
        broker_name=TEXT,
        queue_id=LONG,
        value=DOUBLE,
        limit=DOUBLE,
        says=TEXT,
        cure=TEXT,
    ),
)
"""Findings about queues, as text: ``kind`` is key_skew, too_few_queues, too_many_queues, idle_members or
falling_behind; ``value`` is the measurement, ``limit`` the threshold."""

CLUSTER_HEALTH = Table(
    "cluster_health",
    ("cluster",),
    struct(
        dt=DAY,
        cluster=TEXT,
        brokers=LONG,
        up_seconds=DOUBLE,
        down_seconds=DOUBLE,
        planned_seconds=DOUBLE,
        availability=DOUBLE,
        outages=LONG,
        repaired=LONG,
        repair_seconds=DOUBLE,
        mttr_seconds=DOUBLE,
        mtbf_seconds=DOUBLE,
        outages_per_broker_day=DOUBLE,
        outages_per_broker_day_low=DOUBLE,
        outages_per_broker_day_high=DOUBLE,
        slo=DOUBLE,
        slo_days=LONG,
        slo_up_seconds=DOUBLE,
        slo_down_seconds=DOUBLE,
        budget_seconds=DOUBLE,
        budget_left_seconds=DOUBLE,
    ),
)
"""A cluster's day, and its last days against its objective: budget = (1 - slo) x (up + down) of ``slo_days`` days.

``slo_days``: days of the objective's period that are in the warehouse. A ``budget_left_seconds`` below 0 is an
overspent budget. ``mttr_seconds`` covers outages that ended on the day and were observed from start to end
(``repaired``). ``..._low``, ``..._high``: 95 % interval of the outage rate (Poisson), because a day without outages
proves little.
"""

TABLES = (
    HEARTBEAT_PUNCTUALITY,
    HEARTBEAT_HISTOGRAM,
    QUEUE_STATS,
    TOPIC_LOAD,
    GROUP_LAG,
    HOT_QUEUES,
    CLUSTER_HEALTH,
)
