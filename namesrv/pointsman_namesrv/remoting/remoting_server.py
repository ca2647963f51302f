"""The listener of RocketMQ's wire: connections, their bound, and work in slices."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import Awaitable, Callable, Collection

from pointsman.clock import Clock
from pointsman.daemon.access.access import Access, Caller
from pointsman.daemon.http_server import bound_socket
from pointsman.daemon.tls.tls_connection import Handshakes, TlsConnection
from pointsman.daemon.waiting_bytes import ComingIn, Unsent
from pointsman.names import join_addr, split_addr
from pointsman.rocketmq.frames import ReadyResponse
from pointsman_namesrv.core.lifecycle import NodeLifecycle
from pointsman_namesrv.core.model import NodeState
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.remoting.broker_codes import BrokerCodes, Steps
from pointsman_namesrv.remoting.remoting_connection import NO_ROLE, RemotingConnection
from pointsman_namesrv.remoting.requests import Requests
from pointsman_namesrv.slices import PAUSE_SECONDS

IDLE_SECONDS = 120.0
"""Idle time after which a connection is closed, as in RocketMQ (``serverChannelMaxIdleTimeSeconds``)."""
POLL_INTERVAL_SECONDS = 5.0
LATE_SECONDS = 1.0
"""Lateness of such a poll that is a pause of this process: it is not counted as time of the peers."""
BACKLOG = 4_096
CLOSE_CANDIDATES = 200
"""The latest connections, of which one is closed at the bound: a flood closes its own."""
IDENTITY_PART = 10
"""With grants, an identity with more connections than this part of the bound is the first to lose one."""
FINAL_FLUSH_SECONDS = 0.2
CHANGES_SECONDS = 5.0
"""How long a stop waits for changes that are being saved."""
LOG_EACH_SECONDS = 60.0

log = logging.getLogger(__name__)


class RemotingServer:
    """Listens from :meth:`bind`, serves from :meth:`start` while :meth:`run` runs, until :meth:`stop`.

    On a port that it shares with gRPC that server listens, and creates connections (``UndecidedConnection``).

    A peer here is the identity of a certificate that has grants, else a connection. At a bound of the node one
    connection is closed (:meth:`opened`, ``waiting_bytes.py``), and the others are served.
    """

    def __init__(
        self,
        requests: Requests,
        brokers: BrokerCodes,
        *,
        max_connections: int,
        lifecycle: NodeLifecycle,
        clock: Clock,
        metrics: Metrics,
        handshakes: Handshakes | None = None,
        is_permissive: bool = False,
        access: Access,
    ) -> None:
        """``handshakes``: for TLS; None: plaintext, or a shared port. ``is_permissive``: with TLS plaintext is served,
        too."""
        self.is_permissive = is_permissive
        self.requests = requests
        self.access = access
        self.clock = clock
        self.coming_in = ComingIn(clock, metrics.limits_exceeded.labels("remoting_bytes_coming_in").inc)
        self.unsent = Unsent(clock, metrics.limits_exceeded.labels("remoting_bytes_unsent").inc)
        self._brokers = brokers
        self._max_connections = max_connections
        self._lifecycle = lifecycle
        self._metrics = metrics
        self._handshakes = handshakes
        self._server: asyncio.Server | None = None
        self._socket: socket.socket | None = None
        self._streams = itertools.count(-1, -1)
        self._connections: dict[RemotingConnection, None] = {}
        self._groups: dict[str, dict[RemotingConnection, None]] = {}
        """The connections of each identity, and those of callers without a role."""
        self._work = asyncio.Queue[tuple[RemotingConnection, Steps, bytes | None]]()
        self._changes: set[asyncio.Task[None]] = set()
        self._all_closed = asyncio.Event()
        self._stopping = False
        self._logged_at: dict[str, float] = {}
        lifecycle.on_change(self._send_clients_elsewhere)
        access.on_revoked(self._close_revoked)

    @property
    def connection_count(self) -> int:
        """Return the number of open connections."""
        return len(self._connections)

    def clients(self) -> list[tuple[tuple[str, int] | None, bool]]:
        """Return language and version of each connection, None before its first request, and whether it is a
        broker's."""
        return [(connection.client, connection.is_brokers) for connection in self._connections]

    def bind(self, listen: str) -> str:
        """Bind host:port (port 0: a free one) and return the address. Raises CannotListen."""
        self._socket = bound_socket(listen)
        return join_addr(split_addr(listen)[0], self._socket.getsockname()[1])

    def close(self) -> None:
        """Release the address, for a start that failed."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def start(self) -> None:
        """Serve; :meth:`run` must run from now on."""
        loop = asyncio.get_running_loop()
        assert self._socket is not None, "bind comes first"  # noqa: S101
        # In two steps: cancelled in one, it would leave a reader in the event loop, for a socket that is then closed.
        self._server = await loop.create_server(
            self._connection(), sock=self._socket, backlog=BACKLOG, start_serving=False
        )
        await self._server.start_serving()

    def _connection(self) -> Callable[[], asyncio.Protocol]:
        """Return the factory of connections."""
        handshakes = self._handshakes
        if handshakes is None:
            return self.connection
        return lambda: TlsConnection(self.connection(), handshakes)

    def connection(self) -> RemotingConnection:
        """Return a new connection, not opened yet."""
        return RemotingConnection(self)

    async def run(self) -> None:
        """Do the work in slices and close idle connections, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._work_off())
            tasks.create_task(self._close_idle())
            tasks.create_task(self.coming_in.run())
            if self._handshakes is not None:
                tasks.create_task(self._handshakes.run())

    async def stop(self) -> None:
        """Close every connection from this side, which does not count against the brokers."""
        self._stopping = True
        if self._server is not None:
            self._server.close()
        else:
            self.close()
        if self._changes:
            await asyncio.wait(self._changes, timeout=CHANGES_SECONDS)
        for change in self._changes:
            change.cancel()
        for connection in list(self._connections):
            connection.close("stopping")
        try:
            async with asyncio.timeout(FINAL_FLUSH_SECONDS):
                if self._connections:
                    await self._all_closed.wait()
        except TimeoutError:
            for connection in list(self._connections):
                connection.abort("stopping")

    # --- events of connections --------------------------------------------------------------------------------

    def opened(self, connection: RemotingConnection) -> int:
        """Register a connection and return its number."""
        self._connections[connection] = None
        self._metrics.remoting.connections.set(len(self._connections))
        if self._stopping:
            connection.close("stopping")
        elif len(self._connections) > self._max_connections:
            self._metrics.limits_exceeded.labels("remoting_connections").inc()
            least = self._least(connection)
            (least.abort if least.is_busy else least.close)("limit")
        return next(self._streams)

    def _least(self, newcomer: RemotingConnection) -> RemotingConnection:
        """Return the connection to close at the bound; never one that holds a broker.

        Of callers without a role, else of an identity with many, else of all: of the latest first one that sent no
        request, then the one idle for longest. A flood closes its own. Unlike with FairBound, a newcomer is served:
        it may be a broker.
        """
        without_role = self._groups.get(NO_ROLE, {})
        identities = (each for group, each in self._groups.items() if group != NO_ROLE)
        greatest = max(identities, key=len, default={})
        if len(greatest) <= self._max_connections // IDENTITY_PART:
            greatest = {}
        for among in (without_role, greatest, self._connections):
            spared = (each for each in reversed(among) if not (each.held or each.is_closing or each is newcomer))
            least = min(itertools.islice(spared, CLOSE_CANDIDATES), key=RemotingConnection.worth, default=None)
            if least is not None:
                return least
        return newcomer

    def regroup(self, connection: RemotingConnection, before: str, group: str) -> None:
        """Count a connection for an identity; empty: for itself."""
        if before in self._groups:
            self._groups[before].pop(connection, None)
            if not self._groups[before]:
                del self._groups[before]
        if group:
            self._groups.setdefault(group, {})[connection] = None

    def closed(self, connection: RemotingConnection, *, by_us: bool) -> None:
        """Unregister a connection."""
        self._connections.pop(connection, None)
        self.regroup(connection, connection.group, "")
        if self._stopping and not self._connections:
            self._all_closed.set()
        self._metrics.remoting.connections.set(len(self._connections))
        self._brokers.end(connection, by_us=by_us or self._stopping)

    def count_closed(self, cause: str, peer: str, problem: str = "") -> None:
        """Count why a connection was closed, and log it once per minute for each cause."""
        self._metrics.remoting.closed.labels(cause).inc()
        now = self.clock.monotonic()
        if cause not in {"not_serving", "idle", "stopping"} and now >= self._logged_at.get(cause, now):
            self._logged_at[cause] = now + LOG_EACH_SECONDS
            facts = {"cause": cause, "peer": peer} | ({"problem": problem} if problem else {})
            log.warning("remoting connection closed", extra={"facts": facts})

    def queue(self, connection: RemotingConnection, steps: Steps, opaque: bytes | None) -> None:
        """Queue work."""
        self._work.put_nowait((connection, steps, opaque))

    def wait_for(self, connection: RemotingConnection, change: Awaitable[ReadyResponse], opaque: bytes | None) -> None:
        """Respond after a change was saved. The change continues if the connection ends."""

        async def finish() -> None:
            try:
                connection.finish(await change, opaque)
            except Exception as error:  # noqa: BLE001  # it would otherwise stay paused
                connection.fail(error)

        task = asyncio.create_task(finish())
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)

    # --- background -------------------------------------------------------------------------------------------

    async def _work_off(self) -> None:
        """Do one slice per turn, of all connections in turn, with pauses."""
        while True:
            connection, steps, opaque = await self._work.get()
            if connection.is_closing:
                continue
            try:
                response = next(steps, None)
                if response is None:
                    self.queue(connection, steps, opaque)
                else:
                    connection.finish(response, opaque)
            except Exception as error:  # noqa: BLE001  # of one connection: the others are served
                connection.fail(error)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _close_idle(self) -> None:
        before = self.clock.monotonic()
        while True:
            await self.clock.sleep(POLL_INTERVAL_SECONDS)
            now = self.clock.monotonic()
            if self._handshakes is not None:
                self._handshakes.close_overdue()
            late = now - before - POLL_INTERVAL_SECONDS
            self.coming_in.close_overdue(now, late=late if late > LATE_SECONDS else 0.0)
            before = now
            for connection in list(self._connections):
                if now - connection.active_at > IDLE_SECONDS:
                    connection.abort("idle")

    def _close_revoked(self, revoked: Collection[Caller]) -> None:
        """Close the connections of certificates that are denied now."""
        gone = {id(caller) for caller in revoked}
        for connection in [each for each in self._connections if id(each.caller) in gone]:
            connection.abort("denied")

    def _send_clients_elsewhere(self) -> None:
        """Close the idle connections of clients on a draining node, so that they use the next address."""
        if self._lifecycle.state is NodeState.DRAINING:
            for connection in list(self._connections):
                if not connection.is_brokers and not connection.is_busy:
                    connection.close("not_serving")
