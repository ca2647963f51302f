"""Reliability of the name servers: runs, clocks, and disagreements."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.report.section import TOP, Section, first, left_out, section
from pointsman_report.report.sections.watch_gaps import NameServerRun
from pointsman_report.report.span import Span
from pointsman_report.report.table_rows import Instance, Listing, micros, total_seconds, typed, worst
from pointsman_report.schemas import INSTANCE
from pointsman_report.schemas.liveness_tables import NAMESRV_DAYS
from pointsman_report.transforms.utc_days import seconds

MAX_NODES = 50
MAX_VIEWS = 50
LONG_VIEW_SECONDS = 60

_HIGHEST = ("warm_up_seconds_max",)


@dataclass(frozen=True, slots=True)
class Node:
    """A name server's rows of ``namesrv_days``, summed."""

    node: str
    lives: int
    starts: int | None
    stops: int | None
    vanished: int
    watched_seconds: float
    pauses: int | None
    paused_seconds: float
    guard_activations: int | None
    guard_seconds: float
    rejected: int | None
    rows: int | None
    rows_missing: int | None
    rows_dropped: int | None
    overlapping_lives: int | None
    warm_up_seconds_max: float | None


@dataclass(frozen=True, slots=True)
class NodeClock:
    """The offset of a name server's clock to the median of all, on its worst day."""

    node: str
    offset_seconds: float | None
    samples: int | None
    stepped_seconds: float | None


@dataclass(frozen=True, slots=True)
class PartialView(Instance):
    """A period in which some name servers saw a broker up and others saw it down; ``seconds`` within the span."""

    from_at: str
    to_at: str
    seconds: float
    seen_up_by: list[str] | None
    seen_down_by: list[str] | None


@dataclass(frozen=True, slots=True)
class PartialViews(Listing[PartialView]):
    """Disagreements of more than a minute, the longest first, and the number of ``brokers``."""

    brokers: int = 0


@dataclass(frozen=True, slots=True)
class NameServers:
    """Figures of the name servers."""

    nodes: Listing[Node] = field(default_factory=Listing)
    clocks: list[NodeClock] = field(default_factory=list)
    partial_views: PartialViews = field(default_factory=PartialViews)


def name_servers(warehouse: Warehouse, span: Span) -> NameServers:
    """Read the record of the name servers."""
    summed = [name for name in NAMESRV_DAYS.columns if name not in ("dt", "node", *_HIGHEST)]
    days = span.named(warehouse, "namesrv_days").groupBy("node")
    sums = (total_seconds(name) if name.endswith("_seconds") else F.sum(name).alias(name) for name in summed)
    nodes = days.agg(*sums, *(F.max(name).alias(name) for name in _HIGHEST))
    return NameServers(worst(Node, nodes, MAX_NODES, "node"), _clocks(warehouse, span), _partial_views(warehouse, span))


def _clocks(warehouse: Warehouse, span: Span) -> list[NodeClock]:
    rows = span.named(warehouse, "observer_clocks")
    off = F.struct(F.abs("offset_seconds"), "dt")
    nodes = rows.groupBy("node").agg(
        F.max_by("offset_seconds", off).alias("offset_seconds"),
        F.sum("samples").alias("samples"),
        F.max("stepped_seconds").alias("stepped_seconds"),
    )
    return typed(NodeClock, nodes.orderBy(F.abs("offset_seconds").desc_nulls_last(), "node").limit(MAX_NODES))


def _partial_views(warehouse: Warehouse, span: Span) -> PartialViews:
    views = span.touched(warehouse, "partial_views").withColumn("cut", span.cut("from_at", "to_at"))
    views = views.withColumn("seconds", seconds(F.col("cut"))).filter(F.col("seconds") > LONG_VIEW_SECONDS)
    known = views.select(*INSTANCE, *micros("from_at", "to_at"), "seconds", "seen_up_by", "seen_down_by")
    few = worst(PartialView, known, MAX_VIEWS, F.col("seconds").desc(), "from_at", *INSTANCE)
    brokers = known.select(*INSTANCE).distinct().count() if few.rows else 0
    return PartialViews(few.rows, few.in_all, few.left_out, brokers)


def name_servers_section(found: NameServers, observers: list[NameServerRun], *, in_all: int) -> Section | None:
    """``in_all``: number of runs of name servers; ``observers`` are the first of them."""
    runs = observers[:TOP]
    views = first(found.partial_views, "disagreements over a minute", "the table partial_views")
    if not (found.nodes.rows or runs or views.rows):
        return None
    return section(
        "nameservers",
        "Name servers",
        nodes=found.nodes.rows,
        clocks={clock.node: clock for clock in found.clocks},
        runs=runs,
        other_runs=left_out(in_all, len(runs), "runs", "the table observer_windows"),
        views=views,
    )
