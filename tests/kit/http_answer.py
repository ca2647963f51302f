"""One HTTP request, in a thread, and its answer with everything that came back."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class HttpAnswer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, str, str]:
        """Status, code and message of a refusal."""
        return self.status, self.document["error"]["code"], self.document["error"]["message"]


def ask_in_thread(
    port: int, path: str, method: str = "GET", headers: Mapping[str, str] | None = None, *, source: str = "127.0.0.1"
) -> HttpAnswer:
    """Send one request from this address; blocks."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS, source_address=(source, 0))
    try:
        connection.request(method, path, headers=dict(headers or {}))
        answer = connection.getresponse()
        return HttpAnswer(answer.status, dict(answer.getheaders()), answer.read())
    finally:
        connection.close()


async def ask(port: int, path: str, method: str = "GET", **headers: str) -> HttpAnswer:
    """Send one request to this machine."""
    return await asyncio.to_thread(ask_in_thread, port, path, method, headers)
