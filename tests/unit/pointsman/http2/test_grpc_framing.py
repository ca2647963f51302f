"""gRPC's messages, deadlines and statuses as bytes."""

from __future__ import annotations

import gzip
import itertools
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.http2.grpc_framing import (
    BadMessage,
    GrpcStatus,
    MessageReader,
    decode_binary,
    decode_text,
    encode_binary,
    encode_text,
    is_grpc,
    message_prefix,
    status_fields,
    timeout_seconds,
)


def framed(*messages: bytes) -> bytes:
    return b"".join(message_prefix(len(each)) + each for each in messages)


@given(messages=st.lists(st.binary(max_size=50), max_size=5), cuts=st.lists(st.integers(0, 300), max_size=8))
def test_messages_are_the_same_however_they_are_divided(messages: list[bytes], cuts: list[int]) -> None:
    content = framed(*messages)
    edges = sorted({0, len(content), *(min(cut, len(content)) for cut in cuts)})
    reader = MessageReader()
    found = [each for a, b in itertools.pairwise(edges) for each in reader.feed(content[a:b])]
    assert found == messages
    assert reader.waiting == 0


def test_an_incomplete_message_waits() -> None:
    reader = MessageReader()
    assert reader.feed(framed(b"abc")[:-1]) == []
    assert reader.waiting == 7
    assert reader.feed(b"c") == [b"abc"]


@pytest.mark.parametrize("arrives", [5, 4_000])
def test_a_message_above_the_bound_is_refused_before_it_arrives(arrives: int) -> None:
    reader = MessageReader(max_bytes=1_000)
    assert reader.feed(framed(b"a" * 1_000)) == [b"a" * 1_000]
    with pytest.raises(BadMessage, match="a message has 1001 bytes, at most 1000 are allowed") as bad:
        reader.feed(framed(b"a" * 1_001)[:arrives])
    assert bad.value.status is GrpcStatus.RESOURCE_EXHAUSTED


def test_a_message_of_an_octet_at_a_time_is_kept_once() -> None:
    reader = MessageReader()
    found = [each for octet in framed(b"a" * 5_000) for each in reader.feed(bytes((octet,)))]
    assert found == [b"a" * 5_000]


@pytest.mark.parametrize(("coding", "pack"), [(b"gzip", gzip.compress), (b"deflate", zlib.compress)])
def test_compressed_messages_are_decompressed_when_they_are_needed_and_within_the_bound(
    coding: bytes, pack: Callable[[bytes], bytes]
) -> None:
    packed = pack(b"a" * 900)
    content = message_prefix(len(packed), compressed=True) + packed
    reader = MessageReader(compression=coding, max_bytes=1_000)
    received = reader.feed(content + framed(b"b"))
    assert sum(map(len, received)) == len(packed) + 1
    assert [reader.unpacked(each) for each in received] == [b"a" * 900, b"b"]
    small = MessageReader(compression=coding, max_bytes=800)
    [message] = small.feed(content)
    with pytest.raises(BadMessage, match="decompresses to more than 800 bytes") as bad:
        small.unpacked(message)
    assert bad.value.status is GrpcStatus.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    ("compression", "packed"),
    [
        (b"identity", gzip.compress(b"a", mtime=0)),
        (b"gzip", b"a"),
        (b"gzip", gzip.compress(b"a", mtime=0)[:-5]),
        (b"gzip", zlib.compress(b"a")),
        (b"deflate", gzip.compress(b"a", mtime=0)),
    ],
)
def test_what_cannot_be_decompressed_ends_the_call(compression: bytes, packed: bytes) -> None:
    reader = MessageReader(compression=compression)
    with pytest.raises(BadMessage) as bad:
        reader.unpacked(*reader.feed(message_prefix(len(packed), compressed=True) + packed))
    assert bad.value.status is GrpcStatus.INTERNAL


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(b"1H", 3_600), (b"2M", 120), (b"3S", 3), (b"4m", 0.004), (b"5u", 0.000_005), (b"99999999n", 0.099_999_999)],
)
def test_a_timeout_has_a_unit(value: bytes, seconds: float) -> None:
    assert timeout_seconds(value) == pytest.approx(seconds)


@pytest.mark.parametrize("value", [b"", b"1", b"S", b"-1S", b"123456789S", b"1s", b"1S\n", b"1.5S"])
def test_what_is_not_a_timeout_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="grpc-timeout is not up to 8 digits and a unit"):
        timeout_seconds(value)


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        (b"application/grpc", True),
        (b"application/grpc+proto", True),
        (b"application/grpc;charset=utf-8", True),
        (b"application/grpc-web", False),
        (b"application/json", False),
        (b"", False),
    ],
)
def test_the_content_type_of_grpc(content_type: bytes, expected: bool) -> None:
    assert is_grpc(content_type) is expected


@given(st.text())
def test_a_status_text_is_printable_and_comes_back(text: str) -> None:
    encoded = encode_text(text)
    assert all(0x20 <= octet <= 0x7E for octet in encoded)
    assert decode_text(encoded) == text


def test_a_status_text_as_the_specification_encodes_it() -> None:
    assert encode_text("50% \u00fc\n") == b"50%25 %C3%BC%0A"
    assert decode_text(b"%zz%ff") == "%zz\N{REPLACEMENT CHARACTER}"


@given(st.binary())
def test_binary_fields_have_no_padding_and_come_back(value: bytes) -> None:
    encoded = encode_binary(value)
    assert not encoded.endswith(b"=")
    assert decode_binary(encoded) == decode_binary(encoded + b"=" * (-len(encoded) % 4)) == value


@pytest.mark.parametrize("value", [b"!", b"a", b"ab c"])
def test_a_binary_field_that_is_not_base64_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="not base64"):
        decode_binary(value)


def test_trailers_of_a_status() -> None:
    assert status_fields(GrpcStatus.OK) == [(b"grpc-status", b"0")]
    assert status_fields(GrpcStatus.NOT_FOUND, "no", [("x-id", "7"), ("grpc-status-details-bin", b"\1\2")]) == [
        (b"grpc-status", b"5"),
        (b"grpc-message", b"no"),
        (b"x-id", b"7"),
        (b"grpc-status-details-bin", b"AQI"),
    ]
