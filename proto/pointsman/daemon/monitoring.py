"""HTTP: ``/metrics`` for Prometheus, ``/healthz`` for probes, and a daemon's other paths.

Runs in its own threads, so that a scrape of a large registry does not block the event loop.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, disable_created_metrics, make_wsgi_app

from pointsman.daemon.http_server import SERVER_NAME, HttpServer

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

HealthCheck = Callable[[], tuple[bool, dict[str, object]]]
"""Returns whether the daemon is healthy, and facts for operators. Called from another thread: it may only read."""


class MonitoringServer(HttpServer):
    """An HTTP server for metrics and health. Raises CannotListen.

    ``site`` handles every other path, in the thread of each connection.
    """

    def __init__(
        self,
        listen: str,
        *,
        registry: CollectorRegistry,
        health: HealthCheck,
        tls: Callable[[], ssl.SSLContext] | None = None,
        site: WSGIApplication | None = None,
    ) -> None:
        # The "created" series: another one for each counter and histogram, which no alert or graph uses.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._metrics: WSGIApplication = make_wsgi_app(registry)
        self._health = health
        self._site = site or _no_site
        super().__init__(listen, self._answer, what="metrics and health", tls=tls)

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Callable[[bytes], object]:  # noqa: ANN401  # WSGI's
            return start_response(status, [*headers, ("Server", SERVER_NAME)], *error)

        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path not in {"/metrics", "/healthz"}:
            return self._site(environ, start)
        if method not in {"GET", "HEAD"}:
            start("405 Method Not Allowed", [("Allow", "GET, HEAD"), _TEXT])
            return [b"use GET or HEAD\n"]
        status, headers, body = self._measured(environ) if path == "/metrics" else self._healthz()
        start(status, [*headers, ("Content-Length", str(len(body)))])
        return [] if method == "HEAD" else [body]

    def _measured(self, environ: WSGIEnvironment) -> tuple[str, list[tuple[str, str]], bytes]:
        started: list[tuple[str, list[tuple[str, str]]]] = []

        def start(status: str, headers: list[tuple[str, str]], *_error: object) -> Callable[[bytes], object]:
            started.append((status, headers))
            return lambda _: None

        body = b"".join(self._metrics({**environ, "REQUEST_METHOD": "GET"}, start))
        return (*started[0], body)

    def _healthz(self) -> tuple[str, list[tuple[str, str]], bytes]:
        healthy, facts = self._health()
        body = json.dumps({"healthy": healthy} | facts).encode() + b"\n"
        return "200 OK" if healthy else "503 Service Unavailable", [("Content-Type", "application/json")], body


_TEXT = ("Content-Type", "text/plain; charset=utf-8")


def _no_site(_environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("404 Not Found", [_TEXT])
    return [b"Paths: /metrics and /healthz.\n"]
