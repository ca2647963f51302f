"""Plots of brokers over time: states, outages per step, and flap penalties."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple
from zoneinfo import ZoneInfo

from matplotlib.patches import PathPatch
from matplotlib.path import Path

from pointsman_report.parameters import FlapParameters
from pointsman_report.report.drawing import (
    CURVE_COLOURS,
    DOWN,
    FAINT,
    INK,
    PIXELS,
    PLANNED,
    UP,
    VARIABLES,
    WIDE_INCHES,
    Bar,
    figure,
    in_days,
    legend,
    svg,
    time_axis,
)
from pointsman_report.report.span import Window
from pointsman_report.report.table_rows import Instance, Key

MAX_BARS = 16_000
BACK_TO_FRONT = (UP, PLANNED, DOWN)
ON_DARK = "#ffffff"
SHADES = (0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True, slots=True)
class StateBar(Instance):
    """An interval of a broker; instants here and below are microseconds since 1970."""

    state: str
    planned: bool
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class BrokerDowns(Instance):
    """Outages of a broker in each time step."""

    downs: list[int]


@dataclass(frozen=True, slots=True)
class Transitions:
    """Outages of the worst brokers in ``columns`` time steps."""

    step_seconds: int
    columns: int
    rows: list[BrokerDowns]


@dataclass(frozen=True, slots=True)
class Charge(Instance):
    """A broker's penalty after a charge."""

    at: int
    penalty: float


class Curve(NamedTuple):
    """A broker whose penalty is drawn, with its penalty at the start of the plot."""

    broker: Key
    label: str
    at_start: float


