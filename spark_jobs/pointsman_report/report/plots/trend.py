"""Availability of the last days against the objective."""

from __future__ import annotations

import math
from datetime import date, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from pointsman_report.report.plots.drawing import CURVE_COLOURS, FAINT, INK, WIDE_INCHES, figure, svg, time_axis
from pointsman_report.transforms.days import end_of, start_of

LINES = len(CURVE_COLOURS)


def availability_trend(days: list[dict[str, Any]]) -> str:
    """Draw a line for each cluster, those with the most down time first; a day that is not held leaves a gap."""
    shares = {(cluster, day["date"]): told["availability"] for day in days for cluster, told in day["clusters"].items()}
    known = {which: share for which, share in shares.items() if share is not None}
    if len({day for _, day in known}) < 2:
        return ""
    total = {cluster: 0.0 for cluster, _ in sorted(known)}
    for (cluster, _), share in known.items():
        total[cluster] += 1 - share
    worst = sorted(total, key=lambda cluster: (-total[cluster], cluster))[:LINES]
    first, last = date.fromisoformat(days[0]["date"]), date.fromisoformat(days[-1]["date"])
    dates = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    slos = sorted({told["slo"] for day in days for told in day["clusters"].values() if told["slo"] is not None})
    with figure(width=WIDE_INCHES, height=3.0) as (drawn, axes):
        lines = []
        for cluster, colour in zip(worst, CURVE_COLOURS, strict=False):
            line = [100 * known.get((cluster, day.isoformat()), math.nan) for day in dates]
            noons = [(start_of(day) + end_of(day)) / 2 / 86_400e6 for day in dates]
            lines += axes.plot(noons, line, color=colour, linewidth=1.4, marker="o", markersize=3)
        for slo in slos[:3]:
            lines.append(axes.axhline(100 * slo, color=INK, linewidth=1.0, linestyle=(0, (4, 3))))
        least = min(
            [100 * share for (cluster, _), share in known.items() if cluster in worst] + [100 * s for s in slos]
        )
        margin = max((100 - least) * 0.12, 0.01)
        axes.set_ylim(least - margin, 100 + margin)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.6g} %")
        time_axis(axes, (start_of(first), end_of(last)), ZoneInfo("UTC"))
        axes.grid(axis="y", color=FAINT, linewidth=0.6)
        names = [*worst, *(f"objective {100 * slo:g} %" for slo in slos[:3])]
        place: Any = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 5 if sum(map(len, names)) < 80 else 3}
        for entry in axes.legend(lines, names, frameon=False, **place).get_texts():
            entry.set_parse_math(False)
        return svg(drawn, "Availability of each day against the objective")
