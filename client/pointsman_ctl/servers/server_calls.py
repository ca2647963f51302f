"""Calls to name servers and agents, and the response or failure of each. Servers share nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import grpc.aio

from pointsman.names import OBSERVED_KEY, is_observed, is_rocketmq, read_observed
from pointsman.wire.channel_opener import ChannelOpener
from pointsman.wire.channel_options import CHANNEL_OPTIONS, KEEPALIVE_OPTIONS
from pointsman_client import (
    AccessDeniedError,
    AgentFailedError,
    NameServerFailedError,
    NameServersUnavailableError,
    PointsmanError,
)
from pointsman_client.pointsman_grpc.links import Links, LinkT, open_channel
from pointsman_ctl.servers.rocketmq_name_server import PointsmanRequiredError

CLOSE_SECONDS = 1.0
ResultT = TypeVar("ResultT")
ResultT_co = TypeVar("ResultT_co", covariant=True)
AnyT = TypeVar("AnyT")
To = Callable[[str], AnyT]
"""Returns the server at an address."""
Query = Callable[[AnyT, float], Awaitable[ResultT]]
"""Queries one server, with a deadline for all its calls."""


class BrokerFailedError(AgentFailedError):
    """A RocketMQ broker gave no response that can be used."""

    code = "BROKER_FAILED"
    kind = "a RocketMQ broker"


class BrokerDeniedError(AccessDeniedError):
    """A RocketMQ broker denied access."""


@asynccontextmanager
async def connections(kind: type[LinkT], opener: ChannelOpener) -> AsyncIterator[To[LinkT]]:
    """Yield a function from an address to its server; all channels are closed at the end.

    The function raises PointsmanRequiredError for a RocketMQ name server.
    """
    links = Links(kind, _open, opener)

    def to(addr: str) -> LinkT:
        if is_rocketmq(addr):
            raise PointsmanRequiredError(addr)
        return links.to(addr)

    try:
        yield to
    finally:
        await links.close(timeout_seconds=CLOSE_SECONDS)


def _open(addr: str, opener: ChannelOpener) -> grpc.aio.Channel:
    if not is_observed(addr):
        return open_channel(addr, opener)
    observer, name_server = read_observed(addr)
    chosen = ((OBSERVED_KEY, name_server),) if name_server else ()
    return opener.open(observer, CHANNEL_OPTIONS + KEEPALIVE_OPTIONS, metadata=chosen)


@dataclass(frozen=True, slots=True)
class NodeResponse(Generic[ResultT_co]):
    """The response of one server, or its failure."""

    addr: str
    response: ResultT_co | None
    failure: PointsmanError | None


async def query_every(
    to: To[AnyT], addrs: Sequence[str], query: Query[AnyT, ResultT], seconds: float
) -> list[NodeResponse[ResultT]]:
    """Query all servers concurrently; the responses are in the order of the list."""
    deadline = deadline_in(seconds)

    async def one(addr: str, server: AnyT) -> NodeResponse[ResultT]:
        try:
            return NodeResponse(addr, await query(server, deadline), None)
        except PointsmanError as failure:
            return NodeResponse(addr, None, failure)

    return await asyncio.gather(*map(one, addrs, map(to, addrs)))


def responses_of(nodes: Sequence[NodeResponse[ResultT]]) -> list[ResultT]:
    """Return the responses. Without any, raises the first rejection, or NameServersUnavailableError."""
    responses = [node.response for node in nodes if node.response is not None]
    failures: list[NameServerFailedError] = []
    for node in nodes if not responses else ():
        if isinstance(node.failure, NameServerFailedError):
            failures.append(node.failure)
        elif node.failure is not None:
            raise node.failure
    if failures:
        raise NameServersUnavailableError(failures)
    return responses


async def query_first(to: To[AnyT], addrs: Sequence[str], query: Query[AnyT, ResultT], seconds: float) -> ResultT:
    """Query the servers in order until one responds; each gets an equal share of the remaining time.

    A rejection is a response, except AccessDeniedError, because each server has its own grants: it is raised when no
    other server responds. Raises :class:`~pointsman_client.NameServersUnavailableError`.
    """
    deadline = deadline_in(seconds)
    failures: list[NameServerFailedError] = []
    denials: list[AccessDeniedError] = []
    for position, addr in enumerate(addrs):
        left = deadline - asyncio.get_running_loop().time()
        try:
            return await query(to(addr), deadline_in(left / (len(addrs) - position)))
        except NameServerFailedError as failure:
            failures.append(failure)
        except AccessDeniedError as denial:
            denials.append(denial)
    if denials:
        raise denials[0]
    raise NameServersUnavailableError(failures) from failures[-1]


def deadline_in(seconds: float) -> float:
    """Return the time of the event loop ``seconds`` from now."""
    return asyncio.get_running_loop().time() + seconds
