"""What all tables have in common: plain text when piped, colours on a terminal, nothing cut off."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from io import StringIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from pointsman_ctl.failure import answer_words
from pointsman_ctl.node import NodeAnswer
from pointsman_ctl.wording import printable

PIPED_WIDTH = 10_000
"""Wide enough that no row breaks: what reads a pipe wants one row a line."""

ALARM = "bold red"
WARNING = "yellow"
STATE_STYLES = {
    "UP": "green",
    "READY": "green",
    "SUSPECT": WARNING,
    "PROVISIONAL": WARNING,
    "WARMING": WARNING,
    "PROTECTED": "magenta",
    "DRAINING": "magenta",
    "OUT": ALARM,
}


def show(parts: Iterable[RenderableType]) -> None:
    """Print to standard output, coloured on a terminal only: words fit its width, tables are as wide as they are."""
    is_piped = not sys.stdout.isatty()
    words_width = PIPED_WIDTH if is_piped and "COLUMNS" not in os.environ else Console().width
    console = Console(width=PIPED_WIDTH, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        for part in parts:
            # A row that is too long runs over; folded, an address cannot be read nor copied.
            console.print(part, width=None if isinstance(part, Table) else words_width)
    for line in StringIO(captured.get()):
        sys.stdout.write(line.rstrip() + "\n")
    sys.stdout.flush()


def new_table(*columns: str, right: Sequence[str] = ()) -> Table:
    """Start a table without lines; columns named in ``right`` are numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def state_cell(state: str) -> Text:
    """Show the state of a broker or of a node."""
    return Text(state, style=STATE_STYLES.get(state, ""))


def node_heading(position: int, addr: str, node: str, *, state: str = "") -> Iterable[RenderableType]:
    """Head one node's part: its address, its own name if that is another, its state if that is worth a word."""
    if position:
        yield ""
    name = f" ({printable(node)})" if node and node != addr else ""
    heading = Text(f"node {addr}{name}", style="bold")
    if state:
        heading.append(" ").append(state, style=STATE_STYLES.get(state, ""))
    yield heading


def failure_line(node: NodeAnswer[object]) -> Text:
    """Say why a node gave no answer."""
    return Text(answer_words(node.addr, node.failure) if node.failure else "", style=ALARM)
