"""Header blocks: what a request must have (RFC 9113 section 8), the dictionary of known blocks, encoding."""

from __future__ import annotations

import pytest
from hpack import Decoder, Encoder
from hypothesis import given
from hypothesis import strategies as st

from pointsman.http2.frame_codec import ConnectionFailed, ErrorCode, StreamFailed
from pointsman.http2.header_blocks import (
    MAX_KNOWN_BLOCKS,
    MAX_KNOWN_BYTES,
    Fields,
    KnownBlocks,
    ReadyHeaders,
    check_request,
    check_trailers,
    encode_block,
)
from pointsman.http2.peer_limits import Bound, Excesses
from tests.kit.http2.client_frames import BLOCK, METHOD, REQUEST, frames_of

GET = ((b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"))
OCTETS = st.binary(max_size=300)


def known(max_header_bytes: int = 16_384) -> tuple[KnownBlocks, Excesses]:
    excesses = Excesses()
    return KnownBlocks(max_header_bytes=max_header_bytes, excesses=excesses), excesses


def test_a_request_has_its_method_and_path() -> None:
    headers = check_request((*REQUEST, (b"content-length", b"12")))
    assert (headers.method, headers.path, headers.content_length) == (b"POST", METHOD, 12)
    assert check_request(((b":method", b"OPTIONS"), (b":scheme", b"http"), (b":path", b"*"))).path == b"*"
    assert check_request(((b":method", b"CONNECT"), (b":authority", b"ns1:443"))).path == b""


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param((*GET, (b":method", b"GET")), id="pseudo-header-twice"),
        pytest.param((*GET, (b":status", b"200")), id="pseudo-header-of-responses"),
        pytest.param((*GET, (b":protocol", b"websocket")), id="unknown-pseudo-header"),
        pytest.param((*GET[:2], (b"a", b"b"), GET[2]), id="pseudo-header-after-a-field"),
        pytest.param(GET[1:], id="no-method"),
        pytest.param((GET[0], GET[2]), id="no-scheme"),
        pytest.param(GET[:2], id="no-path"),
        pytest.param((*GET[:2], (b":path", b"")), id="empty-path"),
        pytest.param((*GET[:2], (b":path", b"a/b")), id="path-without-slash"),
        pytest.param((), id="empty"),
        pytest.param(((b":method", b"CONNECT"), *GET[1:]), id="connect-with-path"),
        pytest.param(((b":method", b"CONNECT"),), id="connect-without-authority"),
        pytest.param((*GET, (b"Host", b"a")), id="upper-case"),
        pytest.param((*GET, (b"", b"a")), id="empty-name"),
        pytest.param((*GET, (b"a b", b"a")), id="blank-in-name"),
        pytest.param((*GET, (b"a\n", b"a")), id="line-feed-after-name"),
        pytest.param((*GET, (b"a", b"a\r\nb: c")), id="line-feed-in-value"),
        pytest.param((*GET, (b"a", b"a\0")), id="zero-in-value"),
        pytest.param((*GET, (b"a", b" b")), id="blank-before-value"),
        pytest.param((*GET, (b"a", b"b\t")), id="tab-after-value"),
        pytest.param((*GET[:2], (b":path", b"/\n")), id="line-feed-in-path"),
        pytest.param((*GET, (b"connection", b"close")), id="connection"),
        pytest.param((*GET, (b"transfer-encoding", b"chunked")), id="transfer-encoding"),
        pytest.param((*GET, (b"te", b"gzip")), id="te"),
        pytest.param((*GET, (b"content-length", b"-1")), id="content-length-negative"),
        pytest.param((*GET, (b"content-length", b"1"), (b"content-length", b"2")), id="content-length-twice"),
        pytest.param((*GET, (b"content-length", b"9" * 5_000)), id="content-length-huge"),
    ],
)
def test_a_malformed_request_is_a_stream_error(fields: Fields) -> None:
    with pytest.raises(StreamFailed) as failed:
        check_request(fields)
    assert failed.value.code is ErrorCode.PROTOCOL_ERROR


def test_trailers_have_no_pseudo_headers() -> None:
    check_trailers(((b"grpc-status", b"0"),))
    with pytest.raises(StreamFailed):
        check_trailers(((b":path", b"/"),))


def test_a_block_is_found_again_by_its_bytes() -> None:
    blocks, _ = known()
    assert blocks.get(BLOCK) is None
    headers = check_request(blocks.read(BLOCK))
    blocks.add(BLOCK, headers)
    assert blocks.get(bytes(bytearray(BLOCK))) is headers


def test_what_one_block_inserts_is_not_in_the_table_for_the_next() -> None:
    blocks, _ = known()
    encoder = Encoder()
    encoder.header_table_size = 0
    inserting = b"\x20\x40\x01a\x01b"
    assert blocks.read(inserting) == ((b"a", b"b"),)
    with pytest.raises(ConnectionFailed) as failed:
        blocks.read(b"\xbe")  # the first entry of a dynamic table
    assert failed.value.code is ErrorCode.COMPRESSION_ERROR


@pytest.mark.parametrize("block", [b"\x3f\xe1\x1f\x82", b"\x80", b"\x00\x05a", b"\x00\x81\xff", b"\xff" * 100])
def test_what_is_not_hpack_is_a_compression_error(block: bytes) -> None:
    with pytest.raises(ConnectionFailed) as failed:
        known()[0].read(block)
    assert failed.value.code is ErrorCode.COMPRESSION_ERROR


def test_a_list_that_is_too_large_costs_its_stream_and_is_counted() -> None:
    blocks, excesses = known(max_header_bytes=100)
    with pytest.raises(StreamFailed) as failed:
        blocks.read(b"\x82\x86\x84")  # 34 octets and more each, of which the block has one
    assert failed.value.code is ErrorCode.ENHANCE_YOUR_CALM
    assert excesses.counts == {Bound.HEADER_BYTES: 1}
    assert blocks.read(b"\x82") == ((b":method", b"GET"),)


def test_the_known_blocks_are_bounded_and_the_oldest_goes_first() -> None:
    blocks, _ = known()
    headers = check_request(GET)
    for number in range(MAX_KNOWN_BLOCKS + 1):
        blocks.add(b"%d" % number, headers)
    blocks.add(b"a" * (MAX_KNOWN_BYTES + 1), headers)
    assert len(blocks) == MAX_KNOWN_BLOCKS
    assert blocks.get(b"0") is None
    assert blocks.get(b"1") is headers


@given(st.lists(st.tuples(OCTETS, OCTETS), max_size=8))
def test_encoded_fields_are_decoded_to_the_same(fields: list[tuple[bytes, bytes]]) -> None:
    assert list(Decoder().decode(encode_block(fields), raw=True)) == fields


def test_a_usual_response_is_a_few_octets() -> None:
    fields = [(b":status", b"200"), (b"content-type", b"application/grpc")]
    assert encode_block(fields).hex() == "88" + "0f10" + "10" + b"application/grpc".hex()
    assert list(Decoder().decode(encode_block([(b":status", b"404")]), raw=True)) == [(b":status", b"404")]


def test_ready_headers_lack_only_the_stream_identifier() -> None:
    ready = ReadyHeaders([(b":status", b"200")])
    [opening] = frames_of(ready.opening + b"\0\0\0\x07" + ready.block)
    [ending] = frames_of(ready.ending + b"\0\0\0\x07" + ready.block)
    assert (opening.flags, ending.flags, ending.stream_id, ending.payload) == (4, 5, 7, b"\x88")
    with pytest.raises(ValueError, match="must fit into one frame"):
        ReadyHeaders([(b"a", b"a" * 20_000)])
