"""Query agents, found through the name servers or named by address, each with its own deadline.

RocketMQ brokers have no agent: they are queried themselves for what they have, too.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Generic

import click
from rich.console import RenderableType
from rich.text import Text

from pointsman.names import addr_problem, is_rocketmq
from pointsman.v1 import broker_pb2, route_service_pb2
from pointsman.wire.json_document import Document
from pointsman.wire.operator_texts import counted
from pointsman_client import NameServerFailedError
from pointsman_ctl.options.command_options import in_cluster
from pointsman_ctl.options.invocation import Invocation
from pointsman_ctl.output.error_report import (
    EXIT_FAILED,
    EXIT_OK,
    ErrorReport,
    agents_failed,
    failure_sentence,
    failure_text,
)
from pointsman_ctl.output.output_layout import ALARM, node_document
from pointsman_ctl.servers.agent_queries import AgentServer
from pointsman_ctl.servers.found_agents import Agent, FoundAgents, MissingBroker, agents_in, noun_of
from pointsman_ctl.servers.name_servers import name_servers
from pointsman_ctl.servers.rocketmq_broker import RocketmqBroker
from pointsman_ctl.servers.rocketmq_name_server import PointsmanRequiredError
from pointsman_ctl.servers.server_calls import (
    AnyT,
    NodeResponse,
    Query,
    ResultT,
    ResultT_co,
    To,
    deadline_in,
    query_every,
    responses_of,
)

MAX_CONCURRENT_AGENTS = 32
MAX_MISSING = 10
"""Brokers that are not counted and are listed; of the others only the number is shown."""
OUT_AND_GONE = frozenset({"OUT", "GONE"})
"""All brokers that are not routed: registered, and departed."""
NOT_COUNTED = "BROKERS_NOT_COUNTED"
NOT_LISTED = "RocketMQ's name servers do not list brokers that are down: if there are any, they are not counted"
NameServerResponses = Sequence[NodeResponse[route_service_pb2.GetClusterInfoResponse]]


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """The agents to query."""

    addrs: tuple[str, ...] = ()
    """If set, only these agents; no name server is queried."""
    cluster: str = ""
    """Only agents of this cluster; empty: all."""
    replicas_too: bool = False
    absent: frozenset[str] = frozenset()
    """Which brokers that are not routed are queried, too: OUT, GONE."""


def read_agent_addrs(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    """Read addresses without duplicates."""
    for value in values:
        problem = addr_problem(value)
        if problem:
            raise click.BadParameter(f"agent address {value!r} {problem}")
    return tuple(dict.fromkeys(values))


agent_option = click.option(
    "--agent",
    "addrs",
    multiple=True,
    callback=read_agent_addrs,
    metavar="HOST:PORT",
    help="Query this agent directly. Repeatable.",
)


_all_option = click.option(
    "--all", "replicas_too", is_flag=True, help="Query the agents of replicas, too (default: of masters)."
)


def of_agents(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options --agent, --cluster and --all to a query, which receives them as ``choice``."""

    @agent_option
    @in_cluster
    @_all_option
    @functools.wraps(command)
    def chosen(*arguments: object, addrs: tuple[str, ...], cluster: str, replicas_too: bool, **options: object) -> int:
        if addrs and (cluster or replicas_too):
            raise click.UsageError("--agent cannot be combined with --cluster or --all")
        choice = AgentChoice(addrs, cluster, replicas_too, absent=OUT_AND_GONE)
        return command(*arguments, choice=choice, **options)

    return chosen


