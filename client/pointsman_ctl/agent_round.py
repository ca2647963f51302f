"""Query agents, found through the name servers or named by address, each with its own deadline.

RocketMQ brokers have no agent: where a query has a form for them, they are queried themselves.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic

import click
from rich.console import RenderableType

from pointsman.v1 import broker_pb2, route_service_pb2
from pointsman.wire.json_document import MASTER_ID, Document
from pointsman.wire.names import addr_problem, is_rocketmq
from pointsman_client import AgentFailedError, NameServerFailedError
from pointsman_ctl.access_options import RocketmqAccess
from pointsman_ctl.command_options import in_cluster
from pointsman_ctl.error_report import EXIT_OK, ErrorReport, agents_failed, failure_sentence
from pointsman_ctl.invocation import Invocation
from pointsman_ctl.name_server_queries import clusters_of, rocketmq_brokers_of
from pointsman_ctl.operator_texts import counted
from pointsman_ctl.output_layout import node_document
from pointsman_ctl.rocketmq_broker import RocketmqBroker
from pointsman_ctl.rocketmq_name_server import PointsmanRequiredError
from pointsman_ctl.server_calls import (
    NodeResponse,
    Query,
    ResultT,
    ResultT_co,
    Server,
    ToServer,
    deadline_in,
    name_servers,
    query_every,
    responses_of,
)

MAX_CONCURRENT_AGENTS = 32
BrokerQuery = Callable[[RocketmqBroker, float], Awaitable[ResultT]]
"""Queries one RocketMQ broker, with a deadline for all its calls."""
NameServerResponses = Sequence[NodeResponse[route_service_pb2.GetClusterInfoResponse]]


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent and its brokers."""

    addr: str
    brokers: tuple[str, ...] = ()
    """CLUSTER/BROKER/ID, sorted; empty for an agent named by its address."""
    is_rocketmq: bool = False
    """Whether it is a RocketMQ broker itself, at its own address."""

    @property
    def name(self) -> str:
        """The brokers where they are known, else the address."""
        return ", ".join(self.brokers) or self.addr

    @property
    def queues_of(self) -> str:
        """The broker whose queues it serves, the same for all replicas of a broker name."""
        return self.brokers[0].rpartition("/")[0] if self.brokers else self.addr

    def __str__(self) -> str:
        return f"{self.addr} ({self.name})" if self.brokers else self.addr


def counted_agents(agents: Sequence[Agent]) -> str:
    """Return their number with what they are: RocketMQ brokers, or agents."""
    return counted(len(agents), noun_of(agents))


def noun_of(agents: Iterable[Agent]) -> str:
    """Return ``broker`` if all are RocketMQ brokers, else ``agent``."""
    return "broker" if all(agent.is_rocketmq for agent in agents) else "agent"


@dataclass(frozen=True, slots=True)
class FoundAgents:
    """The agents that name servers know."""

    agents: tuple[Agent, ...]
    """By address."""
    without: tuple[str, ...]
    """Brokers whose agent has no usable address, sorted."""


def agents_in(
    clusters: Iterable[route_service_pb2.ClusterData], *, replicas_too: bool, rocketmq: Collection[str] = ()
) -> FoundAgents:
    """Return each agent of the masters, or of all replicas, once; ``rocketmq``: CLUSTER/BROKER/ID of RocketMQ brokers.

    If name servers report different agents for a broker, all of them are returned.
    """
    brokers: dict[tuple[str, bool], set[str]] = {}
    unreachable, reachable = set(), set()
    for cluster in clusters:
        for data in cluster.broker_datas:
            for replica in data.replicas if replicas_too else _served_by(data):
                name = f"{data.cluster}/{data.broker_name}/{replica.broker_id}"
                is_rocketmq = name in rocketmq and not replica.agent_addr
                addr = replica.addr if is_rocketmq else replica.agent_addr
                if addr_problem(addr):
                    unreachable.add(name)
                else:
                    reachable.add(name)
                    brokers.setdefault((addr, is_rocketmq), set()).add(name)
    agents = (Agent(addr, tuple(sorted(names)), each) for (addr, each), names in sorted(brokers.items()))
    return FoundAgents(tuple(agents), tuple(sorted(unreachable - reachable)))


