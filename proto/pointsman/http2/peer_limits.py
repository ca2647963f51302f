"""What one peer may make the server keep or do (RFC 9113 section 10.5).

Everything that costs a peer little and the server more has a number here. A limit on a rate is a burst and a refill
per second; a peer beyond it receives GOAWAY ENHANCE_YOUR_CALM. The others end or refuse one stream. All are counted by
kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from pointsman.http2.frame_codec import (
    DEFAULT_WINDOW,
    ConnectionFailed,
    ErrorCode,
    Setting,
    StreamFailed,
    settings_frame,
    window_update_frame,
)


class Bound(StrEnum):
    """A limit that a peer reached, as the metric has it."""

    RESETS = "resets"
    """Streams that the peer reset, or whose frames made the server reset them: an opened and reset stream is not in the
    number of concurrent ones, so that number does not bound the work (rapid reset, CVE-2023-44487)."""
    PINGS = "pings"
    SETTINGS = "settings"
    WINDOW_UPDATES = "window_updates"
    EMPTY_FRAMES = "empty_frames"
    """DATA and CONTINUATION without content that end nothing."""
    IGNORED_FRAMES = "ignored_frames"
    """PRIORITY, and frames of unknown types."""
    CONTINUATIONS = "continuations"
    HEADER_BYTES = "header_bytes"
    """A header block, or the list that it decodes to (an HPACK bomb), is too large."""
    STREAMS = "streams"
    """Streams beyond MAX_CONCURRENT_STREAMS: refused one at a time, and each counts as a reset."""
    UNSENT = "unsent"
    """The peer opened a stream while too many bytes wait for its windows: refused like STREAMS."""
    CONNECTIONS = "connections"
    """A connection above the number that a listener accepts; its owner counts it."""
    HANDSHAKES = "handshakes"
    """A connection whose client did not begin in time; its owner counts it."""
    SLOW_REQUESTS = "slow_requests"
    """A frame, header block or message whose end did not follow in time; its owner counts it."""
    RECEIVED_BYTES = "received_bytes"
    """A connection that was closed at the bound on what all connections have received and handlers have not taken; its
    owner counts it."""
    UNREAD_RESPONSES = "unread_responses"
    """A response of which the peer took nothing for a time, by its windows or its socket; its owner counts it."""
    UNSENT_BYTES = "unsent_bytes"
    """A connection that was closed at the bound on what all connections have not read; its owner counts it."""


class Rate(NamedTuple):
    """A burst, and how many per second are added to it."""

    burst: int
    per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The numbers of a listener. Each is generous to the clients of gRPC: ``tests/unit/pointsman/http2`` has the reason
    where one was measured."""

    header_table_size: int = 0
    """Of the peer's dynamic table. Above 0 no block is looked up: its meaning depends on those before it."""
    max_concurrent_streams: int = 1_000
    max_header_bytes: int = 16_384
    """Of a header block, and of the list that it decodes to, counted as in section 6.5.2."""
    max_continuations: int = 128
    """CONTINUATION frames of one block: 2 MiB in frames of the usual size, of which a block that is too large is not
    kept."""
    connection_window: int = DEFAULT_WINDOW
    """Octets of DATA that a connection may send ahead of the application."""
    stream_window: int = DEFAULT_WINDOW
    max_unsent_bytes: int = 1 << 20
    """Bytes of responses that wait for the peer's windows, above which it may not open streams."""
    resets: Rate = Rate(1_000, 100)
    pings: Rate = Rate(50, 0.2)
    """In addition to one for each HEADERS or DATA that the server sent, as in gRPC's own servers: clients that measure
    their bandwidth send PING with data."""
    settings: Rate = Rate(100, 10)
    window_updates: Rate = Rate(1_000, 100)
    """In addition to four for each HEADERS or DATA that the server sent."""
    empty_frames: Rate = Rate(100, 10)
    ignored_frames: Rate = Rate(1_000, 100)

    def __post_init__(self) -> None:
        if self.header_table_size not in {0, 4_096}:
            raise ValueError("header_table_size must be 0 or 4096, which peers use before they know another")
        if min(self.connection_window, self.stream_window) < DEFAULT_WINDOW:
            raise ValueError(f"a window must be at least {DEFAULT_WINDOW}: peers use that before they know another")

    def preface(self) -> bytes:
        """Return the first frames of a server (section 3.4)."""
        settings: dict[int, int] = {
            Setting.HEADER_TABLE_SIZE: self.header_table_size,
            Setting.MAX_CONCURRENT_STREAMS: self.max_concurrent_streams,
            Setting.MAX_HEADER_LIST_SIZE: self.max_header_bytes,
        }
        if self.stream_window != DEFAULT_WINDOW:
            settings[Setting.INITIAL_WINDOW_SIZE] = self.stream_window
        preface = settings_frame(settings)
        if self.connection_window != DEFAULT_WINDOW:
            preface += window_update_frame(0, self.connection_window - DEFAULT_WINDOW)
        return preface


@dataclass(slots=True)
class Excesses:
    """How often peers reached each limit; one for all connections of a listener."""

    counts: Counter[Bound] = field(default_factory=Counter)
    on_excess: Callable[[Bound], None] | None = None
    """Called for each, for a metric."""

    def note(self, bound: Bound) -> None:
        """Count."""
        self.counts[bound] += 1
        if self.on_excess is not None:
            self.on_excess(bound)

    def fail(self, bound: Bound, text: str) -> ConnectionFailed:
        """Count a limit and return the connection error."""
        self.note(bound)
        return ConnectionFailed(ErrorCode.ENHANCE_YOUR_CALM, text)

    def refuse(self, bound: Bound, code: ErrorCode, text: str) -> StreamFailed:
        """Count a limit and return the stream error."""
        self.note(bound)
        return StreamFailed(code, text)


TOO_MANY_PINGS = "too_many_pings"
"""The text by which gRPC's clients know that they must ping less often (gRFC A8)."""


class Allowances:
    """What is left of the rates of one connection.

    For each rate there is one number, the time at which its burst is complete again: an event moves it by the time that
    its refill takes, and an event that would move it further ahead than a complete burst takes is one too many (the
    generic cell rate algorithm of ATM). A connection that does nothing unusual has no entry.
    """

    __slots__ = ("_full_at",)

    def __init__(self) -> None:
        self._full_at: dict[Bound, float] = {}

    def take(self, bound: Bound, rate: Rate, *, now: float, credit: int = 0) -> bool:
        """Count one event at ``now``, after ``credit`` further refills; return False if it is one too many."""
        seconds_each = 1 / rate.per_second
        full_at = max(now, self._full_at.get(bound, now) - credit * seconds_each) + seconds_each
        self._full_at[bound] = full_at
        return full_at - now <= rate.burst * seconds_each * (1 + 1e-9)

    def are_full(self, *, now: float) -> bool:
        """Return whether every burst is complete again, as in a new object."""
        return all(full_at <= now for full_at in self._full_at.values())
