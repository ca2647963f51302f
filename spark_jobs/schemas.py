"""Every table of the warehouse and every input, as a named ``StructType``.

A table is a folder of the same name, partitioned by ``dt`` (a UTC day). Times are UTC; durations are seconds in
columns that end in ``_seconds``. A transform begins and ends with a ``select`` of exactly these columns.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import types as T

INSTANCE = ("cluster", "broker_name", "broker_id")
"""What a broker is in every table: one replica of one broker group of one cluster."""

OBSERVER = ("node", "boot_id")
"""One life of one name server; ``seq`` counts its rows from 1."""


def _struct(**fields: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in fields.items()])


_DAY, _TIME, _TEXT, _LONG, _INT = T.DateType(), T.TimestampType(), T.StringType(), T.LongType(), T.IntegerType()
_BOOL, _DOUBLE = T.BooleanType(), T.DoubleType()

RAW_LINE = _struct(line=_TEXT, file=_TEXT, file_modified_at=_TIME, fault=_TEXT)
"""A line of raw history and where it stood; or no line, and the ``fault`` of its file."""

HISTORY_ROW_JSON = _struct(
    schema_version=_INT,
    event_at=_TEXT,
    uptime_ms=_LONG,
    event=_TEXT,
    reason=_TEXT,
    node=_TEXT,
    boot_id=_TEXT,
    seq=_LONG,
    cluster=_TEXT,
    broker_name=_TEXT,
    broker_id=_LONG,
    broker_addr=_TEXT,
    zone=_TEXT,
    host=_TEXT,
    incarnation=_TEXT,
    generation=_TEXT,
    broker_version=_TEXT,
    data_version=_TEXT,
    interval_ms=_LONG,
    detail=_TEXT,
)
"""A row as it stands in the JSON; ``registration_event.schema.json`` says what each field means."""

REGISTRATION_EVENTS = T.StructType(
    [
        T.StructField("dt", _DAY),
        *(
            T.StructField(field.name, _TIME if field.name == "event_at" else field.dataType)
            for field in HISTORY_ROW_JSON.fields
        ),
    ]
)
"""The history, typed, each row once. ``detail`` stays JSON text."""

QUARANTINE = _struct(dt=_DAY, file=_TEXT, reason=_TEXT, line=_TEXT)
"""Lines that are no history rows. ``dt`` is the line's own day, else its folder's, else its file's."""

SEQ_GAP = _struct(from_seq=_LONG, to_seq=_LONG)
"""Rows that were numbered and never arrived, both ends included."""

OBSERVER_WINDOWS = _struct(
    dt=_DAY,
    node=_TEXT,
    boot_id=_TEXT,
    from_at=_TIME,
    to_at=_TIME,
    open=_BOOL,
    last_row_at=_TIME,
    last_seq=_LONG,
    rows=_LONG,
    rows_missing=_LONG,
    gaps=T.ArrayType(SEQ_GAP),
)
"""When a name server's life watched (``from_at`` is null before it was ready), and what was lost of its rows."""

INTERVAL_START = _struct(
    state=_TEXT,
    start_at=_TIME,
    start_censored=_BOOL,
    planned=_BOOL,
    continues=_BOOL,
    event=_TEXT,
    reason=_TEXT,
    last_sign_of_life_at=_TIME,
    observers=_LONG,
)
"""What is known of an interval when it begins.

``planned``: a down interval that began with an UNREGISTERED. ``continues``: a down interval that takes up an outage
which was cut because nobody watched, or that shows only now because whoever saw the broker up watches no more; it is
not a further outage. ``observers``: how many name servers with an opinion
of the broker were watching.
"""

BROKER_INTERVALS = T.StructType(
    [
        *_struct(dt=_DAY, cluster=_TEXT, broker_name=_TEXT, broker_id=_LONG).fields,
        *INTERVAL_START.fields,
        *_struct(end_at=_TIME, end_censored=_BOOL, open=_BOOL).fields,
    ]
)
"""Up and down of each broker, merged over all observers.

Partition ``dt`` holds the intervals that ended on that day, and those open at its end (``open``: cut at midnight by
the day's end alone, ``end_censored``). The whole history is every row that is not open plus the last day's open ones.
"""