def of_masters(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options --agent and --cluster to a change of what brokers hold, which receives them as ``choice``.

    Masters that are OUT are changed, too, because they return as they are. Departed ones are not.
    """

    @agent_option
    @in_cluster
    @functools.wraps(command)
    def chosen(*arguments: object, addrs: tuple[str, ...], cluster: str, **options: object) -> int:
        if addrs and cluster:
            raise click.UsageError("--agent cannot be combined with --cluster")
        choice = AgentChoice(addrs, cluster, absent=frozenset({"OUT"}))
        return command(*arguments, choice=choice, **options)

    return chosen


def of_every_agent(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options --agent and --cluster to a change, which receives them as ``choice``, with replicas.

    Brokers that are OUT are changed, too, because they return as they are. Departed ones are not.
    """

    @agent_option
    @in_cluster
    @functools.wraps(command)
    def chosen(*arguments: object, addrs: tuple[str, ...], cluster: str, **options: object) -> int:
        if addrs and cluster:
            raise click.UsageError("--agent cannot be combined with --cluster")
        choice = AgentChoice(addrs, cluster, replicas_too=True, absent=frozenset({"OUT"}))
        return command(*arguments, choice=choice, **options)

    return chosen


@dataclass(frozen=True, slots=True)
class QueryResult(Generic[ResultT_co]):
    """The responses of all agents."""

    choice: AgentChoice
    found: FoundAgents
    name_servers: NameServerResponses
    responses: Sequence[tuple[Agent, NodeResponse[ResultT_co]]]
    """By address."""

    @property
    def received(self) -> list[tuple[Agent, ResultT_co]]:
        """The agents that responded, with their responses."""
        return [(agent, node.response) for agent, node in self.responses if node.response is not None]

    @property
    def missing(self) -> list[MissingBroker]:
        """The chosen brokers whose data is not in the responses, by name.

        A broker that is not routed is not missing where another replica of it responded, which serves in its place.
        """
        absent, found = self.found.absent, list(self.found.missing)
        for agent, node in self.responses:
            if node.failure is not None:
                why = failure_text(node.failure)
                found += [
                    MissingBroker(name, absent.get(name, ""), why, agent.addr)
                    for name in agent.brokers or (agent.addr,)
                ]
        served = {agent.queues_of for agent, _ in self.received}
        return sorted(
            (each for each in found if self.choice.replicas_too or not (each.state and each.group in served)),
            key=lambda each: each.name,
        )

    @property
    def is_absent_known(self) -> bool:
        """Whether the name servers report brokers that are not routed; RocketMQ's do not."""
        return all(node.response.HasField("absent") for node in self.name_servers if node.response is not None)


class AgentRound(Generic[AnyT]):
    """The chosen agents and the connections to them."""

    def __init__(
        self,
        choice: AgentChoice,
        found: FoundAgents,
        name_servers: NameServerResponses,
        to: To[AnyT],
        timeout_seconds: float,
    ) -> None:
        self.choice = choice
        self.found = found
        self.name_servers = name_servers
        self._timeout_seconds = timeout_seconds
        self._to = to
        self._concurrency = asyncio.Semaphore(MAX_CONCURRENT_AGENTS)

    async def query(self, question: Query[AnyT, ResultT]) -> QueryResult[ResultT]:
        """Query every agent; ``question(server, deadline)`` may make several calls, all before ``deadline``."""

        async def bounded(server: AnyT, _deadline: float) -> ResultT:
            async with self._concurrency:
                return await question(server, deadline_in(self._timeout_seconds))

        addrs = [agent.addr for agent in self.found.agents]
        nodes = await query_every(self._to, addrs, bounded, self._timeout_seconds)
        return QueryResult(self.choice, self.found, self.name_servers, list(zip(self.found.agents, nodes, strict=True)))


@asynccontextmanager
async def agent_round(invocation: Invocation, choice: AgentChoice) -> AsyncIterator[AgentRound[AgentServer]]:
    """Find the agents; connections are closed at the end.

    Raises NameServersUnavailableError, ClusterNotFoundError when no name server knows the cluster, and
    PointsmanRequiredError for RocketMQ name servers, which know no agents.
    """
    if not choice.addrs and is_rocketmq(invocation.name_servers[0]):
        raise PointsmanRequiredError(invocation.name_servers[0])
    found, nodes = await _find(invocation, choice, with_rocketmq=False)
    async with invocation.agent_connections() as to:
        yield AgentRound(choice, found, nodes, to, invocation.timeout_seconds)


@asynccontextmanager
async def agent_and_broker_round(
    invocation: Invocation, choice: AgentChoice
) -> AsyncIterator[AgentRound[AgentServer | RocketmqBroker]]:
    """Find the agents, and the RocketMQ brokers, which have none; connections are closed at the end.

    Raises NameServersUnavailableError, and ClusterNotFoundError when no name server knows the cluster.
    """
    found, nodes = await _find(invocation, choice, with_rocketmq=True)
    access = invocation.rocketmq_access
    brokers = {each.addr: RocketmqBroker(each.addr, access) for each in found.agents if each.is_rocketmq}
    async with invocation.agent_connections() as to:
        try:
            yield AgentRound(
                choice, found, nodes, lambda addr: brokers.get(addr) or to(addr), invocation.timeout_seconds
            )
        finally:
            await asyncio.gather(*(broker.close() for broker in brokers.values()))


async def _find(
    invocation: Invocation, choice: AgentChoice, *, with_rocketmq: bool
) -> tuple[FoundAgents, NameServerResponses]:
    if choice.addrs:
        return FoundAgents(tuple(map(Agent, choice.addrs))), ()
    nodes, rocketmq = await _query_name_servers(invocation, choice, with_rocketmq=with_rocketmq)
    responses = [node.response for node in nodes if node.response is not None]
    clusters = [each for response in responses for each in response.clusters]
    absent = [
        each
        for response in responses
        for each in response.absent.brokers
        if ("OUT" if each.broker.is_registered else "GONE") in choice.absent
    ]
    for each in absent:
        # As for routed ones: without its queries a RocketMQ broker is one whose agent is unknown.
        each.is_rocketmq = each.is_rocketmq and with_rocketmq
    return agents_in(clusters, replicas_too=choice.replicas_too, rocketmq=rocketmq, absent=absent), nodes


def query_agents(
    opened: AbstractAsyncContextManager[AgentRound[AnyT]], question: Query[AnyT, ResultT]
) -> QueryResult[ResultT]:
    """Find the agents and send each the same query. Raises what ``opened`` raises: one of the two rounds."""

    async def query() -> QueryResult[ResultT]:
        async with opened as asking:
            return await asking.query(question)

    return asyncio.run(query())


def finish(
    invocation: Invocation,
    result: QueryResult[object],
    document: Document,
    parts: Iterable[RenderableType],
    *,
    unknown: Sequence[str] = (),
) -> int:
    """Show the responses to a query, name what is not known, and return the exit code: 0 if nothing is missing.

    ``unknown``: what else is not known, each in a sentence.
    """
    missing = result.missing
    if result.received:
        lines = [Text(line, style=ALARM) for line in (*_missing_lines(missing), *unknown)]
        if not result.is_absent_known and is_rocketmq(invocation.name_servers[0]):
            lines.append(Text(NOT_LISTED, style="dim"))
        invocation.show({**document, **_to_missing_document(result, missing)}, [*parts, *lines])
    is_complete = warn_of_name_servers(invocation, result.name_servers, with_absent=True)
    if not result.responses:
        see = "clusters" if is_rocketmq(invocation.name_servers[0]) else "brokers"
        return invocation.fail(_no_agents(missing, cluster=result.choice.cluster, see=see))
    if not result.received:
        return invocation.fail(_agents_failed(result, is_change=False))
    if missing:
        return invocation.fail(missing_report(missing))
    if unknown:
        return invocation.fail(ErrorReport(NOT_COUNTED, "; ".join(unknown), "see `pointsmanctl brokers`"))
    return EXIT_OK if is_complete else EXIT_FAILED


def finish_change(
    invocation: Invocation, result: QueryResult[object], document: Document, parts: Iterable[RenderableType]
) -> int:
    """Show the responses to a change, report failed agents on standard error, and return the exit code.

    A change succeeds when all agents applied it.
    """
    if result.received:
        invocation.show(document, parts)
    warn_of_name_servers(invocation, result.name_servers)
    if not result.responses:
        return invocation.fail(_no_agents(result.missing, cluster=result.choice.cluster, see="brokers"))
    if result.found.missing:
        where = ", ".join(each.name for each in result.found.missing)
        invocation.warn("AGENT_UNKNOWN", f"agent address unknown for {where}", "set [rpc] listen of their agents")
    if len(result.received) == len(result.responses):
        return EXIT_OK
    return invocation.fail(_agents_failed(result, is_change=True))


def _agents_failed(result: QueryResult[object], *, is_change: bool) -> ErrorReport:
    failures = {node.addr: node.failure for _, node in result.responses if node.failure is not None}
    noun = noun_of(agent for agent, _ in result.responses)
    return agents_failed(failures, of=[node.addr for _, node in result.responses], is_change=is_change, noun=noun)


def missing_report(missing: Sequence[MissingBroker]) -> ErrorReport:
    """Name the brokers that are not counted."""
    more = f" and {len(missing) - MAX_MISSING} more" if len(missing) > MAX_MISSING else ""
    named = ", ".join(f"{each} ({each.reason})" for each in missing[:MAX_MISSING])
    hint = "see `pointsmanctl brokers`"
    if any(each.state == "GONE" for each in missing):
        hint += "; remove a broker that does not return with `pointsmanctl evict CLUSTER/BROKER/ID`"
    servers = {each.addr: each.why for each in missing if each.addr}
    return ErrorReport(NOT_COUNTED, f"{counted(len(missing), 'broker')} not counted: {named}{more}", hint, servers)


def _missing_lines(missing: Sequence[MissingBroker]) -> Iterator[str]:
    for each in missing[:MAX_MISSING]:
        yield f"{each}: not counted ({each.reason})"
    if len(missing) > MAX_MISSING:
        yield f"{len(missing) - MAX_MISSING} more brokers: not counted"


def _to_missing_document(result: QueryResult[object], missing: Sequence[MissingBroker]) -> Document:
    """Render what is not counted."""
    brokers = [
        {"broker": each.name, "state": each.state or None, "addr": each.addr or None, "reason": each.why}
        for each in missing
    ]
    return {"notCounted": brokers, "isAbsentKnown": result.is_absent_known}


def warn_of_name_servers(invocation: Invocation, nodes: NameServerResponses, *, with_absent: bool = False) -> bool:
    """Warn of name servers that failed, and if all are WARMING; return whether none of their brokers can be missing.

    ``with_absent``: brokers that are not routed must not be missing, either.
    """
    is_complete = True
    for node in nodes:
        if isinstance(node.failure, NameServerFailedError):
            is_complete = False
            invocation.warn(
                node.failure.code, failure_sentence(node.addr, node.failure), "brokers that only it knows are missing"
            )
        if node.response is None or not with_absent or is_rocketmq(node.addr):
            continue
        if left_out := node.response.absent.left_out:
            is_complete = False
            message = f"{node.addr} does not list {counted(left_out, 'broker')} that are OUT or departed"
            invocation.warn(NOT_COUNTED, message, "give --cluster, or see `pointsmanctl brokers`")
    states = [node.response.node_state for node in nodes if node.response is not None]
    if states and all(state == broker_pb2.NODE_STATE_WARMING for state in states):
        invocation.warn_if_warming(broker_pb2.NODE_STATE_WARMING)
        return False
    return is_complete


def to_agents_document(result: QueryResult[ResultT], to_result: Callable[[ResultT], Document]) -> list[Document]:
    """Render the response or the failure of each agent."""
    absent = result.found.absent
    return [
        {
            "brokers": list(agent.brokers),
            "absent": [{"broker": name, "state": absent[name]} for name in agent.brokers if name in absent],
            **node_document(node, to_result),
        }
        for agent, node in result.responses
    ]


async def _query_name_servers(
    invocation: Invocation, choice: AgentChoice, *, with_rocketmq: bool
) -> tuple[NameServerResponses, frozenset[str]]:
    """Return the responses, and CLUSTER/BROKER/ID of RocketMQ brokers."""
    async with invocation.connections() as to:
        nodes = await query_every(
            name_servers(to, invocation.rocketmq_access),
            invocation.name_servers,
            lambda server, deadline: server.clusters(deadline, cluster=choice.cluster),
            invocation.timeout_seconds,
        )
        responses_of(nodes)
        if not with_rocketmq:
            return nodes, frozenset()
        without = {
            node.addr: agents_in(node.response.clusters, replicas_too=True).without
            for node in nodes
            if node.response is not None
        }
        if is_rocketmq(invocation.name_servers[0]):
            return nodes, frozenset(name for names in without.values() for name in names)
        # A broker whose agent serves no clients has no agent address either: registrations show the difference.
        lists = await query_every(
            to,
            [addr for addr, names in without.items() if names],
            lambda server, deadline: server.rocketmq_brokers(deadline, cluster=choice.cluster),
            invocation.timeout_seconds,
        )
        return nodes, frozenset(name for each in lists for name in each.response or ())


def _no_agents(missing: Sequence[MissingBroker], *, cluster: str, see: str) -> ErrorReport:
    """Report that there is no agent to query; ``see``: the command that shows the brokers."""
    where = f" of cluster {cluster}" if cluster else ""
    if missing:
        named = ", ".join(str(each) for each in missing[:MAX_MISSING])
        message = f"no broker{where} has an agent that can be queried: {named}"
        return ErrorReport("NO_AGENT", message, "set [rpc] listen of their agents, or give --agent HOST:PORT")
    message = f"the name servers know no broker{where}"
    return ErrorReport("NO_AGENT", message, f"see `pointsmanctl {see}`")
