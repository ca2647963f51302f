"""The command ``diff``: differences between two name servers, or between a client and name servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import click
from google.protobuf.json_format import ParseError
from rich.console import RenderableType
from rich.text import Text

from pointsman.names import is_observed, is_rocketmq, printable
from pointsman.v1 import route_service_pb2
from pointsman.wire.json_document import Document, read_route_document, to_document
from pointsman.wire.operator_texts import duration_text
from pointsman_client import InvalidInputError, TopicNotFoundError
from pointsman_ctl.options.command_options import read_addr
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.output.error_report import EXIT_FAILED, EXIT_OK, nodes_failed
from pointsman_ctl.output.node_difference import (
    comparable,
    difference_parts,
    digest_difference,
    setting_differences,
    to_difference_document,
    to_digests,
)
from pointsman_ctl.output.output_layout import WARNING, failure_line, node_documents, node_heading
from pointsman_ctl.output.route_difference import DIFFERENCE_STYLES, route_difference
from pointsman_ctl.servers.name_servers import PointsmanNameServer, name_servers
from pointsman_ctl.servers.rocketmq_name_server import TopicRoutes
from pointsman_ctl.servers.server_calls import NodeResponse, query_every

MAX_SHOWN_ROUTES = 20
_UNREADABLE = "differs in fields unknown to this version of pointsmanctl"


@click.command()
@click.argument("nodes", nargs=-1, metavar="[NODE NODE]")
@click.option(
    "--client",
    type=click.File("rb"),
    metavar="FILE",
    help="Compare a client's route: the JSON of its describe(topic); - reads standard input.",
)
@pass_invocation
def diff(invocation: Invocation, nodes: tuple[str, ...], client: BinaryIO | None) -> int:
    """Compare two name servers, or a client with name servers.

    Compares the digests of all routes, broker states included, so nodes differ for some seconds after a change. Also
    compares operator settings: KV, order topics, wiped permissions, hidden topics, guards, maintenance. Two nodes need
    no --namesrv. A RocketMQ name server (rocketmq://HOST:PORT) is compared topic by topic, in queues, permissions and
    addresses of brokers alone; each topic is one request to it. An observer (observe://HOST:PORT) means the two name
    servers that it polls. With --client, the route of a client is compared with each server listed: + marks what only
    the server has. Exits 0 if all are equal, 1 if they differ or one failed.

    \b
    JSON: equal, first.{addr, node, nodeState, topicCount}, second.{as first},
          differing[], onlyFirst[], onlySecond[], settings[].{kind, name[],
          first.{value, remainingSeconds} or null, second.{as first}};
          with a RocketMQ name server also
          routes[].{topic, differences[]}
    with --client: equal, topic, client.{revision, ageSeconds, sourceNode,
          stale}, nodes[].{addr, equal, revision, differences[]}
          or {addr, error}

    \b
    Examples:
      pointsmanctl diff ns1:9876 ns2:9876
      pointsmanctl -o json diff ns1:9876 ns2:9876 | jq '.differing'
      pointsmanctl diff rocketmq://mq-ns1:9876 ns1:9876

    \b
    A client's route, written by json.dumps(client.describe("orders")):
      pointsmanctl --namesrv ns1:9876,ns2:9876 diff --client orders.json
    """
    if client is not None:
        if nodes:
            raise click.UsageError("--client compares with the servers of --namesrv: remove NODE")
        return _diff_client(invocation, read_description(client.read(), source=client.name))
    if len(nodes) < 2:
        nodes = _observed(invocation, *nodes)
    if len(nodes) > 2:
        raise click.UsageError(f"Got unexpected extra argument ({nodes[2]})")
    if len(nodes) < 2:
        raise click.UsageError("Missing argument 'NODE': give two nodes, an observer, or --client FILE")
    context = click.get_current_context()
    first, second = (read_addr(context, context.command.params[0], node) for node in nodes)
    return _diff_nodes(invocation, first, second)


def _observed(invocation: Invocation, node: str = "") -> tuple[str, ...]:
    """Return the two name servers of an observer; of a name server the argument itself."""
    context = click.get_current_context()
    addr = read_addr(context, context.command.params[0], node) if node else invocation.name_servers[0]
    if not is_observed(addr):
        return (node,) if node else ()
    found = invocation.observed(addr) if node else invocation.name_servers
    if len(found) != 2:
        raise click.UsageError(f"give two of the {len(found)} name servers that are observed: {', '.join(found)}")
    return found


def _diff_nodes(invocation: Invocation, first: str, second: str) -> int:
    if first == second:
        raise click.UsageError(f"{first} is the same node twice")
    if is_rocketmq(first) or is_rocketmq(second) or is_observed(first) != is_observed(second):
        return _diff_routes(invocation.patient(), (first, second))
    nodes = invocation.query_every(PointsmanNameServer.digests, addrs=(first, second))
    ours, theirs = (node.response for node in nodes)
    if ours is None or theirs is None:
        failures = {node.addr: node.failure for node in nodes if node.failure is not None}
        return invocation.fail(nodes_failed(failures, of=(first, second), is_change=False))
    difference = digest_difference(ours, theirs)
    addrs, sides = (first, second), (ours, theirs)
    of_settings = setting_differences({first: ours.settings, second: theirs.settings})
    invocation.show(
        to_difference_document(addrs, sides, difference, of_settings),
        difference_parts(addrs, sides, difference, of_settings),
    )
    return EXIT_OK if difference.is_empty and not of_settings else EXIT_FAILED


def _diff_routes(invocation: Invocation, addrs: tuple[str, str]) -> int:
    """Compare two name servers, of which RocketMQ's have no digests and no settings."""
    access = invocation.access.to_rocketmq(with_tls=all(map(is_rocketmq, addrs)))

    async def query() -> list[NodeResponse[TopicRoutes]]:
        async with invocation.connections() as to:
            servers = name_servers(to, access)
            return await query_every(
                servers, addrs, lambda server, at: server.all_routes(at), invocation.timeout_seconds
            )

    nodes = asyncio.run(query())
    ours, theirs = (node.response for node in nodes)
    if ours is None or theirs is None:
        failures = {node.addr: node.failure for node in nodes if node.failure is not None}
        return invocation.fail(nodes_failed(failures, of=addrs, is_change=False))
    sides = (to_digests(ours), to_digests(theirs))
    difference = digest_difference(*sides)
    first, second = comparable(ours), comparable(theirs)
    lines = {topic: route_difference(first[topic], second[topic]) for topic in difference.differing}
    routes = [{"topic": topic, "differences": found} for topic, found in lines.items()]
    document = {**to_difference_document(addrs, sides, difference, []), "routes": routes}
    parts = [*difference_parts(addrs, sides, difference, []), *_shown_lines(lines)]
    invocation.show(document, parts)
    return EXIT_OK if difference.is_empty else EXIT_FAILED


def _shown_lines(lines: Mapping[str, Sequence[str]]) -> Iterable[RenderableType]:
    for topic, found in list(lines.items())[:MAX_SHOWN_ROUTES]:
        yield Text(printable(topic), style="bold")
        for line in found:
            yield Text(line, style=DIFFERENCE_STYLES.get(line[0], WARNING))
    if len(lines) > MAX_SHOWN_ROUTES:
        yield Text(f"{len(lines) - MAX_SHOWN_ROUTES} more topics: see -o json", style="dim")


def _diff_client(invocation: Invocation, client: ClientDescription) -> int:
    async def query(server: PointsmanNameServer, deadline: float) -> NodeRoute:
        try:
            return NodeRoute(await server.route(client.topic, deadline, zone=client.zone))
        except TopicNotFoundError:
            return NodeRoute(None)

    nodes = invocation.query_every(query)
    code = invocation.finish(
        nodes, to_client_difference_document(client, nodes), client_difference_parts(client, nodes)
    )
    return code if are_equal(client, nodes) else EXIT_FAILED


class InvalidDescriptionError(InvalidInputError):
    """The input is not the JSON of ``describe``."""

    code = "INVALID_DESCRIPTION"

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(f"{source} is not the JSON of a client's describe(topic): {problem}")


@dataclass(frozen=True, slots=True)
class ClientDescription:
    """A client's view of a topic."""

    topic: str
    route: route_service_pb2.TopicRoute | None
    """None: no route."""
    stale: bool
    """Whether name servers contradict each other on the route."""
    age_seconds: float | None
    source_node: str | None
    """The name server that last confirmed the route."""
    zone: str = ""
    """The zone that the client's routes are limited to."""


def read_description(text: str | bytes, *, source: str) -> ClientDescription:
    """Parse the JSON of ``describe``; ``source`` is named in the error. Raises InvalidDescriptionError."""
    try:
        document = json.loads(text)
        if not isinstance(document, dict):
            raise TypeError("must be a JSON object")  # noqa: TRY301  as all other problems
        route = document["route"]
        return ClientDescription(
            topic=_typed(document, "topic", str),
            route=None if route is None else read_route_document(route),
            stale=_typed(document, "stale", bool),
            age_seconds=None if route is None else float(_typed(document, "ageSeconds", float, int)),
            source_node=None if route is None else _typed(document, "sourceNode", str),
            zone=_typed({"zone": ""} | document, "zone", str),
        )
    except KeyError as error:
        raise InvalidDescriptionError(source, f"{error.args[0]} is missing") from error
    except (TypeError, ValueError, ParseError) as error:
        raise InvalidDescriptionError(source, str(error)) from error


def _typed(document: Mapping[str, Any], key: str, *types: type) -> Any:  # noqa: ANN401  # what JSON holds
    value = document[key]
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise TypeError(f"{key} must not be {value!r}")
    return value


@dataclass(frozen=True, slots=True)
class NodeRoute:
    """The route of one topic at a node."""

    route: route_service_pb2.TopicRoute | None
    """None: not found there."""


NodeRoutes = Sequence[NodeResponse[NodeRoute]]


def differences(client: ClientDescription, node: NodeRoute) -> list[str]:
    """Return a line for each difference between the node and the client; none if they are equal."""
    if client.route is None or node.route is None:
        if client.route is node.route:
            return []
        return ["- the node has no route"] if node.route is None else ["+ the client has no route"]
    digests = client.route.revision.digest, node.route.revision.digest
    lines = route_difference(client.route, node.route)
    return lines or ([_UNREADABLE] if all(digests) and digests[0] != digests[1] else [])


def are_equal(client: ClientDescription, nodes: NodeRoutes) -> bool:
    """Whether all nodes that responded have the client's route."""
    return not any(node.response is not None and differences(client, node.response) for node in nodes)


def to_client_difference_document(client: ClientDescription, nodes: NodeRoutes) -> Document:
    """Render the differences between nodes and client."""

    def one(node: NodeRoute) -> Document:
        found = differences(client, node)
        revision = None if node.route is None else to_document(node.route.revision)
        return {"equal": not found, "revision": revision, "differences": found}

    return {
        "equal": are_equal(client, nodes),
        "topic": client.topic,
        "client": {
            "revision": None if client.route is None else to_document(client.route.revision),
            "ageSeconds": client.age_seconds,
            "sourceNode": client.source_node,
            "stale": client.stale,
        },
        **node_documents(nodes, one),
    }


def client_difference_parts(client: ClientDescription, nodes: NodeRoutes) -> Iterable[RenderableType]:
    """Show the differences between each node and the client."""
    yield Text(f"{printable(client.topic)} at the client: {_state_text(client)}", style="bold")
    for position, node in enumerate(nodes):
        yield from node_heading(position, node.addr, "")
        if node.response is None:
            yield failure_line(node)
            continue
        found = differences(client, node.response)
        for line in found:
            yield Text(line, style=DIFFERENCE_STYLES.get(line[0], WARNING))
        if not found:
            yield Text("equal", style="green")


def _state_text(client: ClientDescription) -> str:
    if client.route is None:
        return "no route"
    age = duration_text(client.age_seconds or 0.0)
    stale = ", stale: name servers contradict each other" if client.stale else ""
    return f"confirmed {age} ago by {printable(client.source_node or '')}{stale}"
