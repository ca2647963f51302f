"""Tables and rows of the past that a test states, in place of a warehouse."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from pointsman.history.row_format import Row
from pointsman.history.topic_selection import TopicQuestion, TopicRows
from pointsman_report.schemas import TABLES


@dataclass
class StatedPast:
    """Implements `pointsman_report.io.past.Past`; a column that a row does not state is null."""

    tables: dict[str, list[Row]] = field(default_factory=dict)
    """By table, with their day ``dt``."""
    broker: list[Row] = field(default_factory=list)
    """What `broker_rows` returns of its days, with their day ``dt``."""
    topic: TopicRows = field(default_factory=lambda: TopicRows([], []))
    """What `topic_rows` returns."""
    has_tables = has_files = True

    def topic_rows(self, question: TopicQuestion) -> TopicRows:
        del question
        return self.topic

    def broker_rows(self, broker_name: str, *, cluster: str | None, first_day: date, last_day: date) -> list[Row]:
        return [
            row
            for row in self.broker
            if row["broker_name"] == broker_name
            and cluster in (None, row["cluster"])
            and first_day <= row["dt"] <= last_day
        ]

    def rows(
        self,
        table: str,
        columns: Sequence[str],
        *,
        first_day: date,
        last_day: date,
        where: Mapping[str, Collection[str]] | None = None,
    ) -> list[Row]:
        assert set(columns) <= set(TABLES[table].columns)
        return [
            {name: row.get(name) for name in columns}
            for row in self.tables.get(table, [])
            if first_day <= row["dt"] <= last_day
            and all(row.get(name) in values for name, values in (where or {}).items())
        ]
