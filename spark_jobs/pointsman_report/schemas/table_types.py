"""What all schemas are made of: a broker's and an observer's keys, and what a table is."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import types as T

INSTANCE = ("cluster", "broker_name", "broker_id")
"""What a broker is in every table: one replica of one broker group of one cluster."""

OBSERVER = ("node", "boot_id")
"""One life of one name server; ``seq`` counts its rows from 1."""

DAY, TIME, TEXT, LONG, INT = T.DateType(), T.TimestampType(), T.StringType(), T.LongType(), T.IntegerType()
BOOL, DOUBLE = T.BooleanType(), T.DoubleType()


def struct(**fields: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in fields.items()])


def broker_day(**fields: T.DataType) -> T.StructType:
    """A row of a broker's day."""
    return struct(dt=DAY, cluster=TEXT, broker_name=TEXT, broker_id=LONG, **fields)


@dataclass(frozen=True)
class Table:
    """A folder of the warehouse: what a row is, and what tells two rows of one ``dt`` apart."""

    name: str
    schema: T.StructType
    keys: tuple[str, ...]
