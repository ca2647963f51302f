"""Planned work: maintenance windows, and planned downtime of the listed brokers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.report.formatting import micros as micros_of
from pointsman_report.report.section import TOP, Section, first, left_out, section
from pointsman_report.report.sections.outage_lengths import Outage
from pointsman_report.report.sections.worst_brokers import Broker
from pointsman_report.report.span import Span
from pointsman_report.report.table_rows import Listing, micros, typed

MAX_ROWS = 2_000
MAX_WINDOWS = 100


@dataclass(frozen=True, slots=True)
class MaintenanceWindow:
    """A maintenance window at one or more name servers; ``broker_name`` None: of the whole cluster.

    ``open``: it had not ended at the end of the last day. ``until_at``: the planned end.
    """

    cluster: str
    broker_name: str | None
    from_at: str
    to_at: str
    open: bool
    until_at: str | None
    nodes: list[str]

    @property
    def seconds(self) -> float:
        return (micros_of(self.to_at) - micros_of(self.from_at)) / 1e6


@dataclass(frozen=True, slots=True)
class WindowDay:
    """A row of ``maintenance_windows``: a name server's window, up to the end of a day."""

    node: str
    cluster: str
    broker_name: str | None
    from_at: str
    to_at: str
    until_at: str | None
    open: bool
    day: str


def maintenance_windows(warehouse: Warehouse, span: Span) -> Listing[MaintenanceWindow]:
    """Read the windows that overlap the span, in order of time; windows of several name servers are one."""
    touched = span.touched(warehouse, "maintenance_windows")
    cut = touched.filter((F.unix_micros("from_at") < span.to_us) & (F.unix_micros("to_at") > span.from_us))
    day = F.col("dt").cast("string").alias("day")
    rows = cut.select("node", "cluster", "broker_name", *micros("from_at", "to_at", "until_at"), "open", day)
    found = merged(typed(WindowDay, rows.orderBy("from_at", "cluster", "broker_name", "node", "day").limit(MAX_ROWS)))
    return Listing(found[:MAX_WINDOWS], len(found), max(0, len(found) - MAX_WINDOWS))


def merged(rows: Iterable[WindowDay]) -> list[MaintenanceWindow]:
    """Join the days of a window, and the overlapping windows of several name servers."""
    by_place: dict[tuple[str, str | None], list[WindowDay]] = defaultdict(list)
    for row in rows:
        by_place[row.cluster, row.broker_name].append(row)
    found = [window for own in by_place.values() for window in _joined(own)]
    return sorted(found, key=lambda window: (window.from_at, window.cluster, window.broker_name or ""))


def _joined(rows: list[WindowDay]) -> list[MaintenanceWindow]:
    # A window has a row for each of its days; only the last one shows whether it has ended.
    last: dict[tuple[str, str], WindowDay] = {}
    for row in sorted(rows, key=lambda row: row.day):
        last[row.node, row.from_at] = row
    windows: list[MaintenanceWindow] = []
    for row in sorted(last.values(), key=lambda row: (row.from_at, row.node)):
        before = windows[-1] if windows else None
        if before and row.from_at <= before.to_at:
            windows[-1] = replace(
                before,
                to_at=max(before.to_at, row.to_at),
                open=before.open or row.open,
                until_at=max(filter(None, (before.until_at, row.until_at)), default=None),
                nodes=sorted({*before.nodes, row.node}),
            )
        else:
            windows.append(
                MaintenanceWindow(
                    row.cluster, row.broker_name, row.from_at, row.to_at, row.open, row.until_at, [row.node]
                )
            )
    return windows


def planned_section(found: Listing[MaintenanceWindow], brokers: list[Broker]) -> Section | None:
    """Return the section; None without planned work. Rolling restarts have their own section."""
    leaves = [(broker, leave) for broker in brokers for leave in broker.leaves]
    downs: list[tuple[Broker, Outage]] = [down for down in leaves if down[1].rolling_restart_id is None]
    downs.sort(key=lambda down: (down[1].start_at, down[0].key))
    if not (found.rows or leaves):
        return None
    in_all = len(downs) + sum(broker.leaves_left_out for broker in brokers)
    return section(
        "planned",
        "Planned work",
        windows=first(found, "maintenance windows", "report.json or the table maintenance_windows"),
        downs=downs[:TOP],
        rolling=len(leaves) - len(downs),
        rest=left_out(in_all, len(downs[:TOP]), "planned absences", "report.json or the table broker_intervals"),
    )
