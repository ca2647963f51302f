"""Which topic had which queues where, and what that was worth."""

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

TOPIC_INTERVALS = broker_day(
    topic=TEXT,
    read_queues=INT,
    write_queues=INT,
    perm=INT,
    from_at=TIME,
    to_at=TIME,
    open=BOOL,
)
"""Which queues of which topic a broker registered, from when to when; cut at midnight on both sides (``open``: lasted
to the day's end). Whether the broker was up meanwhile is for ``broker_intervals`` to say.

What a broker had at midnight it still has on the next day if it is up or missed then; one that left politely and stays
away has nothing from midnight on. What operators laid over it (wiped permission, deletion) does not show here.
"""

TOPIC_CHURN = struct(
    dt=DAY,
    cluster=TEXT,
    topic=TEXT,
    brokers=LONG,
    created=LONG,
    removed=LONG,
    queue_changes=LONG,
    perm_changes=LONG,
)
"""How often a topic's registration changed on the day, counted at each of the ``brokers`` where it did; topics without
a change are left out.

What the day first knows of a broker changes nothing: its topics at midnight, else its first set.
"""

TOPICS_AT_RISK = struct(
    dt=DAY,
    cluster=TEXT,
    topic=TEXT,
    brokers=LONG,
    one_broker_seconds=DOUBLE,
    no_master_seconds=DOUBLE,
    unwritable_seconds=DOUBLE,
    first_at=TIME,
    worst=TEXT,
)
"""Topics that were one fault away from nobody writing to them, or beyond it.

``brokers``: master brokers that held it for writing at any time of the day. ``one_broker_seconds``: of several, one
alone was up; a topic that only one ever held has none. ``no_master_seconds``: only slaves were up.
``unwritable_seconds``: no master with a write queue was up (those seconds included). A planned absence counts as well;
time in which the state of a master that holds the topic is not known does not. ``worst``: unwritable (for a time there
was nobody to read from either), no_master or one_broker.
"""

BLAST_RADIUS = struct(
    dt=DAY,
    incident_id=TEXT,
    topics_hit=LONG,
    topics_unwritable=LONG,
    unwritable_seconds=DOUBLE,
    topics=T.ArrayType(TEXT),
)
"""What an incident did to topics: how many had queues on its brokers, how many were left without a writable queue, and
for how long together, between its first outage and its last return or the day's end. ``topics``: at most 20, the
longest unwritable first."""

TABLES = (
    Table("topic_intervals", TOPIC_INTERVALS, (*INSTANCE, "topic", "from_at")),
    Table("topic_churn", TOPIC_CHURN, ("cluster", "topic")),
    Table("topics_at_risk", TOPICS_AT_RISK, ("cluster", "topic")),
    Table("blast_radius", BLAST_RADIUS, ("incident_id",)),
)
