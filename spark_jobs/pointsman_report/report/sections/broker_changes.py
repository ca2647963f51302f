"""Changes of brokers in the span: versions, addresses, zones and hosts, processes."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.report.formatting import counted
from pointsman_report.report.section import Section, first, section
from pointsman_report.report.span import Span
from pointsman_report.report.table_rows import Instance, Listing, micros, typed, worst
from pointsman_report.schemas import INSTANCE

MAX_CHANGES = 200
MAX_STEPS = 20

INCARNATION = "incarnation"


@dataclass(frozen=True, slots=True)
class Change(Instance):
    """A row of ``broker_changes``."""

    changed_at: str
    what: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class ChangeCount:
    """The number of changes of one fact, and of the brokers concerned."""

    what: str
    changes: int
    brokers: int


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A change from one version to another."""

    before: str | None
    after: str | None
    brokers: int
    first_at: str


@dataclass(frozen=True, slots=True)
class Changes(Listing[Change]):
    """The changes, one by one, except plain restarts."""

    by_what: list[ChangeCount] = field(default_factory=list)
    versions: list[NewVersion] = field(default_factory=list)


def changes(warehouse: Warehouse, span: Span) -> Changes:
    """Read the changes of brokers."""
    rows = span.touched(warehouse, "broker_changes").filter(span.holds("changed_at"))
    brokers = F.count_distinct(*INSTANCE).alias("brokers")
    counts = typed(ChangeCount, rows.groupBy("what").agg(F.count("*").alias("changes"), brokers).orderBy("what"))
    if not counts:
        return Changes()
    versions = rows.filter(F.col("what") == "version").groupBy("before", "after")
    steps = versions.agg(brokers, F.min(F.unix_micros("changed_at")).alias("first_at"))
    listed = rows.filter(F.col("what") != INCARNATION).select(
        *INSTANCE, *micros("changed_at"), "what", "before", "after"
    )
    few = worst(Change, listed, MAX_CHANGES, "changed_at", *INSTANCE, "what")
    upgraded = steps.orderBy(F.col("brokers").desc(), "before", "after").limit(MAX_STEPS)
    return Changes(few.rows, few.in_all, few.left_out, counts, typed(NewVersion, upgraded))


def changes_section(found: Changes) -> Section | None:
    """Return the section; None without changes."""
    if not found.by_what:
        return None
    counts = "; ".join(
        f"{row.what}: {counted(row.changes, 'change')} at {counted(row.brokers, 'broker')}" for row in found.by_what
    )
    listed = first(found, "changes", "report.json or the table broker_changes")
    return section("changes", "Changes", listed=listed, counts=counts, versions=found.versions)
