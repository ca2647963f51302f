"""An address server that answers as a test says."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class ListServer:
    """Answers every request with these bytes, or what ``send`` does in their place."""

    def __init__(self) -> None:
        self.status, self.body, self.location = 200, b"10.0.0.2:9876;10.0.0.1:9876", ""
        self.send: Callable[[BaseHTTPRequestHandler], None] | None = None
        self.asked: list[str] = []
        of = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                of.asked.append(self.path)
                (of.send or of.send_list)(self)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/rocketmq/nsaddr-grpc?nofix=1"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def send_list(self, handler: BaseHTTPRequestHandler) -> None:
        """Send the list."""
        handler.send_response(self.status)
        if self.location:
            handler.send_header("Location", self.location)
        handler.end_headers()
        handler.wfile.write(self.body)

    def stop(self) -> None:
        """Free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
