"""Frames as they are on the wire: constants of RFC 9113, and the frames that a server writes.

A frame is a header of nine octets (24 bits of length, type, flags, stream identifier) and a payload (section 4.1).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The first bytes of every client (section 3.4)."""
HEADER_OCTETS: Final = 9
FRAME_HEADER: Final = struct.Struct(">HBBBL")
"""Upper 16 and lower 8 bits of the length, type, flags, stream identifier."""
STREAM_ID_MASK: Final = 0x7FFF_FFFF
"""The first bit is reserved, and ignored (section 4.1)."""
MAX_WINDOW: Final = 0x7FFF_FFFF
"""Largest flow-control window (section 6.9.1)."""
MAX_STREAM_ID: Final = 0x7FFF_FFFF
DEFAULT_WINDOW: Final = 65_535
"""Of a connection and of each stream, until SETTINGS and WINDOW_UPDATE change them (section 6.9.2)."""
DEFAULT_MAX_FRAME: Final = 16_384
"""Largest payload that every peer accepts (section 4.2)."""
PING_OCTETS: Final = 8


class FrameType(IntEnum):
    """Section 6."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


# Flags. Each frame type defines its own; two share a bit (section 6).
END_STREAM: Final = 0x01
ACK: Final = 0x01
END_HEADERS: Final = 0x04
PADDED: Final = 0x08
PRIORITY: Final = 0x20


class Setting(IntEnum):
    """Section 6.5.2."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class ErrorCode(IntEnum):
    """Section 7."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class Http2Error(Exception):
    """What a peer did wrong, as the RFC names it."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class ConnectionFailed(Http2Error):
    """A connection error: GOAWAY, and the connection is closed (section 5.4.1)."""


class StreamFailed(Http2Error):
    """A stream error: RST_STREAM, and the connection continues (section 5.4.2)."""


# --- frames that a server writes ------------------------------------------------------------------------------


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """Return one frame."""
    size = len(payload)
    return FRAME_HEADER.pack(size >> 8, size & 0xFF, kind, flags, stream_id) + payload


def settings_frame(settings: Mapping[int, int]) -> bytes:
    """Return SETTINGS with these values (section 6.5)."""
    payload = b"".join(struct.pack(">HL", setting, value) for setting, value in settings.items())
    return frame(FrameType.SETTINGS, 0, 0, payload)


SETTINGS_ACK: Final = frame(FrameType.SETTINGS, ACK, 0)


def ping_frame(opaque: bytes, *, ack: bool = False) -> bytes:
    """Return PING (section 6.7); ``opaque``: eight octets."""
    return frame(FrameType.PING, ACK if ack else 0, 0, opaque)


def reset_frame(stream_id: int, code: int) -> bytes:
    """Return RST_STREAM (section 6.4)."""
    return frame(FrameType.RST_STREAM, 0, stream_id, code.to_bytes(4, "big"))


def goaway_frame(last_stream_id: int, code: int, debug: bytes = b"") -> bytes:
    """Return GOAWAY (section 6.8)."""
    return frame(FrameType.GOAWAY, 0, 0, struct.pack(">LL", last_stream_id, code) + debug)


def window_update_frame(stream_id: int, increment: int) -> bytes:
    """Return WINDOW_UPDATE (section 6.9); stream 0: the connection."""
    return frame(FrameType.WINDOW_UPDATE, 0, stream_id, increment.to_bytes(4, "big"))


def header_frames(stream_id: int, block: bytes, *, end_stream: bool, max_frame: int) -> Iterator[bytes]:
    """Return HEADERS, and CONTINUATION for what does not fit into one frame (sections 6.2, 6.10).

    No other frame may be between them (section 4.3).
    """
    kind, flags = FrameType.HEADERS, END_STREAM if end_stream else 0
    for at in range(0, len(block), max_frame):
        is_last = at + max_frame >= len(block)
        yield frame(kind, flags | (END_HEADERS if is_last else 0), stream_id, block[at : at + max_frame])
        kind, flags = FrameType.CONTINUATION, 0


# --- parts of received payloads -------------------------------------------------------------------------------


def without_padding(flags: int, payload: bytes) -> bytes:
    """Return the payload of DATA or HEADERS without its padding (section 6.1). Raises ConnectionFailed."""
    if not flags & PADDED:
        return payload
    if not payload:
        raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR, "a padded frame has no pad length")
    end = len(payload) - payload[0]
    if end < 1:
        raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "the padding of a frame is longer than the frame")
    return payload[1:end]


def read_settings(payload: bytes) -> Iterator[tuple[int, int]]:
    """Return the settings of a SETTINGS frame in order, as each must be applied (section 6.5.3).

    Unknown ones are part of it; the caller ignores them. Raises ConnectionFailed.
    """
    if len(payload) % 6:
        raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR, f"SETTINGS has {len(payload)} octets, not a multiple of 6")
    for setting, value in struct.iter_unpack(">HL", payload):
        if setting == Setting.ENABLE_PUSH and value > 1:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, f"ENABLE_PUSH is {value}, must be 0 or 1")
        if setting == Setting.INITIAL_WINDOW_SIZE and value > MAX_WINDOW:
            raise ConnectionFailed(ErrorCode.FLOW_CONTROL_ERROR, f"INITIAL_WINDOW_SIZE is {value}, above 2^31-1")
        if setting == Setting.MAX_FRAME_SIZE and not DEFAULT_MAX_FRAME <= value < 1 << 24:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, f"MAX_FRAME_SIZE is {value}, must be 2^14 to 2^24-1")
        yield setting, value


def fixed_payload(kind: FrameType, payload: bytes, octets: int) -> None:
    """Check the size of a frame that has one size only (section 4.2). Raises ConnectionFailed."""
    if len(payload) != octets:
        raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR, f"{kind.name} has {len(payload)} octets, must be {octets}")
