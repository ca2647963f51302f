"""The long memory of each broker's outages, its forecasts and their checks, and weekly patterns."""

from __future__ import annotations

from pointsman_report.schemas.table_types import DAY, DOUBLE, INSTANCE, INT, LONG, TEXT, Table, broker_day, struct

BROKER_MEMORY = Table(
    "broker_memory",
    INSTANCE,
    broker_day(
        since_on=DAY,
        seen_on=DAY,
        monitored_days=LONG,
        outages=LONG,
        days_sum=DOUBLE,
        outages_sum=DOUBLE,
        recurrence_sum=DOUBLE,
        remembered_days=DOUBLE,
        remembered_outages=DOUBLE,
        recurrence=DOUBLE,
        cluster_rate_per_day=DOUBLE,
        rate_per_day=DOUBLE,
        ratio=DOUBLE,
        expected=DOUBLE,
        dispersion=DOUBLE,
        low=LONG,
        high=LONG,
    ),
)
"""What is remembered of a broker at the end of a day, and the forecast of its outages in the next 30 days.

``since_on``, ``seen_on``: the first and the last day with monitoring; a broker without monitoring for longer than
``memory.absent_days`` has no row, and begins again when it returns. ``monitored_days``, ``outages``: numbers since
``since_on``. ``remembered_days`` (monitored time), ``remembered_outages``: the same, decayed with
``memory.half_life_days``. ``recurrence``: outages decayed with ``memory.rank_half_life_days``, where n outages of one
day count as the square root of n, since they often have one cause; brokers are ranked by it. ``cluster_rate_per_day``:
of the cluster, with one extra outage. ``rate_per_day``: the broker's rate, shrunk towards its cluster's. ``ratio``:
their quotient. ``expected``: outages in 30 days at ``rate_per_day``; ``low`` to ``high`` contains their number with at
least 90 % probability. ``days_sum``, ``outages_sum``, ``recurrence_sum``: these three before the decay, where the
weight of a day doubles in each half-life after ``since_on``; they are carried to the next day. ``dispersion``:
variance of earlier forecasts of the cluster over their mean, at least 1: the interval is widened by it.
"""

FORECAST_CHECKS = Table(
    "forecast_checks",
    ("cluster",),
    struct(
        dt=DAY,
        cluster=TEXT,
        forecasts=LONG,
        held=LONG,
        expected=DOUBLE,
        outages=LONG,
        squared_error=DOUBLE,
    ),
)
"""The forecasts of 30 days before, compared with the outages since, for brokers monitored on each of these days.

``forecasts``: number of them. ``held``: how many had their number of outages in the interval from ``low`` to ``high``.
``expected``, ``outages``: sums. ``squared_error``: sum of (outages - expected)².
"""

WEEKLY_PATTERNS = Table(
    "weekly_patterns",
    (*INSTANCE, "weekday", "hour"),
    broker_day(
        weekday=INT,
        hour=INT,
        weeks=LONG,
        outages=LONG,
        outage_hours=LONG,
        p_value=DOUBLE,
    ),
)
"""Brokers that went down at the same hour of the same weekday (UTC) in at least three of the last four weeks, more
often than chance explains.

``weekday``: 0 is Monday. ``hour``: 0 to 23. ``weeks``: with an outage in this slot, ``outages`` of them.
``outage_hours``: hours of the four weeks in which an outage of the broker began. ``p_value``: the probability of at
least ``weeks`` if these hours were spread at random.
"""

TABLES = (BROKER_MEMORY, FORECAST_CHECKS, WEEKLY_PATTERNS)
