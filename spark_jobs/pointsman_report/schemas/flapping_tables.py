"""Penalty points and rank of brokers, and events of several brokers."""

from __future__ import annotations

from pyspark.sql import types as T

from pointsman_report.schemas.table_types import (
    BOOL,
    DAY,
    DOUBLE,
    INSTANCE,
    INT,
    LONG,
    OBSERVER,
    TEXT,
    TIME,
    Table,
    broker_day,
    struct,
)

FLAP_CHARGES = Table(
    "flap_charges",
    (*INSTANCE, "charged_at", "cause"),
    struct(
        dt=DAY,
        cluster=TEXT,
        broker_name=TEXT,
        broker_id=LONG,
        charged_at=TIME,
        cause=TEXT,
        points=DOUBLE,
        penalty=DOUBLE,
    ),
)
"""Each charge of a broker, and its penalty after it. Outages of incidents are not charged."""

FLAPPING = Table(
    "flapping",
    INSTANCE,
    T.StructType(
        [
            T.StructField("dt", DAY),
            T.StructField("cluster", TEXT),
            T.StructField("broker_name", TEXT),
            T.StructField("broker_id", LONG),
            T.StructField("class", TEXT),
            T.StructField("down_count", LONG),
            T.StructField("sign_count", LONG),
            T.StructField("charged_points", DOUBLE),
            T.StructField("penalty_start", DOUBLE),
            T.StructField("penalty_max", DOUBLE),
            T.StructField("penalty_end", DOUBLE),
            T.StructField("raised", BOOL),
            T.StructField("flagged", BOOL),
            T.StructField("flapped_days", INT),
            T.StructField("incident_downs", LONG),
            T.StructField("percent_state_change", DOUBLE),
            T.StructField("longest_stable_seconds", DOUBLE),
            T.StructField("cause", TEXT),
            T.StructField("cause_says", TEXT),
        ]
    ),
)
"""The flap score of a broker's day.

``raised``: a charge of the day took the penalty above the threshold. ``flagged``: still above the reuse threshold at
the day's end. ``flapped_days``: days with ``raised`` among the last seven. ``incident_downs``: outages of the day that
belong to an incident and do not count against the broker. ``percent_state_change``: Nagios' measure on a grid of five
minutes, the day's highest. ``longest_stable_seconds``: the longest part of the day that one interval covers. ``cause``:
the likely one (restart_loop, overload, and those of `OUTAGE_CAUSES`), unknown without evidence, null for a day without
outages, restarts and planned shutdowns; ``cause_says``: a short text with the evidence.
"""

FLAP_RANKING = Table(
    "flap_ranking",
    INSTANCE,
    broker_day(
        days=LONG,
        watched_days=DOUBLE,
        outages=LONG,
        rate_per_day=DOUBLE,
        cluster_rate_per_day=DOUBLE,
        ratio=DOUBLE,
        p_value=DOUBLE,
        outlier=BOOL,
        rank=LONG,
    ),
)
"""The slow track: a broker's outages of the last days (``days``: number of them in the warehouse) compared with its
cluster's.

``outages``: without those of incidents. ``cluster_rate_per_day``: of the cluster's other brokers, with one extra
outage. ``p_value``: the probability of at least this number of outages at that rate (Poisson), null for the only broker
of a cluster. ``outlier``: significant at the false discovery rate of the cluster's day. ``rank``: 1 is the worst of the
cluster: outliers first, then by ``p_value``, then by rate.
"""

INCIDENTS = Table(
    "incidents",
    ("incident_id",),
    struct(
        dt=DAY,
        incident_id=TEXT,
        cluster=TEXT,
        scope=TEXT,
        scope_name=TEXT,
        last_heard_at=TIME,
        from_at=TIME,
        to_at=TIME,
        back_at=TIME,
        brokers=LONG,
        known_brokers=LONG,
        members=T.ArrayType(struct(broker_name=TEXT, broker_id=LONG, start_at=TIME)),
        down_seconds=DOUBLE,
        cause=TEXT,
        evidence=TEXT,
    ),
)
"""Several brokers of one host, zone or cluster (``scope``) that were down at the same moment: one event, not many.

``last_heard_at``: the last heartbeat of the broker that went down first. ``from_at``, ``to_at``: the first and the last
outage's start; ``back_at``: the end of the last, null while one is open at the day's end or its end was not observed.
``known_brokers``: brokers of the scope that were monitored on that day. ``members``: each broker with its first outage.
``down_seconds``: sum of its outages, on that day. ``cause``: the cause of more than half of its outages, else unknown
(`OUTAGE_CAUSES`). An incident belongs to one UTC day.
"""

