"""Record what clients of other gRPC libraries send to the lane: ``python -m tests.peers.record_clients``.

Each writes one connection to ``tests/fixtures/grpc_clients``, which ``tests/integration/lane/test_recorded_clients.py``
sends to both listeners. By hand, when ``tests/peers`` has newer libraries.
"""

from __future__ import annotations

import asyncio
import contextlib

from pointsman.daemon.lane.lane_server import LaneServer
from pointsman.names import split_addr
from pointsman.wire.channel_options import SERVER_OPTIONS
from tests.kit.http2.fixed_responses import TOPICS, UNKNOWN_TOPIC, UPDATES, fixed_responses
from tests.peers.peer_process import PROGRAMS, ROOT, PeerProcess, missing, peer_process
from tests.peers.test_peers import KEEP_ALIVE, LIST, REGISTER, ROUTE, WATCH, registration, watched

RECORDED = ROOT / "tests" / "fixtures" / "grpc_clients"
BEATS = 3


async def _calls(client: PeerProcess) -> None:
    """Call a method of each kind, and one that fails."""
    await client.call(REGISTER, *registration("a", ["orders"], ["bills"]))
    await client.call(ROUTE, {"topic": "orders"}, millis=30_000)
    await client.call(ROUTE, {"topic": UNKNOWN_TOPIC})
    assert len((await client.call(LIST, {"pageSize": 10_000})).response["topics"]) == len(TOPICS)
    await client.open(WATCH, watched("orders"))
    for _ in range(UPDATES + 1):
        await client.receive()
    await client.open(KEEP_ALIVE)
    for _ in range(BEATS):
        await client.send({"beat": {"generation": "2"}})
        await client.receive()
    await client.half_close()
    await client.receive()


async def _record(language: str) -> None:
    sent: list[bytearray] = []
    server = LaneServer(SERVER_OPTIONS, {})
    server.add_generic_rpc_handlers(fixed_responses())
    addr = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own = bytearray()
        sent.append(own)
        upstream, downstream = await asyncio.open_connection(*split_addr(addr))

        async def back() -> None:
            while data := await upstream.read(1 << 16):
                writer.write(data)

        returning = asyncio.create_task(back())
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                own += data
                downstream.write(data)
        returning.cancel()
        downstream.close()
        writer.close()

    async with await asyncio.start_server(relay, "127.0.0.1", 0) as proxy:
        port = proxy.sockets[0].getsockname()[1]
        async with peer_process(language, f"127.0.0.1:{port}") as client:
            await _calls(client)
    await server.stop(0)
    [content] = sent
    RECORDED.mkdir(exist_ok=True)
    (RECORDED / f"{language}.bin").write_bytes(content)
    print(f"{language}: {len(content)} bytes")


async def _main() -> None:
    for language in PROGRAMS:
        if why := missing(language):
            print(f"{language}: {why}")
        else:
            await _record(language)


if __name__ == "__main__":
    asyncio.run(_main())
