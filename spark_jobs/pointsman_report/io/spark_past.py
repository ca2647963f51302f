"""The past as Spark reads it: any file system, any size."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pointsman.history.row_format import REPEATED, ROUTINE, Row, microseconds
from pointsman.history.topic_selection import ENTRY_FIELDS, ROW_FIELDS, ObserverRows, TopicQuestion, TopicRows
from pointsman_report.io.ledger import Window, read_ledger, unread
from pointsman_report.io.past import with_times
from pointsman_report.io.raw_files import History
from pointsman_report.io.warehouse import Warehouse
from pointsman_report.schemas import OBSERVER, TABLES
from pointsman_report.schemas.table_types import BOOL, INT, TEXT, struct
from pointsman_report.transforms import history_rows

_TOPICS = struct(
    part=INT,
    parts=INT,
    full=BOOL,
    base=TEXT,
    topics=T.MapType(TEXT, T.ArrayType(T.IntegerType())),
    removed=T.ArrayType(TEXT),
)


@dataclass(frozen=True, slots=True)
class SparkPast:
    """Implements `io.past.Past`. Files are read for one question, and nothing is written."""

    warehouse: Warehouse | None = None
    history: History | None = None

    @property
    def has_tables(self) -> bool:
        return self.warehouse is not None

    @property
    def has_files(self) -> bool:
        return self.history is not None

    def topic_rows(self, question: TopicQuestion) -> TopicRows:
        lean = _lean(self.events(question.first_day, question.last_day), question.topic).persist()
        try:
            observers = [_observer(row) for row in _counted(lean, question.at).collect()]
            rows = [row.asDict(recursive=True) for row in _of_topic(lean, question.cluster).collect()]
        finally:
            lean.unpersist()
        return TopicRows(rows, observers)

    def broker_rows(self, broker_name: str, *, cluster: str | None, first_day: date, last_day: date) -> list[Row]:
        of_broker = F.col("broker_name") == broker_name
        if cluster is not None:
            of_broker &= F.col("cluster") == cluster
        is_kept = ~F.col("event").isin(*ROUTINE, *REPEATED)
        found = self.events(first_day, last_day).filter(of_broker & is_kept)
        return [row.asDict() for row in found.select(F.unix_micros("event_at").alias("at"), *ROW_FIELDS).collect()]

    def rows(
        self,
        table: str,
        columns: Sequence[str],
        *,
        first_day: date,
        last_day: date,
        where: Mapping[str, Collection[str]] | None = None,
    ) -> list[Row]:
        if self.warehouse is None:
            return []
        found = self.warehouse.read(table, first_day=first_day, last_day=last_day)
        for name, values in (where or {}).items():
            found = found.filter(F.col(name).isin(*values))
        kinds = {name: TABLES[table].schema[name].dataType for name in columns}
        plain = found.select(*(_plain(F.col(name), kind).alias(name) for name, kind in kinds.items()))
        return with_times((row.asDict(recursive=True) for row in plain.collect()), kinds)

    def events(self, first_day: date, last_day: date) -> DataFrame:
        """Return rows of ``registration_events``, those of files that the warehouse has not read included."""
        stored = None
        if self.warehouse is not None:
            stored = self.warehouse.read("registration_events", first_day=first_day, last_day=last_day)
        if self.history is None:
            if stored is None:
                raise ValueError("neither a warehouse nor a history")
            return stored
        files = self.history.files(first_day=first_day)
        if self.warehouse is not None:
            files = unread(files, read_ledger(self, files), Window(first_day, last_day))
        parsed = history_rows.parsed_lines(self.history.lines(files))
        fresh = history_rows.each_once(history_rows.with_copies(parsed, first_day=first_day, last_day=last_day))
        if stored is None:
            return fresh
        numbers = stored.select(*OBSERVER, "seq")
        return stored.unionByName(fresh.join(numbers, on=[*OBSERVER, "seq"], how="left_anti"))


def _lean(events: DataFrame, topic: str) -> DataFrame:
    """Rows without the entries of other topics."""
    is_set = F.col("event") == "TOPICS"
    at = F.unix_micros("event_at").alias("at")
    # As a generator: a detail is long, and would otherwise be parsed once per field.
    parsed = F.inline(F.array(F.when(is_set, F.from_json("detail", _TOPICS))))
    rows = events.select("dt", at, *ROW_FIELDS, "detail", parsed)
    entry = F.struct(
        *ENTRY_FIELDS[:4],
        F.try_element_at("topics", F.lit(topic)).alias("queues"),
        F.coalesce(F.array_contains("removed", topic), F.lit(False)).alias("removed"),
    )
    no_text = is_set | F.col("event").isin(*ROUTINE)
    return rows.select(
        "dt", "at", *ROW_FIELDS, F.when(~no_text, F.col("detail")).alias("detail"), F.when(is_set, entry).alias("entry")
    )


def _counted(lean: DataFrame, at: datetime) -> DataFrame:
    """One row per run of a name server, as `ObserverRows`."""
    up_to_moment = F.col("at") <= F.lit(microseconds(at))
    number = F.when(up_to_moment, F.col("seq"))
    later = F.when(~up_to_moment, F.col("seq"))
    return lean.groupBy(*OBSERVER).agg(
        F.collect_set("dt").alias("days"),
        F.min("at").alias("first_us"),
        F.max("at").alias("end_us"),
        F.count(number).alias("rows"),
        F.max(F.when(up_to_moment, F.col("at"))).alias("last_us"),
        F.min(number).alias("first_seq"),
        F.max(number).alias("last_seq"),
        F.min_by("at", later).alias("next_us"),
        F.min(later).alias("next_seq"),
    )


def _observer(row: T.Row) -> ObserverRows:
    facts = row.asDict()
    return ObserverRows(**{**facts, "days": frozenset(facts["days"])})


def _of_topic(lean: DataFrame, cluster: str | None) -> DataFrame:
    of_cluster = F.lit(True) if cluster is None else F.col("cluster") == cluster
    mentions = F.col("entry.queues").isNotNull() | F.coalesce(F.col("entry.removed"), F.lit(False))
    groups = lean.filter(mentions & of_cluster).select("cluster", "broker_name").distinct()
    rows = lean.filter(~F.col("event").isin(*ROUTINE)).drop("dt")
    of_groups = rows.join(groups, on=["cluster", "broker_name"], how="left_semi")
    whole = rows.filter(F.col("broker_name").isNull())
    of_clusters = whole.join(groups.select("cluster").distinct(), on="cluster", how="left_semi")
    of_name_servers = whole.filter(F.col("cluster").isNull() & F.col("event").startswith("NAMESRV_"))
    return of_groups.unionByName(of_clusters).unionByName(of_name_servers)


def _plain(column: Column, kind: T.DataType) -> Column:
    """Times as microseconds: PySpark returns them in the zone of the machine, without saying so."""
    match kind:
        case T.TimestampType():
            return F.unix_micros(column)
        case T.ArrayType():
            return F.transform(column, lambda each: _plain(each, kind.elementType))
        case T.StructType():
            fields = (_plain(column[field.name], field.dataType).alias(field.name) for field in kind.fields)
            return F.when(column.isNotNull(), F.struct(*fields))
        case _:
            return column
