"""A change sent to every name server listed: what each did, in a line and in keys. All changes may be repeated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import grpc
from rich.text import Text

from pointsman.wire.errors import ErrorDetails
from pointsman_client.errors import RequestRejectedError
from pointsman_client.routes.route_document import Document
from pointsman_client.rpc.name_server_link import NameServerLink
from pointsman_ctl.document import to_node_document
from pointsman_ctl.layout import failure_line
from pointsman_ctl.node import NodeAnswer
from pointsman_ctl.settings import Settings
from pointsman_ctl.wording import printable


@dataclass(frozen=True, slots=True)
class Done:
    """What one server did."""

    words: str
    changed: bool = True
    """False: it was so already."""
    facts: Document = field(default_factory=dict)
    """Further keys of the JSON output."""
    warning: str = ""
    """Why a restart of the server loses it."""


def change_every(
    settings: Settings, change: Callable[[NameServerLink, float], Awaitable[Done]], *, absent: str = ""
) -> int:
    """Send a change to every server, show what each did, and return the exit code.

    ``absent`` says what NOT_FOUND means for a removal: no failure on a server that never had it, as long as another
    did have it. Without that nobody could finish a removal that was interrupted.
    """
    nodes: Sequence[NodeAnswer[Done]] = settings.ask_every(change)
    if absent and any(node.answer is not None for node in nodes):
        nodes = [_excused(node, absent) for node in nodes]
    whole: Document = {"nodes": [to_node_document(node, _to_document) for node in nodes]}
    return settings.finish(nodes, whole, [_line(node) for node in nodes], is_change=True)


def not_there(link: NameServerLink, message: str, code: str) -> RequestRejectedError:
    """Return what a removal raises on a server that never had it."""
    return RequestRejectedError(link.addr, grpc.StatusCode.NOT_FOUND, message, ErrorDetails(code))


def _excused(node: NodeAnswer[Done], absent: str) -> NodeAnswer[Done]:
    failure = node.failure
    if isinstance(failure, RequestRejectedError) and failure.status is grpc.StatusCode.NOT_FOUND:
        return NodeAnswer(node.addr, Done(absent, changed=False), None)
    return node


def _to_document(done: Done) -> Document:
    return {"changed": done.changed, **done.facts, **({"warning": done.warning} if done.warning else {})}


def _line(node: NodeAnswer[Done]) -> Text:
    if node.answer is None:
        return failure_line(node)
    warning = f" (not saved: {printable(node.answer.warning)})" if node.answer.warning else ""
    return Text(f"{node.addr}: {node.answer.words}{warning}")
