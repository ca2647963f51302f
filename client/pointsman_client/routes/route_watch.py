"""Subscribers to route changes: callbacks, and iterators whose memory a slow reader cannot exhaust."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable

from pointsman_client.aio import Callbacks
from pointsman_client.core.route import RouteChange, TopicRoute

RouteChangeCallback = Callable[[RouteChange], None]


class RouteChanges:
    """Async iterator over one topic's route: first the current one, then each change; ends when the client closes.

    A removed topic is a change whose ``new`` is None; when it returns, ``old`` is None. The cached route is compared
    with the last one returned, so a slow reader gets the latest route, not a backlog. The topic is watched and polled
    while the iterator is referenced.
    """

    def __init__(
        self, topic: str, *, current: Callable[[], TopicRoute | None], look_up: Callable[[], Awaitable[object]]
    ) -> None:
        self.topic = topic
        self._current = current
        self._look_up = look_up
        self._last: TopicRoute | None = None
        self._first = True
        self._woken = asyncio.Event()
        self._closed = False

    def __aiter__(self) -> RouteChanges:
        return self

    async def __anext__(self) -> RouteChange:
        if self._first:
            self._first = False
            await self._look_up()
        while not self._closed:
            self._woken.clear()
            old, route = self._last, self._current()
            is_same = old is route if old is None or route is None else route.is_same_as(old)
            if not is_same:
                self._last = route
                return RouteChange(self.topic, old, route)
            await self._woken.wait()
        raise StopAsyncIteration

    def close(self) -> None:
        """End the iteration."""
        self._closed = True
        self._woken.set()

    def wake(self) -> None:
        """Let the reader compare again."""
        self._woken.set()

    @property
    def is_closed(self) -> bool:
        """Whether the iteration has ended."""
        return self._closed


class RouteWatch:
    """The callbacks and iterators of one client."""

    def __init__(self) -> None:
        self._callbacks: Callbacks[RouteChange] = Callbacks()
        # Weak: the topic of an iterator that the application dropped is no longer polled.
        self._readers: weakref.WeakSet[RouteChanges] = weakref.WeakSet()

    def on_change(self, callback: RouteChangeCallback) -> Callable[[], None]:
        """Add a callback for all topics; return the function that removes it."""
        return self._callbacks.add(callback)

    def add(self, reader: RouteChanges) -> None:
        """Notify an iterator while it is referenced."""
        self._readers.add(reader)

    def topics(self) -> set[str]:
        """Topics with an open iterator."""
        return {reader.topic for reader in self._readers if not reader.is_closed}

    def announce(self, change: RouteChange) -> None:
        """Notify callbacks and the topic's iterators."""
        self._callbacks.notify(change)
        for reader in list(self._readers):
            if reader.topic == change.topic:
                reader.wake()

    def close(self) -> None:
        """End every iteration."""
        for reader in list(self._readers):
            reader.close()
