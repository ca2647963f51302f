"""Up and down intervals of brokers, their observers, and the observers' coverage."""

from __future__ import annotations

from pyspark.sql import types as T

from pointsman_report.schemas.table_types import (
    BOOL,
    DAY,
    DOUBLE,
    INSTANCE,
    LONG,
    OBSERVER,
    TEXT,
    TIME,
    Table,
    broker_day,
    struct,
)

SEQ_GAP = struct(from_seq=LONG, to_seq=LONG, after_at=TIME, before_at=TIME)
"""A hole in the rows of a run, between ``after_at``, the time of the last row before it, and ``before_at``, that of the
first row after it.

``from_seq`` to ``to_seq`` are the missing sequence numbers, both ends included. If no row is missing because the name
server wrote none, ``to_seq`` is one less than ``from_seq``.
"""

OBSERVER_WINDOWS = Table(
    "observer_windows",
    OBSERVER,
    struct(
        dt=DAY,
        node=TEXT,
        boot_id=TEXT,
        from_at=TIME,
        to_at=TIME,
        open=BOOL,
        last_row_at=TIME,
        last_seq=LONG,
        rows=LONG,
        rows_missing=LONG,
        gaps=T.ArrayType(SEQ_GAP),
        alive_seconds=DOUBLE,
    ),
)
"""The monitoring window of a run of a name server (``from_at`` is null before it was ready), and its missing rows.

Each day lists the holes in it, also those that began on a day before or end on a later one; ``rows_missing`` counts the
rows of a hole on the day on which it began. ``alive_seconds``: the interval of its NAMESRV_ALIVE rows; null if it wrote
none regularly.
"""

INTERVAL_START = struct(
    state=TEXT,
    start_at=TIME,
    start_censored=BOOL,
    planned=BOOL,
    continues=BOOL,
    event=TEXT,
    reason=TEXT,
    last_sign_of_life_at=TIME,
    observers=LONG,
)
"""Facts about an interval at its start.

``planned``: a down interval that is not an outage, as the last name server that removed the broker recorded it.
``event`` and ``reason`` of a down interval are those of that removal; a failed probe is always PROBE_FAILED.
``continues``: a down interval that continues an outage which was cut by time without monitoring, or which was hidden by
an observer that saw the broker up until its window ended; it is not a further outage. ``last_sign_of_life_at``: time of
the last heartbeat, for a down interval whose start was observed. ``observers``: running name servers with an opinion of
the broker.
"""

BROKER_INTERVALS = Table(
    "broker_intervals",
    (*INSTANCE, "start_at", "end_at", "state"),
    T.StructType(
        [
            *struct(dt=DAY, cluster=TEXT, broker_name=TEXT, broker_id=LONG).fields,
            *INTERVAL_START.fields,
            *struct(end_at=TIME, end_censored=BOOL, open=BOOL).fields,
        ]
    ),
)
"""Up and down of each broker, merged over all observers.

Partition ``dt`` holds the intervals that ended on that day, and those open at its end (``open``: cut only by the end of
the day, ``end_censored``). The full history is every row that is not open, plus the last day's open rows.
"""

AVAILABILITY = Table(
    "availability",
    INSTANCE,
    struct(
        dt=DAY,
        cluster=TEXT,
        broker_name=TEXT,
        broker_id=LONG,
        up_seconds=DOUBLE,
        down_seconds=DOUBLE,
        planned_seconds=DOUBLE,
        availability=DOUBLE,
        outages=LONG,
        repaired=LONG,
        repair_seconds=DOUBLE,
        longest_outage_seconds=DOUBLE,
        mttr_seconds=DOUBLE,
        mtbf_seconds=DOUBLE,
    ),
)
"""A broker's day: ``availability`` = up / (up + down), unplanned down time only.

``outages`` began on the day. ``repaired`` ended on it and were observed from start to end, ``repair_seconds`` is their
total length, ``mttr_seconds`` their mean. ``mtbf_seconds`` = up time / outages.
"""

OPINION = struct(
    node=TEXT,
    boot_id=TEXT,
    seq=LONG,
    event_at=TIME,
    event=TEXT,
    reason=TEXT,
    last_sign_of_life_at=TIME,
    opinion=TEXT,
    planned=BOOL,
)
"""An observer's opinion of a broker, and the row it comes from. ``opinion``: up, down, none (unknown: its guard
protects a silent broker) or lost (missing rows of that observer may have changed it)."""

LAST_LOSS = struct(event=TEXT, reason=TEXT, last_sign_of_life_at=TIME, planned=BOOL)
"""The row that last removed a broker from the routes."""

