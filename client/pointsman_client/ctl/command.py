"""The commands: read arguments, ask, show. What is asked and how it looks stands in the modules beside."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from typing import TypeVar

import click
from rich.console import RenderableType

from pointsman_client.address import check_name, to_name_servers
from pointsman_client.client import NameServerClient
from pointsman_client.ctl import document, table
from pointsman_client.ctl.failure import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    BrokerNotFoundError,
    Complaint,
    exit_code_of,
    to_complaint,
    to_node_complaint,
)
from pointsman_client.ctl.node import NodeAnswer, brokers_of_every, events_of_every
from pointsman_client.ctl.wording import printable
from pointsman_client.errors import InvalidAddressError, InvalidNameError, PointsmanError

DEFAULT_NAME_SERVER = "127.0.0.1:9876"

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Settings:
    """The options that all commands share."""

    name_servers: tuple[str, ...]
    output: str
    timeout_seconds: float

    def show(self, whole: document.Document, parts: Iterable[RenderableType]) -> None:
        """Print an answer in the format that was asked for."""
        if self.output == "json":
            click.echo(json.dumps(whole, indent=2))
        else:
            table.show(parts)

    def ask_first(self, ask: Callable[[NameServerClient], Awaitable[ResultT]]) -> ResultT:
        """Ask the first server in the list that answers."""

        async def within() -> ResultT:
            async with NameServerClient(
                self.name_servers, lookup_timeout_seconds=self.timeout_seconds, shuffle_name_servers=False
            ) as client:
                return await ask(client)

        return asyncio.run(within())


def _read_name_servers(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[str, ...]:
    try:
        return to_name_servers(value)
    except InvalidAddressError as error:
        raise click.BadParameter(str(error)) from error


def _read_name(_ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    if value is None:
        return ""
    try:
        check_name(param.name or "name", value)
    except InvalidNameError as error:
        raise click.BadParameter(str(error)) from error
    return value


def _read_seconds(_ctx: click.Context, _param: click.Parameter, value: float) -> float:
    if math.isnan(value):
        # It is neither below nor above a bound.
        raise click.BadParameter("nan is no number of seconds")
    return value


_in_cluster = click.option("--cluster", callback=_read_name, metavar="NAME", help="Only this cluster.")
_settings = click.make_pass_decorator(Settings)


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog="Exit codes: 0 fine, 1 failed or not found, 2 wrong usage. `pointsmanctl COMMAND --help` has examples.",
)
@click.option(
    "--namesrv",
    callback=_read_name_servers,
    metavar="HOST:PORT[,...]",
    envvar="POINTSMAN_NAMESRV",
    default=DEFAULT_NAME_SERVER,
    show_default=True,
    show_envvar=True,
    help="Name servers to ask.",
)
@click.option(
    "--output", "-o", type=click.Choice(["table", "json"]), default="table", show_default=True, help="How to answer."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.001, max=3600),
    callback=_read_seconds,
    default=3.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest wait for an answer.",
)
@click.version_option(version("pointsman"), prog_name="pointsmanctl")
@click.pass_context
def cli(ctx: click.Context, namesrv: tuple[str, ...], output: str, timeout: float) -> None:
    """Ask Pointsman's name servers who is alive and who holds which queues.

    `route`, `topics` and `clusters` ask the first server in the list that answers. `brokers` and `why` ask every one:
    name servers share nothing, and where they differ is often the news.

    \b
    Examples:
      pointsmanctl route orders
      pointsmanctl --namesrv ns1:9876,ns2:9876 brokers
      pointsmanctl --output json clusters | jq .
    """
    ctx.obj = Settings(namesrv, output, timeout)


@cli.command()
@click.argument("topic", callback=_read_name)
@_in_cluster
@click.option("--zone", default="", metavar="NAME", help="Only groups of this zone, and those without a master.")
@_settings
def route(settings: Settings, topic: str, cluster: str, zone: str) -> None:
    """Show where TOPIC is: its queues and the brokers that hold them.

    PERM says what clients may do: r read, w write. A group without a broker of id 0 has NO MASTER: it can be read and
    not be written. With --output json the keys are those of RocketMQ's TopicRouteData.

    \b
    Examples:
      pointsmanctl route orders
      pointsmanctl route orders --cluster DefaultCluster --zone z1
      pointsmanctl --output json route orders | jq '.brokerDatas[].brokerAddrs'
    """
    answer = settings.ask_first(lambda client: client.fetch_route(topic, cluster=cluster, zone=zone))
    settings.show(document.to_route_document(answer), table.route_parts(answer))


@cli.command()
@_in_cluster
@_settings
def topics(settings: Settings, cluster: str) -> None:
    """List the names of all topics, one a line.

    \b
    Examples:
      pointsmanctl topics
      pointsmanctl topics --cluster DefaultCluster | grep '^%RETRY%'
    """
    answer = settings.ask_first(lambda client: client.list_topics(cluster))
    settings.show({"topics": list(answer)}, table.topics_parts(answer))


@cli.command()
@_settings
def clusters(settings: Settings) -> None:
    """Show the clusters and their replica groups.

    \b
    Examples:
      pointsmanctl clusters
      pointsmanctl -o json clusters | jq '.clusters[].brokerDatas[].conditions'
    """
    answer = settings.ask_first(lambda client: client.list_clusters())
    settings.show(document.to_clusters_document(answer), table.clusters_parts(answer))


@cli.command()
@_in_cluster
@_settings
def brokers(settings: Settings, cluster: str) -> int:
    """Show every broker as each name server sees it.

    SILENT is the time since its last sign of life. Asks all servers listed; exits 1 if one did not answer.

    \b
    States:
      UP            heard in time
      SUSPECT       beats are missing or its connection broke; still routed
      PROVISIONAL   not heard since the name server's restart; still routed
      PROTECTED     overdue, but kept by the guard; still routed
      PROBE_FAILED  its agent says that it does not answer; not routed

    \b
    Examples:
      pointsmanctl brokers
      pointsmanctl --namesrv ns1:9876,ns2:9876 brokers --cluster DefaultCluster
    """
    nodes = asyncio.run(
        brokers_of_every(settings.name_servers, cluster=cluster, timeout_seconds=settings.timeout_seconds)
    )
    return _finish(settings, nodes, document.to_brokers_document(nodes), table.brokers_parts(nodes))


@cli.command()
@click.argument("broker", callback=_read_name)
@_in_cluster
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Events from each server.")
@_settings
def why(settings: Settings, broker: str, cluster: str, limit: int) -> int:
    """Show the last events of BROKER on each server.

    Oldest first. Works for brokers that are gone, too. SILENCE is the time since the sign of life before the event.
    Asks all servers listed; exits 1 if one did not answer, or if none remembers the broker.

    \b
    Examples:
      pointsmanctl why broker-a
      pointsmanctl --namesrv ns1:9876,ns2:9876 why broker-a --limit 5
    """
    nodes = asyncio.run(
        events_of_every(
            settings.name_servers,
            broker_name=broker,
            cluster=cluster,
            limit=limit,
            timeout_seconds=settings.timeout_seconds,
        )
    )
    if all(node.answer is not None and not node.answer.events for node in nodes):
        raise BrokerNotFoundError(broker, cluster)
    return _finish(settings, nodes, document.to_events_document(broker, nodes), table.events_parts(nodes))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    output = _asked_output(arguments)
    try:
        code = cli.main(args=list(arguments) or ["--help"], prog_name="pointsmanctl", standalone_mode=False)
    except click.Abort:
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        path = context.command_path if context else "pointsmanctl"
        complaint = Complaint("USAGE", printable(error.format_message()), f"see `{path} --help`")
        click.echo(complaint.render(output), err=True)
        return EXIT_USAGE
    except PointsmanError as error:
        click.echo(to_complaint(error).render(output), err=True)
        return exit_code_of(error)
    return code if isinstance(code, int) else EXIT_OK


def _asked_output(arguments: Sequence[str]) -> str:
    # Read by hand: usage errors come before click has read the options.
    pairs = set(pairwise(arguments))
    is_json = {("-o", "json"), ("--output", "json")} & pairs or {"-ojson", "--output=json"} & set(arguments)
    return "json" if is_json else "table"


def _finish(
    settings: Settings,
    nodes: Sequence[NodeAnswer[object]],
    whole: document.Document,
    parts: Iterable[RenderableType],
) -> int:
    """Show what the nodes answered and complain of those that failed."""
    failures = {node.addr: node.failure for node in nodes if node.failure is not None}
    if len(failures) < len(nodes):
        settings.show(whole, parts)
    if not failures:
        return EXIT_OK
    click.echo(to_node_complaint(failures, of=len(nodes)).render(settings.output), err=True)
    return EXIT_FAILED
