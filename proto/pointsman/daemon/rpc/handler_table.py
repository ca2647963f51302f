"""Common steps of every call: decode, refuse what the daemon does not serve now, map errors, count, encode.

One table of bytes handlers per service, built from its descriptor and a servicer object with a method per call.
grpc.aio ignores a generic handler next to a generated servicer of the same service, so every service is built this way,
and a call whose servicer works on bytes itself (``raw``) needs no second mechanism. There is no interceptor: grpc.aio
would run it in another coroutine for each call.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from functools import partial
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import status_pb2
from grpc_status import rpc_status

from pointsman.clock import Clock
from pointsman.daemon.access.access import Access, Caller, Denied, Reason, Rules, Unauthenticated
from pointsman.daemon.rpc.call_tallies import CallMetrics
from pointsman.daemon.rpc.calling_peer import ENDING_SECONDS, Context, addr_of, admitted, peer_of
from pointsman.daemon.rpc.refused_calls import RefusalLog, request_id_of
from pointsman.daemon.subscriptions import Subscription, TasklessContext, follow
from pointsman.wire.error_details import build_status
from pointsman.wire.refusals import Refusal

log = logging.getLogger(__name__)

Write = Callable[[bytes], Awaitable[None]]

_Handler = Callable[[Any, Context], Awaitable[Any]]
_Admit = Callable[[Context], Caller | None]


class Ended(Exception):
    """The server ended an active stream; its client may not be reading."""

    def __init__(self, why: Refusal) -> None:
        super().__init__(str(why))
        self.why = why


class HandlerTable:
    """Builds the handlers of services, and counts their calls.

    ``on_refusal`` receives each refusal and returns what is sent in its place. Without ``access`` everything is open.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        metrics: CallMetrics,
        on_refusal: Callable[[Refusal], Refusal] = lambda refusal: refusal,
        access: Access | None = None,
    ) -> None:
        self._clock = clock
        self.metrics = metrics
        self._on_refusal = on_refusal
        self._refusal_log = RefusalLog(clock)
        self._draining: Refusal | None = None
        self._closed: Refusal | None = None
        self._running = 0
        self._quiet = asyncio.Event()
        self._access = access
        self.inline: dict[str, Callable[[bytes, Context], bytes | Awaitable[bytes]]] = {}
        """Unary methods by path, for a listener that needs no coroutine where the response is ready: they return it, or
        the rest of the call."""
        self._streams: dict[Caller, set[asyncio.Task[Any] | _KeptOpen]] = {}
        """The open streams of callers, which end when their token is removed or their certificate denied."""
        if access is not None:
            access.on_revoked(self._end_streams)

    def drain(self, why: Refusal | None) -> None:
        """Refuse new calls of the services with ``drains``, until this is called with None."""
        self._draining = why

    def close(self, why: Refusal) -> None:
        """Refuse every new call from now on."""
        self._closed = why

    async def until_quiet(self) -> None:
        """Wait until no call is running, after :meth:`close`."""
        if self._running:
            await self._quiet.wait()

    def service(
        self,
        descriptor: ServiceDescriptor,
        servicer: object,
        *,
        raw: frozenset[str] = frozenset(),
        drains: bool = False,
        rules: Rules | None = None,
    ) -> grpc.GenericRpcHandler:
        """Build the handler of a service; ``drains``: it is refused while this table is draining.

        A unary method takes the request, and the caller if it has a parameter ``peer`` (a Peer) or ``caller`` (the
        Caller, None where everything is open). It returns the response, or an awaitable of it; one named in ``raw``
        takes and returns bytes. A method that streams takes bytes or an iterator of them, the function that writes a
        response if responses stream, and ``peer``; it may return a Subscription with all further responses. ``rules``
        has each method, if there is an ``access``.
        """
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        for method in descriptor.methods:
            admit = self._admit(method.name, rules)
            behaviour = getattr(servicer, snake_case(method.name))
            if not (method.client_streaming or method.server_streaming):
                answer = behaviour if method.name in raw else _on_messages(method, behaviour)
                takes = inspect.signature(behaviour).parameters.keys() & {"peer", "caller"}
                inline = self._unary(method, answer, admit, takes=takes, drains=drains)
                self.inline[f"/{descriptor.full_name}/{method.name}"] = inline
                handlers[method.name] = grpc.unary_unary_rpc_method_handler(_coroutine(inline))
                continue
            streaming = self._streaming(method, behaviour, admit, drains=drains)
            if not method.server_streaming:
                handlers[method.name] = grpc.stream_unary_rpc_method_handler(streaming)
            elif not method.client_streaming:
                handlers[method.name] = grpc.unary_stream_rpc_method_handler(streaming)
            else:
                handlers[method.name] = grpc.stream_stream_rpc_method_handler(streaming)
        return grpc.method_handlers_generic_handler(descriptor.full_name, handlers)

    def status_of(self, error: Exception, method: str, context: Context) -> status_pb2.Status:
        """Return the status of a call that raised ``error``, with the call's id, and log it.

        For an error of the daemon, the client gets only the id.
        """
        request_id = request_id_of(context)
        if isinstance(error, Refusal):
            sent = self._on_refusal(error)
            if isinstance(sent, Denied) and self._access is not None:
                self._access.note(sent, method, addr_of(context), request_id)
            else:
                self._refusal_log.note(sent, method=method, context=context, request_id=request_id)
            return build_status(
                grpc.StatusCode[sent.status],
                str(sent),
                code=sent.code,
                facts=sent.facts,
                violations=sent.violations,
                request_id=request_id,
            )
        facts = {"method": method, "request_id": request_id}
        log.error("internal error while handling an RPC", exc_info=error, extra={"facts": facts})
        return build_status(
            grpc.StatusCode.INTERNAL, f"internal error, request {request_id}", code="INTERNAL", request_id=request_id
        )

    def _admit(self, method: str, rules: Rules | None) -> _Admit | None:
        """Return the check that a call must pass before it is served; None: no check."""
        access = self._access
        if access is None or rules is None or not access.needs_check(rules[method]):
            return None
        return partial(admitted, access, rules[method])

    def _unary(
        self,
        method: MethodDescriptor,
        answer: Callable[..., bytes | Awaitable[bytes]],
        admit: _Admit | None,
        *,
        takes: Collection[str],
        drains: bool,
    ) -> Callable[[bytes, Context], bytes | Awaitable[bytes]]:
        """Wrap a unary method: what is ready is returned, because route queries take this path."""
        observe = self.metrics.seconds.labels(method.name).observe
        succeeded = self.metrics.rpcs.labels(method.name, grpc.StatusCode.OK.name).inc
        monotonic = self._clock.monotonic
        is_plain = admit is None and "peer" not in takes

        def served(request: bytes, context: Context) -> bytes | Awaitable[bytes]:
            caller = admit(context) if admit is not None else None
            if "peer" in takes:
                return answer(request, peer_of(context, caller))
            return answer(request, caller) if takes else answer(request)

        def call(request: bytes, context: Context) -> bytes | Awaitable[bytes]:
            if (why := self._closed or (self._draining if drains else None)) is not None:
                return self._refuse(context, method, why)
            started = monotonic()
            try:
                response = answer(request) if is_plain else served(request, context)
            except Exception as error:  # noqa: BLE001  # every error becomes a status
                return self._refuse(context, method, error)
            if not isinstance(response, bytes):
                return rest(response, context, started)
            succeeded()
            observe(monotonic() - started)
            return response

        async def rest(response: Awaitable[bytes], context: Context, started: float) -> bytes:
            self._running += 1
            try:
                encoded = await response
            except asyncio.CancelledError:
                self.count(method, grpc.StatusCode.CANCELLED)
                raise
            except Exception as error:  # noqa: BLE001  # as above
                return self._refuse(context, method, error)
            finally:
                self._running -= 1
                if self._closed is not None:
                    self._note_end()
            succeeded()
            observe(monotonic() - started)
            return encoded

        return call

    def _streaming(
        self,
        method: MethodDescriptor,
        behaviour: Callable[..., Awaitable[Message | Subscription | None]],
        admit: _Admit | None,
        *,
        drains: bool,
    ) -> _Handler:
        async def call(request: bytes | AsyncIterator[bytes], context: Context) -> bytes | None:
            if (why := self._closed or (self._draining if drains else None)) is not None:
                return self._refuse(context, method, why)
            self._running += 1
            is_writing = False

            async def write(response: bytes) -> None:
                nonlocal is_writing
                is_writing = True
                await context.write(response)
                is_writing = False

            arguments = (request, write) if method.server_streaming else (request,)
            caller: Caller | None = None
            try:
                if admit is not None:
                    caller = admit(context)
                with self._open_stream(caller):
                    response = await behaviour(*arguments, peer_of(context, caller))
                    if isinstance(response, Subscription):
                        if isinstance(context, TasklessContext):
                            _KeptOpen(self, method, context, response, caller).begin()
                            return None
                        await follow(response, write)
            except asyncio.CancelledError:
                if caller is not None and caller.is_revoked:
                    await self._end(context, method, _revoked(caller), is_writing=is_writing)
                self.count(method, grpc.StatusCode.CANCELLED)
                raise
            except Ended as ended:
                await self._end(context, method, ended.why, is_writing=is_writing)
            except Exception as error:  # noqa: BLE001  # as above
                return self._refuse(context, method, error)
            finally:
                self._running -= 1
                if self._closed is not None:
                    self._note_end()
            self.count(method, grpc.StatusCode.OK)
            return response.SerializeToString() if isinstance(response, Message) else None

        return call

    @contextlib.contextmanager
    def _open_stream(self, caller: Caller | None) -> Iterator[None]:
        """Register a stream while it is open, so that it ends with its caller's token."""
        task = asyncio.current_task()
        if caller is None or task is None:
            yield
            return
        self._streams.setdefault(caller, set()).add(task)
        try:
            yield
        finally:
            self._discard_stream(task, caller)

    def _end_streams(self, revoked: Collection[Caller]) -> None:
        for caller in revoked:
            for stream in list(self._streams.get(caller, ())):
                stream.cancel()

    def add_kept(self, stream: _KeptOpen, caller: Caller | None) -> None:
        """Count a stream that is kept open without a task."""
        self._running += 1
        if caller is not None:
            self._streams.setdefault(caller, set()).add(stream)

    def remove_kept(self, stream: _KeptOpen, caller: Caller | None) -> None:
        """Count its end."""
        self._running -= 1
        if self._closed is not None:
            self._note_end()
        if caller is not None:
            self._discard_stream(stream, caller)

    def _discard_stream(self, stream: asyncio.Task[Any] | _KeptOpen, caller: Caller) -> None:
        streams = self._streams.get(caller)
        if streams is not None:
            streams.discard(stream)
            if not streams:
                del self._streams[caller]

    def _note_end(self) -> None:
        if not self._running:
            self._quiet.set()

    def _refuse(self, context: Context, method: MethodDescriptor, error: Exception) -> bytes:
        """End a call with a status by returning; gRPC sends an empty message in place of a response.

        An abort leaves a cycle of frames behind. Cycles that exist when the collector's young generations are frozen
        are never freed.
        """
        failed = self.failed(context, method, error)
        context.set_code(failed.code)
        context.set_details(failed.details)
        context.set_trailing_metadata(failed.trailing_metadata)
        return b""

    async def _end(self, context: Context, method: MethodDescriptor, why: Refusal, *, is_writing: bool) -> None:
        """End a stream with a status. A client that does not read does not receive it, and the stream ends anyway.

        gRPC refuses a status beside a write that was cut off and is still being sent, and does not say when that ends.
        """
        failed = self.failed(context, method, why)
        if is_writing:
            await asyncio.sleep(ENDING_SECONDS)
        try:
            async with asyncio.timeout(ENDING_SECONDS):
                await context.abort_with_status(failed)
        except (TimeoutError, grpc.aio.InternalError):
            raise asyncio.CancelledError from None

    def failed(self, context: Context, method: MethodDescriptor, error: Exception) -> Any:  # noqa: ANN401  # grpc_status has no types
        """Count a failed call, and return its status in gRPC's form."""
        if isinstance(error, DecodeError):
            error = _UnreadableRequest(f"the request is not a {method.input_type.full_name}")
        failed = rpc_status.to_status(self.status_of(error, method.name, context))
        self.count(method, failed.code)
        return failed

    def count(self, method: MethodDescriptor, code: grpc.StatusCode) -> None:
        """Count a call that has ended."""
        self.metrics.rpcs.labels(method.name, code.name).inc()


