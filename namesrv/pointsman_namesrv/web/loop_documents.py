"""Documents built in the event loop and served by threads: each at most once per second, one at a time, in slices.

JSON is encoded here; what the pages are made of is handed over as it is.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass

from pointsman.clock import Clock
from pointsman.wire.refusals import NotReady, Refusal
from pointsman_namesrv.slices import PAUSE_SECONDS, Slices

FRESH_SECONDS = 1.0
"""Shortest time for which a document is served without a rebuild."""
FRESH_FOR_EACH_BUILT = 10.0
"""Validity of a document, as a multiple of its build time: polled all the time, it uses a tenth of the loop."""
SLOW_PAUSE_SECONDS = 0.004
SLOW_FRESH_FOR_EACH_BUILT = 30.0
"""The same for documents that take seconds: a query finds the loop idle between two slices, and the loop is busy with
them for a thirtieth of its time."""
LONGEST_PAUSE_SECONDS = 0.05
PAUSE_FOR_EACH_BUILT = 4.0
"""Pause after each build, as a multiple of its time: many different small documents use a fifth of the loop."""
MAX_WAITING = 16
"""Requests that may wait for the loop."""
WAIT_SECONDS = 8.0
MAX_KEPT = 64
MAX_BYTES = 16 * 1024 * 1024
"""Size of one document, and of all that are cached."""


@dataclass(frozen=True, slots=True)
class Query:
    """Path and parameters of a request."""

    kind: str
    parameters: tuple[tuple[str, str], ...] = ()

    def text(self, name: str) -> str:
        """Return a parameter; empty if it is missing."""
        return dict(self.parameters).get(name, "")


class TooManyRequests(Refusal):
    """Too many requests wait for the loop, or it is too busy to respond in time."""

    code = "TOO_MANY_REQUESTS"
    status = "UNAVAILABLE"


class DocumentTooLarge(Refusal):
    """A document is larger than the limit over HTTP."""

    code = "DOCUMENT_TOO_LARGE"
    status = "INVALID_ARGUMENT"

    def __init__(self) -> None:
        super().__init__(
            f"the document is larger than {MAX_BYTES >> 20} MiB; request one cluster with ?cluster=NAME, "
            "or use pointsmanctl, which reads in pages"
        )


@dataclass(frozen=True, slots=True)
class Handed:
    """An object for the HTTP threads, which only read it; never changed after it is handed over."""

    value: object
    size: int
    """Estimated bytes that it takes apart from what it shares with the core."""
    fresh_seconds: float = FRESH_SECONDS


Pause = Callable[[], Awaitable[None]]
"""Awaited between two steps of a build: yields to other tasks when the slice is over."""
Build = Callable[[Query, Pause], Awaitable[object]]
"""Returns a JSON value in which iterators stand for lists that are built later, or what is handed over. Raises
Refusal."""


@dataclass(frozen=True, slots=True)
class _Kept:
    response: bytes | Handed | Refusal
    size: int
    until: float


class LoopDocuments:
    """Documents built in the event loop; :meth:`get` is for other threads."""

    def __init__(self, build: Build, *, clock: Clock, slow: Collection[str] = ()) -> None:
        """``slow``: kinds that may take seconds; they are built beside the others."""
        self._build = build
        self._slow = frozenset(slow)
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._kept: OrderedDict[Query, _Kept] = OrderedDict()
        self._one_at_a_time = asyncio.Lock()
        self._slow_one_at_a_time = asyncio.Lock()
        self._paused_until = 0.0
        self._waiting = threading.Semaphore(MAX_WAITING)
        self._requested: dict[Query, concurrent.futures.Future[_Kept]] = {}

    def get(self, query: Query) -> bytes | Refusal:
        """Return the document, or the refusal; blocks for at most WAIT_SECONDS.

        Raises TooManyRequests, and NotReady while the loop stops.
        """
        response = self._response(query)
        assert not isinstance(response, Handed)  # noqa: S101  # the query's kind decides
        return response

    def view(self, query: Query) -> object:
        """Return what is handed over for a query; blocks likewise.

        Raises the refusal of the build, TooManyRequests, and NotReady while the loop stops.
        """
        response = self._response(query)
        if isinstance(response, Refusal):
            raise response
        assert isinstance(response, Handed)  # noqa: S101  # as above
        return response.value

    def latest(self, query: Query, *, within: float) -> object:
        """Return what was handed over last, of any age, while the next is built; None: nothing within some seconds.

        Only the first that asks for it waits. Raises NotReady while the loop stops.
        """
        kept = self._kept.get(query)
        is_fresh, is_begun = self._fresh(query) is not None, query in self._requested
        try:
            if kept is None or not is_fresh:
                kept = self._from_loop(query, within=0.0 if kept is not None or is_begun else within)
        except TooManyRequests:
            pass
        return kept.response.value if kept is not None and isinstance(kept.response, Handed) else None

    def _response(self, query: Query) -> bytes | Handed | Refusal:
        kept = self._fresh(query)
        return (kept if kept is not None else self._from_loop(query)).response

    def _from_loop(self, query: Query, *, within: float | None = None) -> _Kept:
        future = self._requested.get(query) or self._request(query)
        try:
            return future.result(WAIT_SECONDS if within is None else within)
        except concurrent.futures.CancelledError:
            raise NotReady("this name server is stopping; use another one") from None
        except TimeoutError:
            raise TooManyRequests(f"the document was not ready within {WAIT_SECONDS:g} s; retry") from None

    def _request(self, query: Query) -> concurrent.futures.Future[_Kept]:
        """Have the loop build a document. Requests for the same one wait for it together."""
        if not self._waiting.acquire(blocking=False):
            raise TooManyRequests(f"{MAX_WAITING} requests wait for a document already; try again in a second")
        made = self._made(query)
        try:
            future = asyncio.run_coroutine_threadsafe(made, self._loop)
        except RuntimeError:  # the loop is closed
            made.close()
            self._waiting.release()
            raise NotReady("this name server is stopping; use another one") from None

        def end(_: object) -> None:
            self._requested.pop(query, None)
            self._waiting.release()

        # Not cancelled when the thread stops waiting: the result is cached for the next request.
        self._requested[query] = future
        future.add_done_callback(end)
        return future

    def _fresh(self, query: Query) -> _Kept | None:
        kept = self._kept.get(query)
        return kept if kept is not None and self._clock.monotonic() < kept.until else None

    async def _made(self, query: Query) -> _Kept:
        async with self._slow_one_at_a_time if query.kind in self._slow else self._one_at_a_time:
            if (kept := self._fresh(query)) is not None:
                return kept
            await self._clock.sleep(self._paused_until - self._clock.monotonic())
            is_slow = query.kind in self._slow
            slices = Slices(self._clock, pause=SLOW_PAUSE_SECONDS if is_slow else PAUSE_SECONDS)
            response: bytes | Handed | Refusal
            fresh_seconds = FRESH_SECONDS
            try:
                built = await self._build(query, slices.pause)
                response = built if isinstance(built, Handed) else await _encoded(built, slices)
            except Refusal as refusal:
                response = refusal.with_traceback(None)
            worked, now = slices.worked(), self._clock.monotonic()
            self._paused_until = now + min(LONGEST_PAUSE_SECONDS, PAUSE_FOR_EACH_BUILT * worked)
            size = len(response) if isinstance(response, bytes) else 0
            if isinstance(response, Handed):
                size, fresh_seconds = response.size, response.fresh_seconds
            share = SLOW_FRESH_FOR_EACH_BUILT if is_slow else FRESH_FOR_EACH_BUILT
            kept = _Kept(response, size, now + max(fresh_seconds, share * worked))
            self._keep(query, kept)
            return kept

    def _keep(self, query: Query, kept: _Kept) -> None:
        self._kept.pop(query, None)
        self._kept[query] = kept
        while len(self._kept) > MAX_KEPT or sum(each.size for each in self._kept.values()) > MAX_BYTES:
            self._kept.popitem(last=False)


async def _encoded(document: object, slices: Slices) -> bytes:
    parts, size = list[bytes](), 0
    for text in json_texts(document):
        parts.append(text.encode())
        size += len(text)
        if size > MAX_BYTES:
            raise DocumentTooLarge
        await slices.pause()
    return b"".join([*parts, b"\n"])


def json_texts(value: object) -> Iterator[str]:
    """Encode JSON in parts. Iterators become lists, item by item; ASCII only, safe on a terminal."""
    if isinstance(value, dict):
        for position, (key, inner) in enumerate(value.items()):
            yield f"{',' if position else '{'}{json.dumps(key)}:"
            yield from json_texts(inner)
        yield "}" if value else "{}"
    elif isinstance(value, list):
        yield "["
        for position, inner in enumerate(value):
            if position:
                yield ","
            yield from json_texts(inner)
        yield "]"
    elif isinstance(value, Iterator):
        yield "["
        for position, inner in enumerate(value):
            yield f"{',' if position else ''}{json.dumps(inner)}"
        yield "]"
    else:
        yield json.dumps(value)
