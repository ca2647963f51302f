"""Calls to name servers and agents, and the response or failure of each. Servers share nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, cast

import grpc
import grpc.aio

from pointsman.names import is_rocketmq
from pointsman.wire.channel_opener import ChannelOpener
from pointsman.wire.channel_options import CHANNEL_OPTIONS, KEEPALIVE_OPTIONS
from pointsman_client import (
    AccessDeniedError,
    NameServerFailedError,
    NameServersUnavailableError,
    NotFoundError,
    PointsmanError,
)
from pointsman_client.pointsman_grpc.status import grpc_errors_of
from pointsman_ctl.servers.rocketmq_name_server import PointsmanRequiredError

CLOSE_SECONDS = 1.0
ResultT = TypeVar("ResultT")
ResultT_co = TypeVar("ResultT_co", covariant=True)
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class Server:
    """A name server or an agent: its channel, which connects at the first call."""

    failed: ClassVar[type[NameServerFailedError]]
    """The error of a call without a response."""

    def __init__(self, addr: str, opener: ChannelOpener) -> None:
        self.addr = addr
        self.channel = opener.open(addr, CHANNEL_OPTIONS + KEEPALIVE_OPTIONS)

    async def call(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT],
        request: RequestT,
        *,
        deadline: float,
        not_found: Callable[[], NotFoundError] | None = None,
    ) -> ResponseT:
        """Make one call that ends by ``deadline``, a time of the event loop; ``not_found`` builds the NOT_FOUND error.

        Raises NameServerFailedError (AgentFailedError for an agent), RequestRejectedError.
        """
        with self.errors(not_found):
            seconds = max(0.0, deadline - asyncio.get_running_loop().time())
            response: ResponseT | None = await method(request, timeout=seconds)
        if response is None:
            # grpc.aio logs bytes that it cannot parse and returns None.
            raise self.failed(self.addr, grpc.StatusCode.INTERNAL, "the response cannot be decoded")
        return response

    async def all_pages(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Any, ResponseT],
        request: Any,  # noqa: ANN401  # any request with a page_token
        *,
        deadline: float,
        not_found: Callable[[], NotFoundError] | None = None,
    ) -> ResponseT:
        """Call once for each page and return all pages as one response. Raises what :meth:`call` raises."""
        merged: Any = await self.call(method, request, deadline=deadline, not_found=not_found)
        while merged.next_page_token:
            request.page_token = merged.next_page_token
            merged.ClearField("next_page_token")
            merged.MergeFrom(await self.call(method, request, deadline=deadline, not_found=not_found))
        return cast("ResponseT", merged)

    @contextmanager
    def errors(self, not_found: Callable[[], NotFoundError] | None = None) -> Iterator[None]:
        """Translate errors of gRPC, as :meth:`call` does."""
        try:
            with grpc_errors_of(self.addr, not_found=not_found):
                yield
        except NameServerFailedError as failure:
            raise self.failed(failure.addr, failure.status, failure.message) from failure


ServerT = TypeVar("ServerT", bound=Server)
AnyT = TypeVar("AnyT")
To = Callable[[str], AnyT]
"""Returns the server at an address."""
Query = Callable[[AnyT, float], Awaitable[ResultT]]
"""Queries one server, with a deadline for all its calls."""


@asynccontextmanager
async def connections(kind: type[ServerT], opener: ChannelOpener) -> AsyncIterator[To[ServerT]]:
    """Yield a function from an address to its server; all channels are closed at the end.

    The function raises PointsmanRequiredError for a RocketMQ name server.
    """
    servers: dict[str, ServerT] = {}

    def to(addr: str) -> ServerT:
        if is_rocketmq(addr):
            raise PointsmanRequiredError(addr)
        if addr not in servers:
            servers[addr] = kind(addr, opener)
        return servers[addr]

    try:
        yield to
    finally:
        closings = [
            asyncio.create_task(server.channel.close(), name="pointsmanctl-close") for server in servers.values()
        ]
        if closings:
            _, late = await asyncio.wait(closings, timeout=CLOSE_SECONDS)
            for closing in late:
                closing.cancel()


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
