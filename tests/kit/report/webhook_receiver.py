"""A webhook on loopback: a real HTTP server that answers as it is set, and keeps what it received."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from unittest.mock import patch

SECRET = "T024-hook-secret"
HANGS, CLOSES, DRIPS = 0, -1, -2
"""In place of a status: no response, a connection that is closed without one, and a response of a byte every 50 ms."""


@dataclass
class Receiver:
    """Answers each request with the next status, and all later ones with the last."""

    statuses: list[int] = field(default_factory=lambda: [200])
    received: list[tuple[str, str, bytes]] = field(default_factory=list)
    """Path, content type and body of each request."""
    ended: Event = field(default_factory=Event)
    port: int = 0

    @property
    def place(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.place}/hooks/{SECRET}?token={SECRET}"


@contextmanager
def receiving() -> Iterator[Receiver]:
    made = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            made.received.append((self.path, self.headers["Content-Type"], body))
            status = made.statuses[min(len(made.received), len(made.statuses)) - 1]
            if status == HANGS:
                made.ended.wait(30)
            if status == DRIPS:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                for _ in range(60):
                    if made.ended.wait(0.05):
                        break
                    self.wfile.write(b"x")
            if status in (HANGS, CLOSES, DRIPS):
                self.close_connection = True
                return
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", f"{made.place}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            # A followed redirect comes as a GET.
            self.do_POST()

        def log_message(self, *_: object) -> None:
            """Write nothing on standard error."""

    with (
        patch.dict("os.environ", {"no_proxy": "127.0.0.1"}),
        ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server,
    ):
        made.port = server.server_port
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield made
        finally:
            made.ended.set()
            server.shutdown()
            thread.join()
