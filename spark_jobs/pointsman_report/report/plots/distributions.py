"""Distributions on logarithmic axes: shares of outages by length, times between beats."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes

from pointsman_report.report.plots.drawing import CURVE_COLOURS, FAINT, HALF_INCHES, SOFT, figure, svg
from pointsman_report.report.wording import duration, milliseconds

_SECONDS = (0.001, 0.01, 0.1, 1, 10, 60, 600, 3_600, 6 * 3_600, 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400)


def cumulative(steps: list[dict[str, Any]], title: str) -> str:
    """Draw the share of outages up to each length."""
    if len(steps) < 2:
        # All are alike: the table says it.
        return ""
    total = sum(step["count"] for step in steps)
    first = steps[0]["up_to_seconds"] / 10**0.1
    edges, shares, so_far = [first], [0.0], 0
    for step in steps:
        so_far += step["count"]
        edges.append(step["up_to_seconds"])
        shares.append(100 * so_far / total)
    with figure(width=HALF_INCHES, height=2.9) as (drawn, axes):
        axes.plot(edges, shares, color=CURVE_COLOURS[1], linewidth=1.6, marker="o", markersize=2.5)
        axes.set_xscale("log")
        low, high = edges[0] / 1.5, edges[-1] * 1.5
        ticks = [tick for tick in _SECONDS if low <= tick <= high]
        _log_ticks(
            axes, ticks, [duration(tick) if tick >= 1 else milliseconds(tick * 1_000) for tick in ticks], (low, high)
        )
        axes.set_ylim(0, 104)
        axes.set_yticks([0, 25, 50, 75, 100], ["0 %", "25 %", "50 %", "75 %", "100 %"])
        axes.grid(color=FAINT, linewidth=0.6)
        axes.set_title(f"{title}: share of {total:,}", loc="left", color=SOFT)
        return svg(drawn, title)


def histogram(beats: list[dict[str, Any]]) -> str:
    """Draw how many times between beats lay below each edge; the last bar is everything above the last edge."""
    counts = [row for row in beats if row["beats"]]
    if not counts:
        return ""
    names = ["longer" if row["up_to_ms"] is None else f"to {milliseconds(row['up_to_ms'])}" for row in counts]
    with figure(width=HALF_INCHES, height=2.9) as (drawn, axes):
        axes.bar(range(len(counts)), [row["beats"] for row in counts], color=CURVE_COLOURS[1], width=0.8)
        axes.set_yscale("log")
        axes.set_ylim(0.7, max(row["beats"] for row in counts) * 2)
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        every = -(-len(counts) // 8)
        shown = range(len(counts) - 1, -1, -every)
        axes.set_xticks(list(shown), [names[n] for n in shown], rotation=30, ha="right")
        axes.grid(axis="y", color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.set_title("Times between heartbeats, counted", loc="left", color=SOFT)
        return svg(drawn, "Times between heartbeats")


def _log_ticks(axes: Axes, ticks: list[float], names: list[str], limits: tuple[float, float]) -> None:
    axes.minorticks_off()
    axes.set_xlim(*limits)
    axes.set_xticks(ticks, names)
