"""Stories of one broker each, told row by row and computed together, up to the liveness tables alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from spark_jobs.io import History, Warehouse
from spark_jobs.jobs import liveness, reading
from spark_jobs.jobs.work import Work
from spark_jobs.schemas import liveness as schemas
from tests.spark.histories import MIDNIGHT, NameServer, Row, broker, write_history
from tests.spark.tables import DayRunner

FIRST, LAST = MIDNIGHT.date(), MIDNIGHT.date() + timedelta(days=2)
Story = Callable[[NameServer, NameServer, Row], None]
TABLES = tuple(table.name for table in schemas.TABLES if table.name != "broker_state")


@dataclass(frozen=True)
class Told:
    """The tables of all stories; each story is a cluster with name servers of its own."""

    tables: dict[str, list[dict[str, Any]]]

    def of_broker(self, table: str, name: str, *, day: date | None = None) -> list[dict[str, Any]]:
        return [row for row in self.tables[table] if row["cluster"] == name and day in {None, row["dt"]}]

    def of_node(self, table: str, name: str, *, node: int = 1, day: date | None = None) -> list[dict[str, Any]]:
        server = f"{name}-ns{node}:9876"
        return [row for row in self.tables[table] if row["node"] == server and day in {None, row["dt"]}]

    def intervals(self, name: str) -> list[dict[str, Any]]:
        """Each interval once, in order."""
        rows = self.of_broker("broker_intervals", name)
        return sorted(
            (row for row in rows if not row["open"] or row["dt"] == LAST),
            key=lambda row: (row["start_at"], row["end_at"]),
        )

    def downs(self, name: str) -> list[dict[str, Any]]:
        return [row for row in self.intervals(name) if row["state"] == "down"]


@dataclass
class Storybook:
    """Collects stories; ``story`` is the decorator that adds one."""

    stories: dict[str, Story] = field(default_factory=dict)

    def story(self, tell: Story) -> Story:
        self.stories[tell.__name__] = tell
        return tell

    def tell(self, run_days: DayRunner, folder: Path) -> Told:
        rows: list[Row] = []
        for name, tell in self.stories.items():
            one, two = (NameServer(node=f"{name}-ns{n}:9876").start() for n in (1, 2))
            tell(one, two, broker("b", cluster=name))
            rows += one.rows + two.rows
        history = History(run_days.spark, [str(write_history(folder / "history", rows, one_file_a_day=True))])
        warehouse = Warehouse(run_days.spark, str(folder / "warehouse"))
        work = Work(history, warehouse, FIRST, LAST, run_days.parameters, lambda _: None)
        liveness.run(reading.run(work).work)
        warehouse.publish(first_day=FIRST, last_day=LAST)
        return Told({table: run_days.rows(folder / "warehouse", table, FIRST, LAST) for table in TABLES})
