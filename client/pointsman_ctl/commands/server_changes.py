"""Changes sent to every name server listed, and the outcome at each. All changes can be repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import click
import grpc
from rich.text import Text

from pointsman.names import printable
from pointsman.wire.error_details import ErrorDetails
from pointsman.wire.json_document import Document
from pointsman_client import RequestRejectedError
from pointsman_ctl.options.invocation import Invocation
from pointsman_ctl.output.error_report import BrokerClusterUnknownError
from pointsman_ctl.output.output_layout import failure_line, node_documents
from pointsman_ctl.servers.name_servers import PointsmanNameServer
from pointsman_ctl.servers.server_calls import NodeResponse, Query, responses_of


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a change at one server."""

    text: str
    changed: bool = True
    """False: already in this state."""
    facts: Document = field(default_factory=dict)
    """Further keys of the JSON output."""
    warning: str = ""
    """Why the change does not survive a restart of the server."""


def change_every(invocation: Invocation, change: Query[PointsmanNameServer, Outcome], *, absent: str = "") -> int:
    """Send a change to every server, show the outcome at each, and return the exit code.

    ``absent``: for a removal, the text for a server that responds NOT_FOUND while another removed it. This is not a
    failure, so that an interrupted removal can be repeated.
    """
    nodes: Sequence[NodeResponse[Outcome]] = invocation.query_every(change)
    if absent and any(node.response is not None for node in nodes):
        nodes = [_already_done(node, absent) for node in nodes]
    document: Document = node_documents(nodes, outcome_document)
    return invocation.finish(nodes, document, [outcome_line(node) for node in nodes], is_change=True)


def not_there(server: PointsmanNameServer, message: str, code: str) -> RequestRejectedError:
    """Return the error of a removal at a server that does not have the object."""
    return RequestRejectedError(server.addr, grpc.StatusCode.NOT_FOUND, message, ErrorDetails(code))


def _already_done(node: NodeResponse[Outcome], absent: str) -> NodeResponse[Outcome]:
    failure = node.failure
    if isinstance(failure, RequestRejectedError) and failure.status is grpc.StatusCode.NOT_FOUND:
        return NodeResponse(node.addr, Outcome(absent, changed=False), None)
    return node


def outcome_document(done: Outcome) -> Document:
    """Return an outcome as JSON."""
    return {"changed": done.changed, **done.facts, **({"warning": done.warning} if done.warning else {})}


def outcome_line(node: NodeResponse[Outcome]) -> Text:
    """Return an outcome, or the failure, as a line."""
    if node.response is None:
        return failure_line(node)
    warning = f" (not saved: {printable(node.response.warning)})" if node.response.warning else ""
    return Text(f"{node.addr}: {node.response.text}{warning}")


def cluster_of(invocation: Invocation, broker_name: str, *, cluster: str) -> str:
    """Return ``cluster``, or the one that has the broker name, according to all servers that respond.

    Raises a usage error when several have it, BrokerClusterUnknownError when none has, and
    NameServersUnavailableError when no server responds.
    """
    if cluster:
        return cluster
    nodes = invocation.query_every(lambda server, deadline: server.brokers(deadline, broker_name=broker_name))
    found = sorted({status.identity.cluster for response in responses_of(nodes) for status in response.brokers})
    if len(found) > 1:
        raise click.UsageError(f"{broker_name} is in clusters {', '.join(found)}: choose one with --cluster")
    if not found:
        raise BrokerClusterUnknownError(broker_name)
    return found[0]