def _served_by(data: broker_pb2.BrokerData) -> Iterator[broker_pb2.BrokerReplica]:
    """Yield the master, or the acting master."""
    for position, replica in enumerate(data.replicas):
        if replica.broker_id == MASTER_ID or (position == 0 and data.acting_master):
            yield replica
            return


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """The agents to query."""

    addrs: tuple[str, ...] = ()
    """If set, only these agents; no name server is queried."""
    cluster: str = ""
    """Only agents of this cluster; empty: all."""
    replicas_too: bool = False


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
        return command(*arguments, choice=AgentChoice(addrs, cluster, replicas_too), **options)

    return chosen


def of_every_agent(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options --agent and --cluster to a change, which receives them as ``choice``, with replicas."""

    @agent_option
    @in_cluster
    @functools.wraps(command)
    def chosen(*arguments: object, addrs: tuple[str, ...], cluster: str, **options: object) -> int:
        if addrs and cluster:
            raise click.UsageError("--agent cannot be combined with --cluster")
        return command(*arguments, choice=AgentChoice(addrs, cluster, replicas_too=True), **options)

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


class AgentRound:
    """The chosen agents and the connections to them."""

    def __init__(
        self,
        choice: AgentChoice,
        found: FoundAgents,
        name_servers: NameServerResponses,
        to: ToServer,
        access: RocketmqAccess,
        timeout_seconds: float,
    ) -> None:
        """``to`` has the connections to agents, ``access`` is for RocketMQ brokers."""
        self.choice = choice
        self.found = found
        self.name_servers = name_servers
        self._timeout_seconds = timeout_seconds
        self._to = to
        self._brokers = {each.addr: RocketmqBroker(each.addr, access) for each in found.agents if each.is_rocketmq}
        self._concurrency = asyncio.Semaphore(MAX_CONCURRENT_AGENTS)

    async def query(
        self, question: Query[ResultT], of_broker: BrokerQuery[ResultT] | None = None
    ) -> QueryResult[ResultT]:
        """Query every agent; ``question(server, deadline)`` may make several calls, all before ``deadline``.

        ``of_broker``: the form of the query for RocketMQ brokers, needed if they are among the agents.
        """

        async def bounded(server: Server | RocketmqBroker, _deadline: float) -> ResultT:
            async with self._concurrency:
                deadline = deadline_in(self._timeout_seconds)
                if not isinstance(server, RocketmqBroker):
                    return await question(server, deadline)
                assert of_broker is not None  # noqa: S101  # without it there are no brokers
                return await of_broker(server, deadline)

        addrs = [agent.addr for agent in self.found.agents]
        to = lambda addr: self._brokers.get(addr) or self._to(addr)  # noqa: E731
        nodes = await query_every(to, addrs, bounded, self._timeout_seconds)
        return QueryResult(self.choice, self.found, self.name_servers, list(zip(self.found.agents, nodes, strict=True)))

    async def close(self) -> None:
        """Close the connections to RocketMQ brokers."""
        await asyncio.gather(*(broker.close() for broker in self._brokers.values()))


@asynccontextmanager
async def agent_round(
    invocation: Invocation, choice: AgentChoice, *, with_rocketmq: bool = False
) -> AsyncIterator[AgentRound]:
    """Find the agents, and RocketMQ brokers if the query has a form for them; connections are closed at the end.

    Raises NameServersUnavailableError, ClusterNotFoundError when no name server knows the cluster, and
    PointsmanRequiredError for RocketMQ name servers, which know no agents.
    """
    nodes: NameServerResponses = ()
    found = FoundAgents(tuple(map(Agent, choice.addrs)), ())
    if not choice.addrs:
        if not with_rocketmq and is_rocketmq(invocation.name_servers[0]):
            raise PointsmanRequiredError(invocation.name_servers[0])
        nodes, rocketmq = await _query_name_servers(invocation, choice, with_rocketmq=with_rocketmq)
        clusters = [each for node in nodes if node.response for each in node.response.clusters]
        found = agents_in(clusters, replicas_too=choice.replicas_too, rocketmq=rocketmq)
    async with invocation.connections(AgentFailedError) as to:
        asking = AgentRound(choice, found, nodes, to, invocation.rocketmq_access, invocation.timeout_seconds)
        try:
            yield asking
        finally:
            await asking.close()


def query_agents(
    invocation: Invocation,
    choice: AgentChoice,
    question: Query[ResultT],
    of_broker: BrokerQuery[ResultT] | None = None,
) -> QueryResult[ResultT]:
    """Find the agents and send each the same query, RocketMQ brokers ``of_broker``.

    Raises what :func:`agent_round` raises.
    """

    async def query() -> QueryResult[ResultT]:
        async with agent_round(invocation, choice, with_rocketmq=of_broker is not None) as asking:
            return await asking.query(question, of_broker)

    return asyncio.run(query())


def finish(
    invocation: Invocation,
    result: QueryResult[object],
    document: Document,
    parts: Iterable[RenderableType],
    *,
    is_change: bool = False,
) -> int:
    """Show the responses, report failed agents on standard error, and return the exit code.

    A query succeeds when one agent responds, a change when all do.
    """
    failures = {node.addr: node.failure for _, node in result.responses if node.failure is not None}
    if result.received:
        invocation.show(document, parts)
    warn_of_name_servers(invocation, result.name_servers)
    if not result.responses:
        see = "clusters" if is_rocketmq(invocation.name_servers[0]) else "brokers"
        return invocation.fail(_no_agents(result.found.without, cluster=result.choice.cluster, see=see))
    if result.found.without:
        where = ", ".join(result.found.without)
        invocation.warn("AGENT_UNKNOWN", f"agent address unknown for {where}", "set [rpc] listen of their agents")
    if not failures:
        return EXIT_OK
    noun = noun_of(agent for agent, _ in result.responses)
    report = agents_failed(failures, of=[node.addr for _, node in result.responses], is_change=is_change, noun=noun)
    if is_change or not result.received:
        return invocation.fail(report)
    invocation.warn(report.code, report.message, report.hint)
    return EXIT_OK


def warn_of_name_servers(invocation: Invocation, nodes: NameServerResponses) -> None:
    """Warn of name servers that failed, and if all are WARMING."""
    for node in nodes:
        if isinstance(node.failure, NameServerFailedError):
            invocation.warn(
                node.failure.code, failure_sentence(node.addr, node.failure), "brokers that only it knows are missing"
            )
    states = [node.response.node_state for node in nodes if node.response is not None]
    if states and all(state == broker_pb2.NODE_STATE_WARMING for state in states):
        invocation.warn_if_warming(broker_pb2.NODE_STATE_WARMING)


def to_agents_document(result: QueryResult[ResultT], to_result: Callable[[ResultT], Document]) -> list[Document]:
    """Render the response or the failure of each agent."""
    return [{"brokers": list(agent.brokers), **node_document(node, to_result)} for agent, node in result.responses]


async def _query_name_servers(
    invocation: Invocation, choice: AgentChoice, *, with_rocketmq: bool
) -> tuple[NameServerResponses, frozenset[str]]:
    """Return the responses, and CLUSTER/BROKER/ID of RocketMQ brokers."""
    async with invocation.connections() as to:
        nodes = await query_every(
            name_servers(to, invocation.rocketmq_access),
            invocation.name_servers,
            lambda server, deadline: clusters_of(server, deadline, cluster=choice.cluster),
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
            lambda server, deadline: rocketmq_brokers_of(server, deadline, cluster=choice.cluster),
            invocation.timeout_seconds,
        )
        return nodes, frozenset(name for each in lists for name in each.response or ())


def _no_agents(without: Sequence[str], *, cluster: str, see: str) -> ErrorReport:
    """Report that there is no agent to query; ``see``: the command that shows the brokers."""
    where = f" of cluster {cluster}" if cluster else ""
    if without:
        message = f"no broker{where} has registered an agent address: {', '.join(without)}"
        return ErrorReport("NO_AGENT", message, "set [rpc] listen of their agents, or give --agent HOST:PORT")
    message = f"the name servers know no master{where}"
    return ErrorReport("NO_AGENT", message, f"see `pointsmanctl {see}`; --all queries replicas, too")
