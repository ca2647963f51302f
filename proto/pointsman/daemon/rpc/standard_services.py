"""gRPC's health and reflection services, with a bound: their streams are open for as long as clients like."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Callable
from functools import partial

import grpc
from google.rpc import status_pb2
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2
from grpc_status import rpc_status

from pointsman.daemon.access.access import ANY_ROLE, Access, Caller, Denied
from pointsman.daemon.access.fair_bound import FairBound
from pointsman.daemon.rpc.calling_peer import ENDING_SECONDS, Context, admitted, peer_of
from pointsman.wire.refusals import LimitExceeded, Refusal

MAX_STREAMS = 200
LIMIT = "health_and_reflection_streams"


class StandardStreams:
    """The open streams of both services together. ``refuse`` builds and counts the status of a refused one."""

    def __init__(
        self, refuse: Callable[[Refusal, str, Context], status_pb2.Status], limit: type[LimitExceeded]
    ) -> None:
        self.bound = FairBound(MAX_STREAMS)
        self._refuse_with = refuse
        self._limit = limit

    @contextlib.asynccontextmanager
    async def place(self, context: Context, method: str, caller: Caller | None = None) -> AsyncIterator[None]:
        """Occupy a place for the duration of the block; at the bound the call is aborted with RESOURCE_EXHAUSTED."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # a coroutine of grpc.aio runs in one
        share = self.bound.take(peer_of(context, caller).key, 1, partial(_cancel, task))
        if share is None:
            await self._refuse(context, method, value=self.bound.total + 1)
            return
        try:
            yield
        except asyncio.CancelledError:
            if share.is_held:
                raise
            # Its client may not be reading; gRPC refuses a status beside a write.
            with contextlib.suppress(TimeoutError, grpc.aio.InternalError):
                async with asyncio.timeout(ENDING_SECONDS):
                    await self._refuse(
                        context, method, note="this stream was ended: its connection has the most streams"
                    )
            raise
        finally:
            self.bound.give_back(share)

    async def refuse(self, context: Context, method: str, refusal: Refusal) -> None:
        """Abort a call."""
        await context.abort_with_status(rpc_status.to_status(self._refuse_with(refusal, method, context)))

    async def _refuse(self, context: Context, method: str, *, value: int | None = None, note: str = "") -> None:
        await self.refuse(context, method, self._limit(LIMIT, self.bound.bound, value=value, note=note))


class HealthServicer(health.aio.HealthServicer):  # type: ignore[misc]  # grpcio-health-checking has no types
    """gRPC's own, except that a watch of an unknown service is NOT_FOUND, and watches are bounded."""

    def __init__(self, streams: StandardStreams) -> None:
        super().__init__()
        self._streams = streams

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Context) -> None:  # noqa: N802  # gRPC's name
        if request.service not in self._server_status:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"service: {request.service[:200]!r} is not served here")
        async with self._streams.place(context, "Watch"):
            await super().Watch(request, context)


class ReflectionServicer(reflection.aio.ReflectionServicer):  # type: ignore[misc]  # as above
    """gRPC's own, except that its streams are bounded, and with ``access`` it needs a role."""

    def __init__(self, services: tuple[str, ...], streams: StandardStreams, access: Access | None) -> None:
        super().__init__(services)
        self._streams = streams
        self._access = access

    async def ServerReflectionInfo(  # noqa: N802  # gRPC's name
        self, request_iterator: AsyncIterable[reflection_pb2.ServerReflectionRequest], context: Context
    ) -> AsyncIterator[reflection_pb2.ServerReflectionResponse]:
        caller = None
        if self._access is not None:
            try:
                caller = admitted(self._access, ANY_ROLE, context)
            except Denied as denied:
                await self._streams.refuse(context, "ServerReflectionInfo", denied)
        async with self._streams.place(context, "ServerReflectionInfo", caller):
            async for response in super().ServerReflectionInfo(request_iterator, context):
                yield response


def _cancel(task: asyncio.Task[object]) -> None:
    task.cancel()
