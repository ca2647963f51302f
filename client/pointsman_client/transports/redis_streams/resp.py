"""Commands as bytes on the wire (RESP). Pure."""

from __future__ import annotations


def pack(*words: bytes) -> bytes:
    """One command."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        parts += (b"$%d\r\n" % len(word), word, b"\r\n")
    return b"".join(parts)
