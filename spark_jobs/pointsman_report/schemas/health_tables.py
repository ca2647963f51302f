"""How well clusters, heartbeats and queues did."""

from __future__ import annotations

from pointsman_report.schemas.table_types import DAY, DOUBLE, INSTANCE, LONG, TEXT, Table, broker_day, struct

HEARTBEAT_PUNCTUALITY = broker_day(
    beats=LONG,
    heartbeat_interval_ms=LONG,
    min_ms=DOUBLE,
    p50_ms=DOUBLE,
    p95_ms=DOUBLE,
    p99_ms=DOUBLE,
    max_ms=DOUBLE,
    late=LONG,
    clock_ahead_ms=DOUBLE,
)
"""Times between a broker's beats, all observers together; quantiles read off the histogram, evenly within a bucket.

``heartbeat_interval_ms`` is what the broker promised last (null: no checkpoint of the day tells), ``late`` the late
beats as the name server saw them that saw most. ``clock_ahead_ms``: how far the agent's clock is ahead of the name
servers', negative behind, less what its beats are on their way; null where it does not tell.
"""

HEARTBEAT_HISTOGRAM = struct(dt=DAY, cluster=TEXT, up_to_ms=LONG, beats=LONG)
"""Times between beats of a cluster's brokers; ``up_to_ms`` null: above the last edge."""

QUEUE_STATS = broker_day(
    samples=LONG,
    measured_seconds=DOUBLE,
    queues=LONG,
    topics=LONG,
    depth=LONG,
    put_rate=DOUBLE,
    put_rate_max=DOUBLE,
    lag=LONG,
    lag_max=LONG,
)
"""A broker's queues over the day: rates are messages a second, the mean weighted by time; ``depth`` and ``lag`` are the
last told."""

TOPIC_LOAD = struct(
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
)
"""How a topic was filled; ``skew`` = the fullest queue's rate over the mean queue's, 1 is even.

``queues`` is the last told, ``idle_queues`` got nothing in any report of the day. ``highest_put_rate`` is the mean of
what the fullest queue got in each report, whichever that was; ``hottest_...`` is the one queue that got most over the
day, null where reports name none.
"""

GROUP_LAG = struct(
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
)
"""How far a consumer group was behind, summed over brokers: ``lag_first`` when each broker first told of it,
``lag_last`` in each broker's last report of the day, ``lag_max`` in the worst twenty minutes.

``queues`` and ``members`` are the last told. ``highest_lag`` is the worst queue's at the end, ``farthest_...`` that
queue, null where reports name none.
"""

HOT_QUEUES = struct(
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
)
"""What to do about queues, in words: ``kind`` is key_skew, too_few_queues, too_many_queues, idle_members or
falling_behind; ``value`` is what was measured, ``limit`` what makes it worth a line."""

CLUSTER_HEALTH = struct(
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
)
"""A cluster's day, and its last days against its objective: budget = (1 - slo) x (up + down) of ``slo_days`` days.

``slo_days``: how many of the days that the objective looks back on the warehouse holds. A ``budget_left_seconds`` below
0 was overdrawn. ``mttr_seconds`` is of the outages that ended on the day with both ends seen (``repaired``).
``..._low``, ``..._high``: 95 % interval of the outage rate (Poisson), since a quiet day proves little.
"""

TABLES = (
    Table("heartbeat_punctuality", HEARTBEAT_PUNCTUALITY, INSTANCE),
    Table("heartbeat_histogram", HEARTBEAT_HISTOGRAM, ("cluster", "up_to_ms")),
    Table("queue_stats", QUEUE_STATS, INSTANCE),
    Table("topic_load", TOPIC_LOAD, ("cluster", "topic")),
    Table("group_lag", GROUP_LAG, ("cluster", "consumer_group", "topic")),
    Table("hot_queues", HOT_QUEUES, ("cluster", "kind", "topic", "consumer_group", "broker_name", "queue_id")),
    Table("cluster_health", CLUSTER_HEALTH, ("cluster",)),
)
