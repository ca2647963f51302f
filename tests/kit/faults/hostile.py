"""Hostile input: messages of any type with extreme values, damaged frames, and bytes that are not gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pointsman.names import split_addr
from pointsman_namesrv.rpc.node_server import ADMIN, REGISTRATION, ROUTE

METHODS: tuple[MethodDescriptor, ...] = tuple(m for service in (REGISTRATION, ROUTE, ADMIN) for m in service.methods)
FORBIDDEN = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}
"""Both would mean an error of the server. (A framing that gRPC itself refuses never reaches a method.)"""

TEXTS = (
    "",
    "a",
    "c1",
    "orders",
    "x" * 127,
    "x" * 128,
    "x" * 10_000,
    "../../etc/passwd",
    "a\x00b",
    "a\nb",
    "\x1b[31mred",
    "\u202eevil",
    "\u2028",
    "оrders",  # noqa: RUF001  # a Cyrillic o
    "\ufeffa",
    "🚂" * 50,
    '"},{"event":"EXPIRED',
    'x"} 1\nnamesrv_ready 0',
    "%s%n{0}",
    "10.0.0.1:10911",
    "10.0.0.1:0",
    "10.0.0.1:65536",
    "[::1]:1",
    "::1:1",
    "[fe80::1%eth0]:1",
    "-1",
    str(2**64),
)
INTEGERS = (
    0,
    1,
    -1,
    2,
    4,
    6,
    15,
    16,
    65_535,
    65_536,
    2**31 - 1,
    2**31,
    -(2**31),
    2**32 - 1,
    2**63 - 1,
    -(2**63),
    2**64 - 1,
)

_BITS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_ENUM: (-(2**31), 2**31 - 1),
}


# --- messages -------------------------------------------------------------------------------------------------


def _fill(table: Any, field: FieldDescriptor, keys: Sequence[str]) -> None:
    """Fill a map from texts to texts, or to messages without a value."""
    entry = field.message_type
    assert entry is not None
    values_are_messages = entry.fields_by_name["value"].message_type is not None
    for key in keys:
        if values_are_messages:
            table[key].SetInParent()
        else:
            table[key] = key


def path(method: MethodDescriptor) -> str:
    """As gRPC names it."""
    return f"/{method.containing_service.full_name}/{method.name}"


@st.composite
def messages(draw: st.DrawFn, descriptor: Descriptor, depth: int = 4) -> Message:
    """A message of that type, any field of which may be missing or hostile."""
    message: Message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if draw(st.integers(0, 3)) == 0 or (field.message_type and not depth):
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _fill(getattr(message, field.name), field, draw(st.lists(_texts(), max_size=3)))
        elif field.is_repeated:
            values = draw(st.lists(_value(field, depth), max_size=3))
            getattr(message, field.name).extend(values)
        elif field.message_type is not None:
            getattr(message, field.name).CopyFrom(draw(_value(field, depth)))
        else:
            setattr(message, field.name, draw(_value(field, depth)))
    return message


def _texts() -> st.SearchStrategy[str]:
    return st.sampled_from(TEXTS) | st.text(max_size=20)


def _value(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        return messages(field.message_type, depth - 1)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return _texts() if field.type == FieldDescriptor.TYPE_STRING else st.binary(max_size=40)
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return st.booleans()
    if field.cpp_type in _BITS:
        low, high = _BITS[field.cpp_type]
        return st.sampled_from([n for n in INTEGERS if low <= n <= high]) | st.integers(low, high)
    return st.floats()


@st.composite
def frames(draw: st.DrawFn, method: MethodDescriptor) -> bytes:
    """One request of a method: valid, damaged, or arbitrary bytes."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=300))
    frame = bytearray(draw(messages(method.input_type)).SerializeToString())
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(frame)))
        match draw(st.integers(0, 3)):
            case 0:
                del frame[at:]
            case 1:
                frame[at:at] = draw(st.binary(min_size=1, max_size=12))
            case 2 if at < len(frame):
                frame[at] ^= 1 << draw(st.integers(0, 7))
            case _:
                frame += frame[at:][:1_000]
    return bytes(frame)


# --- calls ----------------------------------------------------------------------------------------------------


