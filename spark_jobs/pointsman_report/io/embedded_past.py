"""The past as DuckDB and plain Python read it from a disk of this machine, without Java.

DuckDB reads the tables: it is imported here alone, so a machine that asks no questions does not need it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TypeVar

from pyspark.sql import types as T

from pointsman.history.row_format import REPEATED, ROUTINE, Row, microseconds
from pointsman.history.topic_selection import (
    ROW_FIELDS,
    ObserverRows,
    TopicQuestion,
    TopicRows,
    counted,
    group_of,
    is_of,
    joined,
    lean,
    mentions,
    topic_entry,
)
from pointsman_report.hadoop_files import local_files
from pointsman_report.io.day_folders import partition
from pointsman_report.io.ledger import Window, read_ledger, unread
from pointsman_report.io.past import with_times
from pointsman_report.io.raw_files import raw_files_of
from pointsman_report.io.raw_rows import rows_of
from pointsman_report.io.warehouse import LABEL, checked_label, days_from
from pointsman_report.report_errors import ReportError, one_line
from pointsman_report.schemas import TABLES

Found = TypeVar("Found")
MAX_READS = 3
"""Attempts to read files that a run replaces, or a name server compresses, in the meantime."""
_PARQUET = "read_parquet($files, hive_partitioning = true)"
_PARQUET_OF_ANY_RELEASE = "read_parquet($files, hive_partitioning = true, union_by_name = true)"
_OBSERVERS = f"""
    SELECT node, boot_id, list(DISTINCT dt) AS days, min(us) AS first_us, max(us) AS end_us,
        count(*) FILTER (us <= $at) AS rows, max(us) FILTER (us <= $at) AS last_us,
        min(seq) FILTER (us <= $at) AS first_seq, max(seq) FILTER (us <= $at) AS last_seq,
        arg_min(us, seq) FILTER (us > $at) AS next_us, min(seq) FILTER (us > $at) AS next_seq
    FROM (SELECT dt, node, boot_id, seq, epoch_us(event_at) AS us FROM {_PARQUET})
    GROUP BY node, boot_id
"""  # noqa: S608  # nothing from outside
_PAIRS = "(SELECT unnest(${}::VARCHAR[]) AS c, unnest(${}::VARCHAR[]) AS n)"
_IS_REMOVED = "coalesce(list_contains(json_extract_string(detail, '$.removed[*]'), $topic), false)"
_GROUPS = f"""
    SELECT DISTINCT cluster, broker_name FROM {_PARQUET}
    WHERE event = 'TOPICS'
        AND CASE WHEN json_valid(detail) THEN json_type(detail, $entry) = 'ARRAY' OR {_IS_REMOVED} END
"""  # noqa: S608
_TOPIC_ROWS = f"""
    SELECT epoch_us(event_at) AS "at", {", ".join(ROW_FIELDS)},
        CASE WHEN event <> 'TOPICS' THEN detail END AS detail,
        CASE WHEN event = 'TOPICS' AND json_valid(detail)
            THEN json_extract(detail, ['/part', '/parts', '/full', '/base', $entry]) END AS pieces,
        CASE WHEN event = 'TOPICS' AND json_valid(detail) THEN {_IS_REMOVED} END AS removed
    FROM {_PARQUET}
    WHERE event NOT IN {ROUTINE} AND (
        (cluster, broker_name) IN (SELECT row(c, n) FROM {_PAIRS.format("clusters", "names")})
        OR (broker_name IS NULL AND list_contains($clusters::VARCHAR[], cluster))
        OR (broker_name IS NULL AND cluster IS NULL AND starts_with(event, 'NAMESRV_')))
"""  # noqa: S608
_LEFT_OUT = (*ROUTINE, *REPEATED)
_BROKER_ROWS = f"""
    SELECT epoch_us(event_at) AS "at", {", ".join(ROW_FIELDS)} FROM {_PARQUET}
    WHERE broker_name = $broker_name AND ($cluster IS NULL OR cluster = $cluster) AND event NOT IN {_LEFT_OUT}
"""  # noqa: S608
_NUMBERS = f"""
    SELECT stored.node, stored.boot_id, stored.seq FROM {_PARQUET} AS stored
    JOIN (SELECT unnest($nodes) AS node, unnest($boot_ids) AS boot_id, unnest($first) AS first) AS run
        ON stored.node = run.node AND stored.boot_id = run.boot_id AND stored.seq >= run.first
