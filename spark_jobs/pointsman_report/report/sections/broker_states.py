"""Plots of the worst brokers over the span: up and down, outages per hour, penalty."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import functions as F

from pointsman_report.io import Warehouse
from pointsman_report.parameters import FlapParameters
from pointsman_report.report.broker_plots import (
    BrokerDowns,
    Charge,
    Curve,
    StateBar,
    Transitions,
    heat_map,
    penalty_curves,
    timeline,
    within,
)
from pointsman_report.report.drawing import drawn_twice
from pointsman_report.report.section import Section, section
from pointsman_report.report.sections.worst_brokers import Broker
from pointsman_report.report.span import Interval, Span, Window
from pointsman_report.report.table_rows import Key, collect, key, only, typed
from pointsman_report.schemas import INSTANCE

MAX_TIMELINES = 40
MAX_BARS_PER_BROKER = 4_000
MAX_HEAT_MAP_ROWS = 30
CURVES = 5
MAX_POINTS_PER_CURVE = 1_000
"""More points than pixels are not needed."""
HOUR_US = 3_600_000_000
MAX_HOURS = 75


@dataclass(frozen=True, slots=True)
class Drawn:
    """Intervals of the worst brokers, and the highest charge per pixel of those with the highest penalty.

    ``warehouse``: path or URI of the tables, for the commands on the page.
    """

    intervals: list[StateBar] = field(default_factory=list)
    charges: list[Charge] = field(default_factory=list)
    warehouse: str = "WAREHOUSE"


def collect_drawn(warehouse: Warehouse, span: Span, brokers: list[Broker]) -> Drawn:
    """Collect what the page has beyond report.json."""
    shown = [broker.key for broker in brokers[:MAX_TIMELINES]]
    scored = [broker.key for broker in _most_charged(brokers)]
    if not shown:
        return Drawn(warehouse=warehouse.path)
    intervals = span.whole_intervals(warehouse).select(
        *INSTANCE, "state", "planned", F.unix_micros("start_at").alias("start"), F.unix_micros("end_at").alias("end")
    )
    bars = typed(StateBar, only(intervals, shown).limit(MAX_TIMELINES * MAX_BARS_PER_BROKER))
    found = sorted(bars, key=lambda bar: (*bar.key, bar.start, bar.end))
    points = _points(warehouse, span, scored, window_of(span.interval, found)) if scored and found else []
    return Drawn(found, sorted(points, key=lambda charge: (charge.at, *charge.key)), warehouse.path)


def _points(warehouse: Warehouse, span: Span, brokers: list[Key], window: Window) -> list[Charge]:
    charges = only(span.touched(warehouse, "flap_charges").filter(span.holds("charged_at")), brokers)
    at = F.unix_micros("charged_at")
    pixel = max(1, (window[1] - window[0]) // MAX_POINTS_PER_CURVE)
    highest = F.max(F.struct("penalty", at.alias("at"))).alias("highest")
    thinned = charges.groupBy(*INSTANCE, F.floor(at / F.lit(pixel)).alias("pixel")).agg(highest)
    return typed(Charge, thinned.select(*INSTANCE, "highest.at", "highest.penalty"))


def window_of(interval: Interval, bars: list[StateBar]) -> Window:
    """Return the period shown in the plots: all days, or the recorded part if that is much shorter."""
    first, last = interval.window
    if not bars:
        return first, last
    begin = max(first, min(bar.start for bar in bars))
    end = min(last, max(bar.end for bar in bars))
    margin = max((end - begin) // 50, 1_000_000)
    return max(first, begin - margin), min(last, end + margin)


def _most_charged(brokers: list[Broker]) -> list[Broker]:
    """Brokers whose penalty is drawn, the highest first."""
    by_penalty = sorted(brokers, key=lambda broker: -broker.penalty_max)
    return [broker for broker in by_penalty[:CURVES] if broker.penalty_max >= 1]


def transitions(warehouse: Warehouse, span: Span, brokers: list[Broker]) -> Transitions:
    """Outages of the worst brokers by hour of the span, or by day if it is long."""
    hours = -(-(span.to_us - span.from_us) // HOUR_US)
    step = HOUR_US if hours <= MAX_HOURS else 24 * HOUR_US
    columns = -(-(span.to_us - span.from_us) // step)
    found = {broker.key: [0] * columns for broker in [b for b in brokers if b.down_count][:MAX_HEAT_MAP_ROWS]}
    if found:
        downs = only(span.whole_intervals(warehouse), found).filter(
            (F.col("state") == "down") & ~F.col("continues") & ~F.col("planned") & span.holds("start_at")
        )
        slot = F.floor((F.unix_micros("start_at") - F.lit(span.from_us)) / F.lit(step)).cast("int")
        for row in collect(downs.groupBy(*INSTANCE, slot.alias("slot")).agg(F.count("*").alias("downs"))):
            found[key(row)][row["slot"]] = row["downs"]
    return Transitions(step // 1_000_000, columns, [BrokerDowns(*which, counts) for which, counts in found.items()])


def state_sections(
    brokers: list[Broker],
    drawn: Drawn,
    found: Transitions,
    interval: Interval,
    flapping: FlapParameters,
    *,
    in_all: int,
) -> tuple[Section | None, ...]:
    """Plots of the worst brokers over the span."""
    if not drawn.intervals:
        return ()
    window = window_of(interval, drawn.intervals)
    return (
        _up_and_down(brokers[:MAX_TIMELINES], drawn, interval, window, in_all=in_all),
        _hours(found, interval, window),
        _penalty(brokers, drawn, interval, flapping, window),
    )


def _up_and_down(shown: list[Broker], drawn: Drawn, interval: Interval, window: Window, *, in_all: int) -> Section:
    names = [(broker.key, broker.label) for broker in shown]
    draw = partial(timeline, names, drawn.intervals, window=window, zone=interval.time.zone)
    return section("states", "Up and down", left_out=in_all - len(shown), **drawn_twice(draw))


def _hours(found: Transitions, interval: Interval, window: Window) -> Section | None:
    """The steps with data; a single one needs no plot."""
    start, shown = within(found, start=interval.window[0], window=window)
    if not shown.rows or shown.columns < 2:
        return None
    unit = "hour" if found.step_seconds == 3_600 else "day"
    draw = partial(heat_map, shown, start=start, zone=interval.time.zone)
    return section("hours", f"Outages by {unit}", unit=unit, **drawn_twice(draw))


def _penalty(
    brokers: list[Broker], drawn: Drawn, interval: Interval, flapping: FlapParameters, window: Window
) -> Section | None:
    scored = _most_charged(brokers)
    if not scored:
        return None
    half_lives = (window[0] - interval.window[0]) / (flapping.half_life_minutes * 60e6)
    curves = [Curve(broker.key, broker.label, broker.penalty_start * 2**-half_lives) for broker in scored]
    draw = partial(penalty_curves, curves, drawn.charges, flapping, window=window, zone=interval.time.zone)
    points, half_life = f"{flapping.points_outage:g}", f"{flapping.half_life_minutes:g}"
    return section("penalty", "Flap penalty", points=points, half_life=half_life, **drawn_twice(draw))