class _KeptOpen:
    """The stream of a subscription on a listener that needs no task for it. One per watch: it is small."""

    __slots__ = ("_caller", "_context", "_is_over", "_method", "_table", "subscription")

    def __init__(
        self,
        table: HandlerTable,
        method: MethodDescriptor,
        context: Any,  # noqa: ANN401  # a Context that is a TasklessContext: types have no intersections
        subscription: Subscription,
        caller: Caller | None,
    ) -> None:
        self._table = table
        self._method = method
        self._context = context
        self.subscription = subscription
        self._caller = caller
        self._is_over = False

    def begin(self) -> None:
        self._table.add_kept(self, self._caller)
        self._context.keep_open(self)
        self.subscription.attach(self)
        self.wake()

    def wake(self) -> None:
        self._context.wake()

    def end(self, why: Exception) -> None:
        if self._is_over:
            return
        status = self._table.failed(self._context, self._method, why.why if isinstance(why, Ended) else why)
        self._release()
        self._context.end_kept(status)

    def cancel(self) -> None:
        """End it, because its caller was revoked."""
        if self._caller is not None:
            self.end(_revoked(self._caller))

    def abandon(self) -> None:
        if not self._is_over:
            self._table.count(self._method, grpc.StatusCode.CANCELLED)
            self._release()

    def _release(self) -> None:
        self._is_over = True
        self.subscription.close()
        self._table.remove_kept(self, self._caller)


