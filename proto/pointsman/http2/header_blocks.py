"""Header blocks: requests from HPACK (RFC 7541), checked, and responses to HPACK.

The server announces SETTINGS_HEADER_TABLE_SIZE 0. Once a peer has acknowledged that, equal bytes mean equal headers on
any connection, and the clients of gRPC send the same few blocks all the time: a dictionary has those that were seen
before, and decoding and checking, a hundred times as expensive, are for the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, cast

from hpack import Decoder, HPACKError, OversizedHeaderListError

from pointsman.http2.frame_codec import (
    DEFAULT_MAX_FRAME,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER,
    ConnectionFailed,
    ErrorCode,
    FrameType,
    StreamFailed,
)
from pointsman.http2.peer_limits import Bound, Excesses

Fields = Sequence[tuple[bytes, bytes]]
"""Names and values of a header list, in order, pseudo-headers included."""

MAX_KNOWN_BLOCKS = 4_096
"""Header blocks of all connections that are kept; beyond it the oldest is removed."""
MAX_KNOWN_BYTES = 1_024
"""A longer block is decoded each time."""
MAX_BLOCKS_OF_ONE = 64
"""Blocks that one connection may add, so that a peer with ever new ones does not push out those of the others."""

_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
"""A field name is a token (RFC 9110 section 5.1), in lower case (section 8.2.1)."""
_BAD_VALUE: Final = re.compile(rb"[\0\r\n]|\A[ \t]|[ \t]\Z")
_CONNECTION_FIELDS: Final = frozenset(
    {b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"}
)
"""Of HTTP/1.1 (section 8.2.2)."""
_REQUEST_FIELDS: Final = frozenset({b":method", b":scheme", b":authority", b":path"})


class RequestHeaders:
    """The checked header list of a request. Requests with equal bytes share it."""

    __slots__ = ("content_length", "derived", "fields", "method", "path")

    def __init__(self, fields: Fields, method: bytes, path: bytes, content_length: int | None) -> None:
        self.fields = fields
        self.method = method
        self.path = path
        """Empty for CONNECT."""
        self.content_length = content_length
        self.derived: object = None
        """Whatever the application computes from these headers, so that it does it once for equal bytes."""


class KnownBlocks:
    """Requests by their bytes, for all connections whose peers have no dynamic table."""

    def __init__(self, *, max_header_bytes: int, excesses: Excesses) -> None:
        self._known: dict[bytes, RequestHeaders] = {}
        self._excesses = excesses
        self._decoder = Decoder(max_header_bytes)
        # A table without entries: what one block does to this decoder, the next does not see.
        self._decoder.header_table_size = self._decoder.max_allowed_table_size = 0
        self.get = self._known.get

    def __len__(self) -> int:
        return len(self._known)

    def read(self, block: bytes) -> Fields:
        """Decode a block. Raises ConnectionFailed; StreamFailed if the list is too large."""
        try:
            return _decoded(self._decoder, block)
        except OversizedHeaderListError:
            # Here it costs only its stream: the next block does not depend on this one.
            raise self._excesses.refuse(
                Bound.HEADER_BYTES, ErrorCode.ENHANCE_YOUR_CALM, "the header list is too large"
            ) from None
        except HPACKError as error:
            raise undecodable(error) from error

    def add(self, block: bytes, headers: RequestHeaders) -> None:
        """Keep a block that was read and checked."""
        if len(block) > MAX_KNOWN_BYTES:
            return
        if len(self._known) >= MAX_KNOWN_BLOCKS:
            del self._known[next(iter(self._known))]
        self._known[block] = headers


def read_with_table(decoder: Decoder, block: bytes, excesses: Excesses) -> Fields:
    """Decode a block with a connection's dynamic table. Raises ConnectionFailed, also for a list that is too large: its
    end was not read, and may have changed the table (section 4.3)."""
    try:
        return _decoded(decoder, block)
    except OversizedHeaderListError:
        raise excesses.fail(Bound.HEADER_BYTES, "a header list is too large") from None
    except HPACKError as error:
        raise undecodable(error) from error


def _decoded(decoder: Decoder, block: bytes) -> Fields:
    return tuple(cast("Iterable[tuple[bytes, bytes]]", decoder.decode(block, raw=True)))


def undecodable(error: HPACKError) -> ConnectionFailed:
    """Return the error of a block that is not HPACK (section 4.3)."""
    return ConnectionFailed(ErrorCode.COMPRESSION_ERROR, f"a header block cannot be decoded: {type(error).__name__}")


def check_request(fields: Fields) -> RequestHeaders:
    """Return the headers of a request. Raises StreamFailed for a malformed one (section 8.1.1)."""
    pseudo: dict[bytes, bytes] = {}
    at = 0
    # Pseudo-headers precede all others, and each occurs once (section 8.3).
    while at < len(fields) and fields[at][0][:1] == b":":
        name, value = fields[at]
        if name not in _REQUEST_FIELDS or name in pseudo:
            raise _malformed(f"pseudo-header {name[:40]!r} is unknown here, or occurs twice")
        if _BAD_VALUE.search(value):
            raise _malformed(f"the value of {name!r} has characters that it must not have")
        pseudo[name] = value
        at += 1
    content_length = _check_fields(fields[at:])
    method, path = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
    if method == b"CONNECT":
        if b":scheme" in pseudo or path or not pseudo.get(b":authority"):
            raise _malformed("CONNECT has an authority, and neither scheme nor path")  # section 8.5
    elif not (method and pseudo.get(b":scheme")) or not (path[:1] == b"/" or path == b"*"):
        raise _malformed("a request has a method, a scheme and a path")  # section 8.3.1
    return RequestHeaders(fields, method, path, content_length)


def check_trailers(fields: Fields) -> None:
    """Check trailers, which have no pseudo-headers (section 8.1). Raises StreamFailed."""
    _check_fields(fields)


def _check_fields(fields: Fields) -> int | None:
    """Check fields that are not pseudo-headers (section 8.2); return the content length."""
    content_length: int | None = None
    for name, value in fields:
        if not _NAME.fullmatch(name):
            raise _malformed(f"{name[:40]!r} is not a field name in lower case, or a pseudo-header after a field")
        if _BAD_VALUE.search(value):
            raise _malformed(f"the value of {name[:40]!r} has characters that it must not have")
        if name in _CONNECTION_FIELDS or (name == b"te" and value != b"trailers"):
            raise _malformed(f"{name!r} is a field of HTTP/1.1 connections")
        if name == b"content-length":
            if not (value.isdigit() and len(value) < 20) or content_length not in {None, int(value)}:
                raise _malformed("content-length is not one number")
            content_length = int(value)
    return content_length


def _malformed(text: str) -> StreamFailed:
    return StreamFailed(ErrorCode.PROTOCOL_ERROR, text)


# --- responses ------------------------------------------------------------------------------------------------

EMPTY_TABLE: Final = b"\x20"
"""Dynamic table size update to 0 (RFC 7541 section 6.3)."""
_STATUS_200: Final = b"\x88"
_STATIC: Final = {b":status": 8, b"content-length": 28, b"content-type": 31}
"""Names of responses that have an entry in the static table (RFC 7541 appendix A)."""


def encode_block(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Encode a header list, the same bytes each time: without dynamic table and Huffman code, which responses that are
    a few octets long do not need."""
    parts: list[bytes] = []
    for name, value in fields:
        if name == b":status" and value == b"200":
            parts.append(_STATUS_200)
            continue
        index = _STATIC.get(name)
        # A literal without indexing (RFC 7541 section 6.2.2).
        parts.append(_integer(index, 4) if index is not None else b"\0" + _integer(len(name), 7) + name)
        parts.append(_integer(len(value), 7) + value)
    return b"".join(parts)


def _integer(value: int, bits: int) -> bytes:
    """Encode an integer in the last ``bits`` of an octet and those that follow (RFC 7541 section 5.1)."""
    most = (1 << bits) - 1
    if value < most:
        return bytes((value,))
    value -= most
    octets = [most]
    while value >= 0x80:
        octets.append(0x80 | (value & 0x7F))
        value >>= 7
    octets.append(value)
    return bytes(octets)


class ReadyHeaders:
    """A header block of responses with the beginnings of its frame, which lack only the stream identifier."""

    __slots__ = ("block", "ending", "opening")

    def __init__(self, fields: Iterable[tuple[bytes, bytes]]) -> None:
        self.block = encode_block(fields)
        size = len(self.block)
        if size > DEFAULT_MAX_FRAME:
            raise ValueError(f"the headers have {size} bytes, must fit into one frame of {DEFAULT_MAX_FRAME}")
        start = FRAME_HEADER.pack(size >> 8, size & 0xFF, FrameType.HEADERS, END_HEADERS, 0)[:5]
        self.opening = start
        """Length, type and flags of HEADERS."""
        self.ending = start[:4] + bytes((END_HEADERS | END_STREAM,))
        """The same with END_STREAM."""
