"""Tables of text for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

R = TypeVar("R")


def text_table(columns: Iterable[tuple[str, Callable[[R], str]]], rows: Iterable[R]) -> list[str]:
    """Return indented lines, the titles first. ``columns``: title, and how to write its cell of a row."""
    chosen = list(columns)
    cells = [[title for title, _ in chosen], *([write(row) for _, write in chosen] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    ]