class _UnreadableRequest(Refusal):
    """The bytes of a request are not a protobuf message of its type."""

    code = "UNREADABLE_REQUEST"
    status = "INVALID_ARGUMENT"


def _revoked(caller: Caller) -> Unauthenticated:
    if caller.proof == "certificate":
        message = f"the stream was ended: the certificate of {caller.identity!r} is denied now"
        return Unauthenticated(message, identity=caller.identity, reason=Reason.DENIED_CERTIFICATE)
    message = f"the stream was ended: {caller} was removed from the token file"
    return Unauthenticated(message, identity=caller.identity, reason=Reason.UNKNOWN_TOKEN)


def _coroutine(inline: Callable[[bytes, Context], bytes | Awaitable[bytes]]) -> _Handler:
    """Return a unary method as grpc.aio needs it: it would run a plain function in a thread."""

    async def call(request: bytes, context: Context) -> bytes:
        response = inline(request, context)
        return response if isinstance(response, bytes) else await response

    return call


def _on_messages(
    method: MethodDescriptor, behaviour: Callable[..., Message | Awaitable[Message]]
) -> Callable[..., bytes | Awaitable[bytes]]:
    decode = GetMessageClass(method.input_type).FromString

    def answer(request: bytes, *peer: object) -> bytes | Awaitable[bytes]:
        response = behaviour(decode(request), *peer)
        return response.SerializeToString() if isinstance(response, Message) else _encoded(response)

    return answer


async def _encoded(response: Awaitable[Message]) -> bytes:
    return (await response).SerializeToString()


def snake_case(name: str) -> str:
    """Return the name of a servicer's method."""
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).removeprefix("_")
