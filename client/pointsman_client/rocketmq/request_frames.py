"""Requests as bytes, with everything but the opaque prepared: a client sends the same header many times. No I/O."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from pointsman.rocketmq.frames import JSON_FORM, ONE_WAY_FLAG, OWN_LANGUAGE, OWN_VERSION, compact

_LENGTHS = struct.Struct(">II")
_AFTER_OPAQUE = b',"serializeTypeCurrentRPC":"JSON","version":%d}' % OWN_VERSION
_FLAGS = b'},"flag":%d,"language":"%b","opaque":'

ENDS = (_FLAGS % (0, OWN_LANGUAGE.encode()), _FLAGS % (ONE_WAY_FLAG, OWN_LANGUAGE.encode()))
"""What follows the last of ``extFields`` in a head: of a request, of a one-way request."""


def request_head(code: int, ext: Mapping[str, str], *, is_one_way: bool = False) -> bytes:
    """Return a header, up to its opaque."""
    return b'{"code":%d,"extFields":%b%b' % (code, compact(dict(ext))[:-1], ENDS[is_one_way])


def request_frame(head: bytes, opaque: int, body: bytes) -> bytes:
    """Return the frame of a request: a head, the opaque of this request, a body."""
    header = b"%b%d%b" % (head, opaque, _AFTER_OPAQUE)
    lengths = _LENGTHS.pack(4 + len(header) + len(body), JSON_FORM << 24 | len(header))
    return b"".join((lengths, header, body))
