"""The headline: brokers by class, clusters against their objectives, flapping, new and removed brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.report.drawing import drawn_twice
from pointsman_report.report.formatting import broker_label, some
from pointsman_report.report.meanings import WORST_FIRST
from pointsman_report.report.section import Section, section
from pointsman_report.report.sections.broker_scores import FLAPPING_NOW
from pointsman_report.report.span import Span
from pointsman_report.report.table_rows import Row, collect, key, ratio, total_seconds
from pointsman_report.schemas import INSTANCE

GONE = ("retired",)
"""Removed as planned; findings name those that are dead or unseen."""
MIN_COVERAGE_PER_BROKER_SECONDS = 43_200.0
"""Half a day of each broker; with less data an objective is not evaluated."""
MAX_CLUSTERS = 100
MAX_NAMED = 20

_SECONDS = ("up_seconds", "down_seconds", "planned_seconds")
_COUNTS = ("brokers", "outages", "incident_downs")
_OF_THE_LAST_DAY = (
    *("slo", "slo_days", "budget_seconds", "budget_left_seconds", "mttr_seconds", "mtbf_seconds"),
    *("outages_per_broker_day", "outages_per_broker_day_low", "outages_per_broker_day_high"),
)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster over the span; from ``slo`` on, as of its last UTC day."""

    cluster: str
    brokers: int
    outages: int
    incident_downs: int
    up_seconds: float
    down_seconds: float
    planned_seconds: float
    availability: float | None
    flapping: int
    by_class: dict[str, int]
    slo: float | None = None
    slo_days: int | None = None
    budget_seconds: float | None = None
    budget_left_seconds: float | None = None
    mttr_seconds: float | None = None
    mtbf_seconds: float | None = None
    outages_per_broker_day: float | None = None
    outages_per_broker_day_low: float | None = None
    outages_per_broker_day_high: float | None = None

    @property
    def is_below_objective(self) -> bool:
        return self.slo is not None and self.availability is not None and self.availability < self.slo

    @property
    def has_budget(self) -> bool:
        """Whether there is enough data for an error budget; without one the cluster was not monitored."""
        if self.slo is None or not self.budget_seconds:
            return False
        return self.budget_seconds / (1 - self.slo) >= self.brokers * MIN_COVERAGE_PER_BROKER_SECONDS

    @property
    def rate(self) -> str:
        """Outages per broker and day, with their 95 % limits."""
        rates = (self.outages_per_broker_day_low, self.outages_per_broker_day, self.outages_per_broker_day_high)
        # Rates above a hundred come from a day that has just begun.
        shown = [f"{rate:,.0f}" if rate >= 100 else f"{rate:.2g}" for rate in rates if rate is not None]
        return f"{shown[1]} per day ({shown[0]} to {shown[2]})" if len(shown) == len(rates) else ""

    def without_rates(self) -> Cluster:
        """For less than an hour of coverage: without rates, and without a budget of hardly more data."""
        return replace(
            self,
            outages_per_broker_day=None,
            outages_per_broker_day_low=None,
            outages_per_broker_day_high=None,
            mtbf_seconds=None,
            budget_seconds=self.budget_seconds if self.has_budget else None,
            budget_left_seconds=self.budget_left_seconds if self.has_budget else None,
        )


@dataclass(frozen=True, slots=True)
class FlappingCounts:
    """Numbers of flapping brokers, by the UTC days of the tables."""

    now: int
    day_before: int
    seven_days: int


@dataclass(frozen=True, slots=True)
class Named:
    """The first brokers of a class, and their total number."""

    count: int = 0
    brokers: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Headline:
    """Figures over all brokers, including those not listed."""

    brokers_seen: int
    flapping_count: int
    flapping: FlappingCounts
    outages: int
    incident_downs: int
    availability: float | None
    up_seconds: float
    down_seconds: float
    by_class: dict[str, int]
    new: Named
    gone: Named
    clusters: list[Cluster]
    clusters_left_out: int
    no_data: bool = False
    findings: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


