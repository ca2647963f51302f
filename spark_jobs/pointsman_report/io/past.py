"""What questions about the past read, whichever engine reads it: Spark, or the embedded reader without Java."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from typing import Any, Protocol

from pyspark.sql import types as T

from pointsman.history.row_format import Row, moment_of
from pointsman.history.topic_selection import TopicQuestion, TopicRows


class Past(Protocol):
    """Tables of a warehouse, rows of raw history files, or both: then files that the warehouse has not read."""

    @property
    def has_tables(self) -> bool:
        """Whether a warehouse is read."""

    @property
    def has_files(self) -> bool:
        """Whether raw history files are read."""

    def topic_rows(self, question: TopicQuestion) -> TopicRows:
        """Return each row once; rows that the warehouse has are taken from there."""

    def broker_rows(self, broker_name: str, *, cluster: str | None, first_day: date, last_day: date) -> list[Row]:
        """Return the rows about one broker name, each once, in no order: ``at`` and `ROW_FIELDS`.

        Rows of `ROUTINE` and `REPEATED` are left out.
        """

    def rows(
        self,
        table: str,
        columns: Sequence[str],
        *,
        first_day: date,
        last_day: date,
        where: Mapping[str, Collection[str]] | None = None,
    ) -> list[Row]:
        """Return rows of a table, in no order; none without a warehouse. Times are in UTC.

        ``where``: the values that a column may have.
        """


def with_times(rows: Iterable[Row], columns: Mapping[str, T.DataType]) -> list[Row]:
    """Return rows of a table with their times, read as microseconds since 1970, as datetimes."""
    # Most columns have no times: a question may read 100,000 rows.
    kinds = {
        name: kind for name, kind in columns.items() if isinstance(kind, T.TimestampType | T.ArrayType | T.StructType)
    }
    if not kinds:
        return list(rows)
    return [row | {name: _with_times(row[name], kind) for name, kind in kinds.items()} for row in rows]


def _with_times(value: Any, kind: T.DataType) -> Any:  # noqa: ANN401  # what the column holds
    match kind:
        case _ if value is None:
            return None
        case T.TimestampType():
            return moment_of(value)
        case T.ArrayType():
            return [_with_times(each, kind.elementType) for each in value]
        case T.StructType():
            return {field.name: _with_times(value[field.name], field.dataType) for field in kind.fields}
        case _:
            return value
