"""Questions about queues, put to the agents of their brokers in calls that an agent takes.

An agent refuses a call for one bad queue in it and names it; the others are asked about again without it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Generic, TypeVar

import grpc

from pointsman.wire.refusals import FieldViolation
from pointsman_client.consumer.agents.broker_agents import RoutedBrokers, agent_addrs, agent_of_queues
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.route import BrokerKey
from pointsman_client.errors import AgentFailedError, PointsmanError, RequestRejectedError
from pointsman_client.rpc.links import AgentLink, AgentLinks

MAX_QUEUES_A_CALL = 1_000
CALL_SECONDS = 1.0

NAMES_QUEUES = frozenset({grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE})
_INDEX = re.compile(r"(?:queues|offsets)\[(?P<index>[0-9]{1,6})\]")

AnswerT = TypeVar("AnswerT")
Queues = tuple[MessageQueue, ...]
Question = Callable[[AgentLink, Queues, float], Awaitable[AnswerT]]
"""Asks one agent about some queues of one broker, by a deadline of the event loop."""


@dataclass(slots=True)
class Answers(Generic[AnswerT]):
    """What the agents said."""

    given: list[tuple[str, Queues, AnswerT]] = field(default_factory=list)
    """Agent, the queues that it was asked about, and its answer."""
    failed: dict[MessageQueue, PointsmanError] = field(default_factory=dict)
    """Queues without an answer."""


async def ask_agents(
    brokers: RoutedBrokers,
    links: AgentLinks,
    queues: Collection[MessageQueue],
    question: Question[AnswerT],
    *,
    timeout_seconds: float = CALL_SECONDS,
) -> Answers[AnswerT]:
    """Ask the agent of each queue, all agents at once. A call may take a second, all together ``timeout_seconds``."""
    answers: Answers[AnswerT] = Answers()
    deadline = asyncio.get_running_loop().time() + timeout_seconds
    calls = []
    for (cluster, broker_name), of_broker in _by_broker(queues).items():
        addr = agent_of_queues(brokers.broker(cluster, broker_name))
        if addr:
            calls += [_ask(links.to(addr), part, question, answers, deadline) for part in _parts(of_broker)]
        else:
            why = f"no agent of broker {broker_name} of cluster {cluster} is in the routes"
            error = AgentFailedError(f"{cluster}/{broker_name}", grpc.StatusCode.UNAVAILABLE, why)
            answers.failed.update(dict.fromkeys(of_broker, error))
    await asyncio.gather(*calls)
    return answers


async def ask_other_agents(
    brokers: RoutedBrokers, links: AgentLinks, queues: Collection[MessageQueue], question: Question[AnswerT]
) -> Answers[AnswerT]:
    """Ask those agents of each queue's replica group that :func:`ask_agents` does not; takes at most a second."""
    answers: Answers[AnswerT] = Answers()
    deadline = asyncio.get_running_loop().time() + CALL_SECONDS
    calls = []
    for (cluster, broker_name), of_broker in _by_broker(queues).items():
        broker = brokers.broker(cluster, broker_name)
        for addr in agent_addrs([broker])[1:] if broker is not None else ():
            calls += [_ask(links.to(addr), part, question, answers, deadline) for part in _parts(of_broker)]
    await asyncio.gather(*calls)
    return answers


async def _ask(
    link: AgentLink, queues: Queues, question: Question[AnswerT], answers: Answers[AnswerT], deadline: float
) -> None:
    loop = asyncio.get_running_loop()
    while queues:
        try:
            answer = await question(link, queues, min(deadline, loop.time() + CALL_SECONDS))
        except RequestRejectedError as refusal:
            refused = refused_queues(refusal, queues)
            answers.failed.update(refused or dict.fromkeys(queues, refusal))
            queues = tuple(queue for queue in queues if queue not in refused) if refused else ()
        except PointsmanError as error:
            answers.failed.update(dict.fromkeys(queues, error))
            return
        else:
            answers.given.append((link.addr, queues, answer))
            return


def refused_queues(refusal: RequestRejectedError, queues: Queues) -> Mapping[MessageQueue, RequestRejectedError]:
    """Return those of ``queues`` that a refusal names, each with its own fault. Pure."""
    faults: dict[MessageQueue, FieldViolation] = {}
    for violation in refusal.violations if refusal.status in NAMES_QUEUES else ():
        match = _INDEX.match(violation.field)
        if match is not None and int(match["index"]) < len(queues):
            faults.setdefault(queues[int(match["index"])], violation)
    return {queue: _about(refusal, queue, fault) for queue, fault in faults.items()}


def _about(refusal: RequestRejectedError, queue: MessageQueue, fault: FieldViolation) -> RequestRejectedError:
    message = f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}: {fault.field} {fault.description}"
    details = replace(refusal.details, violations=(fault,))
    return RequestRejectedError(refusal.addr, refusal.status, message, details)


def _by_broker(queues: Collection[MessageQueue]) -> Mapping[BrokerKey, list[MessageQueue]]:
    found: dict[BrokerKey, list[MessageQueue]] = {}
    for queue in sorted(queues):
        found.setdefault(queue.broker_key, []).append(queue)
    return found


def _parts(queues: Collection[MessageQueue]) -> Iterator[Queues]:
    rest = iter(queues)
    while part := tuple(islice(rest, MAX_QUEUES_A_CALL)):
        yield part