def headline(warehouse: Warehouse, span: Span, rows: DataFrame) -> Headline:
    """Read the totals and the clusters; ``rows``: one for each broker of the report."""
    clusters = _clusters(warehouse, span, rows)
    by_class = dict.fromkeys(WORST_FIRST, 0)
    for cluster in clusters:
        for name, count in cluster.by_class.items():
            by_class[name] = by_class.get(name, 0) + count
    up, down = _sum(cluster.up_seconds for cluster in clusters), _sum(cluster.down_seconds for cluster in clusters)
    flapping = _flapping(warehouse, span, by_class["flapping"] + by_class["chronic"])
    return Headline(
        brokers_seen=sum(by_class.values()),
        flapping_count=flapping.now,
        flapping=flapping,
        outages=sum(cluster.outages for cluster in clusters),
        incident_downs=sum(cluster.incident_downs for cluster in clusters),
        availability=ratio(up, up + down),
        up_seconds=up,
        down_seconds=down,
        by_class=by_class,
        new=_named(rows, ("new",), by_class),
        gone=_named(rows, GONE, by_class),
        clusters=clusters[:MAX_CLUSTERS],
        clusters_left_out=max(0, len(clusters) - MAX_CLUSTERS),
    )


def _clusters(warehouse: Warehouse, span: Span, rows: DataFrame) -> list[Cluster]:
    by_class: dict[str, list[Row]] = {}
    summed = rows.groupBy("cluster", "class").agg(
        F.count("*").alias("brokers"),
        F.sum("down_count").alias("outages"),
        F.sum("incident_downs").alias("incident_downs"),
        *map(total_seconds, _SECONDS),
    )
    for row in collect(summed.orderBy("cluster", "class")):
        by_class.setdefault(row["cluster"], []).append(row)
    health = warehouse.read("cluster_health", first_day=span.last_day, last_day=span.last_day)
    objectives = {row.pop("cluster"): row for row in collect(health.select("cluster", *_OF_THE_LAST_DAY))}
    found = []
    for name, parts in by_class.items():
        sums = {column: sum(part[column] for part in parts) for column in (*_COUNTS, *_SECONDS)}
        classes = dict.fromkeys(WORST_FIRST, 0) | {part["class"]: part["brokers"] for part in parts}
        found.append(
            Cluster(
                cluster=name,
                **sums,
                availability=ratio(sums["up_seconds"], sums["up_seconds"] + sums["down_seconds"]),
                flapping=sum(classes[which] for which in FLAPPING_NOW),
                by_class=classes,
                **objectives.get(name, {}),
            )
        )
    return found


def _flapping(warehouse: Warehouse, span: Span, now: int) -> FlappingCounts:
    week = span.back(warehouse, "flapping", days=7).filter(F.col("class").isin(*FLAPPING_NOW))
    day_before = span.first_day - timedelta(days=1)
    yesterday = warehouse.read("flapping", first_day=day_before, last_day=day_before)
    return FlappingCounts(
        now=now,
        day_before=yesterday.filter(F.col("class").isin(*FLAPPING_NOW)).count(),
        seven_days=week.select(*INSTANCE).distinct().count(),
    )


def _named(rows: DataFrame, classes: tuple[str, ...], by_class: dict[str, int]) -> Named:
    count = sum(by_class[name] for name in classes)
    if not count:
        return Named()
    few = rows.filter(F.col("class").isin(*classes)).select(*INSTANCE).orderBy(*INSTANCE).limit(MAX_NAMED)
    return Named(count, [broker_label(*key(row)) for row in collect(few)])


def _sum(seconds: Iterable[float]) -> float:
    return float(sum(seconds))


def clusters_section(found: Headline, draw: Callable[..., str]) -> Section | None:
    """Return the section; None without clusters. ``draw``: draws the error budgets in a given width."""
    if not found.clusters:
        return None
    return section(
        "clusters",
        "Clusters",
        rows=found.clusters,
        slo_days=max(cluster.slo_days or 0 for cluster in found.clusters),
        names=" ".join(
            f"{title}: {some(group.brokers, of=group.count, most=10)}."
            for title, group in (("New", found.new), ("Removed", found.gone))
            if group.count
        ),
        **drawn_twice(draw),
    )
