"""Ask agents: which there are, by the name servers or by address; each with its own deadline; which failed."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic

import click
from rich.console import RenderableType

from pointsman.v1 import broker_pb2, route_service_pb2
from pointsman.wire.json_document import MASTER_ID, Document
from pointsman.wire.names import addr_problem
from pointsman_client import AgentFailedError, NameServerFailedError
from pointsman_ctl.answer_layout import node_document
from pointsman_ctl.command_options import in_cluster
from pointsman_ctl.error_report import EXIT_OK, ErrorReport, agents_failed, answer_words
from pointsman_ctl.invocation import Invocation
from pointsman_ctl.name_server_queries import clusters_of
from pointsman_ctl.server_calls import (
    AnswerT,
    AnswerT_co,
    Ask,
    NodeAnswer,
    Server,
    ToServer,
    answers_of,
    ask_every,
    deadline_in,
)

AGENTS_AT_ONCE = 32
NameServerAnswers = Sequence[NodeAnswer[route_service_pb2.GetClusterInfoResponse]]


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent, and its brokers."""

    addr: str
    brokers: tuple[str, ...] = ()
    """CLUSTER/BROKER/ID, sorted; none for one that was named by its address."""

    @property
    def name(self) -> str:
        """The brokers where they are known, else the address."""
        return ", ".join(self.brokers) or self.addr

    @property
    def queues_of(self) -> str:
        """The broker whose queues it serves: replicas of one broker name have the same."""
        return self.brokers[0].rpartition("/")[0] if self.brokers else self.addr

    def __str__(self) -> str:
        return f"{self.addr} ({self.name})" if self.brokers else self.addr


@dataclass(frozen=True, slots=True)
class FoundAgents:
    """What name servers know of agents."""

    agents: tuple[Agent, ...]
    """By address."""
    without: tuple[str, ...]
    """Brokers without a usable address of their agent, sorted."""


def agents_in(clusters: Iterable[route_service_pb2.ClusterData], *, replicas_too: bool) -> FoundAgents:
    """Return each agent of the masters (of all replicas) once; one broker's, if name servers differ on it, each."""
    brokers: dict[str, set[str]] = {}
    unreachable, reachable = set(), set()
    for cluster in clusters:
        for data in cluster.broker_datas:
            for replica in data.replicas if replicas_too else _served_by(data):
                name = f"{data.cluster}/{data.broker_name}/{replica.broker_id}"
                if addr_problem(replica.agent_addr):
                    unreachable.add(name)
                else:
                    reachable.add(name)
                    brokers.setdefault(replica.agent_addr, set()).add(name)
    agents = (Agent(addr, tuple(sorted(names))) for addr, names in sorted(brokers.items()))
    return FoundAgents(tuple(agents), tuple(sorted(unreachable - reachable)))


def _served_by(data: broker_pb2.BrokerData) -> Iterator[broker_pb2.BrokerReplica]:
    """Yield the master, or the replica that acts as one."""
    for position, replica in enumerate(data.replicas):
        if replica.broker_id == MASTER_ID or (position == 0 and data.acting_master):
            yield replica
            return


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """The agents to ask."""

    addrs: tuple[str, ...] = ()
    """These alone, without asking a name server."""
    cluster: str = ""
    """Only its agents; empty: all."""
    replicas_too: bool = False


def read_agent_addrs(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    """Read addresses; one given twice counts once."""
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
    help="Ask this agent, and no name server; may be repeated.",
)


_all_option = click.option("--all", "replicas_too", is_flag=True, help="Agents of replicas, too, not of masters alone.")


def of_agents(command: Callable[..., int]) -> Callable[..., int]:
    """Give a query the options --agent, --cluster and --all; it gets them as ``choice``."""

    @agent_option
    @in_cluster
    @_all_option
    @functools.wraps(command)
    def chosen(*arguments: object, addrs: tuple[str, ...], cluster: str, replicas_too: bool, **options: object) -> int:
        if addrs and (cluster or replicas_too):
            raise click.UsageError("--agent asks these agents alone: leave --cluster and --all away")
        return command(*arguments, choice=AgentChoice(addrs, cluster, replicas_too), **options)

    return chosen


def of_every_agent(command: Callable[..., int]) -> Callable[..., int]:
    """Give a change the options --agent and --cluster; it gets them as ``choice``, of replicas as well."""

    @agent_option
    @in_cluster
    @functools.wraps(command)
    def chosen(*arguments: object, addrs: tuple[str, ...], cluster: str, **options: object) -> int:
        if addrs and cluster:
            raise click.UsageError("--agent tells these agents alone: leave --cluster away")
        return command(*arguments, choice=AgentChoice(addrs, cluster, replicas_too=True), **options)

    return chosen


@dataclass(frozen=True, slots=True)
class Asked(Generic[AnswerT_co]):
    """The answers of all agents of a round."""

    choice: AgentChoice
    found: FoundAgents
    name_servers: NameServerAnswers
    answers: Sequence[tuple[Agent, NodeAnswer[AnswerT_co]]]
    """By address."""

    @property
    def whole(self) -> list[tuple[Agent, AnswerT_co]]:
        """The agents that answered, with their answers."""
        return [(agent, node.answer) for agent, node in self.answers if node.answer is not None]


