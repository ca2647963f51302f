"""Where a client's route differs from what name servers have, as a table and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from pointsman_client.core.route import TopicRoute
from pointsman_client.routes.route_document import Document, to_revision_document
from pointsman_ctl.client_description import ClientDescription
from pointsman_ctl.document import to_node_document
from pointsman_ctl.layout import WARNING, failure_line, node_heading
from pointsman_ctl.node import NodeAnswer
from pointsman_ctl.route_difference import route_difference
from pointsman_ctl.watch_view import DIFFERENCE_STYLES
from pointsman_ctl.wording import duration_words, printable


@dataclass(frozen=True, slots=True)
class NodeRoute:
    """A node's answer for one topic."""

    route: TopicRoute | None
    """None: not found there."""


NodeRoutes = Sequence[NodeAnswer[NodeRoute]]
_UNREADABLE = "differs in what this pointsmanctl cannot read"


def differences(client: ClientDescription, node: NodeRoute) -> list[str]:
    """Return a line for each thing that is other at the node than at the client; none: they are equal."""
    if client.route is None or node.route is None:
        if client.route is node.route:
            return []
        return ["- the node has no route of it"] if node.route is None else ["+ the client has no route of it"]
    digests = client.route.revision.digest, node.route.revision.digest
    lines = route_difference(client.route, node.route)
    return lines or ([_UNREADABLE] if all(digests) and digests[0] != digests[1] else [])


def are_equal(client: ClientDescription, nodes: NodeRoutes) -> bool:
    """Whether all nodes that answered have the client's route."""
    return not any(node.answer is not None and differences(client, node.answer) for node in nodes)


def to_client_difference_document(client: ClientDescription, nodes: NodeRoutes) -> Document:
    """Render where the nodes differ from the client."""

    def one(node: NodeRoute) -> Document:
        found = differences(client, node)
        revision = None if node.route is None else to_revision_document(node.route.revision)
        return {"equal": not found, "revision": revision, "differences": found}

    return {
        "equal": are_equal(client, nodes),
        "topic": client.topic,
        "client": {
            "revision": None if client.route is None else to_revision_document(client.route.revision),
            "ageSeconds": client.age_seconds,
            "sourceNode": client.source_node,
            "stale": client.route is not None and client.route.stale,
        },
        "nodes": [to_node_document(node, one) for node in nodes],
    }


def client_difference_parts(client: ClientDescription, nodes: NodeRoutes) -> Iterable[RenderableType]:
    """Show what is other at each node than at the client."""
    yield Text(f"{printable(client.topic)} at the client: {_state_words(client)}", style="bold")
    for position, node in enumerate(nodes):
        yield from node_heading(position, node.addr, "")
        if node.answer is None:
            yield failure_line(node)
            continue
        found = differences(client, node.answer)
        for line in found:
            yield Text(line, style=DIFFERENCE_STYLES.get(line[0], WARNING))
        if not found:
            yield Text("equal", style="green")


def _state_words(client: ClientDescription) -> str:
    if client.route is None:
        return "no route"
    age = duration_words(client.age_seconds or 0.0)
    stale = ", stale: name servers contradict each other" if client.route.stale else ""
    return f"confirmed {age} ago by {printable(client.source_node or '')}{stale}"
