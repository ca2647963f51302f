"""The burn chart of the error budgets: what was left of each cluster's budget after every day of its period."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta
from zoneinfo import ZoneInfo

from pointsman_report.report.drawing import (
    CURVE_COLOURS,
    FAINT,
    INK,
    SOFT,
    WIDE_INCHES,
    figure,
    in_days,
    legend,
    svg,
    time_axis,
)
from pointsman_report.report.sections.availability_trend import DAYS, Trend
from pointsman_report.report.sections.headline import Cluster
from pointsman_report.transforms.utc_days import end_of, start_of

LINES = len(CURVE_COLOURS)


def budget_left(found: Trend, cluster: str, *, slo: float, first: date) -> list[tuple[date, float]]:
    """The share of the budget that was left at the end of each day with data, from the period's first day on.

    The budget is that of the whole period, as in ``cluster_health``; below 0 it is exceeded.
    """
    days = [(date.fromisoformat(day.date), day.clusters[cluster]) for day in found.days if cluster in day.clusters]
    days = [(day, row) for day, row in days if day >= first]
    budget = (1 - slo) * sum(row.up_seconds + row.down_seconds for _, row in days)
    left, points = budget, []
    for day, row in days:
        left -= row.down_seconds
        points.append((day, left / budget if budget else 0.0))
    return points


def burn_plot(
    found: Trend, clusters: Iterable[Cluster], *, last: date, slo_days: int, width: float = WIDE_INCHES
) -> str:
    """Draw the budgets, those with the least left first; none with fewer than two days, or over more than the trend's
    days."""
    if slo_days > DAYS:
        return ""
    first = last - timedelta(days=slo_days - 1)
    curves = {
        cluster.cluster: budget_left(found, cluster.cluster, slo=cluster.slo, first=first)
        for cluster in clusters
        if cluster.has_budget and cluster.slo is not None
    }
    shown = sorted(((curve[-1][1], name) for name, curve in curves.items() if len(curve) > 1))[:LINES]
    if not shown:
        return ""
    with figure(width=width, height=3.0) as (drawn, axes):
        lines = []
        for (_, name), colour in zip(shown, CURVE_COLOURS, strict=False):
            curve = curves[name]
            ends = [(start_of(curve[0][0]), 1.0), *((end_of(day), left) for day, left in curve)]
            at, left = [in_days(us) for us, _ in ends], [100 * share for _, share in ends]
            lines += axes.plot(at, left, color=colour, linewidth=1.5)
        # Days that are missing in the warehouse have no budget: even use begins with the first one that is not.
        window = start_of(min(curves[name][0][0] for _, name in shown)), end_of(last)
        even = [in_days(us) for us in window]
        lines += axes.plot(even, [100, 0], color=INK, linewidth=1.0, linestyle=(0, (4, 3)))
        axes.axhline(0, color=SOFT, linewidth=0.8)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f} %")
        time_axis(axes, window, ZoneInfo("UTC"))
        axes.grid(axis="y", color=FAINT, linewidth=0.6)
        axes.set_ylabel("error budget left", color=SOFT)
        legend(axes, lines, [*(name for _, name in shown), "even use"])
        return svg(drawn, "Error budget left after each day")
