"""Where a question gets its rows of history from: a warehouse, or the name servers' files as they lie there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from pyspark.sql import DataFrame

from pointsman_report.io import History, Warehouse
from pointsman_report.transforms import history_rows


@dataclass(frozen=True, slots=True)
class Source:
    """One of the two. Files are read for the one question and nothing is written: so an hour ago can be asked about."""

    warehouse: Warehouse | None = None
    history: History | None = None

    @property
    def is_warehouse(self) -> bool:
        return self.warehouse is not None

    def events(self, first_day: date, last_day: date) -> DataFrame:
        """Rows of ``registration_events`` of these days."""
        if self.history is not None:
            parsed = history_rows.parsed_lines(self.history.lines(self.history.files(first_day=first_day)))
            return history_rows.registration_events(parsed, first_day=first_day, last_day=last_day)
        return self._tables().read("registration_events", first_day=first_day, last_day=last_day)

    def windows(self, first_day: date, last_day: date) -> DataFrame | None:
        """Rows of ``observer_windows``; None where no report has computed any."""
        if self.warehouse is None:
            return None
        return self.warehouse.read("observer_windows", first_day=first_day, last_day=last_day)

    def incidents(self, first_day: date, last_day: date) -> DataFrame | None:
        """Rows of ``incidents``; None where no report has looked for any."""
        if self.warehouse is None:
            return None
        return self.warehouse.read("incidents", first_day=first_day, last_day=last_day)

    def _tables(self) -> Warehouse:
        if self.warehouse is None:
            raise ValueError("a source is a warehouse or a history")
        return self.warehouse
