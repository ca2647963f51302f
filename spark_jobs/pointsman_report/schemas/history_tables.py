"""Raw history, and the tables of what was read of it."""

from __future__ import annotations

from pyspark.sql import types as T

from pointsman_report.schemas.table_types import BOOL, DAY, INT, LONG, TEXT, TIME, Table, struct

RAW_LINE = struct(line=TEXT, file=TEXT, file_modified_at=TIME, fault=TEXT)
"""A line of raw history and where it stood; or no line, and the ``fault`` of its file."""

HISTORY_ROW_JSON = struct(
    schema_version=INT,
    event_at=TEXT,
    uptime_ms=LONG,
    event=TEXT,
    reason=TEXT,
    node=TEXT,
    boot_id=TEXT,
    seq=LONG,
    cluster=TEXT,
    broker_name=TEXT,
    broker_id=LONG,
    broker_addr=TEXT,
    zone=TEXT,
    host=TEXT,
    incarnation=TEXT,
    generation=TEXT,
    broker_version=TEXT,
    data_version=TEXT,
    interval_ms=LONG,
    state=TEXT,
    since_ms=LONG,
    planned=BOOL,
    detail=TEXT,
)
"""A row as it stands in the JSON; ``registration_event.schema.json`` says what each field means."""

REGISTRATION_EVENTS = T.StructType(
    [
        T.StructField("dt", DAY),
        *(
            T.StructField(field.name, TIME if field.name == "event_at" else field.dataType)
            for field in HISTORY_ROW_JSON.fields
        ),
        T.StructField("other", TEXT),
    ]
)
"""The history, typed, each row once. ``detail`` stays JSON text; ``other`` holds fields that the format does not name,
as a JSON object, or null."""

QUARANTINE = struct(dt=DAY, file=TEXT, reason=TEXT, line=TEXT)
"""Lines that are no history rows. ``dt`` is the line's own day, else its folder's, else its file's."""

INGESTED_FILES = struct(
    dt=DAY,
    file=TEXT,
    size=LONG,
    modified_at=TIME,
    rows=LONG,
    bad_lines=LONG,
    fault=TEXT,
    ahead_rows=LONG,
    ahead_from=DAY,
    older_rows=LONG,
    older_to=DAY,
    late_rows=LONG,
    misdated_rows=LONG,
    schema_version=INT,
)
"""The files that the warehouse has read, without ``.gz``, as each was when it was read last; a file that lies there
plain and packed has two rows.

``dt`` is the folder's day, else the file's. A file of the same size and time is not read again, unless it holds rows
that were left aside and are wanted now: ``ahead_rows`` are dated later than they can have been written, the first of
them on ``ahead_from``; ``older_rows`` are of days before those that the run might touch, the last of them on
``older_to``. Of the older ones ``late_rows`` are of days that had been computed without them, and ``misdated_rows`` are
days older than the folder they lie in.
``schema_version``: the version of a row that the reader knew; a file with bad lines is worth another look by a newer
one.
"""

COMPUTED_DAYS = struct(
    dt=DAY,
    rows=LONG,
    warehouse_version=INT,
    code_version=TEXT,
    parameters=TEXT,
    continues=BOOL,
)
"""One row for each computed day: how many rows of history it was computed from, by what and with which parameters
(JSON).

A day that holds more rows now than it was computed from has to be computed anew. ``continues``: the state of the day
before was there.
"""

TABLES = (
    Table("registration_events", REGISTRATION_EVENTS, ("node", "boot_id", "seq")),
    Table("quarantine", QUARANTINE, ("file", "reason", "line")),
    Table("ingested_files", INGESTED_FILES, ("file", "size", "modified_at")),
    Table("computed_days", COMPUTED_DAYS, ()),
)
