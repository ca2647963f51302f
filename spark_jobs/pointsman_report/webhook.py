"""Post a message to a webhook: a few attempts within a deadline, and no part of the URL's path in any error.

The path and the query of a webhook's URL are its password, so errors name only the scheme and the host.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from threading import Thread
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPErrorProcessor, Request, build_opener

from pointsman_report.report_errors import one_line

RETRIED = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
"""Client errors after which another attempt may succeed; server errors are retried too."""


class PostError(Exception):
    """No attempt succeeded; the message has the place, the last problem and the number of attempts."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a post may take; the last attempt gets what remains of the deadline."""

    attempts: int = 3
    attempt_seconds: float = 10.0
    deadline_seconds: float = 30.0
    pauses_seconds: tuple[float, ...] = (1.0, 4.0)
    """Pause after the first attempt, after the second, and so on."""


@dataclass(frozen=True, slots=True)
class _Failure:
    text: str
    is_retried: bool = True


class _AnyStatus(HTTPErrorProcessor):
    """Returns every response: redirects are not followed, errors are not raised."""

    def http_response(self, request: Request, response: HTTPResponse) -> HTTPResponse:
        del request
        return response

    https_response = http_response


def url_problem(url: str) -> str | None:
    """Return what is wrong with the URL, without quoting it; None if it can be used."""
    if not (url.isascii() and url.isprintable()) or " " in url:
        return "contains spaces or characters that are not ASCII"
    try:
        parts = urlsplit(url)
        is_complete = bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_complete = False
    if not is_complete or parts.scheme not in ("http", "https"):
        return "is not a URL such as https://chat.example.com/hooks/..."
    return "contains a user name or password, which is not supported" if "@" in parts.netloc else None


def place(url: str) -> str:
    """Return the scheme and the host."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def post(
    url: str,
    body: bytes,
    *,
    limits: Limits | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Post JSON to a URL without a `url_problem`, and return the number of attempts.

    Raises:
        PostError: no attempt was answered with a status from 200 to 299.
    """
    limits = limits or Limits()
    ends_at = clock() + limits.deadline_seconds
    attempt = 0
    while True:
        attempt += 1
        failure = _attempt(url, body, min(limits.attempt_seconds, ends_at - clock()))
        if failure is None:
            return attempt
        if not failure.is_retried or attempt == limits.attempts:
            break
        pause = limits.pauses_seconds[attempt - 1]
        if clock() + pause >= ends_at:
            break
        sleep(pause)
    raise PostError(f"{place(url)}: {failure.text}, attempts: {attempt}")


def _attempt(url: str, body: bytes, seconds: float) -> _Failure | None:
    # The timeout of a socket is that of one operation: name lookups and slow responses may take longer.
    ended: list[_Failure | None] = []
    thread = Thread(target=lambda: ended.append(_send(url, body, seconds)), name="webhook", daemon=True)
    thread.start()
    thread.join(seconds)
    return ended[0] if ended else _late(seconds)


def _send(url: str, body: bytes, seconds: float) -> _Failure | None:
    headers = {"Content-Type": "application/json", "User-Agent": "pointsman-report"}
    request = Request(url, body, headers, method="POST")  # noqa: S310  # url_problem accepts only http and https
    try:
        with build_opener(_AnyStatus).open(request, timeout=seconds) as response:
            status = response.status
    except TimeoutError:
        return _late(seconds)
    except (OSError, HTTPException, ValueError) as error:
        cause = error.reason if isinstance(error, URLError) else error
        if isinstance(cause, TimeoutError):
            return _late(seconds)
        # Other errors may quote the URL.
        return _Failure(one_line(cause) if isinstance(cause, OSError) else type(cause).__name__)
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return None
    is_redirect = status < HTTPStatus.BAD_REQUEST
    text = f"HTTP status {status}" + (" (redirects are not followed)" if is_redirect else "")
    return _Failure(text, is_retried=status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in RETRIED)


def _late(seconds: float) -> _Failure:
    return _Failure(f"no response within {seconds:.3g} s")
