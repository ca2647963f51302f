"""Punctuality of heartbeats, and agents with clock offsets; for whole UTC days, because quantiles cannot be cut."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.parameters import HealthParameters
from pointsman_report.report.drawing import CURVE_COLOURS, FAINT, HALF_INCHES, SOFT, figure, svg
from pointsman_report.report.formatting import milliseconds
from pointsman_report.report.section import Section, first, section
from pointsman_report.report.span import Span
from pointsman_report.report.table_rows import Instance, Listing, typed, worst
from pointsman_report.schemas import INSTANCE

MAX_LATE = 100
MAX_CLOCKS = 100

_MEASURED = ("heartbeat_interval_ms", "min_ms", "p50_ms", "p95_ms", "p99_ms", "max_ms")


@dataclass(frozen=True, slots=True)
class Beats(Instance):
    """A broker's heartbeats: counts over the span, times of the worst day."""

    beats: int
    late: int
    heartbeat_interval_ms: int | None
    min_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    max_ms: float | None


@dataclass(frozen=True, slots=True)
class BeatsUpTo:
    """Number of times between heartbeats up to an edge and above the one before; None: above the last edge."""

    up_to_ms: int | None
    beats: int


@dataclass(frozen=True, slots=True)
class AgentClock(Instance):
    """The offset of an agent's clock to the median of the name servers' clocks; negative: behind."""

    ahead_seconds: float


@dataclass(frozen=True, slots=True)
class Punctuality(Listing[Beats]):
    """The least punctual brokers first."""

    histogram: list[BeatsUpTo] = field(default_factory=list)
    clocks: Listing[AgentClock] = field(default_factory=Listing)


def punctuality(warehouse: Warehouse, span: Span, *, parameters: HealthParameters) -> Punctuality:
    """Read the times between heartbeats."""
    rows = span.named(warehouse, "heartbeat_punctuality")
    worst_day = rows.groupBy(*INSTANCE).agg(
        F.sum("beats").alias("beats"),
        F.sum("late").alias("late"),
        *(F.max_by(name, F.struct("p99_ms", "dt")).alias(name) for name in _MEASURED),
    )
    # Relative to its own interval: a broker that sends one per minute is not always late.
    lateness = F.try_divide(F.col("p99_ms"), F.col("heartbeat_interval_ms")).desc_nulls_last()
    few = worst(Beats, worst_day, MAX_LATE, lateness, F.col("p99_ms").desc_nulls_last(), *INSTANCE)
    beats = span.named(warehouse, "heartbeat_histogram").groupBy("up_to_ms").agg(F.sum("beats").alias("beats"))
    return Punctuality(
        few.rows,
        few.in_all,
        few.left_out,
        histogram=typed(BeatsUpTo, beats.orderBy(F.col("up_to_ms").asc_nulls_last())),
        clocks=_clocks(rows, parameters.clock_offset_above_seconds),
    )


def _clocks(rows: DataFrame, above_seconds: float) -> Listing[AgentClock]:
    """Agents with a larger clock offset, each on its worst day, the largest first."""
    ahead = F.col("clock_ahead_ms") / 1_000
    known = rows.withColumn("ahead_seconds", ahead).filter(F.abs("ahead_seconds") > above_seconds)
    off = F.struct(F.abs("ahead_seconds"), "dt")
    each = known.groupBy(*INSTANCE).agg(F.max_by("ahead_seconds", off).alias("ahead_seconds"))
    return worst(AgentClock, each, MAX_CLOCKS, F.abs("ahead_seconds").desc(), *INSTANCE)


def heartbeats_section(found: Punctuality) -> Section:
    """Return the section."""
    where = "report.json or the table heartbeat_punctuality"
    listed, clocks = first(found, "brokers", where), first(found.clocks, "agents", where)
    plot = histogram(found.histogram)
    return section("heartbeats", "Heartbeats", listed=listed, clocks=clocks, plot=plot).empty_without(listed.rows)


def histogram(beats: list[BeatsUpTo]) -> str:
    """Draw the histogram of times between heartbeats; the last bar is everything above the last edge."""
    counts = [step for step in beats if step.beats]
    if len(counts) < 2:
        # A single bar needs no plot.
        return ""
    names = ["longer" if step.up_to_ms is None else f"to {milliseconds(step.up_to_ms)}" for step in counts]
    with figure(width=HALF_INCHES, height=2.9) as (drawn, axes):
        axes.bar(range(len(counts)), [step.beats for step in counts], color=CURVE_COLOURS[1], width=0.8)
        axes.set_yscale("log")
        axes.set_ylim(0.7, max(step.beats for step in counts) * 2)
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        every = -(-len(counts) // 8)
        shown = range(len(counts) - 1, -1, -every)
        axes.set_xticks(list(shown), [names[n] for n in shown], rotation=30, ha="right")
        axes.grid(axis="y", color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.set_title("Heartbeats by time since the one before", loc="left", color=SOFT)
        return svg(drawn, "Times between heartbeats")
