"""A change sent to every name server listed: what each did, in a line and in keys. All changes may be repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import click
import grpc
from rich.text import Text

from pointsman.wire.error_details import ErrorDetails
from pointsman.wire.json_document import Document
from pointsman_client import RequestRejectedError
from pointsman_ctl.answer_layout import failure_line, node_documents
from pointsman_ctl.error_report import BrokerClusterUnknownError
from pointsman_ctl.invocation import Invocation
from pointsman_ctl.name_server_queries import brokers_of
from pointsman_ctl.operator_texts import printable
from pointsman_ctl.server_calls import Ask, NodeAnswer, Server, answers_of


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


def change_every(invocation: Invocation, change: Ask[Done], *, absent: str = "") -> int:
    """Send a change to every server, show what each did, and return the exit code.

    ``absent`` states what NOT_FOUND means for a removal: no failure on a server that never had it, as long as another
    did have it. Without that a removal that was interrupted could not be finished.
    """
    nodes: Sequence[NodeAnswer[Done]] = invocation.ask_every(change)
    if absent and any(node.answer is not None for node in nodes):
        nodes = [_excused(node, absent) for node in nodes]
    whole: Document = node_documents(nodes, _to_document)
    return invocation.finish(nodes, whole, [_line(node) for node in nodes], is_change=True)


def not_there(server: Server, message: str, code: str) -> RequestRejectedError:
    """Return what a removal raises on a server that never had it."""
    return RequestRejectedError(server.addr, grpc.StatusCode.NOT_FOUND, message, ErrorDetails(code))


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


def cluster_of(invocation: Invocation, broker_name: str, *, cluster: str) -> str:
    """Return ``cluster``, or the one that has the broker name, according to all servers that answer.

    Raises a usage error when several have it, BrokerClusterUnknownError when none has, and
    NameServersUnavailableError when no server answers.
    """
    if cluster:
        return cluster
    nodes = invocation.ask_every(lambda server, deadline: brokers_of(server, deadline, broker_name=broker_name))
    found = sorted({status.identity.cluster for answer in answers_of(nodes) for status in answer.brokers})
    if len(found) > 1:
        raise click.UsageError(f"{broker_name} stands in clusters {', '.join(found)}: say which with --cluster")
    if not found:
        raise BrokerClusterUnknownError(broker_name)
    return found[0]
