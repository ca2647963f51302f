"""What every call has in common: faults become statuses, calls are counted, and none begins on an agent that stops.

``@answers`` turns what a method raises into a rich status. :class:`CallCounter` is the server's interceptor.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NoReturn, TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError
from google.rpc import status_pb2
from grpc_status import rpc_status
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from pointsman.service.peers import ENDING_SECONDS, Context
from pointsman_agent.rpc import status
from pointsman_agent.rpc.refusals import NotReady, Refusal

STOPPING = "stopping"
log = logging.getLogger(__name__)

_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_Self = TypeVar("_Self")
_Request = TypeVar("_Request")
_Answer = TypeVar("_Answer")


def answers(
    method: Callable[[_Self, _Request, Context], Awaitable[_Answer]],
) -> Callable[[_Self, _Request, Context], Awaitable[_Answer]]:
    """Wrap a method of a servicer: what it raises becomes the status of the call."""

    @functools.wraps(method)
    async def call(self: _Self, request: _Request, context: Context) -> _Answer:
        try:
            return await method(self, request, context)
        except Exception as error:  # noqa: BLE001  # the border: every fault becomes a status
            await refuse(context, error)

    return call


async def refuse(context: Context, error: Exception) -> NoReturn:
    """End a call with the status of what was raised. A client that does not read finds out when it does."""
    try:
        async with asyncio.timeout(ENDING_SECONDS):
            await context.abort_with_status(rpc_status.to_status(status_of(error)))
    except TimeoutError:
        raise asyncio.CancelledError from None
    raise AssertionError("abort returned")


def status_of(error: Exception) -> status_pb2.Status:
    """The status of what was raised; a fault of our own goes to the log and leaves only its id on the wire."""
    if isinstance(error, Refusal):
        return status.refusal(error)
    if isinstance(error, DecodeError):
        return status.unreadable("the request is no protobuf message of its type")
    error_id = secrets.token_hex(8)
    log.error("call failed by our own fault", exc_info=error, extra={"facts": {"id": error_id}})
    return status.internal(error_id)


def stopping() -> NotReady:
    """The refusal of an agent that stops."""
    return NotReady("this agent is stopping; ask another one", state=STOPPING)


class CallCounter(grpc.aio.ServerInterceptor, Collector):
    """Counts calls by method and status, and refuses new ones once the agent stops.

    Counts on the event loop's thread alone; a scrape on another thread reads whole numbers.
    """

    def __init__(self) -> None:
        self.is_stopping = False
        self._running = 0
        self._quiet = asyncio.Event()
        self._counts: dict[tuple[str, str], int] = {}
        self._wrapped: dict[str, _Handler] = {}

    def stop(self) -> None:
        """Refuse every call from now on."""
        self.is_stopping = True

    async def until_quiet(self) -> None:
        """Wait until no call is running, after :meth:`stop`."""
        if self._running:
            await self._quiet.wait()

    def count(self, method: str, code: grpc.StatusCode) -> int:
        """How many calls of a method ended so."""
        return self._counts.get((method, code.name), 0)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """What is counted now."""
        family = CounterMetricFamily(
            "agent_rpcs",
            "Calls of the broker's clients by method and status, when they end.",
            labels=("method", "code"),
        )
        for labels, count in list(self._counts.items()):
            family.add_metric(labels, count)
        yield family

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler | None:
        """Give the handler of a call, wrapped; built once a method."""
        method = str(handler_call_details.method)
        known = self._wrapped.get(method)
        if known is not None:
            return known
        handler = await continuation(handler_call_details)
        # Nothing but our own methods is ever kept, so no caller can make this grow.
        if handler is None or not method.startswith("/pointsman."):
            return handler
        wrapped = self._wrapped[method] = self._wrap(handler, method.rpartition("/")[2])
        return wrapped

    def _wrap(self, handler: _Handler, name: str) -> _Handler:
        behaviour, build = next(
            (getattr(handler, kind), getattr(grpc, f"{kind}_rpc_method_handler"))
            for kind in ("unary_unary", "unary_stream", "stream_stream", "stream_unary")
            if getattr(handler, kind) is not None
        )
        # Left to gRPC, bytes that are no message end as its own fault, with a stack in the log.
        decode = None if handler.request_streaming else handler.request_deserializer

        async def call(request: object, context: Context) -> object:
            if self.is_stopping:
                self._count(name, grpc.StatusCode.UNAVAILABLE)
                await refuse(context, stopping())
            self._running += 1
            code = grpc.StatusCode.UNKNOWN
            try:
                answer = await behaviour(await _read(request, context, decode), context)
                code = grpc.StatusCode.OK
            except asyncio.CancelledError:
                code = grpc.StatusCode.CANCELLED
                raise
            finally:
                self._count(name, _set_code(context) or code)
                self._running -= 1
                if self.is_stopping and not self._running:
                    self._quiet.set()
            return answer

        wrapped: _Handler = build(
            call,
            request_deserializer=handler.request_deserializer if handler.request_streaming else None,
            response_serializer=handler.response_serializer,
        )
        return wrapped

    def _count(self, name: str, code: grpc.StatusCode) -> None:
        key = (name, code.name)
        self._counts[key] = self._counts.get(key, 0) + 1


async def _read(request: object, context: Context, decode: Callable[[bytes], object] | None) -> object:
    if decode is None or not isinstance(request, bytes):
        return request
    try:
        return decode(request)
    except DecodeError as error:
        await refuse(context, error)


def _set_code(context: Context) -> grpc.StatusCode | None:
    # None until a status is set, whatever the stubs say.
    return context.code()
