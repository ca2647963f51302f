"""What questions about the past read, whichever engine reads it: Spark, or the embedded reader without Java."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Protocol

from pyspark.sql import types as T

Row = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

ROUTINE = ("HEARTBEAT", "HEARTBEATS", "QUEUE_STATS", "NAMESRV_ALIVE", "KV_CHANGED")
"""Events that do not affect routes. They show that a run continues, so they are counted but not returned."""
REPEATED = ("CHECKPOINT", "TOPICS")
"""Events that repeat or complete what other rows about a broker say."""
ROW_FIELDS = (
    *("event", "reason", "node", "boot_id", "seq", "cluster", "broker_name", "broker_id", "broker_addr"),
    *("incarnation", "data_version", "interval_ms", "state", "since_ms", "planned"),
)
"""The fields of a row that questions need, beside its time and its detail."""
ENTRY_FIELDS = ("part", "parts", "full", "base", "queues", "removed")
"""Of a TOPICS row: its place in the set, and what it says about the one topic."""


@dataclass(frozen=True, slots=True)
class TopicQuestion:
    """A topic at a moment, and the rows to read for it."""

    topic: str
    at: datetime
    first_day: date
    last_day: date
    """All rows of these UTC days are read, those after the moment too: they show whether a run continued."""
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class ObserverRows:
    """The rows of one run of a name server in the days read, counted. Times are microseconds since 1970."""

    node: str
    boot_id: str
    days: frozenset[date]
    """UTC days with rows."""
    first_us: int
    end_us: int
    """First and last row of the days."""
    rows: int
    """Number of rows up to the moment; without any, the fields of these rows are None."""
    last_us: int | None
    first_seq: int | None
    last_seq: int | None
    next_us: int | None
    next_seq: int | None
    """The row with the smallest number after the moment; None if there is none."""

    def joined(self, other: ObserverRows) -> ObserverRows:
        """Return the counts of both; ``other`` has counted other rows of the same run."""
        following = [each for each in (self, other) if each.next_seq is not None]
        return replace(
            min(following, key=lambda each: each.next_seq or 0, default=self),
            days=self.days | other.days,
            first_us=min(self.first_us, other.first_us),
            end_us=max(self.end_us, other.end_us),
            rows=self.rows + other.rows,
            last_us=max(_known(self.last_us, other.last_us), default=None),
            first_seq=min(_known(self.first_seq, other.first_seq), default=None),
            last_seq=max(_known(self.last_seq, other.last_seq), default=None),
        )


@dataclass(frozen=True, slots=True)
class TopicRows:
    """The rows of a topic's brokers, of their clusters and of the name servers' runs, without `ROUTINE`.

    Each has `ROW_FIELDS`, ``at`` (microseconds since 1970), ``detail`` (JSON text; None for TOPICS) and ``entry`` (of
    TOPICS: `ENTRY_FIELDS`).
    """

    rows: list[Row]
    observers: list[ObserverRows]


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


def _known(*values: int | None) -> list[int]:
    return [value for value in values if value is not None]


def moment_of(value: int) -> datetime:
    """Return the time of microseconds since 1970."""
    return EPOCH + timedelta(microseconds=value)


def microseconds(moment: datetime) -> int:
    """Return microseconds since 1970."""
    return (moment - EPOCH) // timedelta(microseconds=1)


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
