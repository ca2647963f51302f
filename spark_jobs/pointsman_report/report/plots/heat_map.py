"""How often each broker went down in each hour."""

from __future__ import annotations

import math
from typing import Any
from zoneinfo import ZoneInfo

from matplotlib.patches import PathPatch
from matplotlib.path import Path

from pointsman_report.report.plots.drawing import DOWN, FAINT, INK, WIDE_INCHES, figure, in_days, svg, time_axis
from pointsman_report.report.wording import label

ON_DARK = "#ffffff"
SHADES = (0.2, 0.4, 0.6, 0.8, 1.0)


def heat_map(found: dict[str, Any], *, start: int, zone: ZoneInfo) -> str:
    """Draw a row for each broker and a cell for each step of time; darker by the logarithm of the count."""
    rows, columns, step = found["rows"], found["columns"], found["step_seconds"] * 1_000_000
    most = max(max(row["downs"]) for row in rows)
    cells: dict[int, list[tuple[float, float]]] = {}
    numbered: list[tuple[float, float, int]] = []
    for n, row in enumerate(rows):
        for slot, count in enumerate(row["downs"]):
            if count:
                shade = shade_of(count, most)
                left, right = in_days(start + slot * step), in_days(start + (slot + 1) * step)
                corners = [(left, n - 0.46), (right, n - 0.46), (right, n + 0.46), (left, n + 0.46), (left, n - 0.46)]
                cells.setdefault(shade, []).extend(corners)
                numbered.append(((left + right) / 2, n, count))
    with figure(width=WIDE_INCHES, height=0.75 + 0.22 * len(rows)) as (drawn, axes):
        one = [Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY]
        for shade, corners in sorted(cells.items()):
            path = Path(corners, one * (len(corners) // 5))
            axes.add_patch(PathPatch(path, facecolor=DOWN, edgecolor="none", alpha=SHADES[shade]))
        if columns <= 31:
            for x, y, count in numbered:
                colour = ON_DARK if SHADES[shade_of(count, most)] > 0.5 else INK
                axes.text(x, y, f"{count}", ha="center", va="center", fontsize=7, color=colour)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_yticks(range(len(rows)), [label(row) for row in rows], fontsize=8.5, parse_math=False)
        time_axis(axes, (start, start + columns * step), zone)
        axes.grid(axis="x", color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        return svg(drawn, "How often each broker went down over time")


def shade_of(count: int, most: int) -> int:
    """Place a count among the shades, by its logarithm: one is the lightest, the highest the darkest."""
    if most <= 1:
        return len(SHADES) - 1
    return min(len(SHADES) - 1, int(math.log(count) / math.log(most) * (len(SHADES) - 1) + 0.5))