class AgentRound:
    """The agents of a choice, found, and the connections to them."""

    def __init__(
        self,
        choice: AgentChoice,
        found: FoundAgents,
        name_servers: NameServerAnswers,
        to: ToServer,
        timeout_seconds: float,
    ) -> None:
        self.choice = choice
        self.found = found
        self.name_servers = name_servers
        self._timeout_seconds = timeout_seconds
        self._to = to
        self._at_once = asyncio.Semaphore(AGENTS_AT_ONCE)

    async def ask(self, question: Ask[AnswerT]) -> Asked[AnswerT]:
        """Ask every agent; ``question(server, deadline)`` may make several calls, all before ``deadline``."""

        async def bounded(server: Server, _deadline: float) -> AnswerT:
            async with self._at_once:
                return await question(server, deadline_in(self._timeout_seconds))

        addrs = [agent.addr for agent in self.found.agents]
        nodes = await ask_every(self._to, addrs, bounded, self._timeout_seconds)
        return Asked(self.choice, self.found, self.name_servers, list(zip(self.found.agents, nodes, strict=True)))


@asynccontextmanager
async def agent_round(invocation: Invocation, choice: AgentChoice) -> AsyncIterator[AgentRound]:
    """Find the agents, and close the connections to them at the end.

    Raises NameServersUnavailableError, or ClusterNotFoundError when no name server knows the cluster.
    """
    nodes: NameServerAnswers = ()
    found = FoundAgents(tuple(map(Agent, choice.addrs)), ())
    if not choice.addrs:
        nodes = await _ask_name_servers(invocation, choice)
        clusters = [each for node in nodes if node.answer for each in node.answer.clusters]
        found = agents_in(clusters, replicas_too=choice.replicas_too)
    async with invocation.connections(AgentFailedError) as to:
        yield AgentRound(choice, found, nodes, to, invocation.timeout_seconds)


def ask_agents(invocation: Invocation, choice: AgentChoice, question: Ask[AnswerT]) -> Asked[AnswerT]:
    """Find the agents and ask each the same. Raises what :func:`agent_round` raises."""

    async def ask() -> Asked[AnswerT]:
        async with agent_round(invocation, choice) as asking:
            return await asking.ask(question)

    return asyncio.run(ask())


def finish(
    invocation: Invocation,
    asked: Asked[object],
    whole: Document,
    parts: Iterable[RenderableType],
    *,
    is_change: bool = False,
) -> int:
    """Show what the agents answered, name on stderr the agents without an answer, and return the exit code.

    A query succeeds when one agent answered; a change when all did.
    """
    failures = {node.addr: node.failure for _, node in asked.answers if node.failure is not None}
    if asked.whole:
        invocation.show(whole, parts)
    warn_of_name_servers(invocation, asked.name_servers)
    if not asked.answers:
        return invocation.fail(_no_agents(asked.found.without, cluster=asked.choice.cluster))
    if asked.found.without:
        where = ", ".join(asked.found.without)
        invocation.warn("AGENT_UNKNOWN", f"no address of an agent is known for {where}", "set [rpc] in their agents")
    if not failures:
        return EXIT_OK
    report = agents_failed(failures, of=[node.addr for _, node in asked.answers], is_change=is_change)
    if is_change or not asked.whole:
        return invocation.fail(report)
    invocation.warn(report.code, report.message, report.hint)
    return EXIT_OK


def warn_of_name_servers(invocation: Invocation, nodes: NameServerAnswers) -> None:
    """Warn of name servers that did not answer, or are all WARMING."""
    for node in nodes:
        if isinstance(node.failure, NameServerFailedError):
            invocation.warn(
                node.failure.code, answer_words(node.addr, node.failure), "brokers that it alone knows are missing"
            )
    states = [node.answer.node_state for node in nodes if node.answer is not None]
    if states and all(state == broker_pb2.NODE_STATE_WARMING for state in states):
        invocation.warn_if_warming(broker_pb2.NODE_STATE_WARMING)


def to_agents_document(asked: Asked[AnswerT], to_answer: Callable[[AnswerT], Document]) -> list[Document]:
    """Render the answer of each agent, or how it failed."""
    return [{"brokers": list(agent.brokers), **node_document(node, to_answer)} for agent, node in asked.answers]


async def _ask_name_servers(invocation: Invocation, choice: AgentChoice) -> NameServerAnswers:
    async with invocation.connections() as to:
        nodes = await ask_every(
            to,
            invocation.name_servers,
            lambda server, deadline: clusters_of(server, deadline, cluster=choice.cluster),
            invocation.timeout_seconds,
        )
    answers_of(nodes)
    return nodes


def _no_agents(without: Sequence[str], *, cluster: str) -> ErrorReport:
    """Report that there is no agent to ask."""
    where = f" of cluster {cluster}" if cluster else ""
    if without:
        message = f"no broker{where} tells where its agent serves consumer groups: {', '.join(without)}"
        return ErrorReport("NO_AGENT", message, "set [rpc] in their agents, or name one with --agent HOST:PORT")
    message = f"the name servers know no master{where}"
    return ErrorReport("NO_AGENT", message, "see `pointsmanctl brokers`; --all asks replicas, too")
