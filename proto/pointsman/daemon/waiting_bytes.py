"""Bytes that wait in connections of either wire: requests that are not complete, and responses that are not read.

Each kind has a bound for all connections of a wire together. At the bound the slowest connection is closed: the one
whose frame comes in at the lowest rate, or that has read nothing for longest. One that is fast only has to wait, so
peers that send half frames or read nothing keep out no broker, however many frames or topics it has. With grants, the
identity that holds most is the first to lose a connection.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sized
from typing import Any, Protocol

from pointsman.clock import Clock
from pointsman.http2.http2_stream import UnsentContents

COMING_IN_BYTES = 32 * 1024 * 1024
"""Bound on incomplete and waiting frames of all connections together; a wire may have another."""
MOST_COMING_IN = 1.5
"""How far beyond the bound fast connections may get before they have to wait. Beyond that the slowest is closed, even
if its frame began a moment ago: on a slow machine half frames are not old yet when honest ones arrive."""
ROOM_PART = 8
"""At the bound, slow connections are closed until this part of it is free."""
UNSENT_BYTES = 32 * 1024 * 1024
"""Bound on unread responses of all connections together; a wire may have another."""
FRAME_SECONDS, FIRST_BYTES, BYTES_PER_SECOND = 10.0, 64 * 1024, 32_000.0
"""A frame has this time for its first bytes, and must then arrive at this rate."""
SLOW_SECONDS = 1.0
"""Time after which an incomplete frame may be given up at the bound: one of a fast peer is complete by then."""
UNREAD_SECONDS = 0.25
"""The same for a response of which nothing was read."""
RELIEF_SECONDS = 0.25
"""Interval at which connections that wait for room are looked at."""


class ReadingTime:
    """For how long a connection was read since its incomplete frame began. Pauses by this server do not count."""

    __slots__ = ("_paused_at", "since")

    def __init__(self) -> None:
        self.since: float | None = None
        """When the incomplete frame began; None: there is none."""
        self._paused_at: float | None = None

    @property
    def is_running(self) -> bool:
        """Return whether a frame is incomplete and the connection is read."""
        return self.since is not None and self._paused_at is None

    def pause(self, now: float) -> None:
        """Do not count from now on."""
        if self._paused_at is None:
            self._paused_at = now

    def go_on(self, now: float) -> None:
        """Count again."""
        if self._paused_at is not None:
            self.credit(now - self._paused_at)
            self._paused_at = None

    def credit(self, seconds: float) -> None:
        """Do not count this time, in which the connection was not read."""
        if self.since is not None:
            self.since += seconds

    def seconds(self, now: float) -> float:
        """Return the time of the incomplete frame; 0 without one, or while the connection is not read."""
        return max(0.0, now - self.since) if self.since is not None and self._paused_at is None else 0.0

    def is_overdue(self, received: int, now: float) -> bool:
        """Return whether a frame with ``received`` bytes takes too long."""
        return is_overdue(self.seconds(now), received)


def is_overdue(seconds: float, received: int) -> bool:
    """Return whether a frame with ``received`` bytes takes too long."""
    return seconds > FRAME_SECONDS + max(0, received - FIRST_BYTES) / BYTES_PER_SECOND


class Waiting(Protocol):
    """A connection as these bounds need it."""

    group: str
    """The identity that it counts for; empty: itself."""
    reading: ReadingTime
    unread_since: float
    """When its peer last read, while :attr:`unsent` is not 0."""
    unsent: int
    """Unread bytes, while it is paused for them."""

    @property
    def held(self) -> Mapping[Any, None]:
        """Return the brokers that it holds: then it is the last to be closed."""

    @property
    def waiting(self) -> int:
        """Return the bytes of its incomplete frame."""

    def hold(self) -> None:
        """Stop reading until :meth:`go_on`."""

    def go_on(self) -> None:
        """Read again, after :meth:`hold`."""

    def abort(self, cause: str) -> None:
        """Close it immediately."""


class ComingIn:
    """Incomplete frames. :meth:`run` must run; ``count_limit`` counts connections that were closed at the bound."""

    def __init__(self, clock: Clock, count_limit: Callable[[], None], *, bound: int = COMING_IN_BYTES) -> None:
        self.total = 0
        self.bound = bound
        self._clock = clock
        self._count_limit = count_limit
        self._incomplete: dict[Waiting, None] = {}
        self._held: dict[Waiting, None] = {}
        """Connections that wait for room, in this order."""
        self._is_at_bound = asyncio.Event()

    def note(self, connection: Waiting, by: int) -> None:
        """Count bytes that came in, or with a negative number those that were handled."""
        self.total += by
        if connection.waiting:
            self._incomplete[connection] = None
        else:
            self._incomplete.pop(connection, None)
            self._read_again(connection)
        if by < 0:
            if self._held and self.total <= self.bound:
                self._read_again(next(iter(self._held)))
        elif self.total > self.bound:
            self._is_at_bound.set()
            self._relieve()
            self._relieve(is_urgent=True)
            if self.total > self.bound * MOST_COMING_IN:
                self._count_limit()
                connection.abort("limit")
            elif self.total > self.bound and self._is_another_read(connection):
                self._hold(connection)

    async def run(self) -> None:
        """Look at the connections that wait for room, until cancelled."""
        while True:
            while not self._held and self.total <= self.bound:
                self._is_at_bound.clear()
                await self._is_at_bound.wait()
            await self._clock.sleep(RELIEF_SECONDS)
            self._relieve()
            # All of them: one that sends nothing more is slow some time later.
            for connection in list(self._held):
                self._read_again(connection)

    def close_overdue(self, now: float, *, late: float) -> None:
        """Close connections whose frame takes too long. ``late``: time in which this process did not run."""
        for connection in list(self._incomplete):
            connection.reading.credit(late)
            if connection.reading.is_overdue(connection.waiting, now):
                connection.abort("slow")

    def _relieve(self, *, is_urgent: bool = False) -> None:
        """At the bound, close slow connections until there is room, or none of them is left.

        ``is_urgent``: at the most that may come in, and the slowest, however short.
        """
        now = self._clock.monotonic()
        most = self.bound * MOST_COMING_IN if is_urgent else self.bound
        enough = most if is_urgent else most - self.bound // ROOM_PART
        slow_seconds = 0.0 if is_urgent else SLOW_SECONDS
        while self.total > most:
            seconds = {each: each.reading.seconds(now) for each in self._incomplete}
            slow = {each: each.waiting for each, passed in seconds.items() if passed > 0.0 and passed >= slow_seconds}
            if not slow:
                return
            rates = {each: (bool(each.held), each.waiting / seconds[each]) for each in _of_the_greatest(slow)}
            for each in sorted(rates, key=rates.__getitem__):
                self._count_limit()
                each.abort("limit")
                if self.total <= enough:
                    return

    def _is_another_read(self, connection: Waiting) -> bool:
        """Return whether another connection with an incomplete frame is read: one always is."""
        return connection in self._incomplete and any(
            each.reading.is_running for each in self._incomplete if each is not connection
        )

    def _hold(self, connection: Waiting) -> None:
        self._held[connection] = None
        connection.hold()

    def _read_again(self, connection: Waiting) -> None:
        if self._held.pop(connection, connection) is None:
            connection.go_on()


class Unsent:
    """Responses that are not read: what transports have buffered, and contents of which the rest is kept."""

    def __init__(
        self,
        clock: Clock,
        count_limit: Callable[[], None],
        *,
        bound: int = UNSENT_BYTES,
        contents: UnsentContents | None = None,
    ) -> None:
        """``contents``: what is kept; who keeps and drops there calls :meth:`note`."""
        self.bound = bound
        self.contents = contents or UnsentContents()
        self._clock = clock
        self._count_limit = count_limit
        self._buffered = 0
        self._unread: dict[Waiting, None] = {}

    @property
    def total(self) -> int:
        """Return the bytes of all connections; connections share contents."""
        return self._buffered + self.contents.bytes

    def note(self, connection: Waiting, by: int) -> None:
        """Count unread bytes of a connection, or with a negative number those that were read."""
        self._buffered += by
        if connection.unsent:
            self._unread[connection] = None
        else:
            self._unread.pop(connection, None)
        if by >= 0 and self.total > self.bound:
            self._relieve(connection)

    def keep(self, connection: Waiting, content: Sized) -> None:
        """Count a response that is sent in parts; connections share its bytes."""
        self.contents.keep(content)
        if self.total > self.bound:
            self._relieve(connection)

    def drop(self, content: Sized) -> None:
        """The opposite of :meth:`keep`."""
        self.contents.drop(content)

    def _relieve(self, newcomer: Waiting) -> None:
        now = self._clock.monotonic()
        while self.total > self.bound:
            stale = {each: each.unsent for each in self._unread if now - each.unread_since >= UNREAD_SECONDS}
            least = min(_of_the_greatest(stale), key=lambda each: each.unread_since, default=newcomer)
            self._count_limit()
            least.abort("limit")
            if least is newcomer:
                return


def _of_the_greatest(amounts: Mapping[Waiting, int]) -> list[Waiting]:
    """Return the connections of the identity that holds most; those without an identity count together."""
    sums = Counter[str]()
    for each, amount in amounts.items():
        sums[each.group] += amount
    greatest = max(sums, key=sums.__getitem__, default="")
    return [each for each in amounts if each.group == greatest]
