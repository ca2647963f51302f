"""Commands as bytes on the wire (RESP). Pure."""

from __future__ import annotations


def pack(*arguments: bytes) -> bytes:
    """Encode one command."""
    parts = [b"*%d\r\n" % len(arguments)]
    for argument in arguments:
        parts += (b"$%d\r\n" % len(argument), argument, b"\r\n")
    return b"".join(parts)
