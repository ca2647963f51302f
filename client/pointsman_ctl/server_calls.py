"""Calls to name servers and agents: connections of one run, answers or failures of each server. They share nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from grpc_status import rpc_status

from pointsman.v1 import (
    admin_service_pb2_grpc,
    agent_service_pb2_grpc,
    consumer_group_service_pb2_grpc,
    offset_service_pb2_grpc,
    queue_lock_service_pb2_grpc,
    route_service_pb2_grpc,
)
from pointsman.wire.channel_opener import ChannelOpener, explain_connection_failure
from pointsman.wire.channel_options import CHANNEL_OPTIONS, KEEPALIVE_OPTIONS
from pointsman.wire.error_details import ANOTHER_MAY_ANSWER, ErrorDetails, read_status
from pointsman_client import (
    AccessDeniedError,
    NameServerFailedError,
    NameServersUnavailableError,
    NotFoundError,
    PointsmanError,
    RequestRejectedError,
)

CLOSE_SECONDS = 1.0
AnswerT = TypeVar("AnswerT")
AnswerT_co = TypeVar("AnswerT_co", covariant=True)
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class Server:
    """A name server or an agent: its channel, which connects at the first call, and the stubs on it."""

    def __init__(self, addr: str, failed: type[NameServerFailedError], opener: ChannelOpener) -> None:
        """``failed``: the error of a call that gave no answer."""
        self.addr = addr
        self._failed = failed
        self.channel = opener.open(addr, CHANNEL_OPTIONS + KEEPALIVE_OPTIONS)
        self.routes = route_service_pb2_grpc.RouteServiceStub(self.channel)
        self.admin = admin_service_pb2_grpc.AdminServiceStub(self.channel)
        self.agent = agent_service_pb2_grpc.AgentServiceStub(self.channel)
        self.groups = consumer_group_service_pb2_grpc.ConsumerGroupServiceStub(self.channel)
        self.locks = queue_lock_service_pb2_grpc.QueueLockServiceStub(self.channel)
        self.offsets = offset_service_pb2_grpc.OffsetServiceStub(self.channel)

    async def call(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT],
        request: RequestT,
        *,
        deadline: float,
        not_found: Callable[[], NotFoundError] | None = None,
    ) -> ResponseT:
        """Make one call that ends by ``deadline``, a time of the event loop; ``not_found`` builds that error.

        Raises NameServerFailedError (AgentFailedError for an agent), RequestRejectedError.
        """
        with self.errors(not_found):
            seconds = max(0.0, deadline - asyncio.get_running_loop().time())
            response: ResponseT | None = await method(request, timeout=seconds)
        if response is None:
            # grpc.aio logs bytes that it cannot parse and returns None.
            raise self._failed(self.addr, grpc.StatusCode.INTERNAL, "the answer cannot be decoded")
        return response

    async def whole(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Any, ResponseT],
        request: Any,  # noqa: ANN401  # any request with a page_token
        *,
        deadline: float,
        not_found: Callable[[], NotFoundError] | None = None,
    ) -> ResponseT:
        """Call once for each page and return all as one answer. Raises what :meth:`call` raises."""
        whole: Any = await self.call(method, request, deadline=deadline, not_found=not_found)
        while whole.next_page_token:
            request.page_token = whole.next_page_token
            whole.ClearField("next_page_token")
            whole.MergeFrom(await self.call(method, request, deadline=deadline, not_found=not_found))
        return cast("ResponseT", whole)

    @contextmanager
    def errors(self, not_found: Callable[[], NotFoundError] | None = None) -> Iterator[None]:
        """Translate what calls raise, as :meth:`call` does."""
        try:
            yield
        except grpc.aio.AioRpcError as error:
            status, message = error.code(), error.details() or ""
            if status in ANOTHER_MAY_ANSWER:
                raise self._failed(self.addr, status, explain_connection_failure(message)) from error
            if status is grpc.StatusCode.NOT_FOUND and not_found is not None:
                raise not_found() from error
            denied = status in {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
            kind = AccessDeniedError if denied else RequestRejectedError
            raise kind(self.addr, status, message, _details_of(error)) from error


def _details_of(error: grpc.aio.AioRpcError) -> ErrorDetails:
    try:
        return read_status(rpc_status.from_call(error))
    except (ValueError, DecodeError):
        # Details that contradict the status, or are not a message: the status alone is the answer.
        return ErrorDetails()


ToServer = Callable[[str], Server]
Ask = Callable[[Server, float], Awaitable[AnswerT]]
"""Asks one server, with a deadline for all its calls."""


@asynccontextmanager
async def connections(opener: ChannelOpener, failed: type[NameServerFailedError]) -> AsyncIterator[ToServer]:
    """Yield what returns the server at an address, the same each time; all channels are closed at the end."""
    servers: dict[str, Server] = {}

    def to(addr: str) -> Server:
        if addr not in servers:
            servers[addr] = Server(addr, failed, opener)
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
class NodeAnswer(Generic[AnswerT_co]):
    """The answer of one name server, or its failure."""

    addr: str
    answer: AnswerT_co | None
    failure: PointsmanError | None


async def ask_every(to: ToServer, addrs: Sequence[str], ask: Ask[AnswerT], seconds: float) -> list[NodeAnswer[AnswerT]]:
    """Ask all servers at the same time; the answers are in the order of the list."""
    deadline = deadline_in(seconds)

    async def one(addr: str) -> NodeAnswer[AnswerT]:
        try:
            return NodeAnswer(addr, await ask(to(addr), deadline), None)
        except PointsmanError as failure:
            return NodeAnswer(addr, None, failure)

    return await asyncio.gather(*(one(addr) for addr in addrs))


def answers_of(nodes: Sequence[NodeAnswer[AnswerT]]) -> list[AnswerT]:
    """Return the answers. Where there is none, raises the first refusal, or NameServersUnavailableError."""
    answers = [node.answer for node in nodes if node.answer is not None]
    failures: list[NameServerFailedError] = []
    for node in nodes if not answers else ():
        if isinstance(node.failure, NameServerFailedError):
            failures.append(node.failure)
        elif node.failure is not None:
            raise node.failure
    if failures:
        raise NameServersUnavailableError(failures)
    return answers


async def ask_first(to: ToServer, addrs: Sequence[str], ask: Ask[AnswerT], seconds: float) -> AnswerT:
    """Ask the servers in turn until one answers; each gets an equal share of the time that is left.

    A refusal is an answer, but for one of access, since each has its own grants: AccessDeniedError is raised when no
    other server answers. Raises :class:`~pointsman_client.NameServersUnavailableError`.
    """
    deadline = deadline_in(seconds)
    failures: list[NameServerFailedError] = []
    denials: list[AccessDeniedError] = []
    for position, addr in enumerate(addrs):
        left = deadline - asyncio.get_running_loop().time()
        try:
            return await ask(to(addr), deadline_in(left / (len(addrs) - position)))
        except NameServerFailedError as failure:
            failures.append(failure)
        except AccessDeniedError as denial:
            denials.append(denial)
    if denials:
        raise denials[0]
    raise NameServersUnavailableError(failures) from failures[-1]


def deadline_in(seconds: float) -> float:
    """Return the time of the event loop in so many seconds."""
    return asyncio.get_running_loop().time() + seconds
