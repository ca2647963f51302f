"""One request and its response (RFC 9113 section 5.1).

Only clients open streams here, and nothing is pushed. So of the states of the RFC a stream has those after HEADERS
was received: open, half-closed in one direction, and closed, when the connection drops it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sized
from typing import cast

from pointsman.http2.frame_codec import ErrorCode, StreamFailed


class UnsentContents:
    """Contents that wait to be sent on any connection. What several connections share is counted once."""

    def __init__(self) -> None:
        self.bytes = 0
        self._uses: dict[int, int] = {}
        """By identity; who waits refers to the object."""

    def keep(self, content: Sized) -> None:
        """Count a content that waits once more."""
        uses = self._uses.get(id(content), 0)
        self._uses[id(content)] = uses + 1
        if not uses:
            self.bytes += len(content)

    def drop(self, content: Sized) -> None:
        """The opposite of :meth:`keep`."""
        uses = self._uses[id(content)] - 1
        if uses:
            self._uses[id(content)] = uses
        else:
            del self._uses[id(content)]
            self.bytes -= len(content)


class Http2Stream:
    """State of a stream; windows are numbers of octets, and may be negative (section 6.9.2)."""

    __slots__ = (
        "content_left",
        "ending",
        "has_ended",
        "is_request_over",
        "receive_window",
        "send_window",
        "stream_id",
        "unacknowledged",
        "unsent",
        "unsent_bytes",
    )

    def __init__(self, stream_id: int, send_window: int, receive_window: int, content_length: int | None) -> None:
        self.stream_id = stream_id
        self.send_window = send_window
        """What the peer accepts."""
        self.receive_window = receive_window
        """What the peer may still send."""
        self.unacknowledged = 0
        """Octets that the application has used and that are not in a WINDOW_UPDATE yet."""
        self.content_left = content_length
        """Octets of content that must follow; None: the request does not declare it (section 8.1.1)."""
        self.is_request_over = False
        """half-closed (remote): the peer sent END_STREAM."""
        self.has_ended = False
        """Whether the response is complete here, though its end may wait for a window."""
        self.unsent: deque[memoryview] | None = None
        """Content that waits for a window, in order."""
        self.unsent_bytes = 0
        self.ending: bytes | None = None
        """The trailers' block that follows the unsent content; empty: END_STREAM stands on the last DATA."""

    def count_data(self, octets: int, size: int, *, is_end: bool) -> None:
        """Count DATA with ``size`` octets of content; trailers end a request without any. Raises StreamFailed."""
        if self.is_request_over:
            raise StreamFailed(ErrorCode.STREAM_CLOSED, "DATA or HEADERS follow the end of the request")  # section 5.1
        self.receive_window -= octets
        if self.receive_window < 0:
            raise StreamFailed(ErrorCode.FLOW_CONTROL_ERROR, "DATA is beyond the window of the stream")
        if self.content_left is not None:
            self.content_left -= size
            if self.content_left < 0 or (is_end and self.content_left):
                text = "the content is not as long as content-length declares"
                raise StreamFailed(ErrorCode.PROTOCOL_ERROR, text)  # section 8.1.1
        self.is_request_over = is_end

    def keep(self, parts: Iterable[bytes], size: int, contents: UnsentContents) -> None:
        """Add content of ``size`` octets that waits for a window."""
        if self.unsent is None:
            self.unsent = deque()
        for part in parts:
            if part:
                contents.keep(part)
                self.unsent.append(memoryview(part))
        self.unsent_bytes += size

    def take(self, octets: int, contents: UnsentContents) -> bytes:
        """Remove and return the next content, at most ``octets``."""
        assert self.unsent is not None  # noqa: S101  # the connection takes only what was kept
        parts: list[memoryview] = []
        while octets and self.unsent:
            part = self.unsent.popleft()
            if len(part) > octets:
                self.unsent.appendleft(part[octets:])
                part = part[:octets]
            else:
                contents.drop(cast("bytes", part.obj))
            parts.append(part)
            octets -= len(part)
            self.unsent_bytes -= len(part)
        return b"".join(parts)

    def discard(self, contents: UnsentContents) -> None:
        """Remove the content that waits."""
        while self.unsent:
            contents.drop(cast("bytes", self.unsent.pop().obj))
        self.unsent_bytes = 0
