"""The decaying flap penalty of the worst brokers, and the thresholds."""

from __future__ import annotations

import math
from typing import Any
from zoneinfo import ZoneInfo

from pointsman_report.parameters import FlapParameters
from pointsman_report.report.plots.drawing import (
    CURVE_COLOURS,
    FAINT,
    INK,
    WIDE_INCHES,
    figure,
    in_days,
    svg,
    time_axis,
)
from pointsman_report.report.plots.timeline import Key

POINTS_A_CURVE = 400


def penalty_curves(
    brokers: list[tuple[Key, str, float]],
    charges: list[dict[str, Any]],
    parameters: FlapParameters,
    *,
    window: tuple[int, int],
    zone: ZoneInfo,
) -> str:
    """Draw each broker's decaying penalty and the two thresholds; the float is the penalty at the window's start."""
    with figure(width=WIDE_INCHES, height=3.4) as (drawn, axes):
        lines, top = [], parameters.suppress_above
        for (key, _, at_start), colour in zip(brokers, CURVE_COLOURS, strict=False):
            own = [(row["at"], row["penalty"]) for row in charges if _key(row) == key]
            curve = _curve(own, at_start, parameters.half_life_minutes, window)
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
        if brokers:
            # Named here: a legend leaves out lines whose own label begins with an underscore.
            names = [name for _, name, _ in brokers[: len(lines)]]
            place: Any = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 5 if sum(map(len, names)) < 80 else 3}
            for entry in axes.legend(lines, names, frameon=False, **place).get_texts():
                entry.set_parse_math(False)
        return svg(drawn, "Flap penalty over time")


def _curve(
    charges: list[tuple[int, float]], at_start: float, half_life_minutes: float, window: tuple[int, int]
) -> list[tuple[int, float]]:
    """Points of a curve that jumps at each charge and decays between them."""
    half_life = half_life_minutes * 60e6
    begin, end = window
    curve = [(begin, at_start)]
    between = max(1, POINTS_A_CURVE // (len(charges) + 1))
    for at, penalty in [*charges, (end, math.nan)]:
        since, height = curve[-1]
        steps = [since + (at - since) * n // between for n in range(1, between + 1)] if at > since else []
        curve += [(step, height * 2 ** (-(step - since) / half_life)) for step in steps]
        if not math.isnan(penalty):
            curve.append((at, penalty))
    return curve


def _key(row: dict[str, Any]) -> Key:
    return row["cluster"], row["broker_name"], row["broker_id"]
