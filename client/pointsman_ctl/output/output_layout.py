"""Layout of the output: colours on a terminal, plain text in a pipe, no truncation, one part for each node."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from io import StringIO
from typing import Any, Protocol, TypeVar

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from pointsman.names import printable
from pointsman.wire.json_document import Document, to_document
from pointsman_ctl.output.error_report import failure_sentence, to_error_report
from pointsman_ctl.servers.server_calls import NodeResponse

PIPED_WIDTH = 10_000
"""Wide enough that no row breaks: programs that read a pipe expect one row per line."""
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
    """Print to standard output. Text is wrapped to the width of the terminal, tables are not."""
    is_piped = not sys.stdout.isatty()
    text_width = PIPED_WIDTH if is_piped and "COLUMNS" not in os.environ else Console().width
    console = Console(width=PIPED_WIDTH, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        for part in parts:
            # A folded address could not be copied.
            console.print(part, width=None if isinstance(part, Table) else text_width)
    for line in StringIO(captured.get()):
        sys.stdout.write(line.rstrip() + "\n")
    sys.stdout.flush()


def new_table(*columns: str, right: Sequence[str] = ()) -> Table:
    """Return an empty table without borders; columns in ``right`` are right-aligned."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def state_cell(state: str) -> Text:
    """Show the state of a broker or of a node."""
    return Text(state, style=STATE_STYLES.get(state, ""))


def node_heading(position: int, addr: str, node: str, *, state: str = "") -> Iterable[RenderableType]:
    """Return the heading of a node: its address, its own name if it differs, its state if given."""
    if position:
        yield ""
    name = f" ({printable(node)})" if node and node != addr else ""
    heading = Text(f"node {addr}{name}", style="bold")
    if state:
        heading.append(" ").append(state, style=STATE_STYLES.get(state, ""))
    yield heading


def failure_line(node: NodeResponse[object]) -> Text:
    """Return why a node failed."""
    return Text(failure_sentence(node.addr, node.failure) if node.failure else "", style=ALARM)


class HasNode(Protocol):
    """A response with the server's own name."""

    @property
    def node(self) -> str:
        """The server's own name."""


ResultT = TypeVar("ResultT", bound=HasNode)


def node_parts(
    nodes: Iterable[NodeResponse[ResultT]],
    show_response: Callable[[ResultT], Iterable[RenderableType]],
    *,
    state: Callable[[ResultT], str] = lambda _: "",
) -> Iterable[RenderableType]:
    """Show the response or the failure of each node below its heading."""
    for position, node in enumerate(nodes):
        if node.response is None:
            yield from node_heading(position, node.addr, "")
            yield failure_line(node)
        else:
            yield from node_heading(position, node.addr, node.response.node, state=state(node.response))
            yield from show_response(node.response)


def node_documents(nodes: Iterable[NodeResponse[Any]], to_result: Callable[[Any], Document] = to_document) -> Document:
    """Render the response or the failure of each node."""
    return {"nodes": [node_document(node, to_result) for node in nodes]}


def node_document(node: NodeResponse[Any], to_result: Callable[[Any], Document]) -> Document:
    """Render the response or the failure of one node."""
    if node.response is not None:
        return {"addr": node.addr, **to_result(node.response)}
    return {"addr": node.addr, "error": to_error_report(node.failure).to_document() if node.failure else None}
