"""What waits on one connection: requests whose end was not received or that no handler has taken, and unread responses.

It exists while something waits, and is what the bounds of the node (``waiting_bytes.py``) know of the connection. Times
are seconds of the server's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from pointsman.daemon.waiting_bytes import FRAME_SECONDS, ComingIn, ReadingTime, Unsent, is_overdue
from pointsman.http2.http2_connection import Http2Connection
from pointsman.http2.peer_limits import Bound

UNREAD_SECONDS: Final = 60.0
"""How long a response may wait while the client takes nothing of it."""
UNSENT_STREAM_BYTES: Final = 2_048
"""Memory of a stream whose response waits, without its content: such streams count, however little they send."""
FRAME: Final = 0
"""Stands for the frame or header block whose end was not received, among the streams with such messages."""


class WaitingOwner(Protocol):
    """What this needs of its connection."""

    http2: Http2Connection
    is_writable: bool
    """Whether the socket accepts more."""

    @property
    def buffered(self) -> int:
        """Bytes that the transport has not written."""

    def read_or_pause(self) -> None:
        """Read, or read nothing while this is held or the socket is full."""

    def end_slow(self, stream_id: int) -> None:
        """End a call whose request takes too long."""

    def end_unread(self, stream_id: int) -> None:
        """Reset a stream of whose response the client takes nothing."""

    def give_up(self, text: str, bound: Bound | None = None) -> None:
        """Close the connection, with a reason for its client, and count the bound."""


class _Message(NamedTuple):
    """One whose end was not received."""

    since: float
    size: int


class LaneWaiting:
    """Implements ``waiting_bytes.Waiting``."""

    held: Mapping[Any, None] = {}
    group = ""

    def __init__(self, owner: WaitingOwner, coming_in: ComingIn, unsent: Unsent) -> None:
        self.reading = ReadingTime()
        self.unread_since = 0.0
        self.unsent = 0
        self.waiting = 0
        """Bytes of all that is incomplete."""
        self.is_held = False
        self._owner = owner
        self._all_coming_in = coming_in
        self._all_unsent = unsent
        self._incomplete: dict[int, _Message] = {}
        """By stream; the one that began first is the first."""
        self._frame_since: float | None = None
        self._coming_in = 0
        """All bytes that handlers have not taken, those of incomplete messages included."""
        self._buffered = 0
        """What the transport had when that was known last."""
        self._own_unsent = 0
        """What is not read, without contents, which connections share."""
        self._unended: tuple[frozenset[int], float] | None = None
        """Requests that the client had not ended, though they were answered, and when that was."""
        self._paused_at: float | None = None
        self._heads: dict[int, tuple[memoryview, float]] = {}
        """Of each stream whose response waits its next part, and since when."""
        self._stuck: tuple[int, float] | None = None
        """While the socket is full: the bytes that wait for it, and since when there are as many."""

    @property
    def is_over(self) -> bool:
        """Return whether nothing waits."""
        return not (self._coming_in or self.unsent or self.is_held or self._unended)

    # --- what comes in ----------------------------------------------------------------------------------------

    def note_request(self, stream_id: int, by: int, incomplete: int, now: float, *, is_another: bool) -> None:
        """Count bytes of a request (``CallOwner.note_request``)."""
        before = self._incomplete.get(stream_id)
        if before is not None:
            self.waiting -= before.size
            if is_another or not incomplete:
                del self._incomplete[stream_id]
        if incomplete:
            since = now if before is None or is_another else before.since
            self._incomplete[stream_id] = _Message(since, incomplete)
            self.waiting += incomplete
        self.reading.since = next(iter(self._incomplete.values())).since if self._incomplete else None
        self._coming_in += by
        if by:
            self._all_coming_in.note(self, by)

    def note_frame(self, now: float) -> None:
        """Count the frame or header block whose end was not received."""
        http2 = self._owner.http2
        before = self._incomplete.get(FRAME)
        size = http2.waiting_bytes
        if size or before is not None:
            is_another, self._frame_since = self._frame_since != http2.incomplete_since, http2.incomplete_since
            by = size - (before.size if before is not None else 0)
            self.note_request(FRAME, by, size, now, is_another=is_another)

    def hold(self) -> None:
        """Stop reading: the requests of all connections together need too much memory."""
        self.is_held = True
        self._owner.read_or_pause()

    def go_on(self) -> None:
        """Read again."""
        self.is_held = False
        self._owner.read_or_pause()

    def note_reading(self, now: float, *, reads: bool) -> None:
        """Note whether the connection is read: a time in which it is not counts for no request."""
        if not reads and self._paused_at is None:
            self._paused_at = now
            self.reading.pause(now)
        elif reads and self._paused_at is not None:
            self.reading.go_on(now)
            self._shift(now - self._paused_at)
            self._paused_at = None

    def credit(self, seconds: float) -> None:
        """Do not count a time in which this process did not run."""
        self.reading.credit(seconds)
        self._shift(seconds)

    def _shift(self, seconds: float) -> None:
        self._incomplete = {
            stream_id: message._replace(since=message.since + seconds)
            for stream_id, message in self._incomplete.items()
        }

    # --- what is not read -------------------------------------------------------------------------------------

    def note_unsent(self, now: float, *, has_written: bool = False) -> None:
        """Count what the client has not read. ``has_written``: just now; uvloop sends it at the end of its turn."""
        http2 = self._owner.http2
        if not (has_written and self._owner.is_writable):
            self._buffered = self._owner.buffered
        own = self._buffered + UNSENT_STREAM_BYTES * http2.unsent_streams
        unsent = own + http2.unsent_bytes
        if not self.unsent or unsent < self.unsent:
            self.unread_since = now
        by, self._own_unsent, self.unsent = own - self._own_unsent, own, unsent
        self._all_unsent.note(self, by)

    # --- what only time shows ---------------------------------------------------------------------------------

    def check(self, now: float, interval: float) -> None:
        """End what takes too long. ``interval``: seconds since the last check."""
        if self._paused_at is None:
            self._check_requests(now, interval)
        self._check_unended(now)
        self._check_responses(now)

    def _check_requests(self, now: float, interval: float) -> None:
        for stream_id, message in list(self._incomplete.items()):
            if self._owner.http2.is_held_back(stream_id):
                self._incomplete[stream_id] = message._replace(since=message.since + interval)
            elif is_overdue(now - message.since, message.size):
                if stream_id == FRAME:
                    self._owner.give_up("a frame or header block took too long", Bound.SLOW_REQUESTS)
                    return
                self._owner.end_slow(stream_id)

    def _check_unended(self, now: float) -> None:
        """Close a connection whose client does not end what was answered: such streams are kept, and not counted."""
        unended = self._owner.http2.unended
        if self._unended is None:
            self._unended = (frozenset(unended), now) if unended else None
        elif now - self._unended[1] > FRAME_SECONDS:
            before, self._unended = self._unended[0], None
            if not before.isdisjoint(unended):
                self._owner.give_up("an answered request did not end", Bound.SLOW_REQUESTS)

    def _check_responses(self, now: float) -> None:
        before, self._heads = self._heads, {}
        for stream_id, head in list(self._owner.http2.unsent_heads()):
            last, since = before.get(stream_id, (None, now))
            self._heads[stream_id] = (head, since) if last is head else (head, now)
            if last is head and now - since > UNREAD_SECONDS:
                del self._heads[stream_id]
                self._owner.end_unread(stream_id)
        buffered = 0 if self._owner.is_writable else self._owner.buffered
        if not buffered:
            self._stuck = None
        elif self._stuck is None or buffered != self._stuck[0]:
            self._stuck = buffered, now
        elif now - self._stuck[1] > UNREAD_SECONDS:
            self._owner.give_up("nothing was read", Bound.UNREAD_RESPONSES)

    # --- bounds of the node -----------------------------------------------------------------------------------

    def abort(self, cause: str) -> None:
        """Close the connection."""
        self._owner.give_up(f"too much waits: {cause}")

    def release(self) -> None:
        """Count nothing: the connection is closed."""
        self._incomplete.clear()
        self.waiting = self.unsent = 0
        self.reading.since = None
        by, self._coming_in = self._coming_in, 0
        self._all_coming_in.note(self, -by)
        own, self._own_unsent = self._own_unsent, 0
        self._all_unsent.note(self, -own)