def hammer(
    addr: str, *, batch: int, after_batch: Callable[[], None], profile: settings | None = None
) -> Counter[tuple[str, str]]:
    """Send requests to every service, as many as the profile says; count answers by method and code. Blocks.

    An example is at most 20 calls, and at most ``stateful_step_count``.
    """
    answers: Counter[tuple[str, str]] = Counter()
    profile = profile or settings()
    # One branch for each method would leave shrinking to chance; drawing the method first names it in a failure.
    call = st.sampled_from(METHODS).flatmap(
        lambda method: st.tuples(
            st.just(method), st.lists(frames(method), min_size=1, max_size=3 if method.client_streaming else 1)
        )
    )
    # Lists of a length drawn beforehand: by itself Hypothesis keeps them at two or three.
    calls_of = st.integers(1, min(20, profile.stateful_step_count)).flatmap(
        lambda n: st.lists(call, min_size=n, max_size=n)
    )
    with grpc.insecure_channel(addr, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:

        @settings(profile, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(calls_of)
        def send(calls: list[tuple[MethodDescriptor, list[bytes]]]) -> None:
            for method, requests in calls:
                code = answer_of(channel, method, requests)
                answers[method.name, code.name] += 1
                assert code not in FORBIDDEN, f"{method.name}: {code.name}"
                if answers.total() % batch == 0:
                    after_batch()

        send()
    after_batch()
    return answers


def answer_of(channel: grpc.Channel, method: MethodDescriptor, requests: list[bytes]) -> grpc.StatusCode:
    """Send one request, or a stream of them, and return the status; a stream of answers is left after the first."""
    raw: Any = channel  # bytes in, bytes out: stubs accept only messages
    try:
        if method.client_streaming and method.server_streaming:
            for _ in raw.stream_stream(path(method))(iter(requests), timeout=60):
                pass
        elif method.client_streaming:
            raw.stream_unary(path(method))(iter(requests), timeout=60)
        elif method.server_streaming:
            watch = raw.unary_stream(path(method))(requests[0], timeout=60)
            next(watch, None)
            watch.cancel()
        else:
            raw.unary_unary(path(method))(requests[0], timeout=60)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


# --- bytes that are not gRPC ----------------------------------------------------------------------------------

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def _http2(kind: int, payload: bytes = b"", *, flags: int = 0, stream: int = 0, length: int | None = None) -> bytes:
    size = len(payload) if length is None else length
    return size.to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def client_hello() -> bytes:
    """The first bytes of a TLS client."""
    context = ssl.create_default_context()
    written = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), written, server_hostname="example.org")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return written.read()


def wrong_bytes(seed: int, count: int) -> Iterator[bytes]:
    """Openings of a connection: each kind once, then ``count`` of chance."""
    settings_frame = _http2(4)
    yield client_hello()
    yield b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    for cut in range(1, len(PREFACE)):
        yield PREFACE[:cut]
    yield PREFACE + _http2(4, length=2**24 - 1)
    yield PREFACE + settings_frame + _http2(1, b"\xff" * 50, flags=4, stream=1)
    yield PREFACE + settings_frame + _http2(0, b"x" * 100, stream=7)
    yield PREFACE + settings_frame + b"".join(_http2(6, b"12345678") for _ in range(2_000))
    yield PREFACE + settings_frame + b"".join(_http2(3, b"\0\0\0\x08", stream=2 * n + 1) for n in range(1_000))
    yield (
        PREFACE
        + settings_frame
        + _http2(1, b"\x82", stream=1)
        + b"".join(_http2(9, b"\x40" + b"\x01a\x01b" * 200, stream=1) for _ in range(200))
    )
    chance = random.Random(seed)
    for _ in range(count):
        junk = chance.randbytes(chance.randint(1, 2_000))
        yield junk
        yield PREFACE + junk
        yield PREFACE + settings_frame + junk


async def send_bytes(addr: str, opening: bytes, *, wait: float = 0.02) -> None:
    """Open a connection, send, read any response, and abort the connection."""
    reader, writer = await asyncio.open_connection(*split_addr(addr))
    try:
        with contextlib.suppress(OSError, TimeoutError):
            writer.write(opening)
            async with asyncio.timeout(wait):
                await reader.read(65_536)
    finally:
        writer.transport.abort()


async def trickle(addr: str, opening: bytes, *, seconds: float) -> float | None:
    """Send one byte per second, then nothing; return when the other side closed, None if it did not."""
    began = time.monotonic()
    reader, writer = await asyncio.open_connection(*split_addr(addr))
    try:
        for second in range(round(seconds)):
            writer.write(opening[second : second + 1])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    while await reader.read(65_536):
                        pass
                    return time.monotonic() - began
    except OSError:
        return time.monotonic() - began
    finally:
        writer.transport.abort()
    return None
