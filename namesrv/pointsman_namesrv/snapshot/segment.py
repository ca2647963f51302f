"""The form of one file of the snapshot: a header that says what follows, and a content that is whole or refused.

Header: magic, format version, length of the content, SHA-256 over all the other bytes. So no flipped, missing or added
byte goes unnoticed, and another format's file is told from a damaged one.
"""

from __future__ import annotations

import hashlib
import struct

from pointsman_namesrv.core.model import Position

MAGIC = b"PMSS"
FORMAT_VERSION = 1

_FRONT = struct.Struct(">4sHQ")
_DIGEST_SIZE = hashlib.sha256().digest_size
HEADER_SIZE = _FRONT.size + _DIGEST_SIZE


class SegmentRefused(Exception):
    """A segment that is not what was written; the text says why, without the file's name."""


def broker_name_of(position: Position) -> str:
    """The file of a place in a replica group: a hash, for names may hold what a file system does not take."""
    text = f"{position.cluster}\0{position.broker_name}\0{position.broker_id}"
    return f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.segment"


def seal(content: bytes) -> bytes:
    """Put the header before a content."""
    front = _FRONT.pack(MAGIC, FORMAT_VERSION, len(content))
    return b"".join((front, _digest(front, content), content))


def size_said_by(header: bytes) -> int:
    """The size of a whole file, as its first bytes say. Raises SegmentRefused."""
    if not header:
        raise SegmentRefused("is empty")
    if len(header) < HEADER_SIZE:
        raise SegmentRefused(f"ends within its header, after {len(header)} of {HEADER_SIZE} bytes")
    magic, version, length = _FRONT.unpack_from(header)
    if magic != MAGIC:
        raise SegmentRefused(f"is no segment of a snapshot: it begins with {magic!r}")
    if version != FORMAT_VERSION:
        raise SegmentRefused(f"has format version {version}, this server reads {FORMAT_VERSION}")
    return HEADER_SIZE + int(length)


def unseal(data: bytes) -> bytes:
    """Take the header off a file. Raises SegmentRefused."""
    expected = size_said_by(data[:HEADER_SIZE])
    if len(data) != expected:
        raise SegmentRefused(f"has {len(data)} bytes, its header says {expected}")
    front, digest, content = data[: _FRONT.size], data[_FRONT.size : HEADER_SIZE], data[HEADER_SIZE:]
    if _digest(front, content) != digest:
        raise SegmentRefused("is damaged: its checksum does not fit")
    return content


def _digest(front: bytes, content: bytes) -> bytes:
    digest = hashlib.sha256(front)
    digest.update(content)
    return digest.digest()
