"""A small HTTP server in its threads, bounded in connections and in the time of each request.

For pages, metrics and lists that a machine or a person asks for now and then; not for the hot path.
"""

from __future__ import annotations

import contextlib
import io
import logging
import selectors
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any, TextIO
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from pointsman.clock import SystemClock
from pointsman.names import split_addr

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_SECONDS = 5.0
"""Longest wait for the next bytes of a request."""
WHOLE_REQUEST_SECONDS = 10.0
"""Longest time for one request; then the connection is closed, even if bytes still arrive."""
MAX_CONNECTIONS = 64
"""Each connection has a thread. For one more, the oldest without a complete request is closed, else the new one."""
STOP_TIMEOUT_SECONDS = 2.0
SERVER_NAME = "pointsman"
"""The Server header: no versions of Python and its library."""
POLL_SECONDS = 1.0
"""Interval of the check for slow connections; without connections the server sleeps."""


class CannotListen(Exception):
    """An address is in use, or not this machine's; the message names it."""


def bound_socket(listen: str) -> socket.socket:
    """Return a socket that is bound to host:port; port 0: a free one. Raises CannotListen."""
    host, port = split_addr(listen)
    bound: socket.socket | None = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, addr = found[0]
        # Without the protocol asyncio would not set TCP_NODELAY: a second small write then waits up to 40 ms.
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(addr)
    except OSError as error:
        if bound is not None:
            bound.close()
        raise CannotListen(f"cannot listen on {listen}: is it this machine's address, and free?") from error
    return bound


class _Server(ThreadingMixIn, WSGIServer):
    """The base's ``serve_forever`` polls for its end; this class is woken by a socket instead."""

    daemon_threads = True
    request_queue_size = 128
    timeout = 0
    """Timeout of ``handle_request``, which is called when a client is connecting."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  # the base's arguments
        self._clock = SystemClock()
        self.tls: Callable[[], ssl.SSLContext] | None = None
        self._open: dict[socket.socket, float] = {}
        self._asked: set[socket.socket] = set()
        """Connections whose request is being handled."""
        self._stopping, self._stop = socket.socketpair()
        super().__init__(*args, **kwargs)

    def serve_until_stopped(self) -> None:
        """Serve until :meth:`stop_serving`."""
        with selectors.DefaultSelector() as selector:
            selector.register(self, selectors.EVENT_READ)
            selector.register(self._stopping, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select(POLL_SECONDS if self._open else None)]
                if self._stopping in ready:
                    return
                if ready:
                    self.handle_request()
                self._close_slow()

    def stop_serving(self) -> None:
        """End :meth:`serve_until_stopped` from another thread."""
        self._stop.send(b".")

    def server_close(self) -> None:
        super().server_close()
        self._stopping.close()
        self._stop.close()

    def get_request(self) -> tuple[Any, Any]:
        request, client_address = super().get_request()
        if self.tls is not None:
            request = self.tls().wrap_socket(request, server_side=True, do_handshake_on_connect=False)
        return request, client_address

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # the base's signature
        if len(self._open) >= MAX_CONNECTIONS and not self._close_oldest_silent():
            super().shutdown_request(request)
            return
        self._open[request] = self._clock.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401  # as above
        self._open.pop(request, None)
        self._asked.discard(request)
        super().shutdown_request(request)

    def note_request(self, request: socket.socket) -> None:
        """Note that a connection has sent its complete request."""
        self._asked.add(request)

    def _close_oldest_silent(self) -> bool:
        for request in list(self._open):
            if request not in self._asked:
                self._open.pop(request, None)
                _shut_down(request)
                return True
        return False

    def _close_slow(self) -> None:
        now = self._clock.monotonic()
        for request, since in list(self._open.items()):
            if now - since > WHOLE_REQUEST_SECONDS:
                _shut_down(request)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's waits for DNS to look up the name of this machine
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002  # the base's signature
        log.debug("an HTTP connection ended early: %s", sys.exc_info()[1])


def _shut_down(request: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it ended in between
        socket.socket.shutdown(request, socket.SHUT_RDWR)  # TLS's own would take state from the reading thread


class _Server6(_Server):
    address_family = socket.AF_INET6


class _ToLog(io.StringIO):
    """Receives wsgiref's tracebacks, most of them of clients that do not read the response."""

    def write(self, text: str) -> int:
        log.debug("an HTTP request failed: %s", text)
        return len(text)


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_TIMEOUT_SECONDS
    server: _Server
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(code)d %(message)s\n"

    def setup(self) -> None:
        if isinstance(self.request, ssl.SSLSocket):
            self.request.settimeout(self.timeout)
            self.request.do_handshake()
        super().setup()

    def parse_request(self) -> bool:
        is_whole = super().parse_request()
        if is_whole:
            self.server.note_request(self.request)
        return is_whole

    def version_string(self) -> str:
        return SERVER_NAME

    def get_stderr(self) -> TextIO:
        return _ToLog()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
        """Do not log requests."""


class HttpServer:
    """Serves ``answer`` until :meth:`stop`, in the thread of each connection.

    ``listen`` is host:port; port 0 picks a free one, see :attr:`port`. ``what`` it is for, in errors and as the name of
    its thread. ``tls``: returns the context of the next handshake; None: plaintext. Raises CannotListen.
    """

    def __init__(
        self,
        listen: str,
        answer: WSGIApplication,
        *,
        what: str,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        host, port = split_addr(listen)
        try:
            kind = _Server6 if ":" in host else _Server
            self._server = make_server(host, port, answer, kind, _Handler)
        except OSError as error:
            raise CannotListen(f"cannot listen on {listen} for {what}: {error.strerror or error}") from error
        self._server.tls = tls
        self._thread = threading.Thread(target=self._server.serve_until_stopped, name=what, daemon=True)

    @property
    def port(self) -> int:
        """Return the port it listens on."""
        return self._server.server_port

    def start(self) -> None:
        """Start serving."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving and free the port; blocks for at most two seconds."""
        if self._thread.is_alive():
            self._server.stop_serving()
            self._thread.join(STOP_TIMEOUT_SECONDS)
        self._server.server_close()
