"""What brokers are charged for, how they rank, and what happened to several at once."""

from __future__ import annotations

from pyspark.sql import types as T

from spark_jobs.schemas.base import BOOL, DAY, DOUBLE, INSTANCE, INT, LONG, TEXT, TIME, Table, broker_day, struct

FLAP_CHARGES = struct(
    dt=DAY,
    cluster=TEXT,
    broker_name=TEXT,
    broker_id=LONG,
    charged_at=TIME,
    cause=TEXT,
    points=DOUBLE,
    penalty=DOUBLE,
)
"""Each thing a broker was charged for, and its penalty just after. Outages of an incident are not among them."""

FLAPPING = T.StructType(
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
)
"""A broker's day as the score sees it.

``raised``: a charge of the day took the penalty above the threshold. ``flagged``: still above the reuse threshold at
the day's end. ``flapped_days``: days with ``raised`` among the last seven. ``incident_downs``: outages of the day
that were charged to an incident and not to the broker. ``percent_state_change``: Nagios' measure on a grid of five
minutes, the day's highest. ``longest_stable_seconds``: the most that one interval took of the day. ``cause``: the
likely one (restart_loop, deploy, network, overload, planned), null where none is likely; ``cause_says``: the evidence
in a few words.
"""

FLAP_RANKING = broker_day(
    days=LONG,
    watched_days=DOUBLE,
    outages=LONG,
    rate_per_day=DOUBLE,
    cluster_rate_per_day=DOUBLE,
    ratio=DOUBLE,
    p_value=DOUBLE,
    outlier=BOOL,
    rank=LONG,
)
"""The slow track: a broker's outages of the last days (``days``: how many the warehouse holds) against its cluster's.

``outages``: without those of incidents. ``cluster_rate_per_day``: of the cluster's other brokers, had they had one
outage more. ``p_value``: the chance of so many outages at that rate (Poisson), null for a broker without others.
``outlier``: kept by a bound on the false discoveries of the cluster's day. ``rank``: 1 is the worst of the cluster:
outliers first, then by ``p_value``, then by rate.
"""

INCIDENTS = struct(
    dt=DAY,
    incident_id=TEXT,
    cluster=TEXT,
    scope=TEXT,
    scope_name=TEXT,
    from_at=TIME,
    to_at=TIME,
    back_at=TIME,
    brokers=LONG,
    known_brokers=LONG,
    members=T.ArrayType(struct(broker_name=TEXT, broker_id=LONG, start_at=TIME)),
    down_seconds=DOUBLE,
)
"""Outages of several brokers of one host, zone or cluster (``scope``) that began within a minute: one event, not many.

``from_at``, ``to_at``: the first and the last outage's start; ``back_at``: the end of the last, null while one is open
at the day's end or its end was not seen. ``known_brokers``: how many of the scope were watched that day. ``members``:
each broker with its first outage. ``down_seconds``: of all its outages, on that day. An incident belongs to one UTC
day.
"""

TABLES = (
    Table("flap_charges", FLAP_CHARGES, (*INSTANCE, "charged_at", "cause")),
    Table("flapping", FLAPPING, INSTANCE),
    Table("flap_ranking", FLAP_RANKING, INSTANCE),
    Table("incidents", INCIDENTS, ("incident_id",)),
)
