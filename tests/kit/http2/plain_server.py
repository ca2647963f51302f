"""An HTTP/2 server with one body for every request: what h2spec tests the sans-I/O connection through.

``python -m tests.kit.http2.plain_server PORT`` serves until it is interrupted.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from pointsman.daemon.tls.client_certificates import ClientCertificate
from pointsman.daemon.tls.tls_connection import Handshakes, TlsConnection
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

    def __init__(self, shared: Http2Shared, *, is_secured: bool = False) -> None:
        self._is_secured = is_secured
        self._connection = Http2Connection(shared)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if not self._is_secured:
            self._write()

    # --- above TLS ------------------------------------------------------------------------------------------------

    def identify(self, *handshake: ClientCertificate | bytes | str | None) -> bool:
        *_, protocol = handshake
        assert protocol == "h2"
        self._write()
        return True

    def use(self, *_: asyncio.Transport) -> None:
        raise AssertionError("plaintext is not permitted")

    def close(self, *_: str) -> None:
        self.abort()

    def fail(self, error: Exception) -> None:
        self.abort(str(error))

    def abort(self, *_: str) -> None:
        if self._transport is not None:
            self._transport.abort()

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


@asynccontextmanager
async def serving(port: int = 0, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Listen on a port of this machine, 0: a free one, for the length of the block; return it."""
    shared, loop = Http2Shared(LIMITS), asyncio.get_running_loop()
    handshakes = None if context is None else Handshakes(lambda: context, permissive=False, monotonic=loop.time)

    def connection() -> asyncio.Protocol:
        plain = PlainProtocol(shared, is_secured=handshakes is not None)
        return plain if handshakes is None else TlsConnection(plain, handshakes)

    running = None if handshakes is None else asyncio.create_task(handshakes.run())
    async with await loop.create_server(connection, "127.0.0.1", port) as server:
        yield server.sockets[0].getsockname()[1]
    if running is not None:
        running.cancel()


async def _main() -> None:
    async with serving(int(sys.argv[1])):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main())
