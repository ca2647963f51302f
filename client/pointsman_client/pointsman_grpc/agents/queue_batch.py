"""Queries about queues, sent to the agents of their brokers in calls of limited size.

An agent rejects a call that contains an invalid queue, and names that queue. The call is repeated without it.
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
from pointsman_client.aio import deadline_in
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.route import BrokerKey
from pointsman_client.errors import AgentFailedError, PointsmanError, RequestRejectedError
from pointsman_client.pointsman_grpc.agents.broker_agents import agent_addrs, agent_of_queues
from pointsman_client.pointsman_grpc.links import AgentLink, AgentLinks
from pointsman_client.ports.coordination import RoutedBrokers

MAX_QUEUES_PER_CALL = 1_000
CALL_SECONDS = 1.0

NAMES_QUEUES = frozenset({grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE})
_INDEX = re.compile(r"(?:queues|offsets)\[(?P<index>[0-9]{1,6})\]")

ResponseT = TypeVar("ResponseT")
Queues = tuple[MessageQueue, ...]
Query = Callable[[AgentLink, Queues, float], Awaitable[ResponseT]]
"""Queries one agent about queues of one broker. The deadline is in the event loop's time."""


@dataclass(slots=True)
class Responses(Generic[ResponseT]):
    """Responses of several agents."""

    given: list[tuple[str, Queues, ResponseT]] = field(default_factory=list)
    """Agent, queues of the call, response."""
    failed: dict[MessageQueue, PointsmanError] = field(default_factory=dict)
    """Queues without a response."""


async def query_agents(
    brokers: RoutedBrokers,
    links: AgentLinks,
    queues: Collection[MessageQueue],
    query: Query[ResponseT],
    *,
    timeout_seconds: float = CALL_SECONDS,
) -> Responses[ResponseT]:
    """Query the agent of each queue, all in parallel. A call takes at most 1 s, all together ``timeout_seconds``."""
    responses: Responses[ResponseT] = Responses()
    deadline = deadline_in(timeout_seconds)
    calls = []
    for (cluster, broker_name), of_broker in _by_broker(queues).items():
        addr = agent_of_queues(brokers.broker(cluster, broker_name))
        if addr:
            calls += [_query(links.to(addr), part, query, responses, deadline) for part in _parts(of_broker)]
        else:
            why = f"no agent of broker {broker_name} of cluster {cluster} is in the routes"
            error = AgentFailedError(f"{cluster}/{broker_name}", grpc.StatusCode.UNAVAILABLE, why)
            responses.failed.update(dict.fromkeys(of_broker, error))
    await asyncio.gather(*calls)
    return responses


async def query_other_agents(
    brokers: RoutedBrokers, links: AgentLinks, queues: Collection[MessageQueue], query: Query[ResponseT]
) -> Responses[ResponseT]:
    """Query the other agents of each queue's replica group, those that :func:`query_agents` omits; at most 1 s."""
    responses: Responses[ResponseT] = Responses()
    deadline = deadline_in(CALL_SECONDS)
    calls = []
    for (cluster, broker_name), of_broker in _by_broker(queues).items():
        broker = brokers.broker(cluster, broker_name)
        for addr in agent_addrs([broker])[1:] if broker is not None else ():
            calls += [_query(links.to(addr), part, query, responses, deadline) for part in _parts(of_broker)]
    await asyncio.gather(*calls)
    return responses


async def _query(
    link: AgentLink, queues: Queues, query: Query[ResponseT], responses: Responses[ResponseT], deadline: float
) -> None:
    loop = asyncio.get_running_loop()
    while queues:
        try:
            response = await query(link, queues, min(deadline, loop.time() + CALL_SECONDS))
        except RequestRejectedError as refusal:
            refused = refused_queues(refusal, queues)
            responses.failed.update(refused or dict.fromkeys(queues, refusal))
            queues = tuple(queue for queue in queues if queue not in refused) if refused else ()
        except PointsmanError as error:
            responses.failed.update(dict.fromkeys(queues, error))
            return
        else:
            responses.given.append((link.addr, queues, response))
            return


def refused_queues(refusal: RequestRejectedError, queues: Queues) -> Mapping[MessageQueue, RequestRejectedError]:
    """Return those of ``queues`` that a rejection names, each with its own violation. Pure."""
    violations: dict[MessageQueue, FieldViolation] = {}
    for violation in refusal.violations if refusal.status in NAMES_QUEUES else ():
        match = _INDEX.match(violation.field)
        if match is not None and int(match["index"]) < len(queues):
            violations.setdefault(queues[int(match["index"])], violation)
    return {queue: _about(refusal, queue, violation) for queue, violation in violations.items()}


def _about(refusal: RequestRejectedError, queue: MessageQueue, violation: FieldViolation) -> RequestRejectedError:
    message = (
        f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}: {violation.field} {violation.description}"
    )
    details = replace(refusal.details, violations=(violation,))
    return RequestRejectedError(refusal.addr, refusal.status, message, details)


def _by_broker(queues: Collection[MessageQueue]) -> Mapping[BrokerKey, list[MessageQueue]]:
    found: dict[BrokerKey, list[MessageQueue]] = {}
    for queue in sorted(queues):
        found.setdefault(queue.broker_key, []).append(queue)
    return found


def _parts(queues: Collection[MessageQueue]) -> Iterator[Queues]:
    remaining = iter(queues)
    while part := tuple(islice(remaining, MAX_QUEUES_PER_CALL)):
        yield part
