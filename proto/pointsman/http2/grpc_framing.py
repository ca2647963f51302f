"""gRPC over HTTP/2: messages in DATA, deadlines in headers, statuses in trailers (gRPC's PROTOCOL-HTTP2.md).

A request is HEADERS with ``:method: POST`` and ``:path: /service/method``, then messages; a response is HEADERS,
messages, and trailers with the status. A message is one octet for whether it is compressed, four octets of
length, and that many octets, divided over DATA frames in any way.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
import zlib
from collections.abc import Iterable
from enum import IntEnum
from typing import Final
from urllib.parse import unquote

PREFIX: Final = struct.Struct(">BL")
"""Whether a message is compressed, and its length."""
MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""The default of every gRPC implementation."""
CONTENT_TYPE: Final = b"application/grpc"

_TIMEOUT: Final = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNIT_SECONDS: Final = {b"H": 3_600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_WINDOW_BITS: Final = {b"gzip": 16 + zlib.MAX_WBITS, b"deflate": zlib.MAX_WBITS}
"""By ``grpc-encoding``; deflate is the format of zlib (RFC 1950)."""
CODINGS: Final = frozenset({b"identity", *_WINDOW_BITS})
"""What a request may be compressed with."""


class GrpcStatus(IntEnum):
    """Status codes of gRPC, with their numbers on the wire."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class BadMessage(Exception):
    """A message that ends its call, with the status for the client."""

    def __init__(self, status: GrpcStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class PackedMessage(bytes):
    """A compressed message as it was received. It is kept so: decompressed it may be a thousand times as large."""


class MessageReader:
    """Splits the content of one request into messages, and decompresses them when they are needed."""

    __slots__ = ("_max_bytes", "_needed", "_rest", "compression")

    def __init__(self, *, max_bytes: int = MAX_MESSAGE_BYTES, compression: bytes = b"identity") -> None:
        """``compression``: the value of ``grpc-encoding``."""
        self.compression = compression
        self._max_bytes = max_bytes
        self._rest = bytearray()
        self._needed = PREFIX.size
        """Octets until something can be read: a prefix, or a message with it."""

    @property
    def waiting(self) -> int:
        """Return the octets of the incomplete message; a request must not end with them."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """Add content and return the complete messages, for :meth:`unpacked`. Raises BadMessage."""
        if not self._rest and len(data) >= PREFIX.size:
            # The common case: one DATA frame, one message.
            flag, length = PREFIX.unpack_from(data)
            if not flag and length == len(data) - PREFIX.size <= self._max_bytes:
                return [data[PREFIX.size :]]
        # One buffer, not the parts: a message may come an octet at a time.
        self._rest += data
        size, at = len(self._rest), 0
        if size < self._needed:
            return []
        messages: list[bytes] = []
        self._needed = PREFIX.size
        with memoryview(self._rest) as view:
            while size - at >= PREFIX.size:
                flag, length = PREFIX.unpack_from(view, at)
                # Checked before the message arrives: this server would have to keep it.
                if length > self._max_bytes:
                    text = f"a message has {length} bytes, at most {self._max_bytes} are allowed"
                    raise BadMessage(GrpcStatus.RESOURCE_EXHAUSTED, text)
                end = at + PREFIX.size + length
                if end > size:
                    self._needed = PREFIX.size + length
                    break
                message = bytes(view[at + PREFIX.size : end])
                messages.append(self._packed(message) if flag else message)
                at = end
        del self._rest[:at]
        return messages

    def unpacked(self, message: bytes) -> bytes:
        """Return the content of a message. Raises BadMessage."""
        if type(message) is not PackedMessage:
            return message
        return decompress(message, max_bytes=self._max_bytes, coding=self.compression)

    def _packed(self, message: bytes) -> PackedMessage:
        if self.compression not in _WINDOW_BITS:
            raise BadMessage(GrpcStatus.INTERNAL, "a message is compressed, and grpc-encoding does not name how")
        return PackedMessage(message)


def decompress(message: bytes, *, max_bytes: int, coding: bytes = b"gzip") -> bytes:
    """Decompress a message, never to more than ``max_bytes``. Raises BadMessage."""
    unpacking = zlib.decompressobj(_WINDOW_BITS[coding])
    try:
        content = unpacking.decompress(message, max_bytes + 1)
    except zlib.error as error:
        raise BadMessage(GrpcStatus.INTERNAL, f"a message is not {coding.decode()}") from error
    if len(content) > max_bytes:
        text = f"a message decompresses to more than {max_bytes} bytes"
        raise BadMessage(GrpcStatus.RESOURCE_EXHAUSTED, text)
    if not unpacking.eof:
        raise BadMessage(GrpcStatus.INTERNAL, "a compressed message has no end")
    return content


def message_prefix(size: int, *, compressed: bool = False) -> bytes:
    """Return the five octets before a message."""
    return PREFIX.pack(compressed, size)


def timeout_seconds(value: bytes) -> float:
    """Read ``grpc-timeout``. Raises ValueError."""
    found = _TIMEOUT.fullmatch(value)
    if found is None:
        raise ValueError(f"grpc-timeout is not up to 8 digits and a unit: {value[:20]!r}")
    return int(found[1]) * _UNIT_SECONDS[found[2]]


def is_grpc(content_type: bytes) -> bool:
    """Return whether a request is one of gRPC: the type, with a message format or parameters after it."""
    return content_type.startswith(CONTENT_TYPE) and content_type[len(CONTENT_TYPE) :][:1] in {b"", b"+", b";"}


def encode_text(text: str) -> bytes:
    """Percent-encode ``grpc-message``: printable ASCII except the percent sign stays as it is."""
    return b"".join(
        bytes((octet,)) if 0x20 <= octet <= 0x7E and octet != 0x25 else b"%%%02X" % octet
        for octet in text.encode("utf-8", "replace")
    )


def decode_text(value: bytes) -> str:
    """Return what :func:`encode_text` encoded; invalid sequences never raise."""
    return unquote(value.decode("latin-1"), errors="replace")


def encode_binary(value: bytes) -> bytes:
    """Encode the value of a field whose name ends in ``-bin``."""
    return base64.b64encode(value).rstrip(b"=")


def decode_binary(value: bytes) -> bytes:
    """Return what :func:`encode_binary` encoded, with or without padding. Raises ValueError."""
    try:
        return base64.b64decode(value + b"=" * (-len(value) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError("a binary field is not base64") from error


def status_fields(
    status: GrpcStatus, text: str = "", metadata: Iterable[tuple[str, str | bytes]] = ()
) -> list[tuple[bytes, bytes]]:
    """Return the trailers of a response."""
    fields = [(b"grpc-status", b"%d" % status)]
    if text:
        fields.append((b"grpc-message", encode_text(text)))
    for name, value in metadata:
        fields.append((name.encode(), encode_binary(value) if isinstance(value, bytes) else value.encode()))
    return fields
