"""The same bytes of a client, sent to grpcio's server and to the lane with the same methods: the same responses."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import grpc
import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from pointsman.daemon.lane.lane_server import CONNECTION_WINDOW, STREAM_WINDOW, LaneServer
from pointsman.http2.frame_codec import (
    ACK,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER,
    HEADER_OCTETS,
    MAX_WINDOW,
    PREFACE,
    FrameType,
    Setting,
    StreamFailed,
    frame,
    goaway_frame,
    ping_frame,
    reset_frame,
    settings_frame,
    window_update_frame,
)
from pointsman.http2.grpc_framing import message_prefix
from pointsman.http2.header_blocks import EMPTY_TABLE, encode_block
from pointsman.http2.http2_connection import Http2Connection
from pointsman.http2.http2_sending import Http2Shared
from pointsman.http2.peer_limits import Limits
from pointsman.wire.channel_options import SERVER_OPTIONS
from tests.kit.http2.client_frames import REQUEST, data
from tests.kit.http2.methods_of_each_kind import SERVICE, MethodsOfEachKind
from tests.kit.http2.scripted_client import LAST_PING, Exchange, Response, exchange

OPENING = (
    PREFACE
    + settings_frame({Setting.INITIAL_WINDOW_SIZE: 1 << 20, Setting.ENABLE_PUSH: 0})
    + frame(FrameType.SETTINGS, ACK, 0)
)
SEARCH_SECONDS = 900
QUIET_SECONDS = 0.15
"""Without a byte of the server, after which a stream that has not ended counts as one that will not."""
SURELY_QUIET_SECONDS = 3.0
"""The same, before listeners are found to differ: the machine may be busy."""


@asynccontextmanager
async def serving() -> AsyncIterator[list[str]]:
    """Serve the same methods by grpcio and by the lane; the addresses in this order."""
    servers: list[Any] = [grpc.aio.server(options=SERVER_OPTIONS)]
    methods = [MethodsOfEachKind(), MethodsOfEachKind()]
    servers.append(LaneServer(SERVER_OPTIONS, {f"/{SERVICE}/Inline": methods[1].inline}))
    addrs = []
    for server, served in zip(servers, methods, strict=True):
        server.add_generic_rpc_handlers(served.table())
        addrs.append(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
        await server.start()
    try:
        yield addrs
    finally:
        for server in servers:
            await server.stop(0)


# --- requests as frames -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """A request, and how it is divided."""

    method: str
    messages: Sequence[bytes]
    fields: Sequence[tuple[bytes, bytes]] = ()
    is_packed: bool = False
    cut: int = 1 << 14
    """The longest content of one DATA."""
    has_empty_end: bool = False
    """Whether END_STREAM is on a separate DATA."""
    is_block_cut: bool = False
    """Whether a CONTINUATION has the second half of its headers."""

    def frames(self, stream_id: int) -> list[bytes]:
        """Return the frames; that of the headers is one here, with its CONTINUATION."""
        named = dict(REQUEST) | {b":path": f"/{SERVICE}/{self.method}".encode()} | dict(self.fields)
        if self.is_packed:
            named[b"grpc-encoding"] = b"gzip"
        block = (EMPTY_TABLE if stream_id == 1 else b"") + encode_block(named.items())
        half = len(block) // 2 if self.is_block_cut else len(block)
        opening = frame(FrameType.HEADERS, END_HEADERS if half == len(block) else 0, stream_id, block[:half])
        if half < len(block):
            opening += frame(FrameType.CONTINUATION, END_HEADERS, stream_id, block[half:])
        packed = [gzip.compress(each) if self.is_packed else each for each in self.messages]
        content = b"".join(message_prefix(len(each), compressed=self.is_packed) + each for each in packed)
        parts = [content[at : at + self.cut] for at in range(0, len(content), self.cut)]
        if self.has_empty_end or not parts:
            parts.append(b"")
        return [opening, *(data(stream_id, part, is_end=at == len(parts) - 1) for at, part in enumerate(parts))]


MESSAGES = st.sampled_from([b"", b"a", b"some more", b"b" * 300, bytes(range(256)) * 80])
ALL_METADATA = (
    (b"x-text", b"some text"),
    (b"x-comma", b"a,b"),
    (b"x-octets-bin", b"AAEC/w"),
    (b"x-padded-bin", b"AAEC/w=="),
    (b"user-agent", b"grpc-test/1"),
    (b"content-type", b"application/grpc+proto"),
    (b"grpc-timeout", b"10S"),
    (b"grpc-accept-encoding", b"identity,gzip"),
)
METADATA = st.lists(st.sampled_from(ALL_METADATA), max_size=4, unique_by=lambda each: each[0])


def requests(method: str, messages: st.SearchStrategy[Any]) -> st.SearchStrategy[Request]:
    return st.builds(
        Request,
        method=st.just(method),
        messages=messages,
        fields=METADATA,
        is_packed=st.booleans(),
        cut=st.sampled_from([3, 5, 6, 100, 1 << 14]),
        has_empty_end=st.booleans(),
        is_block_cut=st.booleans(),
    )


def one(messages: st.SearchStrategy[bytes]) -> st.SearchStrategy[tuple[bytes]]:
    return st.tuples(messages)


VALID = st.one_of(
    requests("Echo", one(MESSAGES)),
    requests("Inline", one(MESSAGES)),
    requests("Metadata", one(MESSAGES)),
    requests("Fail", one(st.sampled_from([b"return", b"abort", b"raise"]))),
    requests("Count", one(st.sampled_from([b"0", b"1", b"50"]))),
    requests("Unknown", one(MESSAGES)),
    *(requests(method, st.lists(MESSAGES, max_size=4)) for method in ("Join", "Refuse", "Talk", "Generate")),
)


def interleaved(streams: Sequence[list[bytes]], order: Sequence[int]) -> list[bytes]:
    """Merge the frames of streams: which has its turn is in ``order``; each begins after those with lower numbers."""
    waiting = [list(each) for each in streams]
    begun, merged = 0, list[bytes]()
    turns = iter(order)
    while any(waiting):
        open_ = [number for number, frames in enumerate(waiting) if frames and number <= begun]
        number = open_[next(turns, 0) % len(open_)]
        begun = max(begun, number + 1)
        merged.append(waiting[number].pop(0))
    return merged


def scripts(kinds: st.SearchStrategy[Request]) -> st.SearchStrategy[list[bytes]]:
    return st.builds(
        lambda several, order: interleaved([each.frames(2 * nth + 1) for nth, each in enumerate(several)], order),
        st.lists(kinds, min_size=1, max_size=4),
        st.lists(st.integers(0, 3), max_size=20),
    )


def changed(script: list[bytes], changes: Sequence[Change]) -> list[bytes]:
    for change in changes:
        script = change.of(script)
    return script


ODD_FIELDS = st.sampled_from(
    [
        (b":method", b"GET"),
        (b":path", b"no-slash"),
        (b":path", b"/"),
        (b":scheme", b"gopher"),
        (b":unknown", b"1"),
        (b":status", b"200"),
        (b"te", b"gzip"),
        (b"connection", b"close"),
        (b"Upper-Case", b"1"),
        (b"x-control", b"a\0b"),
        (b"x-octets-bin", b"not base64!"),
        (b"content-length", b"1"),
        (b"content-length", b"many"),
        (b"content-type", b"application/json"),
        (b"grpc-timeout", b"soon"),
        (b"grpc-timeout", b"123456789S"),
        (b"grpc-encoding", b"snappy"),
        (b"grpc-encoding", b"gzip"),
        (b"grpc-encoding", b"identity"),
    ]
)
ODD = st.builds(
    lambda request, odd: replace(request, fields=[*request.fields, *odd]), VALID, st.lists(ODD_FIELDS, max_size=2)
)
STREAM_IDS = st.sampled_from([0, 1, 2, 3, 5, 7, 99])
ANY_FRAME = st.one_of(
    st.builds(ping_frame, st.binary(min_size=8, max_size=8), ack=st.booleans()),
    st.builds(window_update_frame, STREAM_IDS, st.sampled_from([0, 1, 1_000, MAX_WINDOW])),
    st.builds(reset_frame, STREAM_IDS, st.integers(0, 20)),
    st.builds(goaway_frame, STREAM_IDS, st.sampled_from([0, 11]), st.binary(max_size=5)),
    st.builds(
        settings_frame,
        st.dictionaries(st.sampled_from([1, 2, 3, 4, 5, 6, 99]), st.sampled_from([0, 1, 20_000, 1 << 31]), max_size=2),
    ),
    st.builds(frame, st.integers(0, 12), st.integers(0, 255), STREAM_IDS, st.binary(max_size=30)),
)


@dataclass(frozen=True, slots=True)
class Change:
    """What is changed in a script."""

    kind: str
    at: int
    value: int
    inserted: bytes

    def of(self, script: Sequence[bytes]) -> list[bytes]:
        """Return the changed script."""
        at = self.at % len(script)
        before, chosen, after = list(script[:at]), script[at], list(script[at + 1 :])
        high, low, kind, flags, stream_id = FRAME_HEADER.unpack_from(chosen)
        end = HEADER_OCTETS + (high << 8 | low)
        payload, rest = chosen[HEADER_OCTETS:end], chosen[end:]
        match self.kind:
            case "drop":
                return [*before, *after] or [chosen]
            case "repeat":
                return [*before, chosen, chosen, *after]
            case "swap":
                return [*before, *after[:1], chosen, *after[1:]]
            case "insert":
                return [*before, self.inserted, chosen, *after]
            case "flag":
                flags ^= 1 << self.value % 8
            case "stream":
                stream_id = self.value % 9
            case "type":
                return [*before, frame(self.value % 11, flags, stream_id, payload) + rest, *after]
            case "cut":
                payload = payload[: self.value % (len(payload) + 1)]
            case "byte":
                octet = self.value % max(1, len(payload))
                # ASCII: with a path that is not UTF-8 grpcio's server (1.85) ends, and no longer listens.
                payload = payload[:octet] + bytes((self.value % 128,)) + payload[octet + 1 :]
        return [*before, frame(kind, flags, stream_id, payload) + rest, *after]


CHANGES = st.builds(
    Change,
    kind=st.sampled_from(
        ["drop", "repeat", "swap", "insert", "insert", "flag", "stream", "type", "cut", "byte", "byte"]
    ),
    at=st.integers(0, 1_000),
    value=st.integers(0, 1 << 16),
    inserted=ANY_FRAME,
)
CHANGED = st.builds(
    changed,
    scripts(st.one_of(VALID, ODD)),
    st.lists(CHANGES, max_size=2),
)
CUTS = st.lists(st.integers(0, 100_000), max_size=8)


def divided(content: bytes, cuts: Sequence[int]) -> Iterator[bytes]:
    edges = sorted({0, len(content), *(cut % (len(content) + 1) for cut in cuts)})
    return (content[a:b] for a, b in pairwise(edges))


# --- and what becomes of them -------------------------------------------------------------------------------------


async def both(addrs: Sequence[str], script: Sequence[bytes], cuts: Sequence[int], patience: float) -> list[Exchange]:
    content = OPENING + b"".join(script)
    streams = [FRAME_HEADER.unpack_from(part)[4] for part in script if part[3] == FrameType.HEADERS]
    parts = list(divided(content, cuts))
    return await asyncio.gather(*(exchange(addr, parts, streams=streams, patience=patience) for addr in addrs))


def shown(response: Response | None) -> tuple[dict[str, str], bytes] | None:
    """Return what a client sees of a response; None: it was refused by the transport, or has no end.

    With the status of an error grpcio sends an empty message if the handler returns one, which clients ignore.
    """
    if response is None or response.reset is not None or response.trailers is None:
        return None
    return response.head | response.trailers, b"" if response.status else response.content


class _Explained(Http2Connection):
    """Keeps the texts of the errors for which streams are reset."""

    def __init__(self, shared: Http2Shared) -> None:
        super().__init__(shared)
        self.problems: list[str] = []

    def _fail_stream(self, stream_id: int, error: StreamFailed) -> None:
        self.problems.append(str(error))
        super()._fail_stream(stream_id, error)


def problems_of(script: Sequence[bytes]) -> list[str]:
    """Return what HTTP/2 finds wrong with a script."""
    limits = Limits(stream_window=STREAM_WINDOW, connection_window=CONNECTION_WINDOW)
    connection = _Explained(Http2Shared(limits))
    connection.receive(OPENING + b"".join(script) + ping_frame(LAST_PING), now=0.0)
    return [*connection.problems, *([connection.over.text] if connection.over is not None else [])]


def is_refused(response: tuple[dict[str, str], bytes] | None) -> bool:
    return response is None or response[0].get(":status") != "200" or response[0].get("grpc-status") != "0"


def has_end(script: Sequence[bytes], stream_id: int) -> bool:
    """Return whether a request is complete."""
    heads = [FRAME_HEADER.unpack_from(each)[2:] for each in script]
    return any(kind <= FrameType.HEADERS and flags & END_STREAM and of == stream_id for kind, flags, of in heads)


def difference(script: Sequence[bytes], by_grpcio: Exchange, by_lane: Exchange) -> str:
    """Describe where two listeners are not the same and should be; both may refuse, each in its way."""
    problems = problems_of(script)
    for stream_id in sorted(by_grpcio.responses.keys() | by_lane.responses.keys()):
        ours = by_lane.responses.get(stream_id)
        seen, expected = shown(ours), shown(by_grpcio.responses.get(stream_id))
        if seen == expected or (is_refused(seen) and is_refused(expected)):
            continue
        if not (is_refused(seen) or is_refused(expected)):
            return f"stream {stream_id}: {seen}, by grpcio {expected}"
        # grpcio checks only some of the rules of HTTP/2.
        if problems or (is_refused(seen) and not has_end(script, stream_id)):
            continue
        # It serves any content type, and the messages before one that is cut off; it does not know padding.
        refused_by = {} if ours is None or ours.trailers is None else ours.trailers
        if refused_by.get(":status") == "415" or STRICTER.match(refused_by.get("grpc-message", "")):
            continue
        if is_refused(expected) and has_odd_data(script):
            continue
        return f"stream {stream_id}: {seen}, by grpcio {expected}"
    return ""


STRICTER = re.compile(r"the request ends within a message|a message has \d+ bytes, at most|grpc-timeout is not up to 8")
"""Why the lane refuses a request that grpcio serves: a message that is not complete (none here is as large as a changed
prefix declares), and a deadline of more digits."""


def has_odd_data(script: Sequence[bytes]) -> bool:
    """Return whether a DATA has a flag other than END_STREAM."""
    heads = [FRAME_HEADER.unpack_from(each)[2:4] for each in script]
    return any(kind == FrameType.DATA and flags & ~END_STREAM for kind, flags in heads)


@pytest.mark.timeout(SEARCH_SECONDS)
async def test_requests_of_each_kind_have_the_same_responses_however_they_are_divided() -> None:
    loop = asyncio.get_running_loop()

    async with serving() as addrs:

        @given(script=scripts(VALID), cuts=CUTS)
        @example(script=Request("Metadata", (b"",), ALL_METADATA).frames(1), cuts=[])
        def search(script: list[bytes], cuts: list[int]) -> None:
            run = both(addrs, script, cuts, SURELY_QUIET_SECONDS)
            by_grpcio, by_lane = asyncio.run_coroutine_threadsafe(run, loop).result(60)
            assert (by_grpcio.goaway, by_grpcio.is_closed, by_lane.goaway, by_lane.is_closed) == (
                None,
                False,
                None,
                False,
            )
            assert by_lane.responses.keys() == by_grpcio.responses.keys()
            for stream_id, response in by_lane.responses.items():
                assert shown(response) == shown(by_grpcio.responses[stream_id])
                event(f"status {response.status}")

        await asyncio.to_thread(search)


@pytest.mark.timeout(SEARCH_SECONDS)
async def test_odd_and_changed_requests_have_the_same_responses_or_are_refused_by_both() -> None:
    loop = asyncio.get_running_loop()

    async with serving() as addrs:

        def run(script: list[bytes], cuts: list[int], patience: float) -> str:
            exchanged = asyncio.run_coroutine_threadsafe(both(addrs, script, cuts, patience), loop).result(60)
            return difference(script, *exchanged)

        @given(script=CHANGED, cuts=CUTS)
        def search(script: list[bytes], cuts: list[int]) -> None:
            if run(script, cuts, QUIET_SECONDS):
                assert run(script, cuts, SURELY_QUIET_SECONDS) == ""
            event("broken" if problems_of(script) else "odd")

        await asyncio.to_thread(search)
