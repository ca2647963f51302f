"""Servers that the probes of each kind pass, at an address that the test chooses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import grpc.aio
from grpc_health.v1 import health, health_pb2_grpc


@asynccontextmanager
async def http_server(target: str, *, status: str = "200 OK") -> AsyncIterator[None]:
    """A server that answers every request with ``status``."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4_096)
        writer.write(f"HTTP/1.1 {status}\r\n\r\n".encode())
        writer.close()

    host, _, port = target.rpartition(":")
    async with await asyncio.start_server(serve, host, int(port)):
        yield


@asynccontextmanager
async def grpc_server(
    target: str, servicer: health_pb2_grpc.HealthServicer | None = None
) -> AsyncIterator[grpc.aio.Server]:
    """A server with the health service ``servicer``, by default one that is SERVING."""
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(servicer or health.aio.HealthServicer(), server)
    server.add_insecure_port(target)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(None)


SERVERS: Mapping[str, Callable[[str], AbstractAsyncContextManager[object]]] = {
    "tcp": http_server,
    "http": http_server,
    "grpc": grpc_server,
}