BROKER_STATE = Table(
    "broker_state",
    INSTANCE,
    struct(
        dt=DAY,
        cluster=TEXT,
        broker_name=TEXT,
        broker_id=LONG,
        current=INTERVAL_START,
        last_state=TEXT,
        last_loss=LAST_LOSS,
        opinions=T.ArrayType(OPINION),
        first_seen_on=DAY,
        last_seen_on=DAY,
        penalty=DOUBLE,
        penalty_at=TIME,
        flagged=BOOL,
        flapped_on=T.ArrayType(DAY),
    ),
)
"""Each known broker at the end of a day: together with the open observer windows, all that the next day needs.

``current`` is null while no name server runs; ``last_state`` (up, down, left) is the last known state.
"""

BLIND_PERIODS = Table(
    "blind_periods",
    (*OBSERVER, "from_at", "cluster", "why"),
    struct(
        dt=DAY,
        node=TEXT,
        boot_id=TEXT,
        cluster=TEXT,
        why=TEXT,
        from_at=TIME,
        to_at=TIME,
        open=BOOL,
    ),
)
"""An observer's own pauses (``why`` PAUSED, ``cluster`` null: all), the times in which it wrote no row although it
wrote one each minute before (SILENT, ``cluster`` null), and the periods of its expiry guard of a cluster (GUARD). None
of its opinions counts while it is paused or silent. In a guard's period only brokers recorded as PROTECTED for silence
or a broken stream are unknown.

A row has the start of the period, possibly on an earlier day, and ends at the latest with its day (``open``).
"""

MAINTENANCE_WINDOWS = Table(
    "maintenance_windows",
    ("node", "cluster", "broker_name", "from_at"),
    struct(
        dt=DAY,
        node=TEXT,
        cluster=TEXT,
        broker_name=TEXT,
        from_at=TIME,
        to_at=TIME,
        open=BOOL,
        until_at=TIME,
    ),
)
"""Maintenance windows at each name server; ``broker_name`` null: the whole cluster. ``until_at``: the planned end.

A row has the start of the window, possibly on an earlier day, and ends at the latest with its day (``open``).
"""

PARTIAL_VIEWS = Table(
    "partial_views",
    (*INSTANCE, "from_at", "to_at"),
    broker_day(
        from_at=TIME,
        to_at=TIME,
        open=BOOL,
        seen_up_by=T.ArrayType(TEXT),
        seen_down_by=T.ArrayType(TEXT),
    ),
)
"""Periods in which some observers saw a broker up and others saw it down (nodes, sorted); cut at midnight
(``open``)."""

BROKER_FACTS = Table(
    "broker_facts",
    INSTANCE,
    broker_day(
        broker_addr=TEXT,
        zone=TEXT,
        host=TEXT,
        incarnation=TEXT,
        broker_version=TEXT,
        owner=TEXT,
        seen_at=TIME,
    ),
)
"""The last registered facts of each known broker at the day's end; ``owner`` is its label of that name."""

BROKER_CHANGES = Table(
    "broker_changes",
    (*INSTANCE, "changed_at", "what"),
    broker_day(
        changed_at=TIME,
        what=TEXT,
        before=TEXT,
        after=TEXT,
    ),
)
"""Changes of a broker's facts: ``what`` is address, version, incarnation, zone, host, owner or role (broker id)."""

OBSERVER_CLOCKS = Table(
    "observer_clocks",
    ("node",),
    struct(
        dt=DAY,
        node=TEXT,
        offset_seconds=DOUBLE,
        samples=LONG,
        stepped_seconds=DOUBLE,
    ),
)
"""How far a node's clock is ahead of the median of all nodes, by facts that several of them recorded; null without
shared facts.

``stepped_seconds``: deviation of its wall clock from its uptime within a run, steps and drift together; null without
uptimes. ``samples``: number of shared facts.
"""

NAMESRV_DAYS = Table(
    "namesrv_days",
    ("node",),
    struct(
        dt=DAY,
        node=TEXT,
        lives=LONG,
        starts=LONG,
        stops=LONG,
        vanished=LONG,
        watched_seconds=DOUBLE,
        warm_up_seconds_max=DOUBLE,
        pauses=LONG,
        paused_seconds=DOUBLE,
        guard_activations=LONG,
        guard_seconds=DOUBLE,
        rejected=LONG,
        rows=LONG,
        rows_missing=LONG,
        rows_dropped=LONG,
        overlapping_lives=LONG,
    ),
)
"""Reliability of the name servers. ``lives``: runs of the process. ``vanished``: runs that ended without
NAMESRV_STOPPED (crashes). ``rows_dropped``: rows that the name server reports it could not write.
``overlapping_lives``: runs that wrote rows at the same time as another run of the node: two machines have the same
name."""

TABLES = (
    OBSERVER_WINDOWS,
    BLIND_PERIODS,
    MAINTENANCE_WINDOWS,
    BROKER_INTERVALS,
    PARTIAL_VIEWS,
    AVAILABILITY,
    BROKER_FACTS,
    BROKER_CHANGES,
    BROKER_STATE,
    OBSERVER_CLOCKS,
    NAMESRV_DAYS,
)
