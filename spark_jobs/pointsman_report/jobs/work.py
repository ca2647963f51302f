"""What every stage of a run is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta

from pointsman_report.io import History, Warehouse
from pointsman_report.parameters import Parameters

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Work:
    """The days to compute, and where from and to. A stage reads what was staged before it and stages its own tables."""

    history: History
    warehouse: Warehouse
    first_day: date
    last_day: date
    parameters: Parameters
    say: Progress
    looks_back: bool = False
    """Take late rows of the days before too, and compute from the first day that got any."""
    reread: bool = False
    """Drop what the warehouse holds of these days' history and read the raw files alone."""

    @property
    def day_before(self) -> date:
        return self.first_day - timedelta(days=1)