def timeline(
    names: list[tuple[Key, str]],
    intervals: Iterable[StateBar],
    *,
    window: Window,
    zone: ZoneInfo,
    width: float = WIDE_INCHES,
) -> str:
    """Draw one bar for each broker, in the given order: up, down, planned, and blank without monitoring."""
    row_inches = min(0.26, max(0.17, 12 / max(len(names), 1)))
    position = {key: n for n, (key, _) in enumerate(names)}
    bars: dict[tuple[str, int], list[Bar]] = {}
    for bar in intervals:
        start, end = max(bar.start, window[0]), min(bar.end, window[1])
        if end >= start:
            bars.setdefault((_colour(bar), position[bar.key]), []).append((start, end))
    with figure(width=width, height=0.75 + row_inches * len(names)) as (drawn, axes):
        thickness = row_inches * 72 * 0.72
        for (colour, n), own in sorted(_limited(bars, window).items(), key=_from_back):
            ends = [(in_days(at), n) for start, end in own for at in (start, end)]
            # One path per broker and colour keeps a page with many outages small.
            path = Path(ends, [Path.MOVETO, Path.LINETO] * len(own))
            axes.add_patch(PathPatch(path, fill=False, edgecolor=colour, linewidth=thickness, capstyle="butt"))
        axes.set_ylim(len(names) - 0.4, -0.6)
        # A name with two dollar signs must not be parsed as a formula.
        size = min(9.0, row_inches * 50)
        axes.set_yticks(range(len(names)), [name for _, name in names], fontsize=size, parse_math=False)
        time_axis(axes, window, zone)
        axes.grid(axis="x", color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        return svg(drawn, "State of each broker over time")


class Stretch(NamedTuple):
    """A bar of a broker's own line, in thousandths of the period shown."""

    state: str
    start: float
    width: float


def stretches(intervals: Iterable[StateBar], window: Window) -> list[Stretch]:
    """Return one broker's bars from back to front, as `timeline` draws them; ``state`` names the colour."""
    bars: dict[tuple[str, int], list[Bar]] = {}
    for bar in intervals:
        start, end = max(bar.start, window[0]), min(bar.end, window[1])
        if end >= start:
            bars.setdefault((_colour(bar), 0), []).append((start, end))
    scale = 1_000 / max(1, window[1] - window[0])
    return [
        Stretch(VARIABLES[colour], round((start - window[0]) * scale, 2), round((end - start) * scale, 2))
        for (colour, _), own in sorted(_limited(bars, window).items(), key=_from_back)
        for start, end in own
    ]


def _colour(bar: StateBar) -> str:
    return UP if bar.state == "up" else PLANNED if bar.planned else DOWN


def _from_back(bars: tuple[tuple[str, int], list[Bar]]) -> int:
    return BACK_TO_FRONT.index(bars[0][0])


def _limited(bars: dict[tuple[str, int], list[Bar]], window: Window) -> dict[tuple[str, int], list[Bar]]:
    """Make each bar at least a pixel wide and join closer ones; coarser steps until they fit the page."""
    pixel = max(1, (window[1] - window[0]) // PIXELS)
    while True:
        joined = {which: _joined(sorted(own), pixel) for which, own in bars.items()}
        if sum(map(len, joined.values())) <= MAX_BARS:
            return joined
        pixel *= 2


def _joined(bars: list[Bar], pixel: int) -> list[Bar]:
    kept: list[Bar] = []
    for start, end in bars:
        wide = max(end, start + pixel)
        if kept and start - kept[-1][1] < pixel:
            kept[-1] = (kept[-1][0], max(kept[-1][1], wide))
        else:
            kept.append((start, wide))
    return kept


def within(found: Transitions, *, start: int, window: Window) -> tuple[int, Transitions]:
    """Return the start and the time steps that overlap the window. ``start``: that of the first step."""
    step = found.step_seconds * 1_000_000
    first = min(max(0, (window[0] - start) // step), found.columns)
    last = max(first, min(found.columns, -(-(window[1] - start) // step)))
    rows = [replace(row, downs=row.downs[first:last]) for row in found.rows]
    return start + first * step, Transitions(found.step_seconds, last - first, rows)


def heat_map(found: Transitions, *, start: int, zone: ZoneInfo, width: float = WIDE_INCHES) -> str:
    """Draw a row for each broker and a cell for each step of time; darker by the logarithm of the count."""
    rows, columns, step = found.rows, found.columns, found.step_seconds * 1_000_000
    most = max(max(row.downs) for row in rows)
    cells: dict[int, list[tuple[float, float]]] = {}
    numbered: list[tuple[float, float, int]] = []
    for n, row in enumerate(rows):
        for slot, count in enumerate(row.downs):
            if count:
                shade = shade_of(count, most)
                left, right = in_days(start + slot * step), in_days(start + (slot + 1) * step)
                corners = [(left, n - 0.46), (right, n - 0.46), (right, n + 0.46), (left, n + 0.46), (left, n - 0.46)]
                cells.setdefault(shade, []).extend(corners)
                numbered.append(((left + right) / 2, n, count))
    with figure(width=width, height=0.75 + 0.22 * len(rows)) as (drawn, axes):
        one = [Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY]
        for shade, corners in sorted(cells.items()):
            path = Path(corners, one * (len(corners) // 5))
            axes.add_patch(PathPatch(path, facecolor=DOWN, edgecolor="none", alpha=SHADES[shade]))
        if columns <= 31:
            for x, y, count in numbered:
                colour = ON_DARK if SHADES[shade_of(count, most)] > 0.5 else INK
                axes.text(x, y, f"{count}", ha="center", va="center", fontsize=7, color=colour)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_yticks(range(len(rows)), [row.label for row in rows], fontsize=8.5, parse_math=False)
        time_axis(axes, (start, start + columns * step), zone)
        axes.grid(axis="x", color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        return svg(drawn, "Outages of each broker over time")


def shade_of(count: int, most: int) -> int:
    """Return the shade of a count by its logarithm: 1 is the lightest, the highest the darkest."""
    if most <= 1:
        return len(SHADES) - 1
    return min(len(SHADES) - 1, int(math.log(count) / math.log(most) * (len(SHADES) - 1) + 0.5))


def penalty_curves(
    curves: list[Curve],
    charges: list[Charge],
    parameters: FlapParameters,
    *,
    window: Window,
    zone: ZoneInfo,
    width: float = WIDE_INCHES,
) -> str:
    """Draw each broker's decaying penalty and the two thresholds."""
    with figure(width=width, height=3.4) as (drawn, axes):
        lines, top = [], parameters.suppress_above
        for (broker, _, at_start), colour in zip(curves, CURVE_COLOURS, strict=False):
            own = [(charge.at, charge.penalty) for charge in charges if charge.key == broker]
            curve = penalty_points(own, at_start, parameters.half_life_minutes, window)
            top = max([top, *(penalty for _, penalty in curve)])
            lines += axes.plot([in_days(at) for at, _ in curve], [p for _, p in curve], color=colour, linewidth=1.5)
        for height, text in ((parameters.suppress_above, "flapping above"), (parameters.reuse_below, "cleared below")):
            axes.axhline(height, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
            axes.annotate(
                f"{text} {height:g}", (1.0, height), xycoords=("axes fraction", "data"), ha="right", va="bottom"
            )
        axes.set_ylim(0, top * 1.15)
        axes.set_ylabel("penalty")
        time_axis(axes, window, zone)
        axes.grid(axis="y", color=FAINT, linewidth=0.6)
        if curves:
            legend(axes, lines, [curve.label for curve in curves[: len(lines)]])
        return svg(drawn, "Flap penalty over time")


def penalty_points(
    charges: list[tuple[int, float]], at_start: float, half_life_minutes: float, window: Window
) -> list[tuple[int, float]]:
    """Points of a curve that jumps at each charge and decays between them."""
    half_life = half_life_minutes * 60e6
    begin, end = window
    step = max(half_life / 4, (end - begin) / PIXELS)
    curve = [(begin, at_start)]
    for at, penalty in [*charges, (end, math.nan)]:
        since, height = curve[-1]
        # After ten half-lives nothing is left to see.
        steps = int(min(at - since, 10 * half_life) / step)
        moments = [round(since + n * step) for n in range(1, steps + 1)]
        curve += [
            (moment, height * 2 ** (-(moment - since) / half_life)) for moment in (*moments, at) if moment > since
        ]
        if not math.isnan(penalty):
            curve.append((at, penalty))
    return curve
