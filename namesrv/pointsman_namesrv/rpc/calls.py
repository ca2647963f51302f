"""What every call has in common: decode, refuse what this node does not serve now, map errors, count, encode.

One table of bytes handlers a service, made from its descriptor and a servicer object with a method of each call's
name. grpc.aio ignores a generic handler beside a generated servicer of the same service, so every service is built
this way, and a call whose servicer works on bytes itself (``raw``) needs no second mechanism.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import status_pb2
from grpc_status import rpc_status

from pointsman.service.clock import Clock
from pointsman.service.peers import ENDING_SECONDS, Context, Peer, peer_of
from pointsman_namesrv.core.errors import ClusterNotFound, LimitExceeded, NameServerError, TopicNotFound
from pointsman_namesrv.core.events import Event
from pointsman_namesrv.core.lifecycle import NodeLifecycle
from pointsman_namesrv.core.model import NodeState
from pointsman_namesrv.metrics import Metrics
from pointsman_namesrv.rpc import status

log = logging.getLogger(__name__)

RecordEvents = Callable[[tuple[Event, ...]], None]
Write = Callable[[bytes], Awaitable[None]]

_Request = TypeVar("_Request")
_Answer = TypeVar("_Answer")


class SlowStream(Exception):
    """A client took too long to send what its stream is for; the message says what."""


class Ended(Exception):
    """We ended a stream that was served until now; its client may not be reading."""

    def __init__(self, why: NameServerError) -> None:
        super().__init__(str(why))
        self.why = why


class Calls:
    """Wraps servicers, and refuses for them what this node does not serve in its state.

    WARMING serves everything, but of a topic or cluster that it does not know it says UNAVAILABLE. DRAINING refuses
    the services that ``drains`` names. A node that stops refuses all.
    """

    def __init__(self, lifecycle: NodeLifecycle, *, clock: Clock, metrics: Metrics, record: RecordEvents) -> None:
        self._lifecycle = lifecycle
        self._running = 0
        self._quiet = asyncio.Event()
        self._clock = clock
        self._metrics = metrics
        self._record = record

    async def until_quiet(self) -> None:
        """Wait until no call is running, on a node that stops."""
        if self._running:
            await self._quiet.wait()

    def service(
        self,
        descriptor: ServiceDescriptor,
        servicer: object,
        *,
        raw: frozenset[str] = frozenset(),
        drains: bool = False,
    ) -> grpc.GenericRpcHandler:
        """Build the handler of a service; ``drains``: it is refused while this node is DRAINING.

        Calls named in ``raw``, and requests that stream, are bytes to the servicer.
        """
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        for method in descriptor.methods:
            behaviour = getattr(servicer, _snake_case(method.name))
            if method.client_streaming and method.server_streaming:
                streaming = self._counted(self._streaming(method, behaviour), method, drains=drains)
                handlers[method.name] = grpc.stream_stream_rpc_method_handler(streaming)
            elif method.client_streaming:
                collecting = self._counted(self._collecting(method, behaviour), method, drains=drains)
                handlers[method.name] = grpc.stream_unary_rpc_method_handler(collecting)
            elif method.server_streaming:
                watching = self._counted(self._watching(method, behaviour), method, drains=drains)
                handlers[method.name] = grpc.unary_stream_rpc_method_handler(watching)
            else:
                answer = behaviour if method.name in raw else _on_messages(method, behaviour)
                handlers[method.name] = grpc.unary_unary_rpc_method_handler(self._unary(method, answer, drains=drains))
        return grpc.method_handlers_generic_handler(descriptor.full_name, handlers)

    def _counted(
        self,
        handler: Callable[[_Request, Context], Awaitable[_Answer]],
        method: MethodDescriptor,
        *,
        drains: bool,
    ) -> Callable[[_Request, Context], Awaitable[_Answer]]:
        async def call(request: _Request, context: Context) -> _Answer:
            await self._refuse_unless_serving(context, method, drains=drains)
            self._running += 1
            try:
                return await handler(request, context)
            finally:
                self._end_call()

        return call

    def _unary(
        self, method: MethodDescriptor, answer: Callable[[bytes], bytes | Awaitable[bytes]], *, drains: bool
    ) -> Callable[[bytes, Context], Awaitable[bytes]]:
        """Wrap an answer; all in one coroutine, for route queries come this way."""
        observe = self._metrics.rpc_seconds.labels(method.name).observe
        succeeded = self._metrics.rpcs.labels(method.name, grpc.StatusCode.OK.name).inc
        monotonic, lifecycle = self._clock.monotonic, self._lifecycle

        async def call(request: bytes, context: Context) -> bytes:
            if lifecycle.state is NodeState.DRAINING:
                await self._refuse_unless_serving(context, method, drains=drains)
            self._running += 1
            started = monotonic()
            try:
                response = answer(request)
                if not isinstance(response, bytes):
                    response = await response
            except Exception as error:  # noqa: BLE001  # the border: every fault becomes a status
                return self._refuse(context, method, self._status_of(error, method))
            finally:
                self._end_call()
            succeeded()
            observe(monotonic() - started)
            return response

        return call

    async def _refuse_unless_serving(self, context: Context, method: MethodDescriptor, *, drains: bool) -> None:
        stopping = self._lifecycle.is_stopping
        if stopping or (drains and self._lifecycle.state is NodeState.DRAINING):
            await self._fail(context, method, status.draining(stopping=stopping))

    def _end_call(self) -> None:
        self._running -= 1
        if not self._running and self._lifecycle.is_stopping:
            self._quiet.set()

    def _collecting(
        self, method: MethodDescriptor, behaviour: Callable[[AsyncIterator[bytes], Peer], Awaitable[Message]]
    ) -> Callable[[AsyncIterator[bytes], Context], Awaitable[bytes]]:
        async def call(requests: AsyncIterator[bytes], context: Context) -> bytes:
            try:
                response = await behaviour(requests, peer_of(context))
            except asyncio.CancelledError:
                self._metrics.rpcs.labels(method.name, grpc.StatusCode.CANCELLED.name).inc()
                raise
            except Ended as ended:
                await self._end(context, method, self._status_of(ended.why, method))
            except Exception as error:  # noqa: BLE001  # as above
                return self._refuse(context, method, self._status_of(error, method))
            self._metrics.rpcs.labels(method.name, grpc.StatusCode.OK.name).inc()
            return response.SerializeToString()

        return call

    def _streaming(
        self, method: MethodDescriptor, behaviour: Callable[[AsyncIterator[bytes], Write, Peer], Awaitable[None]]
    ) -> Callable[[AsyncIterator[bytes], Context], Awaitable[None]]:
        async def call(requests: AsyncIterator[bytes], context: Context) -> None:
            if not await self._has_served(context, method, behaviour(requests, context.write, peer_of(context))):
                return
            if self._lifecycle.is_stopping:
                await self._end(context, method, self._draining())
            self._metrics.rpcs.labels(method.name, grpc.StatusCode.OK.name).inc()

        return call

    def _watching(
        self, method: MethodDescriptor, behaviour: Callable[[bytes, Write, Peer], Awaitable[None]]
    ) -> Callable[[bytes, Context], Awaitable[None]]:
        async def call(request: bytes, context: Context) -> None:
            if await self._has_served(context, method, behaviour(request, context.write, peer_of(context))):
                await self._end(context, method, self._draining())

        return call

    async def _has_served(self, context: Context, method: MethodDescriptor, running: Awaitable[None]) -> bool:
        """Whether a stream came to its end; else it is refused, and over."""
        try:
            await running
        except asyncio.CancelledError:
            self._metrics.rpcs.labels(method.name, grpc.StatusCode.CANCELLED.name).inc()
            raise
        except Ended as ended:
            await self._end(context, method, self._status_of(ended.why, method))
        except Exception as error:  # noqa: BLE001  # as above
            self._refuse(context, method, self._status_of(error, method))
            return False
        return True

    def _draining(self) -> status_pb2.Status:
        return status.draining(stopping=self._lifecycle.is_stopping)

    async def _end(self, context: Context, method: MethodDescriptor, failure: status_pb2.Status) -> NoReturn:
        """Tell a client that its stream is over here. One that does not read will find that out when it does."""
        try:
            async with asyncio.timeout(ENDING_SECONDS):
                await self._fail(context, method, failure)
        except TimeoutError:
            raise asyncio.CancelledError from None

    def _status_of(self, error: Exception, method: MethodDescriptor) -> status_pb2.Status:
        if isinstance(error, NameServerError):
            if error.event is not None:
                self._record((error.event,))
            if isinstance(error, LimitExceeded):
                self._metrics.limits_exceeded.labels(error.limit).inc()
            if self._lifecycle.state is NodeState.WARMING and isinstance(error, TopicNotFound | ClusterNotFound):
                return status.not_known_yet(error)
            return status.refusal(error)
        if isinstance(error, SlowStream):
            return status.too_slow(str(error))
        if isinstance(error, DecodeError):
            return status.unreadable(f"the request is no {method.input_type.full_name}")
        error_id = secrets.token_hex(8)
        log.error(
            "call failed by our own fault", exc_info=error, extra={"facts": {"method": method.name, "id": error_id}}
        )
        return status.internal(error_id)

    def _refuse(self, context: Context, method: MethodDescriptor, failure: status_pb2.Status) -> bytes:
        """End a call with a status by returning from it; the bytes are not sent.

        An abort leaves a cycle of frames behind, and those that are there when the collector's young generations are
        frozen are there for ever.
        """
        failed = rpc_status.to_status(failure)
        self._metrics.rpcs.labels(method.name, failed.code.name).inc()
        context.set_code(failed.code)
        context.set_details(failed.details)
        context.set_trailing_metadata(failed.trailing_metadata)
        return b""

    async def _fail(self, context: Context, method: MethodDescriptor, failure: status_pb2.Status) -> NoReturn:
        failed = rpc_status.to_status(failure)
        self._metrics.rpcs.labels(method.name, failed.code.name).inc()
        await context.abort_with_status(failed)
        raise AssertionError("abort returned")


def _on_messages(
    method: MethodDescriptor, behaviour: Callable[[Message], Message | Awaitable[Message]]
) -> Callable[[bytes], bytes | Awaitable[bytes]]:
    decode = GetMessageClass(method.input_type).FromString

    def answer(request: bytes) -> bytes | Awaitable[bytes]:
        response = behaviour(decode(request))
        return response.SerializeToString() if isinstance(response, Message) else _encoded(response)

    return answer


async def _encoded(response: Awaitable[Message]) -> bytes:
    return (await response).SerializeToString()


def _snake_case(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).removeprefix("_")
