"""Who was up and down when, who saw it, and how well those watched."""

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

SEQ_GAP = struct(from_seq=LONG, to_seq=LONG, after_at=TIME)
"""Rows that were numbered and never arrived, both ends included; ``after_at``: of the last row before them."""

OBSERVER_WINDOWS = struct(
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
)
"""When a name server's life watched (``from_at`` is null before it was ready), and what was lost of its rows."""

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
"""What is known of an interval when it begins.

``planned``: a down interval that is not an outage, as the last name server that removed the broker recorded it.
``event`` and ``reason`` of a down interval are those of that removal; a failed probe is always PROBE_FAILED.
``continues``: a down interval that takes up an outage which was cut because nobody watched, or that shows only now
because whoever saw the broker up watches no more; it is not a further outage. ``last_sign_of_life_at``: of a down
interval whose start was seen. ``observers``: how many name servers with an opinion of the broker were watching.
"""

BROKER_INTERVALS = T.StructType(
    [
        *struct(dt=DAY, cluster=TEXT, broker_name=TEXT, broker_id=LONG).fields,
        *INTERVAL_START.fields,
        *struct(end_at=TIME, end_censored=BOOL, open=BOOL).fields,
    ]
)
"""Up and down of each broker, merged over all observers.

Partition ``dt`` holds the intervals that ended on that day, and those open at its end (``open``: cut at midnight by
the day's end alone, ``end_censored``). The whole history is every row that is not open plus the last day's open ones.
"""

AVAILABILITY = struct(
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
)
"""A broker's day: ``availability`` = up / (up + down), unplanned down time only.

``outages`` began on the day. ``repaired`` ended on it with both ends seen, ``repair_seconds`` is their whole length,
``mttr_seconds`` their mean. ``mtbf_seconds`` = up time / outages.
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
"""What one observer last recorded of a broker, and the row that says so. ``opinion``: up, down, none (the observer does
not know: its guard keeps a silent broker) or lost (rows of that observer are missing that may have changed it)."""

LAST_LOSS = struct(event=TEXT, reason=TEXT, last_sign_of_life_at=TIME, planned=BOOL)
"""The row that last removed a broker from the routes."""

BROKER_STATE = struct(
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
)
"""Each known broker at the end of a day: with it and the open observer windows the next day can be computed alone.

``current`` is null while nobody watches; ``last_state`` (up, down, left) is what was last known.
"""

BLIND_PERIODS = struct(
    dt=DAY,
    node=TEXT,
    boot_id=TEXT,
    cluster=TEXT,
    why=TEXT,
    from_at=TIME,
    to_at=TIME,
    open=BOOL,
)
"""An observer's own pauses (``why`` PAUSED, ``cluster`` null: all), and the periods of its expiry guard of a cluster
(GUARD). Nothing that it held counts in a pause. In a guard's period only the brokers that it recorded as PROTECTED for
silence or a broken stream are unknown.

A day's row begins where the period began, be it days before, and ends with the day at the latest (``open``).
"""

MAINTENANCE_WINDOWS = struct(
    dt=DAY,
    node=TEXT,
    cluster=TEXT,
    broker_name=TEXT,
    from_at=TIME,
    to_at=TIME,
    open=BOOL,
    until_at=TIME,
)
"""Absences as each name server was told of them; ``broker_name`` null: the whole cluster. ``until_at``: as announced.

A day's row begins where the window began, be it days before, and ends with the day at the latest (``open``).
"""

PARTIAL_VIEWS = broker_day(
    from_at=TIME,
    to_at=TIME,
    open=BOOL,
    seen_up_by=T.ArrayType(TEXT),
    seen_down_by=T.ArrayType(TEXT),
)
"""Times in which some observers saw a broker up and others saw it down (nodes, sorted); cut at midnight (``open``)."""

BROKER_FACTS = broker_day(
    broker_addr=TEXT,
    zone=TEXT,
    host=TEXT,
    incarnation=TEXT,
    broker_version=TEXT,
    owner=TEXT,
    seen_at=TIME,
)
"""What each known broker last said of itself, at the day's end; ``owner`` is its label of that name."""

BROKER_CHANGES = broker_day(
    changed_at=TIME,
    what=TEXT,
    before=TEXT,
    after=TEXT,
)
"""What a broker said anew of itself: ``what`` is address, version, incarnation, zone, host, owner or role (its other
id)."""

OBSERVER_CLOCKS = struct(
    dt=DAY,
    node=TEXT,
    offset_seconds=DOUBLE,
    samples=LONG,
    stepped_seconds=DOUBLE,
)
"""How far a node's clock is ahead of the median of all nodes, by what several of them saw; null where they share
nothing.

``stepped_seconds``: how far its wall clock strayed from its own uptime within a life, steps and drift together; null
where it does not say its uptime. ``samples``: what it shares with others.
"""

NAMESRV_DAYS = struct(
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
)
"""The name servers' own record. ``vanished``: lives that ended without a NAMESRV_STOPPED. ``rows_dropped``: what the
server itself says it could not write. ``overlapping_lives``: lives that wrote while another life of the same node did:
two machines go by one name."""

TABLES = (
    Table("observer_windows", OBSERVER_WINDOWS, OBSERVER),
    Table("blind_periods", BLIND_PERIODS, (*OBSERVER, "from_at", "cluster", "why")),
    Table("maintenance_windows", MAINTENANCE_WINDOWS, ("node", "cluster", "broker_name", "from_at")),
    Table("broker_intervals", BROKER_INTERVALS, (*INSTANCE, "start_at", "end_at", "state")),
    Table("partial_views", PARTIAL_VIEWS, (*INSTANCE, "from_at", "to_at")),
    Table("availability", AVAILABILITY, INSTANCE),
    Table("broker_facts", BROKER_FACTS, INSTANCE),
    Table("broker_changes", BROKER_CHANGES, (*INSTANCE, "changed_at", "what")),
    Table("broker_state", BROKER_STATE, INSTANCE),
    Table("observer_clocks", OBSERVER_CLOCKS, ("node",)),
    Table("namesrv_days", NAMESRV_DAYS, ("node",)),
)
