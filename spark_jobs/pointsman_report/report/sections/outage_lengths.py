"""Outages of the span: those of the listed brokers, and distributions of all.

Distributions are counts in steps of a tenth of a decade, so that the size of a report does not depend on the number of
outages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.report.drawing import CURVE_COLOURS, FAINT, HALF_INCHES, SOFT, figure, svg
from pointsman_report.report.formatting import duration, micros, milliseconds, rfc3339
from pointsman_report.report.section import Section, section
from pointsman_report.report.span import Span
from pointsman_report.report.table_rows import Key, Row, collect, key, only
from pointsman_report.schemas import INSTANCE

MAX_OUTAGES = 5_000
MAX_OUTAGES_PER_BROKER = 200
STEPS_PER_DECADE = 10
LISTED = 25

_TICKS = (0.001, 0.01, 0.1, 1, 10, 60, 600, 3_600, 6 * 3_600, 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400)


@dataclass(frozen=True, slots=True)
class Outage:
    """A down interval of a broker, planned or not; ``..._censored``: that end was not observed."""

    start_at: str
    end_at: str
    seconds: float
    event: str | None
    reason: str | None
    start_censored: bool
    end_censored: bool
    continues: bool
    observers: int | None
    last_sign_of_life_at: str | None
    cause: str | None
    evidence: str | None
    incident_id: str | None
    rolling_restart_id: str | None

    @property
    def detection_seconds(self) -> float | None:
        if self.last_sign_of_life_at is None:
            return None
        return (micros(self.start_at) - micros(self.last_sign_of_life_at)) / 1e6


@dataclass(slots=True)
class Downs:
    """The listed outages and planned shutdowns of a broker, and their total numbers."""

    outages: list[Outage] = field(default_factory=list)
    leaves: list[Outage] = field(default_factory=list)
    outage_count: int = 0
    leave_count: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """The number of values up to this step and above the one before."""

    up_to_seconds: float
    count: int


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution of durations in seconds."""

    count: int = 0
    min: float | None = None
    max: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    steps: list[Step] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class OutageLengths:
    """Durations of fully observed outages, and the time from the last heartbeat to the removal."""

    outage_seconds: Distribution
    detection_seconds: Distribution
    censored_outages: int


def listed_downs(warehouse: Warehouse, span: Span, brokers: list[Key]) -> dict[Key, Downs]:
    """Down intervals of these brokers that overlap the span, in order of time; only the longest if there are many."""
    found: dict[Key, Downs] = {}
    if not brokers:
        return found
    intervals = only(span.whole_intervals(warehouse).filter(F.col("state") == "down"), brokers)
    reason = F.coalesce("reason", "event").alias("reason")
    downs = intervals.select(
        *INSTANCE,
        F.unix_micros("start_at").alias("start"),
        F.unix_micros("end_at").alias("end"),
        F.unix_micros("last_sign_of_life_at").alias("sign"),
        *("start_censored", "end_censored", "continues", "observers", "event", "planned"),
        reason,
    )
    longest = Window.partitionBy(*INSTANCE, "planned").orderBy((F.col("start") - F.col("end")), "start")
    few = downs.withColumn("place", F.row_number().over(longest)).filter(F.col("place") <= MAX_OUTAGES_PER_BROKER)
    few = few.orderBy("place", *INSTANCE, "planned").limit(MAX_OUTAGES)
    few = few.join(_causes(warehouse, span, brokers), on=[*INSTANCE, "start"], how="left")
    for row in sorted(collect(few), key=lambda row: (row["start"], row["end"])):
        own = found.setdefault(key(row), Downs())
        (own.leaves if row["planned"] else own.outages).append(_outage(row))
    for row in collect(intervals.groupBy(*INSTANCE, "planned", reason).agg(F.count("*").alias("downs"))):
        own = found.setdefault(key(row), Downs())
        if row["planned"]:
            own.leave_count += row["downs"]
        else:
            own.outage_count += row["downs"]
            own.reasons[row["reason"] or "unknown"] = row["downs"]
    return found


def _causes(warehouse: Warehouse, span: Span, brokers: list[Key]) -> DataFrame:
    """The cause of each outage, as of its last day."""
    rows = only(span.touched(warehouse, "outage_causes"), brokers)
    names = ("cause", "evidence", "incident_id", "rolling_restart_id")
    by_outage = rows.groupBy(*INSTANCE, F.unix_micros("start_at").alias("start"))
    # The incident or rolling restart is known on the day the outage began.
    return by_outage.agg(
        *(F.max_by(name, "dt").alias(name) for name in names[:2]),
        *(F.max(name).alias(name) for name in names[2:]),
    )


def _outage(row: Row) -> Outage:
    copied = ("event", "reason", "start_censored", "end_censored", "continues", "observers", "cause", "evidence")
    return Outage(
        start_at=rfc3339(row["start"]),
        end_at=rfc3339(row["end"]),
        seconds=(row["end"] - row["start"]) / 1e6,
        last_sign_of_life_at=rfc3339(row["sign"]),
        **{name: row[name] for name in (*copied, "incident_id", "rolling_restart_id")},
    )


