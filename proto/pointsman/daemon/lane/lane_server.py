"""A gRPC server on asyncio, with those methods of ``grpc.aio.Server`` that this project uses."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc

from pointsman.clock import Clock, SystemClock
from pointsman.daemon.http_server import bound_socket
from pointsman.daemon.lane.lane_connection import LaneConnection
from pointsman.daemon.lane.lane_methods import Inline, Methods
from pointsman.daemon.lane.lane_pushes import Pushes
from pointsman.daemon.lane.undecided_connection import OtherWire, UndecidedConnection
from pointsman.daemon.tls.tls_connection import Handshakes, TlsConnection
from pointsman.daemon.waiting_bytes import ComingIn, Unsent
from pointsman.http2.http2_sending import Http2Shared
from pointsman.http2.peer_limits import Bound, Limits

SWEEP_SECONDS = 1.0
SWEPT_TOGETHER = 500
"""Connections that are checked before the loop does anything else: less than a millisecond."""
BACKLOG = 4_096
STREAM_WINDOW = 1024 * 1024
"""Bytes of one request that may wait for its handler.

A client of grpcio that is refused while it waits for a window reports an error itself in place of the status: with
64 KiB 29 of 30 refused uploads of 500 kB did, with this none.
"""
CONNECTION_WINDOW = 4 * 1024 * 1024
"""The same of all requests of a connection together."""
RECEIVED_BYTES = 32 * 1024 * 1024
"""Bound on what all connections have received and handlers have not taken; fast ones may get half as far again."""
UNSENT_BYTES = 96 * 1024 * 1024
"""Bound on responses that are not read on all connections: more than the name server's own bounds on changes for
watches (``watch_hub.py``), which end one watch and not its connection."""
LATE_SECONDS = 1.0
"""Lateness of a sweep that is a pause of this process: it is not counted as time of the clients."""
CLOSING_SECONDS = 10.0
"""Time for a client to read the end of its connection, and to close it."""
DRAIN_SECONDS = 0.5
"""Time for clients to acknowledge that the server ends, and again to read the end of their connections."""


class LaneServer:
    """Serves from :meth:`start` to :meth:`stop`. ``options``: those of gRPC's server that mean something here."""

    def __init__(
        self,
        options: Sequence[tuple[str, int]],
        inline: Mapping[str, Inline],
        on_excess: Callable[[Bound], None] | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        """``inline``: unary methods that may respond without a task, by path; read when a method is called first.

        ``on_excess`` counts the limits that clients reach. ``clock``: the machine's by default, also where the daemon
        has another: connections are real.
        """
        named = dict(options)

        def seconds(name: str, default: float) -> float:
            return named[name] / 1_000 if name in named else default

        self._handshake_seconds = seconds("grpc.server_handshake_timeout_ms", 10.0)
        self._ping_after = seconds("grpc.keepalive_time_ms", 120.0)
        self._ping_timeout = seconds("grpc.http2.ping_timeout_ms", 60.0)
        self._idle_seconds = seconds("grpc.max_connection_idle_ms", 300.0)
        self._max_connections = named.get("grpc.max_allowed_incoming_connections", 1 << 31)
        self.shared = Http2Shared(
            Limits(
                max_concurrent_streams=named.get("grpc.max_concurrent_streams", 1_000),
                stream_window=STREAM_WINDOW,
                connection_window=CONNECTION_WINDOW,
            )
        )
        self.shared.excesses.on_excess = on_excess
        self._clock = clock or SystemClock()
        self.monotonic = self._clock.monotonic
        excesses = self.shared.excesses
        self.coming_in = ComingIn(self._clock, lambda: excesses.note(Bound.RECEIVED_BYTES), bound=RECEIVED_BYTES)
        self.unsent = Unsent(
            self._clock,
            lambda: excesses.note(Bound.UNSENT_BYTES),
            bound=UNSENT_BYTES,
            contents=self.shared.contents,
        )
        self.methods = Methods(inline)
        self.pushes = Pushes()
        self.loop: asyncio.AbstractEventLoop
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._context: Callable[[], ssl.SSLContext] | None = None
        self._handshakes: Handshakes | None = None
        self._background: list[asyncio.Task[None]] = []
        self._connections: set[LaneConnection] = set()
        self._ended: set[LaneConnection] = set()
        """Connections whose end was sent, until their clients close them."""
        self._other: OtherWire | None = None
        self._undecided: dict[UndecidedConnection, None] = {}
        """Connections to a port of two wires that have not shown theirs, the oldest first."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self._one_less = asyncio.Event()
        """Set when a connection ended or was closed."""

    # --- as grpc.aio.Server -----------------------------------------------------------------------------------

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Add services, which are checked in this order."""
        self.methods.add(handlers)

    def add_registered_method_handlers(
        self, service: str, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        """Do nothing: generated code adds the same handlers by :meth:`add_generic_rpc_handlers`."""

    def add_insecure_port(self, address: str) -> int:
        """Bind host:port and return the port. Raises CannotListen."""
        self._socket = bound_socket(address)
        port: int = self._socket.getsockname()[1]
        return port

    def add_secure_port(self, address: str, context: Callable[[], ssl.SSLContext]) -> int:
        """Bind host:port for TLS, with the context of the next handshake, and return the port. Raises CannotListen."""
        self._context = context
        return self.add_insecure_port(address)

    def share_port(self, other: OtherWire) -> None:
        """Serve another wire on the same port; before :meth:`start`."""
        self._other = other

    @property
    def is_secured(self) -> bool:
        """Return whether connections are above TLS."""
        return self._context is not None

    async def start(self) -> None:
        """Serve."""
        assert self._socket is not None, "a port comes first"  # noqa: S101
        self.loop = asyncio.get_running_loop()
        self._server = await self.loop.create_server(
            self._factory(), sock=self._socket, backlog=BACKLOG, start_serving=False
        )
        await self._server.start_serving()
        self._background += (self.loop.create_task(self._sweep()), self.loop.create_task(self.coming_in.run()))

    def _factory(self) -> Callable[[], asyncio.Protocol]:
        """Return the factory of connections."""
        if self._context is None:
            return self._connection
        permissive = self._other is not None and self._other.is_permissive
        self._handshakes = handshakes = Handshakes(self._context, permissive=permissive, monotonic=self.monotonic)
        self._background.append(self.loop.create_task(handshakes.run()))
        return lambda: TlsConnection(self._connection(), handshakes)

    def _connection(self) -> LaneConnection | UndecidedConnection:
        return LaneConnection(self) if self._other is None else UndecidedConnection(self, self._other)

    async def stop(self, grace: float | None) -> None:
        """Accept nothing, let calls end within ``grace`` seconds, then cancel them."""
        if self._is_stopping:
            return
        self._is_stopping = True
        if self._server is not None:
            self._server.close()
        elif self._socket is not None:
            self._socket.close()
        for task in self._background:
            task.cancel()
        for undecided in list(self._undecided):
            undecided.abort("stopping")
        for connection in list(self._connections):
            connection.drain()
        await self._until_empty(self._connections, max(grace or 0.0, DRAIN_SECONDS))
        for connection in list(self._connections):
            connection.http2.close()
            connection.flush()
        await self._until_empty(self._ended, DRAIN_SECONDS)
        for connection in list(self._ended):
            connection.abort()
        await asyncio.gather(*self._tasks, *self._background, return_exceptions=True)

    async def _until_empty(self, connections: set[LaneConnection], seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while connections:
                    self._one_less.clear()
                    await self._one_less.wait()

    # --- for connections --------------------------------------------------------------------------------------

    def opened(self, connection: LaneConnection) -> bool:
        """Register a connection; return False if there are too many."""
        if len(self._connections) + len(self._ended) >= self._max_connections:
            self.shared.excesses.note(Bound.CONNECTIONS)
            return False
        self._connections.add(connection)
        return True

    def begun(self, connection: UndecidedConnection) -> bool:
        """Register a connection whose wire is not known; at the limit the oldest such connection is closed for it."""
        if self._is_stopping:
            return False
        if len(self._connections) + len(self._ended) + len(self._undecided) >= self._max_connections:
            self.shared.excesses.note(Bound.CONNECTIONS)
            if not self._undecided:
                return False
            next(iter(self._undecided)).abort("limit")
        self._undecided[connection] = None
        return True

    def decided(self, connection: UndecidedConnection) -> None:
        """Unregister a connection whose wire is known, or that has ended."""
        self._undecided.pop(connection, None)

    def ended(self, connection: LaneConnection) -> None:
        """Note that a connection serves nothing from now on, and is closed when its client closes it."""
        self._connections.discard(connection)
        self._ended.add(connection)
        self._one_less.set()

    def closed(self, connection: LaneConnection) -> None:
        """Unregister a connection."""
        self._connections.discard(connection)
        self._ended.discard(connection)
        self._one_less.set()

    def keep(self, task: asyncio.Task[None]) -> None:
        """Keep a task until it ends."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def connection_count(self) -> int:
        """Return the number of connections that are served."""
        return len(self._connections)

    # --- what only time shows ---------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        before = self.monotonic()
        while True:
            await self._clock.sleep(SWEEP_SECONDS)
            now = self.monotonic()
            interval, before = now - before, now
            if self._handshakes is not None:
                self._handshakes.close_overdue()
            for undecided in [each for each in self._undecided if now - each.opened_at > self._handshake_seconds]:
                undecided.abort("handshake")
            for ended in [each for each in self._ended if now - each.received_at > CLOSING_SECONDS]:
                ended.abort()
            for number, connection in enumerate(list(self._connections), 1):
                self._check(connection, now)
                if connection.waiting is not None or connection.buffered or connection.http2.unended:
                    connection.check_waiting(now, interval, late=max(0.0, interval - SWEEP_SECONDS - LATE_SECONDS))
                if number % SWEPT_TOGETHER == 0:
                    await asyncio.sleep(0)

    def _check(self, connection: LaneConnection, now: float) -> None:
        """Close a connection that never began, that is idle, or whose client is not there."""
        connection.http2.forget_rates(now)
        if connection.has_calls:
            connection.used_at = now
        if not connection.http2.is_acknowledged and now - connection.opened_at > self._handshake_seconds:
            self.shared.excesses.note(Bound.HANDSHAKES)
            connection.abort()
        elif connection.pinged_at is not None:
            if now - connection.pinged_at > self._ping_timeout:
                connection.abort()
        elif now - connection.used_at > self._idle_seconds:
            connection.drain()
        elif now - connection.received_at > self._ping_after:
            connection.ping()
