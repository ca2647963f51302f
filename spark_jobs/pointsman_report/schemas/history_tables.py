"""Raw history, and the tables of ingested rows and files."""

from __future__ import annotations

from pyspark.sql import types as T

from pointsman.history.row_format import FIELDS
from pointsman_report.schemas.table_types import BOOL, DAY, INT, LONG, TEXT, TIME, Table, struct

RAW_LINE = struct(line=TEXT, file=TEXT, file_modified_at=TIME, fault=TEXT)
"""A line of raw history and its file; or no line, and the ``fault`` (read error) of the file."""

HISTORY_ROW_JSON = struct(
    **{name: {"int": INT, "long": LONG, "bool": BOOL, "text": TEXT}[kind] for name, kind in FIELDS.items()}
)
"""A row as in the JSON; ``registration_event.schema.json`` describes each field."""

REGISTRATION_EVENTS = Table(
    "registration_events",
    ("node", "boot_id", "seq"),
    T.StructType(
        [
            T.StructField("dt", DAY),
            *(
                T.StructField(field.name, TIME if field.name == "event_at" else field.dataType)
                for field in HISTORY_ROW_JSON.fields
            ),
            T.StructField("other", TEXT),
        ]
    ),
)
"""The history, typed, each row once. ``detail`` stays JSON text; ``other`` is a JSON object of unknown fields, or
null."""

QUARANTINE = Table("quarantine", ("file", "reason", "line"), struct(dt=DAY, file=TEXT, reason=TEXT, line=TEXT))
"""Lines that are not history rows. ``dt`` is the day of the line, else of its folder, else of its file."""

INGESTED_FILES = Table(
    "ingested_files",
    ("file", "size", "modified_at"),
    struct(
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
    ),
)
"""The files read into the warehouse, without ``.gz``, as of the last read; a file that exists both plain and compressed
has two rows.

``dt`` is the folder's day, else the file's. A file of the same size and time is not read again, unless it has skipped
rows that are needed now: ``ahead_rows`` are dated in the future, the first of them on ``ahead_from``; ``older_rows``
are of days before the days of the run, the last of them on ``older_to``. Of the older rows, ``late_rows`` are of days
that were computed without them, and ``misdated_rows`` are days older than their folder. ``schema_version``: the row
version of the reader; a newer reader reads files with bad lines again.
"""

COMPUTED_DAYS = Table(
    "computed_days",
    (),
    struct(
        dt=DAY,
        rows=LONG,
        warehouse_version=INT,
        code_version=TEXT,
        parameters=TEXT,
        continues=BOOL,
    ),
)
"""One row for each computed day: number of history rows, code version and parameters (JSON).

A day that has more rows now must be recomputed. ``continues``: the state of the day before was available.
"""

TABLES = (
    REGISTRATION_EVENTS,
    QUARANTINE,
    INGESTED_FILES,
    COMPUTED_DAYS,
)