def outage_lengths(warehouse: Warehouse, span: Span) -> OutageLengths:
    """Read the lengths of outages, and the times to detect them."""
    outages = span.whole_intervals(warehouse).filter((F.col("state") == "down") & ~F.col("planned"))
    start, end = F.unix_micros("start_at"), F.unix_micros("end_at")
    both_ends = ~F.col("start_censored") & ~F.col("end_censored")
    sign = F.unix_micros("last_sign_of_life_at")
    detected = span.holds("start_at") & ~F.col("continues") & ~F.col("start_censored") & (start >= sign)
    measured = outages.select(
        both_ends.alias("both_ends"),
        F.when(both_ends, (end - start) / 1e6).alias("outage_seconds"),
        F.when(detected, (start - sign) / 1e6).alias("detection_seconds"),
    )
    names = ("outage_seconds", "detection_seconds")
    censored = F.count(F.when(~F.col("both_ends"), 1)).alias("censored_outages")
    (all_,) = collect(measured.agg(*(_summary(name).alias(name) for name in names), censored))
    lengths, delays = (_distribution(all_[name], measured.select(F.col(name).alias("seconds"))) for name in names)
    return OutageLengths(lengths, delays, all_["censored_outages"])


def _summary(name: str) -> Column:
    quantiles = F.percentile(name, F.array(*map(F.lit, (0.5, 0.95, 0.99)))).alias("quantiles")
    return F.struct(F.count(name).alias("count"), F.min(name).alias("min"), F.max(name).alias("max"), quantiles)


def _distribution(summed: Row, rows: DataFrame) -> Distribution:
    if not summed["count"]:
        return Distribution()
    p50, p95, p99 = summed["quantiles"]
    steps = rows.filter(F.col("seconds").isNotNull()).groupBy(_up_to().alias("step")).agg(F.count("*").alias("count"))
    counts = [Step(_edge(row["step"]), row["count"]) for row in collect(steps.orderBy("step"))]
    return Distribution(summed["count"], summed["min"], summed["max"], p50, p95, p99, counts)


def _up_to() -> Column:
    # The history has a resolution of milliseconds.
    return F.ceil(F.log10(F.greatest("seconds", F.lit(0.001))) * STEPS_PER_DECADE - 1e-9)


def _edge(step: int) -> float:
    return float(f"{10 ** (step / STEPS_PER_DECADE):.3g}")


def outages_section(found: OutageLengths, listed: list[tuple[str, Outage]], *, left_out: int) -> Section | None:
    """``listed``: outages with the label of their broker; ``left_out``: number of further outages of those brokers."""
    lengths, delays = found.outage_seconds, found.detection_seconds
    if not listed and not lengths.count:
        return None
    by_length = sorted(listed, key=lambda pair: (-pair[1].seconds, pair[1].start_at, pair[0]))[:LISTED]
    # Outages that the table shows as equally long are sorted by time.
    equal = groupby(by_length, key=lambda pair: duration(pair[1].seconds))
    longest = [pair for _, own in equal for pair in sorted(own, key=lambda pair: (pair[1].start_at, pair[0]))]
    in_all = len(listed) + left_out
    return section(
        "outages",
        "Outages",
        longest=longest,
        rest=f"The {len(longest)} longest of {in_all:,}. " if in_all > len(longest) else "",
        is_cut=any(outage.start_censored or outage.end_censored for _, outage in longest),
        distributions={"Duration": lengths, "Time to detect": delays},
        censored=found.censored_outages,
        plots=(
            cumulative(lengths.steps, "Outages by duration"),
            cumulative(delays.steps, "Outages by time to detect"),
        ),
    )


def cumulative(steps: list[Step], title: str) -> str:
    """Draw the share of outages up to each length."""
    if len(steps) < 2:
        # A single step needs no plot.
        return ""
    total = sum(step.count for step in steps)
    edges, shares, so_far = [steps[0].up_to_seconds / 10**0.1], [0.0], 0
    for step in steps:
        so_far += step.count
        edges.append(step.up_to_seconds)
        shares.append(100 * so_far / total)
    with figure(width=HALF_INCHES, height=2.9) as (drawn, axes):
        axes.plot(edges, shares, color=CURVE_COLOURS[1], linewidth=1.6, marker="o", markersize=2.5)
        axes.set_xscale("log")
        low, high = edges[0] / 1.5, edges[-1] * 1.5
        ticks = [tick for tick in _TICKS if low <= tick <= high]
        axes.minorticks_off()
        axes.set_xlim(low, high)
        axes.set_xticks(ticks, [duration(tick) if tick >= 1 else milliseconds(tick * 1_000) for tick in ticks])
        axes.set_ylim(0, 104)
        axes.set_yticks([0, 25, 50, 75, 100], ["0 %", "25 %", "50 %", "75 %", "100 %"])
        axes.grid(color=FAINT, linewidth=0.6)
        axes.set_title(f"{title}: cumulative share of {total:,}", loc="left", color=SOFT)
        return svg(drawn, title)
