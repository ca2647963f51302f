"""Bytes of a client of gRPC as a script, sent to a listener, and what each stream received."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hpack import Decoder

from pointsman.http2.frame_codec import (
    END_STREAM,
    HEADER_OCTETS,
    ErrorCode,
    FrameType,
    ping_frame,
    window_update_frame,
)
from pointsman.names import split_addr
from tests.kit.http2.client_frames import frames_of

LAST_PING = b"the last"
"""Sent after the script: its acknowledgement shows that the server has read all of it."""
_TRANSPORT_FIELDS = frozenset({"grpc-accept-encoding", "accept-encoding", "grpc-encoding", "date", "allow"})
"""Of a response; they differ between servers, and a client needs none of them."""


@dataclass
class Response:
    """What one stream received."""

    head: dict[str, str] = field(default_factory=dict)
    content: bytes = b""
    trailers: dict[str, str] | None = None
    """Those of the end; of a response without content, the same as its head."""
    reset: int | None = None
    """The code of RST_STREAM that ended it."""

    @property
    def status(self) -> int | None:
        """The status of gRPC; None: there is none."""
        value = (self.trailers or {}).get("grpc-status")
        return None if value is None else int(value)


@dataclass
class Exchange:
    """What one connection received."""

    responses: dict[int, Response] = field(default_factory=dict)
    goaway: int | None = None
    """The code of a GOAWAY that is an error, or of another one before the end."""
    problem: str = ""
    """Its text."""
    is_closed: bool = False
    """Whether the server closed the connection."""


async def exchange(addr: str, parts: Sequence[bytes], *, streams: Sequence[int], patience: float) -> Exchange:
    """Send bytes in these parts, and receive until each of ``streams`` has ended, the connection has, or for
    ``patience`` seconds nothing has arrived."""
    reader, writer = await asyncio.open_connection(*split_addr(addr))
    found, decoder = Exchange(), Decoder()
    try:
        for part in parts:
            writer.write(part)
            await asyncio.sleep(0)  # an own packet, on most runs
        writer.write(ping_frame(LAST_PING))
        has_read_all = False
        while not (has_read_all and all(_has_ended(found, each) for each in streams)):
            try:
                async with asyncio.timeout(patience):
                    head = await reader.readexactly(HEADER_OCTETS)
                    payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
            except TimeoutError:
                break
            except (asyncio.IncompleteReadError, ConnectionError):
                found.is_closed = True
                break
            [each] = frames_of(head + payload)
            if each.kind is FrameType.PING and each.payload == LAST_PING:
                has_read_all = True
            _receive(found, decoder, each.kind, each.flags, each.stream_id, payload)
            if each.kind is FrameType.DATA and payload:
                sizes = (window_update_frame(stream_id, len(payload)) for stream_id in (0, each.stream_id))
                writer.write(b"".join(sizes))
    finally:
        writer.close()
    return found


def _has_ended(found: Exchange, stream_id: int) -> bool:
    response = found.responses.get(stream_id)
    return response is not None and (response.trailers is not None or response.reset is not None)


def _receive(found: Exchange, decoder: Decoder, kind: FrameType, flags: int, stream_id: int, payload: bytes) -> None:
    if kind is FrameType.GOAWAY:
        code = int.from_bytes(payload[4:8], "big")
        if code != ErrorCode.NO_ERROR:
            found.goaway, found.problem = code, payload[8:].decode("utf-8", "replace")
        return
    if kind not in {FrameType.HEADERS, FrameType.DATA, FrameType.RST_STREAM}:
        return
    response = found.responses.setdefault(stream_id, Response())
    if kind is FrameType.HEADERS:
        fields = dict(_shown(decoder.decode(payload, raw=True)))
        if flags & END_STREAM:
            response.trailers = fields
        else:
            response.head = fields
    elif kind is FrameType.DATA:
        response.content += payload
        if flags & END_STREAM:
            response.trailers = {}
    elif response.trailers is None:
        response.reset = int.from_bytes(payload, "big")


def _shown(fields: object) -> Iterator[tuple[str, str]]:
    for name, value in fields:  # type: ignore[attr-defined]  # hpack has no types for raw fields
        text = name.decode()
        if text not in _TRANSPORT_FIELDS and (value or text != "grpc-message"):
            yield text, value.decode("latin-1")
