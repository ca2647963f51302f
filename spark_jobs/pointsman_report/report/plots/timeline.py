"""The state of each broker over time: a bar each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from zoneinfo import ZoneInfo

from matplotlib.patches import PathPatch
from matplotlib.path import Path

from pointsman_report.report.plots.drawing import (
    DOWN,
    FAINT,
    PIXELS,
    PLANNED,
    UP,
    WIDE_INCHES,
    Bar,
    figure,
    in_days,
    svg,
    time_axis,
)

MOST_BARS = 16_000
BACK_TO_FRONT = (UP, PLANNED, DOWN)

Key = tuple[str, str, int]


def timeline(
    names: list[tuple[Key, str]], intervals: Iterable[dict[str, Any]], *, window: tuple[int, int], zone: ZoneInfo
) -> str:
    """Draw one bar for each broker, top to bottom as given: up, down, away by plan, and blank where nobody watched."""
    row_inches = min(0.26, max(0.17, 12 / max(len(names), 1)))
    position = {key: n for n, (key, _) in enumerate(names)}
    bars: dict[tuple[str, int], list[Bar]] = {}
    for row in intervals:
        start, end = max(row["start"], window[0]), min(row["end"], window[1])
        if end >= start:
            colour = UP if row["state"] == "up" else PLANNED if row["planned"] else DOWN
            key = (row["cluster"], row["broker_name"], row["broker_id"])
            bars.setdefault((colour, position[key]), []).append((start, end))
    with figure(width=WIDE_INCHES, height=0.75 + row_inches * len(names)) as (drawn, axes):
        thickness = row_inches * 72 * 0.72
        ordered = sorted(_few_enough(bars, window).items(), key=lambda bar: BACK_TO_FRONT.index(bar[0][0]))
        for (colour, n), own in ordered:
            ends = [(in_days(at), n) for start, end in own for at in (start, end)]
            # One path a broker and colour: a page of many outages stays small.
            path = Path(ends, [Path.MOVETO, Path.LINETO] * len(own))
            axes.add_patch(PathPatch(path, fill=False, edgecolor=colour, linewidth=thickness, capstyle="butt"))
        axes.set_ylim(len(names) - 0.4, -0.6)
        # A name with two dollar signs is no formula.
        size = min(9.0, row_inches * 50)
        axes.set_yticks(range(len(names)), [name for _, name in names], fontsize=size, parse_math=False)
        time_axis(axes, window, zone)
        axes.grid(axis="x", color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        return svg(drawn, "State of each broker over time")


def _few_enough(bars: dict[tuple[str, int], list[Bar]], window: tuple[int, int]) -> dict[tuple[str, int], list[Bar]]:
    """Make each bar at least a pixel wide and join those nearer than that; coarser, until the page can hold them."""
    pixel = max(1, (window[1] - window[0]) // PIXELS)
    while True:
        joined = {which: _joined(sorted(own), pixel) for which, own in bars.items()}
        if sum(map(len, joined.values())) <= MOST_BARS:
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
