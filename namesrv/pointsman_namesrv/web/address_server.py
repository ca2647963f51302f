"""Lists of name servers for RocketMQ's brokers and clients, as a WSGI application (``DefaultTopAddressing``).

A path without a list is 404: clients take what comes with 200 for the list, even if it is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter

from pointsman import address_list
from pointsman_namesrv.core.kv import KvConfig

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_TEXT = ("Content-Type", "text/plain; charset=utf-8")


def address_lists(kv: KvConfig, registry: CollectorRegistry) -> WSGIApplication:
    """Return the application. It reads one key in another thread than the loop, which dictionaries allow."""
    requests = Counter(
        "pointsman_namesrv_address_list_requests",
        "Requests for a list of name servers, by result: sent, no_list, unknown_path",
        ["result"],
        registry=registry,
    )

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if method not in {"GET", "HEAD"}:
            return _send(start_response, method, "405 Method Not Allowed", "use GET or HEAD\n", ("Allow", "GET, HEAD"))
        key = path.removeprefix(address_list.PATH)
        unit = address_list.unit_of(key) if path != key else None
        if unit is None:
            requests.labels("unknown_path").inc()
            return _send(start_response, method, "404 Not Found", "paths: /rocketmq/nsaddr and /rocketmq/nsaddr-UNIT\n")
        text = kv.get(address_list.NAMESPACE, key)
        requests.labels("no_list" if text is None else "sent").inc()
        if text is None:
            option = f" --unit {unit}" if unit else ""
            hint = f"no list: set it with `pointsmanctl nsaddr set{option} HOST:PORT ...`\n"
            return _send(start_response, method, "404 Not Found", hint)
        return _send(start_response, method, "200 OK", text)

    return answer


def _send(
    start_response: Callable[..., object], method: str, status: str, text: str, *headers: tuple[str, str]
) -> Iterable[bytes]:
    body = text.encode()
    start_response(status, [_TEXT, ("Content-Length", str(len(body))), ("Cache-Control", "no-store"), *headers])
    return [] if method == "HEAD" else [body]
