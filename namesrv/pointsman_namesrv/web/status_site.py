"""WSGI application of the pages and ``/v1``; runs in the HTTP threads."""

from __future__ import annotations

import json
import logging
import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote

from pointsman.daemon.access.access import Caller
from pointsman.wire.refusals import FieldViolation, InvalidRequest, NotReady, Refusal, shown
from pointsman_namesrv.history.past_turns import Asker
from pointsman_namesrv.web.loop_documents import LoopDocuments, Query, json_texts
from pointsman_namesrv.web.page_query import PageQuery
from pointsman_namesrv.web.page_rendering import PAGE_POLICY, rendered_error
from pointsman_namesrv.web.page_source import PresentSource
from pointsman_namesrv.web.pages import PAGES, page_at
from pointsman_namesrv.web.past_documents import PAST_PATHS, past_path_at
from pointsman_namesrv.web.past_source import PastSource

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

Authorise = Callable[[str | None, str, str, str], Caller | None]
"""Takes the header ``Authorization``, the gRPC method of a path, the header ``Host`` and the caller's address, and
returns the caller; None where everything is open. Raises Refusal."""

log = logging.getLogger(__name__)

ROUTES = "/v1/routes/"
MAX_PARAMETERS = 12
_STATUS_LINES = {
    "INVALID_ARGUMENT": "400 Bad Request",
    "UNAUTHENTICATED": "401 Unauthorized",
    "PERMISSION_DENIED": "403 Forbidden",
    "NOT_FOUND": "404 Not Found",
    "FAILED_PRECONDITION": "400 Bad Request",
    "UNIMPLEMENTED": "405 Method Not Allowed",
    "RESOURCE_EXHAUSTED": "503 Service Unavailable",
    "UNAVAILABLE": "503 Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class _Path:
    method: str
    """The gRPC method: a caller may read this path if it may call the method."""
    parameters: tuple[str, ...] = ()


_JSON: Mapping[str, _Path] = {
    "/v1/status": _Path("ListBrokers", ("search",)),
    "/v1/brokers": _Path("ListBrokers", ("cluster",)),
    "/v1/clusters": _Path("GetClusterInfo", ("cluster",)),
    "/v1/events": _Path("ListBrokerEvents", ("cluster", "broker", "limit")),
    "/v1/groups": _Path("ListLiveQueues", ("cluster", "topic", "limit")),
    "/v1/queues": _Path("ListLiveQueues", ("cluster", "topic", "limit")),
    ROUTES: _Path("GetTopicRoute", ("cluster", "zone")),
}
_OTHERS = ("/metrics", "/healthz")
LISTED = (*(page.listed for page in PAGES), *_JSON, *PAST_PATHS, *_OTHERS)
OF_OBSERVERS = tuple(
    path
    for path in LISTED
    if not path.startswith(("/groups", "/changes", "/connected", "/v1/groups", "/v1/queues", "/v1/past/changes"))
)
"""Paths that an observer serves: it knows no groups, no changes by operators, and no connections."""


class PathNotFound(Refusal):
    """The path does not exist."""

    code = "PATH_NOT_FOUND"
    status = "NOT_FOUND"


class MethodNotAllowed(Refusal):
    """The paths are read-only."""

    code = "METHOD_NOT_ALLOWED"
    status = "UNIMPLEMENTED"


class BeyondLoopback(Refusal):
    """Other machines can reach the listener, and no configuration restricts who may read."""

    code = "BEYOND_LOOPBACK"
    status = "PERMISSION_DENIED"

    def __init__(self, listen: str) -> None:
        super().__init__(
            f"monitoring.listen is {listen}: beyond loopback the pages and /v1 need monitoring.tls = true and "
            "[[access.grants]], or tls.plaintext_beyond_loopback = true for a network you trust; or listen on 127.0.0.1"
        )


class OtherHost(Refusal):
    """A browser used another site's name for this server; that site could then read the response (DNS rebinding)."""

    code = "OTHER_HOST"
    status = "PERMISSION_DENIED"

    def __init__(self, host: str) -> None:
        super().__init__(
            f"the header Host is {shown(host)}: without [[access.grants]] the pages and /v1 are served for "
            "localhost, 127.0.0.1 or [::1] alone; a proxy must send one of these"
        )


class StatusSite:
    """A WSGI application. Until :attr:`documents` and :attr:`past` are set, it is NOT_READY."""

    def __init__(self, authorise: Authorise, listed: tuple[str, ...] = LISTED) -> None:
        """``listed``: the paths that it serves."""
        self._listed = listed
        self.documents: LoopDocuments | None = None
        self.past: PastSource | None = None
        self._authorise = authorise

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Respond to a request."""
        try:
            response = self._respond(environ)
        except Refusal as refusal:
            response = refusal
        except Exception as error:  # noqa: BLE001  # every error becomes a status
            response = _Fault(error)
        line, headers = "200 OK", list(_HEADERS)
        if isinstance(response, Refusal):
            line = _STATUS_LINES.get(response.status, "500 Internal Server Error")
            headers += _refused_headers(response)
            document = {"code": response.code, "message": str(response), "hint": ""}
            response = json.dumps({"error": document}).encode() + b"\n"
            if (html := self._refused_page(environ, line, document)) is not None:
                response = html
        is_page = isinstance(response, _Html)
        body = response.body if isinstance(response, _Html) else response
        headers += [
            ("Content-Type", "text/html; charset=utf-8" if is_page else "application/json"),
            ("Content-Length", str(len(body))),
            ("Content-Security-Policy", PAGE_POLICY if is_page else _JSON_POLICY),
        ]
        start_response(line, headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def _respond(self, environ: WSGIEnvironment) -> bytes | _Html | Refusal:
        # WSGI passes the bytes of a path as Latin-1.
        path = environ["PATH_INFO"].encode("latin-1", "replace").decode("utf-8", "replace")
        page, past = page_at(path), past_path_at(path)
        topic = path.removeprefix(ROUTES) if path.startswith(ROUTES) else ""
        found = _JSON.get(ROUTES if topic else path)
        served = path if topic == "" else ROUTES
        served = page[0].listed if page is not None else past[0].listed if past is not None else served
        if (found is None and page is None and past is None) or path == ROUTES or served not in self._listed:
            raise PathNotFound(f"unknown path {shown(path)}; use {', '.join(self._listed)}")
        if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
            raise MethodNotAllowed(f"{shown(environ['REQUEST_METHOD'])} is not allowed; use GET or HEAD")
        methods: tuple[str, ...] = ()
        allowed: tuple[str, ...] = ()
        if page is not None:
            methods, allowed = page[0].methods, page[0].parameters
        elif past is not None:
            methods, allowed = (past[0].method,), past[0].parameters
        elif found is not None:
            methods, allowed = (found.method,), found.parameters
        host, peer = environ.get("HTTP_HOST", ""), f"{environ.get('REMOTE_ADDR', '')} (HTTP)"
        asker = peer
        for method in methods:
            caller = self._authorise(environ.get("HTTP_AUTHORIZATION"), method, host, peer)
            asker = asker if caller is None else caller.identity
        parameters = _parameters(environ.get("QUERY_STRING", ""), allowed)
        if self.documents is None or self.past is None:
            raise NotReady("this name server is starting; retry in a second")
        query, source = PageQuery(quote(path), dict(parameters)), self.past.asked_by(Asker(asker, asker))
        if page is not None:
            of, names = page
            return _Html(of.html(PresentSource(self.documents, source), source, names, query))
        if past is not None:
            of_past, name = past
            return "".join((*json_texts(of_past.document(source, name, query)), "\n")).encode()
        if topic:
            return self.documents.get(Query("routes", (*parameters, ("topic", topic))))
        return self.documents.get(Query(path.removeprefix("/v1/"), parameters))

    def _refused_page(self, environ: WSGIEnvironment, line: str, document: Mapping[str, str]) -> _Html | None:
        """Return a refusal as a page, for a browser that asked for one; None: as JSON."""
        if "text/html" not in environ.get("HTTP_ACCEPT", "") or environ["PATH_INFO"].startswith("/v1"):
            return None
        return _Html(rendered_error(document["code"], line.partition(" ")[2], document["message"]))


@dataclass(frozen=True, slots=True)
class _Html:
    """A response that is a page."""

    body: bytes


class _Fault(Refusal):
    """A bug in this program: its text is only in the log."""

    code = "INTERNAL"
    status = "INTERNAL"

    def __init__(self, error: Exception) -> None:
        error_id = secrets.token_hex(8)
        super().__init__(f"internal error {error_id}")
        log.error("internal error while handling an HTTP request", exc_info=error, extra={"facts": {"id": error_id}})


def _parameters(query_string: str, allowed: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Parse the query string. Raises InvalidRequest."""
    try:
        given = parse_qsl(query_string, keep_blank_values=True, max_num_fields=MAX_PARAMETERS)
    except ValueError:
        raise InvalidRequest([FieldViolation("query", f"may have at most {MAX_PARAMETERS} parameters")]) from None
    faults = [
        FieldViolation(f"?{shown(name)}", f"is unknown here; known: {', '.join(allowed) or 'none'}")
        for name, _ in given
        if name not in allowed
    ]
    faults += [
        FieldViolation(f"?{name}", "is given twice") for name in allowed if [n for n, _ in given].count(name) > 1
    ]
    if faults:
        raise InvalidRequest(faults)
    return tuple(sorted((name, value) for name, value in given if value))


_JSON_POLICY = "default-src 'none'; frame-ancestors 'none'"
_HEADERS = (
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
)
_REFUSED_HEADERS = (
    ("UNIMPLEMENTED", "Allow", "GET, HEAD"),
    ("UNAUTHENTICATED", "WWW-Authenticate", 'Basic realm="pointsman"'),
    ("UNAVAILABLE", "Retry-After", "1"),
    ("RESOURCE_EXHAUSTED", "Retry-After", "1"),
)


def _refused_headers(refusal: Refusal) -> Iterator[tuple[str, str]]:
    wait = refusal.facts.get("retry_after_seconds", "")
    for status, name, value in _REFUSED_HEADERS:
        if status == refusal.status:
            yield name, str(math.ceil(float(wait))) if wait and name == "Retry-After" else value
