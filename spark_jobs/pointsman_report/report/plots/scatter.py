"""Incidents by time and size."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

from pointsman_report.report.plots.drawing import (
    CURVE_COLOURS,
    FAINT,
    HALF_INCHES,
    SOFT,
    figure,
    in_days,
    svg,
    time_axis,
)
from pointsman_report.report.wording import micros

COLOURS = {"zone": CURVE_COLOURS[1], "host": CURVE_COLOURS[2], "cluster": CURVE_COLOURS[3]}


def incident_scatter(points: list[dict[str, Any]], interval: dict[str, Any], *, zone: ZoneInfo) -> str:
    """Draw a point for each incident."""
    if not points:
        return ""
    window = (micros(interval["from_at"]), micros(interval["to_at"]))
    with figure(width=HALF_INCHES, height=2.9) as (drawn, axes):
        for scope, colour in COLOURS.items():
            own = [point for point in points if point["scope"] == scope]
            at = [in_days(micros(point["from_at"])) for point in own]
            if own:
                label = f"{scope}s"
                axes.plot(at, [p["brokers"] for p in own], "o", color=colour, markersize=6, alpha=0.75, label=label)
        time_axis(axes, window, zone)
        axes.spines["left"].set_visible(True)
        axes.set_ylim(0, max(point["brokers"] for point in points) * 1.2 + 1)
        axes.grid(axis="y", color=FAINT, linewidth=0.6)
        place: Any = {"loc": "lower left", "bbox_to_anchor": (0, 0.98), "ncols": 3}
        axes.set_ylabel("brokers", color=SOFT)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, **place)
        return svg(drawn, "Incidents by time and number of brokers")
