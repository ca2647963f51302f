"""Building blocks of the schemas: keys of brokers and observers, column types, and `Table`."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import types as T

INSTANCE = ("cluster", "broker_name", "broker_id")
"""Key of a broker in every table: one replica of one broker group of one cluster."""

OBSERVER = ("node", "boot_id")
"""Key of one run of one name server; ``seq`` numbers its rows from 1."""

DAY, TIME, TEXT, LONG, INT = T.DateType(), T.TimestampType(), T.StringType(), T.LongType(), T.IntegerType()
BOOL, DOUBLE = T.BooleanType(), T.DoubleType()


def struct(**fields: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in fields.items()])


def broker_day(**fields: T.DataType) -> T.StructType:
    """A schema with the key of a broker's day and these fields."""
    return struct(dt=DAY, cluster=TEXT, broker_name=TEXT, broker_id=LONG, **fields)


@dataclass(frozen=True)
class Table:
    """A folder of the warehouse: the schema, and the columns that identify a row within a ``dt``."""

    name: str
    schema: T.StructType
    keys: tuple[str, ...]