"""  # noqa: S608


class EmbeddedPast:
    """Implements `io.past.Past` for folders of this machine: of a warehouse, and of histories.

    Raises:
        ReportError: DuckDB is missing, or the warehouse is of another version or format.
    """

    def __init__(self, warehouse: Path | None = None, histories: Sequence[Path] = ()) -> None:
        self._tables = None if warehouse is None else _Tables(warehouse)
        self._histories = histories

    @property
    def has_tables(self) -> bool:
        return self._tables is not None

    @property
    def has_files(self) -> bool:
        return bool(self._histories)

    def topic_rows(self, question: TopicQuestion) -> TopicRows:
        return _again(lambda: self._topic_rows(question))

    def rows(
        self,
        table: str,
        columns: Sequence[str],
        *,
        first_day: date,
        last_day: date,
        where: Mapping[str, Collection[str]] | None = None,
    ) -> list[Row]:
        tables = self._tables
        if tables is None:
            return []
        return _again(lambda: tables.rows(table, columns, days_from(first_day, last_day), where or {}))

    def broker_rows(self, broker_name: str, *, cluster: str | None, first_day: date, last_day: date) -> list[Row]:
        return _again(lambda: self._broker_rows(broker_name, cluster, first_day, last_day))

    def _broker_rows(self, broker_name: str, cluster: str | None, first_day: date, last_day: date) -> list[Row]:
        stored = None if self._tables is None else _StoredEvents(self._tables, first_day, last_day)
        fresh = [
            {name: row[name] for name in ("at", *ROW_FIELDS)}
            for row in self._fresh(first_day, last_day, stored)
            if row["event"] not in _LEFT_OUT and row["broker_name"] == broker_name and cluster in (None, row["cluster"])
        ]
        return fresh if stored is None else stored.rows_of_broker(broker_name, cluster) + fresh

    def _topic_rows(self, question: TopicQuestion) -> TopicRows:
        first_day, last_day = question.first_day, question.last_day
        stored = None if self._tables is None else _StoredEvents(self._tables, first_day, last_day)
        fresh = self._fresh(first_day, last_day, stored)
        at = microseconds(question.at)
        mentioned = {group_of(row) for row in fresh if mentions(row, question.topic)}
        groups = {
            (cluster, name)
            for cluster, name in mentioned | (set() if stored is None else stored.groups(question.topic))
            if cluster is not None and name is not None and question.cluster in (None, cluster)
        }
        rows = [lean(row, question.topic) for row in fresh if is_of(row, groups)]
        observers = counted(fresh, at)
        if stored is None:
            return TopicRows(rows, observers)
        return TopicRows(
            [*stored.rows_of_topic(question.topic, groups), *rows], joined([*stored.observers(at), *observers])
        )

    def _fresh(self, first_day: date, last_day: date, stored: _StoredEvents | None) -> list[Row]:
        """The rows of the files, without those that the warehouse has."""
        days = {"first_day": first_day, "last_day": last_day}
        listed = (file for history in self._histories for file in local_files(history.absolute() / "raw"))
        files = raw_files_of(listed, first_day=first_day)
        if stored is None:
            return list(rows_of(files, **days).values())
        read = rows_of(unread(files, read_ledger(self, files), Window(**days)), **days)
        known = stored.numbers(number[1:] for number in read)
        return [row for number, row in read.items() if number[1:] not in known]


class _Tables:
    """The tables of a warehouse."""

    def __init__(self, folder: Path) -> None:
        try:
            import duckdb  # noqa: PLC0415  # an extra of the package
        except ModuleNotFoundError as error:
            raise ReportError(
                "duckdb is missing, which reads the tables without Java: pip install 'pointsman-report[questions]', or "
                "use --engine spark"
            ) from error
        label = folder / LABEL
        text = label.read_text(encoding="utf-8") if label.exists() else None
        checked_label(text, str(folder), has_tables=(folder / "broker_state").is_dir())
        self._folder = folder
        # Nothing is fetched, and nothing is written beside the tables.
        settings: dict[str, str | bool | int | float | list[str]] = {
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "temp_directory": "",
        }
        self._connection = duckdb.connect(config=settings)
        self._missing, self._error = duckdb.IOException, duckdb.Error

    def files(self, table: str, days: Iterable[date]) -> list[str]:
        folders = (self._folder / table / partition(day) for day in days)
        return [str(file) for folder in folders for file in sorted(folder.glob("[!._]*.parquet"))]

    def query(self, text: str, values: Mapping[str, object]) -> list[Row]:
        """Return rows by column name."""
        try:
            found = self._connection.execute(text, dict(values))
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
        except self._missing as error:
            raise FileNotFoundError(one_line(error)) from error
        except self._error as error:
            raise ReportError(f"cannot read the warehouse {self._folder}: {one_line(error)}") from error

    def rows(
        self, table: str, columns: Sequence[str], days: Iterable[date], where: Mapping[str, Collection[str]]
    ) -> list[Row]:
        """Return rows of a table's days."""
        kinds = {name: TABLES[table].schema[name].dataType for name in columns}
        files = self.files(table, days)
        if not files:
            return []
        plain = ", ".join(f'{_plain(name, kind)} AS "{name}"' for name, kind in kinds.items())
        conditions = " AND ".join(f'list_contains(${name}, "{name}")' for name in where) or "true"
        absent = ", ".join(f'NULL::{sql_type(kind)} AS "{name}"' for name, kind in kinds.items())
        # Files of an earlier release lack the columns that were added since.
        source = f"(FROM {_PARQUET_OF_ANY_RELEASE} UNION ALL BY NAME SELECT {absent} WHERE false)"
        query = f"SELECT {plain} FROM {source} WHERE {conditions}"  # noqa: S608  # names of our schemas
        found = self.query(query, {"files": files, **{name: list(values) for name, values in where.items()}})
        return with_times(found, kinds)


