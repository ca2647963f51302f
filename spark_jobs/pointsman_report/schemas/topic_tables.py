"""Topics and queues of brokers over time, and the topics' availability."""

from __future__ import annotations

from pyspark.sql import types as T

from pointsman_report.schemas.table_types import (
    BOOL,
    DAY,
    DOUBLE,
    INSTANCE,
    INT,
    LONG,
    TEXT,
    TIME,
    Table,
    broker_day,
    struct,
)

TOPIC_INTERVALS = Table(
    "topic_intervals",
    (*INSTANCE, "topic", "from_at"),
    broker_day(
        topic=TEXT,
        read_queues=INT,
        write_queues=INT,
        perm=INT,
        from_at=TIME,
        to_at=TIME,
        open=BOOL,
    ),
)
"""Queues of each topic that a broker registered, over time; cut at midnight on both sides (``open``: lasted to the
day's end). ``broker_intervals`` shows whether the broker was up.

The topics of a broker continue over midnight if it is up or in an outage on the next day; a broker that stays down
after a planned shutdown has none from midnight on. Changes by operators (wiped permission, deletion) are not included.
"""

TOPIC_CHURN = Table(
    "topic_churn",
    ("cluster", "topic"),
    struct(
        dt=DAY,
        cluster=TEXT,
        topic=TEXT,
        brokers=LONG,
        created=LONG,
        removed=LONG,
        queue_changes=LONG,
        perm_changes=LONG,
    ),
)
"""How often a topic's registration changed on the day, counted at each of the ``brokers`` where it changed; topics
without a change are omitted.

The first topics of a broker on a day are not a change: its topics at midnight, else its first set.
"""

TOPICS_AT_RISK = Table(
    "topics_at_risk",
    ("cluster", "topic"),
    struct(
        dt=DAY,
        cluster=TEXT,
        topic=TEXT,
        brokers=LONG,
        one_broker_seconds=DOUBLE,
        no_master_seconds=DOUBLE,
        unwritable_seconds=DOUBLE,
        first_at=TIME,
        worst=TEXT,
    ),
)
"""Topics that one more outage would make unwritable, or that were unwritable.

``brokers``: master brokers that held it for writing at any time of the day. ``one_broker_seconds``: only one of several
was up; 0 for a topic with only one broker. ``no_master_seconds``: only slaves were up. ``unwritable_seconds``: no
master with a write queue was up (those seconds included). Planned downtime counts as well; time in which the state of
one of its masters is unknown does not. ``worst``: unwritable (for a time without a slave to read from either),
no_master or one_broker.
"""

BLAST_RADIUS = Table(
    "blast_radius",
    ("incident_id",),
    struct(
        dt=DAY,
        incident_id=TEXT,
        topics_hit=LONG,
        topics_unwritable=LONG,
        unwritable_seconds=DOUBLE,
        topics=T.ArrayType(TEXT),
    ),
)
"""Topics affected by an incident: the number with queues on its brokers, the number left without a writable queue, and
their total time, between its first outage and its last recovery or the day's end. ``topics``: at most 20, the longest
unwritable first."""

TABLES = (
    TOPIC_INTERVALS,
    TOPIC_CHURN,
    TOPICS_AT_RISK,
    BLAST_RADIUS,
)
