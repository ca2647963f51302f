"""What every call has in common: decode, refuse when not READY, map errors, count, encode.

One table of bytes handlers a service, made from its descriptor and a servicer object with a method of each call's
name. grpc.aio ignores a generic handler beside a generated servicer of the same service, so every service is built
this way, and a call whose servicer works on bytes itself (``raw``) needs no second mechanism.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import status_pb2
from grpc_status import rpc_status

from namesrv.core.errors import NameServerError
from namesrv.core.events import Event
from namesrv.core.model import NodeState
from namesrv.metrics import Metrics
from namesrv.rpc import status
from pointsman.service.clock import Clock

COLLECT_SECONDS = 60.0
"""How long a client may take to send a whole stream; what it had sent is then forgotten."""

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]
RecordEvents = Callable[[tuple[Event, ...]], None]


class Calls:
    """Wraps servicers. ``state`` is READY from the start and turns to DRAINING once."""

    def __init__(self, *, clock: Clock, metrics: Metrics, record: RecordEvents) -> None:
        self.state = NodeState.READY
        self._clock = clock
        self._metrics = metrics
        self._record = record

    def service(
        self, descriptor: ServiceDescriptor, servicer: object, *, raw: frozenset[str] = frozenset()
    ) -> grpc.GenericRpcHandler:
        """Build the handler of a service. Calls named in ``raw``, and streams both ways, are bytes to the servicer."""
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        for method in descriptor.methods:
            behaviour = getattr(servicer, _snake_case(method.name), None)
            if behaviour is None:
                continue
            if method.name in raw:
                handlers[method.name] = grpc.unary_unary_rpc_method_handler(self._raw(method, behaviour))
            elif method.client_streaming and method.server_streaming:
                handlers[method.name] = grpc.stream_stream_rpc_method_handler(self._streaming(method, behaviour))
            elif method.client_streaming:
                handlers[method.name] = grpc.stream_unary_rpc_method_handler(self._collecting(method, behaviour))
            else:
                handlers[method.name] = grpc.unary_unary_rpc_method_handler(self._unary(method, behaviour))
        return grpc.method_handlers_generic_handler(descriptor.full_name, handlers)

    def _raw(
        self, method: MethodDescriptor, answer: Callable[[bytes], bytes]
    ) -> Callable[[bytes, Context], Awaitable[bytes]]:
        observe = self._metrics.rpc_seconds.labels(method.name).observe
        succeeded = self._metrics.rpcs.labels(method.name, grpc.StatusCode.OK.name).inc
        monotonic = self._clock.monotonic

        async def call(request: bytes, context: Context) -> bytes:
            started = monotonic()
            if self.state is not NodeState.READY:
                await self._fail(context, method, status.not_serving(self.state))
            try:
                response = answer(request)
            except Exception as error:  # noqa: BLE001  # the border: every fault becomes a status
                await self._fail(context, method, self._status_of(error, method))
            succeeded()
            observe(monotonic() - started)
            return response

        return call

    def _unary(
        self, method: MethodDescriptor, behaviour: Callable[[Message], Message]
    ) -> Callable[[bytes, Context], Awaitable[bytes]]:
        decode = GetMessageClass(method.input_type).FromString
        return self._raw(method, lambda request: behaviour(decode(request)).SerializeToString())

    def _collecting(
        self, method: MethodDescriptor, behaviour: Callable[[AsyncIterator[Message]], Awaitable[Message]]
    ) -> Callable[[AsyncIterator[bytes], Context], Awaitable[bytes]]:
        decode = GetMessageClass(method.input_type).FromString

        async def call(requests: AsyncIterator[bytes], context: Context) -> bytes:
            if self.state is not NodeState.READY:
                await self._fail(context, method, status.not_serving(self.state))
            try:
                async with asyncio.timeout(COLLECT_SECONDS):
                    response = await behaviour(decode(request) async for request in requests)
            except TimeoutError:
                await self._fail(context, method, status.too_slow(COLLECT_SECONDS))
            except asyncio.CancelledError:
                self._metrics.rpcs.labels(method.name, grpc.StatusCode.CANCELLED.name).inc()
                raise
            except Exception as error:  # noqa: BLE001  # as above
                await self._fail(context, method, self._status_of(error, method))
            self._metrics.rpcs.labels(method.name, grpc.StatusCode.OK.name).inc()
            return response.SerializeToString()

        return call

    def _streaming(
        self,
        method: MethodDescriptor,
        behaviour: Callable[[AsyncIterator[bytes], Callable[[bytes], Awaitable[None]]], Awaitable[None]],
    ) -> Callable[[AsyncIterator[bytes], Context], Awaitable[None]]:
        async def call(requests: AsyncIterator[bytes], context: Context) -> None:
            if self.state is NodeState.READY:
                try:
                    await behaviour(requests, context.write)
                except asyncio.CancelledError:
                    self._metrics.rpcs.labels(method.name, grpc.StatusCode.CANCELLED.name).inc()
                    raise
                except Exception as error:  # noqa: BLE001  # as above
                    await self._fail(context, method, self._status_of(error, method))
            if self.state is not NodeState.READY:
                await self._fail(context, method, status.not_serving(self.state))
            self._metrics.rpcs.labels(method.name, grpc.StatusCode.OK.name).inc()

        return call

    def _status_of(self, error: Exception, method: MethodDescriptor) -> status_pb2.Status:
        if isinstance(error, NameServerError):
            if error.event is not None:
                self._record((error.event,))
            return status.refusal(error)
        if isinstance(error, DecodeError):
            return status.unreadable(f"the request is no {method.input_type.full_name}")
        error_id = secrets.token_hex(8)
        log.error(
            "call failed by our own fault", exc_info=error, extra={"facts": {"method": method.name, "id": error_id}}
        )
        return status.internal(error_id)

    async def _fail(self, context: Context, method: MethodDescriptor, failure: status_pb2.Status) -> NoReturn:
        failed = rpc_status.to_status(failure)
        self._metrics.rpcs.labels(method.name, failed.code.name).inc()
        await context.abort_with_status(failed)
        raise AssertionError("abort returned")


def _snake_case(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).removeprefix("_")
