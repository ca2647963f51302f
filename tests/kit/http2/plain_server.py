"""An HTTP/2 server with one body for every request: what h2spec tests the sans-I/O connection through.

``python -m tests.kit.http2.plain_server PORT`` serves until it is interrupted.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import cast

from pointsman.http2.header_blocks import encode_block
from pointsman.http2.http2_connection import Http2Connection
from pointsman.http2.http2_events import DataReceived, Event, RequestReceived
from pointsman.http2.http2_sending import Http2Shared
from pointsman.http2.peer_limits import Limits

BODY = b"a body of more than one octet, for the tests of flow control\n"
HEADERS = encode_block([(b":status", b"200"), (b"content-length", b"%d" % len(BODY)), (b"content-type", b"text/plain")])
# The client of h2spec acknowledges HEADER_TABLE_SIZE 0, and uses a dynamic table all the same (section 4.3.1).
LIMITS = Limits(header_table_size=4_096, max_concurrent_streams=100)


class PlainProtocol(asyncio.Protocol):
    """Responds when a request is complete."""

    def __init__(self, shared: Http2Shared) -> None:
        self._connection = Http2Connection(shared)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._write()

    def data_received(self, data: bytes) -> None:
        for event in self._connection.receive(data, now=time.monotonic()):
            self._handle(event)
        self._write()

    def _handle(self, event: Event) -> None:
        if isinstance(event, DataReceived):
            self._connection.acknowledge(event.stream_id, event.octets)
        if isinstance(event, RequestReceived | DataReceived) and event.is_end:
            self._connection.send_headers(event.stream_id, HEADERS)
            self._connection.send_data(event.stream_id, BODY, is_end=True)

    def _write(self) -> None:
        if self._transport is not None:
            self._transport.write(self._connection.take_output())
            if self._connection.over is not None:
                self._transport.close()


async def serve(port: int = 0) -> asyncio.Server:
    """Listen on a port of this machine, 0: a free one."""
    shared = Http2Shared(LIMITS)
    return await asyncio.get_running_loop().create_server(lambda: PlainProtocol(shared), "127.0.0.1", port)


async def _main() -> None:
    async with await serve(int(sys.argv[1])) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main())
