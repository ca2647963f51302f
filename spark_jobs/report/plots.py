"""The report's plots as SVG text: the same numbers give the same bytes."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterable
from datetime import UTC
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.dates as mdates
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from spark_jobs.parameters import FlapParameters

UP, DOWN, PLANNED, INK, FAINT = "#9bc9a8", "#c62828", "#8fa3bf", "#222831", "#d9dde3"
CURVE_COLOURS = ("#c62828", "#1565c0", "#ef6c00", "#6a1b9a", "#2e7d32")
POINTS_A_CURVE = 400
WIDTH_INCHES = 10.0
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pointsman",
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica", "Arial", "DejaVu Sans"],
    "font.size": 9,
    "path.simplify": True,
}

PIXELS = 1_000
MOST_BARS = 16_000
BACK_TO_FRONT = (UP, PLANNED, DOWN)

Key = tuple[str, str, int]
Bar = tuple[int, int]


def timeline(names: list[tuple[Key, str]], intervals: Iterable[dict[str, Any]], *, window: tuple[int, int]) -> str:
    """Draw one bar for each broker, top to bottom as given: up, down, away by plan, and blank where nobody watched."""
    row_inches = min(0.26, max(0.11, 12 / max(len(names), 1)))
    position = {key: n for n, (key, _) in enumerate(names)}
    bars: dict[tuple[str, int], list[Bar]] = {}
    for row in intervals:
        start, end = max(row["start"], window[0]), min(row["end"], window[1])
        if end >= start:
            colour = UP if row["state"] == "up" else PLANNED if row["planned"] else DOWN
            bars.setdefault((colour, position[_key(row)]), []).append((start, end))
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH_INCHES, 0.75 + row_inches * len(names)))
        axes = figure.add_subplot()
        thickness = row_inches * 72 * 0.72
        for (colour, n), drawn in sorted(
            _few_enough(bars, window).items(), key=lambda bar: BACK_TO_FRONT.index(bar[0][0])
        ):
            ends = [(_days(at), n) for start, end in drawn for at in (start, end)]
            # One path a broker and colour: a page of many outages stays small.
            path = Path(ends, [Path.MOVETO, Path.LINETO] * len(drawn))
            axes.add_patch(PathPatch(path, fill=False, edgecolor=colour, linewidth=thickness, capstyle="butt"))
        axes.set_ylim(len(names) - 0.4, -0.6)
        # A name with two dollar signs is no formula.
        size = min(9.0, row_inches * 62)
        axes.set_yticks(range(len(names)), [name for _, name in names], fontsize=size, parse_math=False)
        _time_axis(axes, window)
        axes.grid(axis="x", color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        return _svg(figure, "State of each broker over time")


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


def penalty_curves(
    brokers: list[tuple[Key, str, float]],
    charges: list[dict[str, Any]],
    parameters: FlapParameters,
    *,
    window: tuple[int, int],
) -> str:
    """Draw each broker's decaying penalty and the two thresholds; the float is the penalty at the window's start."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH_INCHES, 3.4))
        axes = figure.add_subplot()
        lines = []
        for (key, _, at_start), colour in zip(brokers, CURVE_COLOURS, strict=False):
            own = _highest([(row["at"], row["penalty"]) for row in charges if _key(row) == key], window)
            curve = _curve(own, at_start, parameters.half_life_minutes, window)
            lines += axes.plot([_days(at) for at, _ in curve], [p for _, p in curve], color=colour, linewidth=1.5)
        for height, text in ((parameters.suppress_above, "flapping above"), (parameters.reuse_below, "cleared below")):
            axes.axhline(height, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
            axes.annotate(
                f"{text} {height:g}", (1.0, height), xycoords=("axes fraction", "data"), ha="right", va="bottom"
            )
        top = max([parameters.suppress_above, *(row["penalty"] for row in charges)])
        axes.set_ylim(0, top * 1.15)
        axes.set_ylabel("penalty")
        _time_axis(axes, window)
        axes.grid(axis="y", color=FAINT, linewidth=0.6)
        if brokers:
            # Named here: a legend leaves out lines whose own label begins with an underscore.
            names = [name for _, name, _ in brokers[: len(lines)]]
            place: Any = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": min(len(names), 5)}
            for entry in axes.legend(lines, names, frameon=False, **place).get_texts():
                entry.set_parse_math(False)
        return _svg(figure, "Flap penalty over time")


def _highest(charges: list[tuple[int, float]], window: tuple[int, int]) -> list[tuple[int, float]]:
    """Keep the highest point of each pixel."""
    pixel = max(1, (window[1] - window[0]) // PIXELS)
    best: dict[int, tuple[int, float]] = {}
    for at, penalty in charges:
        if penalty >= best.get(at // pixel, (at, 0.0))[1]:
            best[at // pixel] = (at, penalty)
    return [best[slot] for slot in sorted(best)]


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


def _time_axis(axes: Axes, window: tuple[int, int]) -> None:
    locator = mdates.AutoDateLocator(tz=UTC, minticks=4, maxticks=9)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(mdates.ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
    axes.set_xlim(_days(window[0]), _days(window[1]))
    axes.set_xlabel("UTC")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(left=False)


def _svg(figure: Figure, title: str) -> str:
    buffer = io.StringIO()
    unsaid = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with warnings.catch_warnings():
        # The reader's fonts draw the text, not ours.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        figure.savefig(buffer, format="svg", bbox_inches="tight", transparent=True, metadata=unsaid)
    text = buffer.getvalue()
    # The page is HTML: no XML declaration, and the width is the page's.
    svg = text[text.index("<svg") :]
    head, _, rest = svg.partition(">")
    kept = " ".join(part for part in head.split() if not part.startswith(("width=", "height=")))
    return f'{kept} role="img" aria-label="{title}">{rest}'


def _days(microseconds: float) -> float:
    # Matplotlib's own scale: days since 1970.
    return microseconds / 86_400e6


def _key(row: dict[str, Any]) -> Key:
    return row["cluster"], row["broker_name"], row["broker_id"]
