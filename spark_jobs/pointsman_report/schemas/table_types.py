"""Building blocks of the schemas: keys of brokers and observers, column types, and `Table`."""

from __future__ import annotations

from typing import Self

from pyspark.sql import types as T

INSTANCE = ("cluster", "broker_name", "broker_id")
"""Key of a broker in every table: one replica of one broker group of one cluster."""

OBSERVER = ("node", "boot_id")
"""Key of one run of one name server; ``seq`` numbers its rows from 1."""

DAY, TIME, TEXT, LONG, INT = T.DateType(), T.TimestampType(), T.StringType(), T.LongType(), T.IntegerType()
BOOL, DOUBLE = T.BooleanType(), T.DoubleType()


def struct(**fields: T.DataType) -> T.StructType:
    """Return a schema of these fields, in this order."""
    return T.StructType([T.StructField(name, kind) for name, kind in fields.items()])


def broker_day(**fields: T.DataType) -> T.StructType:
    """Return a schema with the key of a broker's day and these fields."""
    return struct(dt=DAY, cluster=TEXT, broker_name=TEXT, broker_id=LONG, **fields)


class Table(str):
    """The name of a table, which is its folder in the warehouse, with its key and its schema."""

    __slots__ = ("keys", "schema")

    keys: tuple[str, ...]
    """The columns that identify a row within a ``dt``, and by which it is sorted; rows of one moment may share them."""
    schema: T.StructType

    def __new__(cls, name: str, keys: tuple[str, ...], schema: T.StructType) -> Self:
        """Make a table of a name that no other table has."""
        table = super().__new__(cls, name)
        table.keys, table.schema = keys, schema
        return table

    @property
    def columns(self) -> list[str]:
        """The names of its columns, in order."""
        return self.schema.fieldNames()