ROLLING_RESTARTS = Table(
    "rolling_restarts",
    ("rolling_restart_id",),
    struct(
        dt=DAY,
        rolling_restart_id=TEXT,
        cluster=TEXT,
        from_at=TIME,
        to_at=TIME,
        back_at=TIME,
        brokers=LONG,
        unplanned=LONG,
        version_before=TEXT,
        version_after=TEXT,
        down_seconds=DOUBLE,
        members=T.ArrayType(struct(start_at=TIME, end_at=TIME, broker_name=TEXT, broker_id=LONG, planned=BOOL)),
    ),
)
"""Brokers of a cluster that were restarted one after another, each back before the next one went down: not an incident.

``from_at``, ``to_at``: the start of the first and the last outage; ``back_at``: the end of the last. ``unplanned``:
outages of it that count against their brokers. ``version_after``: the most frequent new version, null if no version
changed. ``down_seconds``: of the unplanned ones.
"""

OUTAGE_CAUSES = Table(
    "outage_causes",
    (*INSTANCE, "start_at"),
    broker_day(
        start_at=TIME,
        open=BOOL,
        planned=BOOL,
        cause=TEXT,
        evidence=TEXT,
        signal=TEXT,
        probe=TEXT,
        process=TEXT,
        incarnation_before=TEXT,
        incarnation_after=TEXT,
        version_before=TEXT,
        version_after=TEXT,
        host=TEXT,
        incident_id=TEXT,
        silent_together=LONG,
        hosts_together=LONG,
        silent_on_host=LONG,
        rolling_restart_id=TEXT,
    ),
)
"""Causes of outages: a row for each down interval of ``broker_intervals`` and each day on which it began, lasted
(``open``) or ended, with the facts known by the end of that day; the row of the day on which it ended is the most
complete.

``cause``: planned, deploy, rolling_restart, process_died, network, host_lost, agent_lost, agent_hung, unknown;
``evidence``: a short text. ``signal``: how it went down: LEFT (planned), REFUSED (the broker's machine refused the
probe), PROBE (the probe failed otherwise), STREAM_BROKEN, STREAM_OPEN (silent on an open stream), CONNECTION_OPEN (the
same of a RocketMQ broker that registers itself), SILENCE; ``probe``: the probe's message. ``process``: whether a NEW or
the SAME process came back; null if no incarnation shows it. ``silent_together``: brokers of its incident that fell
silent, on ``hosts_together`` host labels; ``silent_on_host``: those with the same host label.
"""

GUARD_PERIODS = Table(
    "guard_periods",
    (*OBSERVER, "cluster", "from_at"),
    struct(
        dt=DAY,
        node=TEXT,
        boot_id=TEXT,
        cluster=TEXT,
        from_at=TIME,
        to_at=TIME,
        open=BOOL,
        mode=TEXT,
        lost=LONG,
        baseline=LONG,
        up=LONG,
        kept=LONG,
        over_limit=BOOL,
    ),
)
"""When a name server's expiry guard was on for a cluster: GUARD_ON to GUARD_OFF, or to the end of that run.

``mode``, ``lost``, ``baseline``, ``up``: when it turned on. ``kept``: brokers that it kept in the routes on that day
(PROTECTED). ``over_limit``: it was on for longer than its limit. A row has the start of the period, possibly on an
earlier day, and ends at the latest with its day (``open``).
"""

TABLES = (
    FLAP_CHARGES,
    FLAPPING,
    FLAP_RANKING,
    INCIDENTS,
    ROLLING_RESTARTS,
    OUTAGE_CAUSES,
    GUARD_PERIODS,
)
