"""Other servers that answer route queries in the bench: grpc-go with ready bytes, and etcd with a key of that size."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc

from tests.bench import messages
from tests.bench.servers import OtherProgram
from tests.kit.broker.redis.process import free_port

PROGRAM = Path(__file__).parent / "route_peer"
BUILD_SECONDS = 300.0
START_SECONDS = 30.0
KEY = b"route"


class RoutePeer(OtherProgram):
    """A server in a process, and the call that is its route query."""

    def __init__(self, pid: int, addr: str, method: str, message: bytes) -> None:
        super().__init__(pid)
        self.addr = addr
        self.method = method
        self.message = message


@asynccontextmanager
async def go_peer(response: bytes) -> AsyncIterator[RoutePeer]:
    """Build the peer in Go, and run it: it responds to every query with these bytes."""
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / "route_peer"
        build = await asyncio.create_subprocess_exec("go", "build", "-o", str(binary), ".", cwd=PROGRAM)
        async with asyncio.timeout(BUILD_SECONDS):
            if await build.wait():
                raise RuntimeError("go build failed: its output is above")
        process = await asyncio.create_subprocess_exec(
            str(binary), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(response.hex().encode() + b"\n")
            async with asyncio.timeout(START_SECONDS):
                port = int(await process.stdout.readline())
            yield RoutePeer(process.pid, f"127.0.0.1:{port}", messages.ROUTE, messages.query(messages.topic_name(0)))
        finally:
            process.kill()
            await process.wait()


@asynccontextmanager
async def etcd_peer(response: bytes) -> AsyncIterator[RoutePeer]:
    """Run etcd with these bytes as the value of a key; a query is a serializable range of it."""
    with tempfile.TemporaryDirectory() as folder:
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        process = await asyncio.create_subprocess_exec(
            *("etcd", "--data-dir", folder, "--logger", "zap"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"default={peer}"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            addr = client.removeprefix("http://")
            async with grpc.aio.insecure_channel(addr) as channel:
                put: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/etcdserverpb.KV/Put")
                value = b"\x12" + _varint(len(response)) + response
                await put(_key() + value, timeout=START_SECONDS, wait_for_ready=True)
            yield RoutePeer(process.pid, addr, "/etcdserverpb.KV/Range", _key() + b"\x38\x01")
        finally:
            process.kill()
            await process.wait()


def _key() -> bytes:
    """The first field of etcd's requests."""
    return b"\x0a" + _varint(len(KEY)) + KEY


def _varint(value: int) -> bytes:
    octets = bytearray()
    while value >= 0x80:
        octets.append(0x80 | (value & 0x7F))
        value >>= 7
    octets.append(value)
    return bytes(octets)


PEERS = {"go": ("grpc-go", go_peer), "etcd": ("etcd", etcd_peer)}
"""By the program that must be in the PATH."""
