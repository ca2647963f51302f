"""A service with methods of each kind, for any listener: what it is sent, how it fails, and what it saw."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from pointsman.daemon.rpc.calling_peer import Context

SERVICE = "pointsman.test.EachKind"
METHODS = (
    "Echo",
    "Metadata",
    "Fail",
    "Wait",
    "Inline",
    "Decode",
    "Count",
    "Flood",
    "Join",
    "Refuse",
    "Talk",
    "Generate",
)


@dataclass
class MethodsOfEachKind:
    """Methods of each kind, and what they saw."""

    seen: list[object] = field(default_factory=list)
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def echo(self, request: bytes, context: Context) -> bytes:
        self.seen.append(dict(context.invocation_metadata() or ()))
        return request

    async def metadata(self, _: bytes, context: Context) -> bytes:
        return repr(sorted(map(tuple, context.invocation_metadata() or ()))).encode()

    async def fail(self, request: bytes, context: Context) -> bytes:
        detail = error_details_pb2.ErrorInfo(reason="WHY", domain="test")
        status = status_pb2.Status(code=grpc.StatusCode.NOT_FOUND.value[0], message="50% nö\n")
        status.details.add().Pack(detail)
        failed = rpc_status.to_status(status)
        if request == b"abort":
            await context.abort_with_status(failed)
        if request == b"raise":
            raise ValueError("a bug")
        context.set_code(failed.code)
        context.set_details(failed.details)
        context.set_trailing_metadata(failed.trailing_metadata)
        return b""

    async def wait(self, request: bytes, _: Context) -> bytes:
        self.seen.append("begun")
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.seen.append("cancelled")
            raise
        return request

    async def count(self, request: bytes, context: Context) -> None:
        for number in range(int(request)):
            await context.write(b"%d" % number)
        self.seen.append("written")

    async def flood(self, _: bytes, context: Context) -> None:
        """Write as fast as the client reads."""
        try:
            while True:
                await context.write(bytes(16 * 1024))
                self.seen.append(b"")
        except asyncio.CancelledError:
            self.seen.append("cancelled")
            raise

    async def join(self, requests: AsyncIterator[bytes], _: Context) -> bytes:
        return b",".join([request async for request in requests])

    async def refuse(self, requests: AsyncIterator[bytes], context: Context) -> bytes:
        async for request in requests:
            self.seen.append(len(request))
            break
        context.set_code(grpc.StatusCode.PERMISSION_DENIED)
        return b""

    async def talk(self, requests: AsyncIterator[bytes], context: Context) -> None:
        async for request in requests:
            await context.write(request.upper())

    async def generate(self, requests: AsyncIterator[bytes], _: Context) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request

    def inline(self, request: bytes, context: Context) -> Any:
        return request if request != b"later" else self.wait(request, context)

    def table(self) -> list[grpc.GenericRpcHandler]:
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        return [
            grpc.method_handlers_generic_handler(
                SERVICE,
                {
                    "Echo": unary(self.echo),
                    "Metadata": unary(self.metadata),
                    "Fail": unary(self.fail),
                    "Wait": unary(self.wait),
                    "Inline": unary(self.echo),
                    "Decode": unary(self.echo, request_deserializer=int),
                    "Count": stream(self.count),
                    "Flood": stream(self.flood),
                    "Join": grpc.stream_unary_rpc_method_handler(self.join),
                    "Refuse": grpc.stream_unary_rpc_method_handler(self.refuse),
                    "Talk": grpc.stream_stream_rpc_method_handler(self.talk),
                    "Generate": grpc.stream_stream_rpc_method_handler(self.generate),
                },
            )
        ]
