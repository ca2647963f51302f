"""What the frames of a peer mean to the application."""

from __future__ import annotations

from typing import NamedTuple

from pointsman.http2.frame_codec import ErrorCode
from pointsman.http2.header_blocks import RequestHeaders


class RequestReceived(NamedTuple):
    """The headers of a new stream."""

    stream_id: int
    headers: RequestHeaders
    is_end: bool
    """Whether the request is complete: it has no content."""


class DataReceived(NamedTuple):
    """Content of a request; after trailers, empty content that ends it."""

    stream_id: int
    data: bytes
    octets: int
    """What the application must acknowledge when it has used the content: its size with padding (section 6.9.1)."""
    is_end: bool
    """Whether the request is complete."""


class StreamEnded(NamedTuple):
    """A stream ended before its response: the peer reset it, or an error of the peer did. Nothing can be sent on it."""

    stream_id: int
    code: int
    """An ErrorCode, if the peer sent a known one."""
    by_peer: bool


class SendingResumed(NamedTuple):
    """All content of a stream that waited for a window is sent: the application may write more."""

    stream_id: int


class PingAnswered(NamedTuple):
    """The peer acknowledged a PING of this server."""

    opaque: bytes


class PeerLeaving(NamedTuple):
    """The peer sent GOAWAY: it opens no further streams, those that are open continue (section 6.8)."""

    code: int
    debug: bytes


class ConnectionOver(NamedTuple):
    """Why a connection has ended; not an event, but its attribute ``over``."""

    code: ErrorCode
    text: str


Event = RequestReceived | DataReceived | StreamEnded | SendingResumed | PingAnswered | PeerLeaving
