"""A minimal agent as a process: it sends heartbeats on a stream, and has a server without callers."""

from __future__ import annotations

import asyncio
import sys

import grpc
import uvloop

from tests.bench import messages

INTERVAL_SECONDS = 30.0


async def run(addr: str) -> None:
    """Register with the name server at ``addr`` and send heartbeats until killed."""
    server = grpc.aio.server()
    server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(addr) as channel:
        generation = await messages.register(channel, messages.registration(0, topics=1))
        stream: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(messages.KEEP_ALIVE)()
        while True:
            await stream.write(messages.beat(0, generation))
            await stream.read()
            await asyncio.sleep(INTERVAL_SECONDS)


if __name__ == "__main__":
    uvloop.run(run(sys.argv[1]))
