"""One run of a command: shared options, queries to servers, output and exit code."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import click
from rich.console import RenderableType

from pointsman.names import is_observed, is_rocketmq, observed_addr, read_observed
from pointsman.v1 import broker_pb2
from pointsman.wire.channel_opener import ChannelOpener
from pointsman.wire.json_document import Document
from pointsman_client import InvalidInputError
from pointsman_ctl.options import DEFAULT_TIMEOUT_SECONDS
from pointsman_ctl.options.access_options import Access
from pointsman_ctl.output import output_layout
from pointsman_ctl.output.error_report import EXIT_FAILED, EXIT_OK, ErrorReport, nodes_failed
from pointsman_ctl.servers.agent_queries import AgentServer
from pointsman_ctl.servers.name_servers import NameServer, PointsmanNameServer, name_servers
from pointsman_ctl.servers.rocketmq_name_server import RocketmqAccess
from pointsman_ctl.servers.server_calls import (
    NodeResponse,
    Query,
    ResultT,
    To,
    connections,
    query_every,
    query_first,
    responses_of,
)

if TYPE_CHECKING:
    from pointsman_ctl.servers.stored_messages import StoredMessages

PAST_TIMEOUT_SECONDS = 35.0
"""A name server answers one question about the past at a time, each within 30 s."""


P = ParamSpec("P")
ReturnT = TypeVar("ReturnT")
OF_OBSERVERS = frozenset(
    {
        *("brokers", "clusters", "diff", "doctor", "events", "flapping", "health", "info"),
        *("route", "top", "topics", "watch", "why"),
    }
)
"""Commands that work with the address of an observer."""


class ObserverOnlyPollsError(InvalidInputError):
    """The command needs what an observer does not have."""

    code = "OBSERVER_ONLY_POLLS"

    def __init__(self, addr: str, command: str) -> None:
        super().__init__(
            f"{command} is not for {addr}: an observer only polls RocketMQ's name servers; give their addresses as "
            f"rocketmq://HOST:PORT, or use mqadmin. With an observer work {', '.join(sorted(OF_OBSERVERS))}"
        )


class ObserverRequiredError(InvalidInputError):
    """The address is of a name server, not of an observer."""

    code = "OBSERVER_REQUIRED"

    def __init__(self, addr: str, node: str) -> None:
        observer, _ = read_observed(addr)
        super().__init__(f"{addr} is not an observer but the name server {node}: write --namesrv {observer}")


@dataclass(frozen=True, slots=True)
class Invocation:
    """The shared options."""

    name_servers: tuple[str, ...]
    output: str
    timeout_seconds: float
    access: Access = field(default_factory=Access)

    def __post_init__(self) -> None:
        if is_rocketmq(self.name_servers[0]) and self.access.credentials.token_file:
            raise click.UsageError("--token-file is not for rocketmq:// addresses: give --access-key-file")

    @property
    def is_json(self) -> bool:
        """Whether the output is JSON."""
        return self.output == "json"

    @property
    def rocketmq_access(self) -> RocketmqAccess:
        """How to connect to RocketMQ's servers."""
        return self.access.to_rocketmq(with_tls=is_rocketmq(self.name_servers[0]))

    def patient(self) -> Invocation:
        """Return this with the timeout of questions about the past, unless another one was given."""
        if self.timeout_seconds != DEFAULT_TIMEOUT_SECONDS:
            return self
        return replace(self, timeout_seconds=PAST_TIMEOUT_SECONDS)

    def connections(self) -> AbstractAsyncContextManager[To[PointsmanNameServer]]:
        """Return the connections to name servers of one run."""
        return connections(PointsmanNameServer, ChannelOpener(self.access.credentials))

    def agent_connections(self) -> AbstractAsyncContextManager[To[AgentServer]]:
        """Return the connections to agents of one run."""
        return connections(AgentServer, ChannelOpener(self.access.credentials))

    @asynccontextmanager
    async def stored_messages(self, *, max_length: int | None = None) -> AsyncIterator[StoredMessages]:
        """Return the messages that brokers of both kinds hold; connections are closed at the end.

        ``max_length``: messages of a Redis stream, about, that remain after a send; None: all.
        """
        from pointsman_ctl.servers.stored_messages import StoredMessages  # noqa: PLC0415  # few commands need it

        async with self.connections() as to:
            messages = StoredMessages(
                to,
                self.name_servers,
                timeout_seconds=self.timeout_seconds,
                rocketmq=self.rocketmq_access,
                redis=self.access.to_redis(),
                max_length=max_length,
            )
            try:
                yield messages
            finally:
                await messages.close()

    def query_first(self, query: Query[NameServer, ResultT]) -> ResultT:
        """Query the servers in order until one responds; they may be RocketMQ's."""

        async def first() -> ResultT:
            async with self.connections() as to:
                servers = name_servers(to, self.rocketmq_access)
                return await query_first(servers, self.name_servers, query, self.timeout_seconds)

        return asyncio.run(first())

    def query_every(
        self, query: Query[PointsmanNameServer, ResultT], *, addrs: Sequence[str] = ()
    ) -> list[NodeResponse[ResultT]]:
        """Query every server in the list, or in ``addrs``."""

        async def every() -> list[NodeResponse[ResultT]]:
            async with self.connections() as to:
                return await query_every(to, addrs or self.name_servers, query, self.timeout_seconds)

        return asyncio.run(every())

    def observed(self, addr: str) -> tuple[str, ...]:
        """Return the addresses of the name servers that an observer polls, or the one that the address names.

        Raises ObserverRequiredError for a name server, and NameServersUnavailableError.
        """
        observer, name_server = read_observed(addr)
        if name_server:
            return (addr,)
        info = responses_of(self.query_every(PointsmanNameServer.node_info, addrs=(addr,)))[0]
        if not info.observed_name_servers:
            raise ObserverRequiredError(addr, info.node)
        return tuple(observed_addr(observer, each) for each in info.observed_name_servers)

    def show(self, document: Document, parts: Iterable[RenderableType], *, on_one_line: bool = False) -> None:
        """Print a response in the output format."""
        if self.is_json:
            click.echo(json.dumps(document, indent=None if on_one_line else 2))
        else:
            output_layout.show(parts)

    def finish(
        self,
        nodes: Sequence[NodeResponse[object]],
        document: Document,
        parts: Iterable[RenderableType],
        *,
        is_change: bool = False,
        on_one_line: bool = False,
    ) -> int:
        """Show the responses, report the servers that failed, and return the exit code."""
        failures = {node.addr: node.failure for node in nodes if node.failure is not None}
        if len(failures) < len(nodes):
            self.show(document, parts, on_one_line=on_one_line)
        if not failures:
            return EXIT_OK
        return self.fail(nodes_failed(failures, of=[node.addr for node in nodes], is_change=is_change))

    def fail(self, report: ErrorReport) -> int:
        """Print on standard error why the command failed, and return its exit code."""
        click.echo(report.render(self.output), err=True)
        return EXIT_FAILED

    def warn(self, code: str, message: str, hint: str = "") -> None:
        """Print a warning on standard error."""
        report = ErrorReport(code, message, hint)
        click.echo(json.dumps({"warning": report.to_document()}) if self.is_json else report.to_line(), err=True)

    def warn_if_warming(self, state: broker_pb2.NodeState.ValueType) -> None:
        """Warn if a list comes from a server at which some brokers may not have registered yet."""
        if state == broker_pb2.NODE_STATE_WARMING:
            self.warn("NODE_WARMING", "this name server is WARMING: the list may be incomplete")


def pass_invocation(run: Callable[Concatenate[Invocation, P], ReturnT]) -> Callable[P, ReturnT]:
    """Call a command with its invocation; an observer's address stands for the name servers that it polls."""

    @wraps(run)
    def called(*arguments: P.args, **options: P.kwargs) -> ReturnT:
        context = click.get_current_context()
        invocation = context.ensure_object(Invocation)
        if is_observed(invocation.name_servers[0]):
            command = context.command_path.split()[1]
            if command not in OF_OBSERVERS:
                raise ObserverOnlyPollsError(invocation.name_servers[0], command)
            invocation = replace(invocation, name_servers=invocation.observed(invocation.name_servers[0]))
        return run(invocation, *arguments, **options)

    return called