class _StoredEvents:
    """The rows of ``registration_events`` that a question reads. Fails if a run replaces a day in the meantime."""

    def __init__(self, tables: _Tables, first_day: date, last_day: date) -> None:
        self._tables = tables
        self._files = tables.files("registration_events", days_from(first_day, last_day))

    def observers(self, at: int) -> list[ObserverRows]:
        """``at``: the moment, in microseconds since 1970."""
        found = self._query(_OBSERVERS, {"at": at})
        return [ObserverRows(**{**row, "days": frozenset(row["days"])}) for row in found]

    def groups(self, topic: str) -> set[tuple[str | None, str | None]]:
        """The cluster and broker name of each row that mentions the topic."""
        return {group_of(row) for row in self._query(_GROUPS, _named(topic))}

    def rows_of_broker(self, broker_name: str, cluster: str | None) -> list[Row]:
        return self._query(_BROKER_ROWS, {"broker_name": broker_name, "cluster": cluster})

    def rows_of_topic(self, topic: str, groups: Collection[tuple[str, str]]) -> list[Row]:
        clusters, names = [cluster for cluster, _ in groups], [name for _, name in groups]
        found = self._query(_TOPIC_ROWS, {**_named(topic), "clusters": clusters, "names": names})
        return [_with_entry(row) for row in found]

    def numbers(self, read: Iterable[tuple[str, str, int]]) -> set[tuple[str, str, int]]:
        """The node, boot_id and seq of each row of the runs that were ``read``, from the first number read on."""
        first: dict[tuple[str, str], int] = {}
        for node, boot_id, seq in read:
            first[node, boot_id] = min(seq, first.get((node, boot_id), seq))
        if not first:
            return set()
        nodes, boot_ids = zip(*first, strict=True)
        values = {"nodes": list(nodes), "boot_ids": list(boot_ids), "first": list(first.values())}
        return {(row["node"], row["boot_id"], row["seq"]) for row in self._query(_NUMBERS, values)}

    def _query(self, text: str, values: Mapping[str, object]) -> list[Row]:
        return self._tables.query(text, {**values, "files": self._files}) if self._files else []


def _named(topic: str) -> dict[str, str]:
    """The topic, and the JSON pointer to its entry."""
    pointer = topic.replace("~", "~0").replace("/", "~1")
    return {"topic": topic, "entry": f"/topics/{pointer}"}


def _again(read: Callable[[], Found]) -> Found:
    """Read once more if a run replaces a day, or a name server compresses a file, in the meantime."""
    for _ in range(MAX_READS - 1):
        try:
            return read()
        except FileNotFoundError:
            continue
    return read()


def sql_type(kind: T.DataType) -> str:
    """Return DuckDB's name of a type."""
    match kind:
        case T.ArrayType():
            return f"{sql_type(kind.elementType)}[]"
        case T.StructType():
            return f"STRUCT({', '.join(f'{field.name} {sql_type(field.dataType)}' for field in kind.fields)})"
        case T.TimestampType():
            return "TIMESTAMPTZ"
        case _:
            return kind.simpleString()


def _plain(name: str, kind: T.DataType, *, nested: bool = False) -> str:
    """The SQL of a column whose times are microseconds: DuckDB returns them only with another library."""
    column = name if nested else f'"{name}"'
    match kind:
        case T.TimestampType():
            return f"epoch_us({column})"
        case T.ArrayType():
            return f"list_transform({column}, lambda each: {_plain('each', kind.elementType, nested=True)})"
        case T.StructType():
            fields = (
                f"'{each.name}': {_plain(f'{column}.{each.name}', each.dataType, nested=True)}" for each in kind.fields
            )
            return f"CASE WHEN {column} IS NOT NULL THEN {{{', '.join(fields)}}} END"
        case _:
            return column


def _with_entry(row: Row) -> Row:
    """A stored row: ``pieces`` are the JSON of the entry's fields."""
    pieces, removed = row.pop("pieces"), row.pop("removed")
    is_set = row["event"] == "TOPICS"
    found = [None if piece is None else json.loads(piece) for piece in pieces or [None] * 5]
    return row | {"entry": topic_entry(*found, removed=bool(removed)) if is_set else None}
