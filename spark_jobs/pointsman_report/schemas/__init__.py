"""Every table of the warehouse as a `Table`, and every input as a named ``StructType``.

A table is a folder of the same name, partitioned by ``dt`` (a UTC day). Times are UTC; durations are seconds in
columns that end in ``_seconds``. A transform begins and ends with a ``select`` of exactly these columns.
"""

from __future__ import annotations

from pointsman_report.schemas import (
    flapping_tables,
    health_tables,
    history_tables,
    liveness_tables,
    memory_tables,
    topic_tables,
)
from pointsman_report.schemas.table_types import INSTANCE, OBSERVER, Table

__all__ = ["INSTANCE", "OBSERVER", "TABLES", "WAREHOUSE_VERSION", "Table"]

WAREHOUSE_VERSION = 4
"""Version of all tables together. A warehouse of another version is rejected: recompute it from raw history."""

TABLES: dict[str, Table] = {
    table: table
    for table in (
        *history_tables.TABLES,
        *liveness_tables.TABLES,
        *flapping_tables.TABLES,
        *memory_tables.TABLES,
        *topic_tables.TABLES,
        *health_tables.TABLES,
    )
}
