"""How answers are laid out: plain text when piped, colours on a terminal, nothing cut off, a part for each node."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from io import StringIO
from typing import Any, Protocol, TypeVar

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from pointsman.wire.json_document import Document, to_document
from pointsman_ctl.error_report import answer_words, to_error_report
from pointsman_ctl.operator_texts import printable
from pointsman_ctl.server_calls import NodeAnswer

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
    """Head one node's part: its address, its own name if that is another, its state if it is given."""
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


class HasNode(Protocol):
    """An answer that names the server as that names itself."""

    @property
    def node(self) -> str:
        """Its name."""


AnswerT = TypeVar("AnswerT", bound=HasNode)


def node_parts(
    nodes: Iterable[NodeAnswer[AnswerT]],
    show_answer: Callable[[AnswerT], Iterable[RenderableType]],
    *,
    state: Callable[[AnswerT], str] = lambda _: "",
) -> Iterable[RenderableType]:
    """Show each node's answer, or how it failed, below its name."""
    for position, node in enumerate(nodes):
        if node.answer is None:
            yield from node_heading(position, node.addr, "")
            yield failure_line(node)
        else:
            yield from node_heading(position, node.addr, node.answer.node, state=state(node.answer))
            yield from show_answer(node.answer)


def node_documents(nodes: Iterable[NodeAnswer[Any]], to_answer: Callable[[Any], Document] = to_document) -> Document:
    """Render each node's answer, or how it failed."""
    return {"nodes": [node_document(node, to_answer) for node in nodes]}


def node_document(node: NodeAnswer[Any], to_answer: Callable[[Any], Document]) -> Document:
    """Render one node's answer, or how it failed."""
    if node.answer is not None:
        return {"addr": node.addr, **to_answer(node.answer)}
    return {"addr": node.addr, "error": to_error_report(node.failure).to_document() if node.failure else None}
