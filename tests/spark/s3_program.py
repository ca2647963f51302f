"""An S3 API that is worse than S3: ``python s3_program.py LOG``, with moto's server. It prints its port.

Copies, of which Hadoop makes its moves, are refused. A listing lacks objects that were written less than `LAG_SECONDS`
ago, except those of S3A's committer, which needs a consistent store. ``LOG`` has a line for each request: its method
and path.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import unquote

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

LAG_SECONDS = 2.0
_CONTENTS = re.compile(rb"<Contents>.*?<Key>(.*?)</Key>.*?</Contents>", re.DOTALL)

Environ = dict[str, Any]
App = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]


class WorseStore:
    """Wraps moto's application."""

    def __init__(self, app: App, log: str) -> None:
        self._app = app
        self._log = log
        self._written: dict[str, float] = {}

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], unquote(environ["PATH_INFO"])
        with open(self._log, "a", encoding="utf-8") as log:
            log.write(f"{method} {path}\n")
        if "HTTP_X_AMZ_COPY_SOURCE" in environ:
            start_response("501 Not Implemented", [("Content-Length", "0")])
            return [b""]
        if method in {"PUT", "POST"}:
            self._written[path] = time.monotonic()
        if method == "GET" and "list-type" in environ["QUERY_STRING"]:
            return self._listing(environ, start_response, path.strip("/"))
        return self._app(environ, start_response)

    def _listing(self, environ: Environ, start_response: Callable[..., Any], bucket: str) -> Iterable[bytes]:
        answered: list[Any] = []
        body = b"".join(self._app(environ, lambda *given: answered.extend(given)))
        since = time.monotonic() - LAG_SECONDS

        def shown(found: re.Match[bytes]) -> bytes:
            key = found[1].decode()
            is_new = self._written.get(f"/{bucket}/{key}", 0.0) > since and "__magic" not in key
            return b"" if is_new else found[0]

        body = _CONTENTS.sub(shown, body)
        status, headers = answered[0], [each for each in answered[1] if each[0].lower() != "content-length"]
        start_response(status, [*headers, ("Content-Length", str(len(body)))])
        return [body]


class Quiet(WSGIRequestHandler):  # type: ignore[misc, unused-ignore]  # only with flask is it installed here
    """Writes no second log; keeps connections open."""

    protocol_version = "HTTP/1.1"

    def log(self, *_: Any) -> None:
        """Drop a line."""


if __name__ == "__main__":
    app = WorseStore(DomainDispatcherApplication(create_backend_app), sys.argv[1])
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    print(server.server_port, flush=True)
    server.serve_forever()
