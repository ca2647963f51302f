"""Ask agents: find them, ask each at once with a deadline of its own, and say who did not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import click
from rich.console import RenderableType

from pointsman.v1 import broker_pb2, route_service_pb2
from pointsman_client.errors import (
    ClusterNotFoundError,
    NameServerFailedError,
    NameServersUnavailableError,
    PointsmanError,
)
from pointsman_client.routes.codec import to_cluster_data
from pointsman_client.routes.route_document import Document
from pointsman_client.rpc.agent_link import AgentLink, AgentLinks
from pointsman_client.rpc.name_server_link import NameServerLink
from pointsman_ctl.agent_choice import AgentChoice
from pointsman_ctl.agent_failure import no_agents, nobody_answered, some_failed, to_agent_complaint
from pointsman_ctl.agents import Agent, FoundAgents, agents_in
from pointsman_ctl.failure import EXIT_FAILED, EXIT_OK, Complaint, answer_words
from pointsman_ctl.node import CLOSE_SECONDS, NodeAnswer, ask_every
from pointsman_ctl.settings import Settings

AGENTS_AT_ONCE = 32

AnswerT = TypeVar("AnswerT")
AnswerT_co = TypeVar("AnswerT_co", covariant=True)
NameServerAnswers = Sequence[NodeAnswer[route_service_pb2.GetClusterInfoResponse]]


@dataclass(frozen=True, slots=True)
class AgentAnswer(Generic[AnswerT_co]):
    """What one agent said: an answer or a failure."""

    agent: Agent
    answer: AnswerT_co | None
    failure: PointsmanError | None


@dataclass(frozen=True, slots=True)
class Asked(Generic[AnswerT_co]):
    """What all of them said."""

    choice: AgentChoice
    found: FoundAgents
    name_servers: NameServerAnswers
    answers: Sequence[AgentAnswer[AnswerT_co]]
    """By address."""

    @property
    def whole(self) -> list[tuple[Agent, AnswerT_co]]:
        """The agents that answered, with what they said."""
        return [(each.agent, each.answer) for each in self.answers if each.answer is not None]


class AgentRound:
    """The agents of a choice, found, and the connections to them."""

    def __init__(
        self, choice: AgentChoice, found: FoundAgents, name_servers: NameServerAnswers, *, timeout_seconds: float
    ) -> None:
        self.choice = choice
        self.found = found
        self.name_servers = name_servers
        self._timeout_seconds = timeout_seconds
        self.links = AgentLinks()
        self._at_once = asyncio.Semaphore(AGENTS_AT_ONCE)

    async def ask(self, question: Callable[[AgentLink, float], Awaitable[AnswerT]]) -> Asked[AnswerT]:
        """Ask every agent; ``question(link, deadline)`` may make several calls, all before ``deadline``."""
        answers = await asyncio.gather(*(self._ask_one(agent, question) for agent in self.found.agents))
        return Asked(self.choice, self.found, self.name_servers, answers)

    async def _ask_one(
        self, agent: Agent, question: Callable[[AgentLink, float], Awaitable[AnswerT]]
    ) -> AgentAnswer[AnswerT]:
        async with self._at_once:
            deadline = asyncio.get_running_loop().time() + self._timeout_seconds
            try:
                return AgentAnswer(agent, await question(self.links.to(agent.addr), deadline), None)
            except PointsmanError as failure:
                return AgentAnswer(agent, None, failure)


@asynccontextmanager
async def agent_round(settings: Settings, choice: AgentChoice) -> AsyncIterator[AgentRound]:
    """Find the agents, and close the connections to them at the end.

    Raises NameServersUnavailableError, or ClusterNotFoundError when no name server knows the cluster.
    """
    nodes: NameServerAnswers = ()
    found = FoundAgents(tuple(map(Agent, choice.addrs)), ())
    if not choice.addrs:
        nodes = await _ask_name_servers(settings, choice)
        clusters = [to_cluster_data(each) for node in nodes if node.answer for each in node.answer.clusters]
        found = agents_in(clusters, replicas_too=choice.replicas_too)
    asking = AgentRound(choice, found, nodes, timeout_seconds=settings.timeout_seconds)
    try:
        yield asking
    finally:
        await asking.links.close(timeout_seconds=CLOSE_SECONDS)


def ask_agents(
    settings: Settings, choice: AgentChoice, question: Callable[[AgentLink, float], Awaitable[AnswerT]]
) -> Asked[AnswerT]:
    """Find the agents and ask each the same. Raises what :func:`agent_round` raises."""

    async def ask() -> Asked[AnswerT]:
        async with agent_round(settings, choice) as asking:
            return await asking.ask(question)

    return asyncio.run(ask())


def finish(
    settings: Settings,
    asked: Asked[object],
    whole: Document,
    parts: Iterable[RenderableType],
    *,
    is_change: bool = False,
) -> int:
    """Show what the agents answered, name on stderr whoever could not be asked, and return the exit code.

    A look succeeds when one agent answered; a change when all did.
    """
    failures = {each.agent: each.failure for each in asked.answers if each.failure is not None}
    if asked.whole:
        settings.show(whole, parts)
    warn_of_name_servers(settings, asked.name_servers)
    agents = [each.agent for each in asked.answers]
    if not agents:
        return complain(settings, no_agents(asked.found.without, cluster=asked.choice.cluster))
    if asked.found.without:
        where = ", ".join(asked.found.without)
        settings.warn("AGENT_UNKNOWN", f"no address of an agent is known for {where}", "set [rpc] in their agents")
    if not asked.whole:
        return complain(settings, nobody_answered(failures))
    if failures and is_change:
        return complain(settings, some_failed(failures, of=agents, is_change=True))
    if failures:
        complaint = some_failed(failures, of=agents, is_change=False)
        settings.warn(complaint.code, complaint.message, complaint.hint)
    return EXIT_OK


def complain(settings: Settings, complaint: Complaint) -> int:
    """Say on stderr why the command failed, and return the exit code for that."""
    click.echo(complaint.render(settings.output), err=True)
    return EXIT_FAILED


def warn_of_name_servers(settings: Settings, nodes: NameServerAnswers) -> None:
    """Say which name servers did not tell which agents there are."""
    for node in nodes:
        if isinstance(node.failure, NameServerFailedError):
            settings.warn(
                node.failure.code, answer_words(node.addr, node.failure), "brokers that it alone knows are missing"
            )
    states = [node.answer.node_state for node in nodes if node.answer is not None]
    if states and all(state == broker_pb2.NODE_STATE_WARMING for state in states):
        settings.warn_if_warming(broker_pb2.NODE_STATE_WARMING)


def to_agents_document(
    answers: Iterable[AgentAnswer[AnswerT]], to_answer: Callable[[AnswerT], Document]
) -> list[Document]:
    """Render what each agent said, or how it failed."""

    def one(each: AgentAnswer[AnswerT]) -> Document:
        facts: Document = {"addr": each.agent.addr, "brokers": list(each.agent.brokers)}
        if each.answer is not None:
            return {**facts, **to_answer(each.answer)}
        return {**facts, "error": to_agent_complaint(each.agent, each.failure).to_document() if each.failure else None}

    return [one(each) for each in answers]


async def _ask_name_servers(settings: Settings, choice: AgentChoice) -> NameServerAnswers:
    request = route_service_pb2.GetClusterInfoRequest(cluster=choice.cluster)

    async def question(link: NameServerLink) -> route_service_pb2.GetClusterInfoResponse:
        return await link.call(
            link.routes.GetClusterInfo,
            request,
            timeout_seconds=settings.timeout_seconds,
            not_found=lambda: ClusterNotFoundError(choice.cluster),
        )

    nodes = await ask_every(settings.name_servers, question)
    if any(node.answer is not None for node in nodes):
        return nodes
    failures = [node.failure for node in nodes if isinstance(node.failure, NameServerFailedError)]
    for node in nodes:
        if node.failure is not None and not isinstance(node.failure, NameServerFailedError):
            raise node.failure
    raise NameServersUnavailableError(failures)