AVAILABILITY = _struct(
    dt=_DAY,
    cluster=_TEXT,
    broker_name=_TEXT,
    broker_id=_LONG,
    up_seconds=_DOUBLE,
    down_seconds=_DOUBLE,
    planned_seconds=_DOUBLE,
    availability=_DOUBLE,
    outages=_LONG,
    repaired=_LONG,
    repair_seconds=_DOUBLE,
    longest_outage_seconds=_DOUBLE,
    mttr_seconds=_DOUBLE,
    mtbf_seconds=_DOUBLE,
)
"""A broker's day: ``availability`` = up / (up + down), unplanned down time only.

``outages`` began on the day. ``repaired`` ended on it with both ends seen, ``repair_seconds`` is their whole length,
``mttr_seconds`` their mean. ``mtbf_seconds`` = up time / outages.
"""

FLAP_CHARGES = _struct(
    dt=_DAY,
    cluster=_TEXT,
    broker_name=_TEXT,
    broker_id=_LONG,
    charged_at=_TIME,
    cause=_TEXT,
    points=_DOUBLE,
    penalty=_DOUBLE,
)
"""Each thing a broker was charged for, and its penalty just after."""

FLAPPING = T.StructType(
    [
        T.StructField("dt", _DAY),
        T.StructField("cluster", _TEXT),
        T.StructField("broker_name", _TEXT),
        T.StructField("broker_id", _LONG),
        T.StructField("class", _TEXT),
        T.StructField("down_count", _LONG),
        T.StructField("sign_count", _LONG),
        T.StructField("charged_points", _DOUBLE),
        T.StructField("penalty_start", _DOUBLE),
        T.StructField("penalty_max", _DOUBLE),
        T.StructField("penalty_end", _DOUBLE),
        T.StructField("raised", _BOOL),
        T.StructField("flagged", _BOOL),
        T.StructField("flapped_days", _INT),
    ]
)
"""A broker's day as the score sees it.

``raised``: a charge of the day took the penalty above the threshold. ``flagged``: still above the reuse threshold at
the day's end. ``flapped_days``: days with ``raised`` among the last seven.
"""

OPINION = _struct(
    node=_TEXT,
    boot_id=_TEXT,
    seq=_LONG,
    event_at=_TIME,
    event=_TEXT,
    reason=_TEXT,
    last_sign_of_life_at=_TIME,
    opinion=_TEXT,
)
"""What one observer last said of a broker: up or down, and the row that said it."""

LAST_LOSS = _struct(event=_TEXT, reason=_TEXT, last_sign_of_life_at=_TIME)
"""The row that last said a broker was gone."""

BROKER_STATE = _struct(
    dt=_DAY,
    cluster=_TEXT,
    broker_name=_TEXT,
    broker_id=_LONG,
    current=INTERVAL_START,
    last_state=_TEXT,
    last_loss=LAST_LOSS,
    opinions=T.ArrayType(OPINION),
    first_seen_on=_DAY,
    last_seen_on=_DAY,
    penalty=_DOUBLE,
    penalty_at=_TIME,
    flagged=_BOOL,
    flapped_on=T.ArrayType(_DAY),
)
"""Each known broker at the end of a day: with it and the open observer windows the next day can be computed alone.

``current`` is null while nobody watches; ``last_state`` (up, down, left) is what was last known.
"""


@dataclass(frozen=True)
class Table:
    """A folder of the warehouse: what a row is, and what tells two rows of one ``dt`` apart."""

    name: str
    schema: T.StructType
    keys: tuple[str, ...]


TABLES = {
    table.name: table
    for table in (
        Table("registration_events", REGISTRATION_EVENTS, ("node", "boot_id", "seq")),
        Table("quarantine", QUARANTINE, ("file", "reason", "line")),
        Table("observer_windows", OBSERVER_WINDOWS, OBSERVER),
        Table("broker_intervals", BROKER_INTERVALS, (*INSTANCE, "start_at", "end_at", "state")),
        Table("availability", AVAILABILITY, INSTANCE),
        Table("flap_charges", FLAP_CHARGES, (*INSTANCE, "charged_at", "cause")),
        Table("flapping", FLAPPING, INSTANCE),
        Table("broker_state", BROKER_STATE, INSTANCE),
    )
}
