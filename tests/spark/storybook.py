"""The shared history: one story per cluster, from many modules, computed in one pass and read table by table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from tests.spark.histories import MIDNIGHT, NameServer, Row, broker, write_history
from tests.spark.tables import DayRunner

FIRST, SECOND, LAST = (MIDNIGHT.date() + timedelta(days=n) for n in range(3))
Story = Callable[[NameServer, NameServer, Row], None]


class Tables(dict[str, list[dict[str, Any]]]):
    """The tables of a warehouse, each read at its first use."""

    def __init__(self, run_days: DayRunner, warehouse: Path) -> None:
        super().__init__()
        self._run_days, self._warehouse = run_days, warehouse

    def __missing__(self, table: str) -> list[dict[str, Any]]:
        self[table] = self._run_days.rows(self._warehouse, table, FIRST, LAST)
        return self[table]


@dataclass(frozen=True)
class Stories:
    """The tables of all stories; each story is a cluster with its own name servers."""

    history: Path
    warehouse: Path
    tables: Tables

    def rows(
        self, table: str, name: str, *, day: date | None = None, broker_name: str | None = None
    ) -> list[dict[str, Any]]:
        rows = [row for row in self.tables[table] if row["cluster"] == name and day in {None, row["dt"]}]
        return [row for row in rows if broker_name in {None, row.get("broker_name")}]

    def of_node(self, table: str, name: str, *, node: int = 1, day: date | None = None) -> list[dict[str, Any]]:
        server = f"{name}-ns{node}:9876"
        return [row for row in self.tables[table] if row["node"] == server and day in {None, row["dt"]}]

    def intervals(self, name: str) -> list[dict[str, Any]]:
        """Each interval once, in order."""
        rows = self.rows("broker_intervals", name)
        return sorted(
            (row for row in rows if not row["open"] or row["dt"] == LAST),
            key=lambda row: (row["start_at"], row["end_at"]),
        )

    def downs(self, name: str) -> list[dict[str, Any]]:
        return [row for row in self.intervals(name) if row["state"] == "down"]

    def class_of(self, name: str, *, day: date = FIRST) -> str:
        (row,) = self.rows("flapping", name, day=day, broker_name="b")
        return str(row["class"])


@dataclass
class Storybook:
    """Collects stories from the modules that pytest imports; ``story`` is the decorator that adds one."""

    stories: dict[str, Story] = field(default_factory=dict)
    others: dict[str, Callable[[], Iterable[Row]]] = field(default_factory=dict)

    def story(self, play: Story) -> Story:
        self.add(play.__name__, play)
        return play

    def add(self, name: str, play: Story) -> None:
        assert name not in self.stories, f"two stories are called {name}"
        self.stories[name] = play

    def add_rows(self, name: str, rows: Callable[[], Iterable[Row]]) -> None:
        """Add rows of clusters and name servers that no story has."""
        self.others[name] = rows

    def rows(self) -> list[Row]:
        rows = [row for others in self.others.values() for row in others()]
        for name, play in self.stories.items():
            one, two = (NameServer(node=f"{name}-ns{n}:9876").start() for n in (1, 2))
            play(one, two, broker("b", cluster=name))
            rows += one.rows + two.rows
        return rows

    def compute(self, run_days: DayRunner, folder: Path) -> Stories:
        history = write_history(folder / "history", self.rows(), one_file_a_day=True)
        run_days.compute(folder / "warehouse", [history], FIRST, LAST)
        return Stories(history, folder / "warehouse", Tables(run_days, folder / "warehouse"))


book = Storybook()
story = book.story
