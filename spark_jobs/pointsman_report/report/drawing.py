"""Shared by all plots: style, time axis, and conversion to SVG with the page's colours.

Matplotlib writes fixed colours. They are replaced by the page's CSS variables, so one drawing works in light and dark
mode and on paper. The output is deterministic.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.dates as mdates
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

UP, DOWN, PLANNED, INK, SOFT, FAINT = "#9bc9a8", "#c62828", "#8fa3bf", "#222831", "#5f6b7a", "#d9dde3"
CURVE_COLOURS = ("#c62829", "#1565c0", "#ef6c00", "#6a1b9a", "#2e7d32")
VARIABLES = {UP: "up", DOWN: "down", PLANNED: "planned", INK: "ink", SOFT: "soft", FAINT: "line"} | {
    colour: f"curve{n}" for n, colour in enumerate(CURVE_COLOURS, 1)
}
"""The CSS variable of each colour."""

WIDE_INCHES, HALF_INCHES = 10.0, 5.4
PIXELS = 1_000

Bar = tuple[int, int]

_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pointsman",
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica", "Arial", "DejaVu Sans"],
    "font.size": 9,
    "path.simplify": True,
    "text.color": INK,
    "axes.labelcolor": SOFT,
    "axes.titlesize": 10.5,
    "axes.edgecolor": SOFT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
}
_COLOUR = re.compile("|".join(VARIABLES))
# Several drawings are on one page: unreferenced ids are removed.
_NAMES = re.compile(r' id="(?:figure|axes|patch|text|line2d|xtick|ytick|legend|matplotlib\.axis|\w*Collection)_\d+"')


@contextmanager
def figure(*, width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    """Open a figure with one plot; the sizes are inches."""
    # Half a page wide on a screen, full width on a phone: larger letters.
    with mpl.rc_context(_STYLE | {"font.size": 9 if width > HALF_INCHES else 10.5}):
        drawn = Figure(figsize=(width, height))
        axes = drawn.add_subplot()
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        yield drawn, axes


def drawn_twice(draw: Callable[..., str]) -> dict[str, str]:
    """Return a plot for screens and paper, and one for phones, on which the letters of the first are too small."""
    return {"plot": draw(), "narrow": draw(width=HALF_INCHES)}


def _is_narrow(axes: Axes) -> bool:
    drawn = axes.get_figure(root=True)
    return drawn is not None and drawn.get_figwidth() <= HALF_INCHES


def time_axis(axes: Axes, window: tuple[int, int], zone: ZoneInfo) -> None:
    """Make the x axis a time axis; ``window`` is in microseconds since 1970."""
    # Days and hours in the format of the tables; the first day is in the label.
    shown: Any = {
        "formats": ["%Y", "%Y-%m", "%m-%d", "%H:%M", "%H:%M", "%H:%M:%S"],
        "zero_formats": ["", "%Y", "%m-%d", "%m-%d", "%H:%M", "%H:%M"],
        "show_offset": False,
    }
    least, most = (3, 5) if _is_narrow(axes) else (4, 9)
    locator = mdates.AutoDateLocator(tz=zone, minticks=least, maxticks=most)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(mdates.ConciseDateFormatter(locator, tz=zone, **shown))  # type: ignore[no-untyped-call]
    axes.set_xlim(in_days(window[0]), in_days(window[1]))
    began = datetime.fromtimestamp(window[0] // 1_000_000, tz=zone)
    axes.set_xlabel(f"{began:%Y-%m-%d}, {zone.key}")
    axes.spines["left"].set_visible(False)
    axes.tick_params(left=False)


def legend(axes: Axes, lines: list[Line2D], names: list[str]) -> None:
    """Add a legend above the plot. Without explicit lines Matplotlib would omit names that begin with an underscore."""
    columns = 2 if _is_narrow(axes) else 5 if sum(map(len, names)) < 80 else 3
    placed = axes.legend(lines, names, frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns)
    for entry in placed.get_texts():
        entry.set_parse_math(False)


def svg(drawn: Figure, title: str) -> Markup:
    """Return the figure as an SVG with a label, without width and height, which the page sets.

    Matplotlib escapes its texts.
    """
    buffer = io.StringIO()
    no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with warnings.catch_warnings():
        # The text is drawn with the reader's fonts.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        drawn.savefig(buffer, format="svg", bbox_inches="tight", transparent=True, metadata=no_metadata)
    text = buffer.getvalue()
    # Drop the XML declaration: the page is HTML.
    head, _, rest = text[text.index("<svg") :].partition(">")
    kept = " ".join(part for part in head.split() if not part.startswith(("width=", "height=")))
    themed = re.sub(r'style="[^"]*"', lambda style: _COLOUR.sub(_variable, style[0]), rest)
    plain = _NAMES.sub("", themed)
    return Markup('{} role="img" aria-label="{}">{}').format(Markup(kept), title, Markup(plain))  # noqa: S704 - as above


def _variable(colour: re.Match[str]) -> str:
    return f"var(--{VARIABLES[colour[0]]})"


def in_days(microseconds: float) -> float:
    """Convert microseconds to Matplotlib's unit, days."""
    # Matplotlib's unit: days since 1970.
    return microseconds / 86_400e6
