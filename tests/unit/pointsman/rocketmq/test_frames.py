"""Frames and headers: both forms, truncation, wrong lengths, and bytes that are not a frame."""

from __future__ import annotations

import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.rocketmq.frames import (
    BINARY_FORM,
    MAX_FRAME_BYTES,
    BadFrame,
    BodyCrc32,
    Command,
    FrameReader,
    ReadyResponse,
    compact,
    cut_opaque,
    encode,
    read_header,
    version_text,
)
from tests.kit.broker.rocketmq import frames as recorded

BINARY_105 = bytes.fromhex(
    "0000002d0100002900690001df000000080000000000000000000000140005746f7069630000000 9546f70696354657374".replace(
        " ", ""
    )
)
"""105 for TopicTest, opaque 8, version 479, as RocketMQ's own classes write it."""
TEXT = st.text(max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT16 = st.integers(-(2**15), 2**15 - 1)


def read(data: bytes) -> Command:
    (frame,) = recorded.frames(data)
    return read_header(frame.form, frame.header)


@pytest.mark.parametrize("name", recorded.REQUESTS)
def test_recorded_requests_are_read(name: str) -> None:
    command = read(recorded.request(name))
    assert command.code == int(name.partition("_")[0])
    assert command.is_one_way is ("oneway" in name)
    assert not command.is_answer
    assert version_text(command.version) in {"5.3.3", "4.9.7"}


@pytest.mark.parametrize("name", [name for name in recorded.REQUESTS if recorded.response(name)])
def test_recorded_answers_are_read(name: str) -> None:
    answer = recorded.response(name)
    assert answer is not None
    command = read(answer)
    assert command.is_answer
    assert command.code == int(name.rsplit("_r", 1)[1])
    assert command.opaque == read(recorded.request(name)).opaque


def test_the_binary_form_is_read_as_rocketmq_writes_it() -> None:
    command = read(BINARY_105)
    assert (command.code, command.opaque, command.version, command.language) == (105, 8, 479, "JAVA")
    assert command.ext == {"topic": "TopicTest"}
    assert command.remark is None
    assert encode(command, form=BINARY_FORM) == BINARY_105


@given(
    st.builds(
        Command,
        code=INT16,
        opaque=INT32,
        flag=INT32,
        language=st.sampled_from(["JAVA", "GO", "NODE_JS"]),
        version=INT16,
        remark=st.none() | st.text(min_size=1, max_size=20),
        ext=st.dictionaries(TEXT, TEXT, max_size=3),
    ),
    st.binary(max_size=30),
    st.sampled_from([0, 1]),
)
def test_what_is_written_is_read_again(command: Command, body: bytes, form: int) -> None:
    (frame,) = recorded.frames(encode(command, body, form=form))
    assert (frame.form, frame.body) == (form, body)
    assert read_header(form, frame.header) == command


@given(st.lists(st.integers(1, 300), max_size=40))
def test_where_the_bytes_are_cut_makes_no_difference(cuts: list[int]) -> None:
    data = b"".join(recorded.request(name) for name in recorded.REQUESTS[:6])
    reader, found, at = FrameReader(), [], 0
    for cut in [*cuts, len(data)]:
        reader.feed(data[at : at + cut])
        at += cut
        while (frame := reader.next()) is not None:
            found.append(frame)
    assert found == recorded.frames(data)


@given(st.sampled_from(recorded.REQUESTS), st.integers(0, 400), st.integers(0, 7))
def test_a_flipped_bit_is_a_frame_or_a_bad_frame(name: str, at: int, bit: int) -> None:
    data = bytearray(recorded.request(name))
    data[at % len(data)] ^= 1 << bit
    reader = FrameReader()
    reader.feed(bytes(data))
    try:
        while (frame := reader.next()) is not None:
            cut_opaque(frame.form, frame.header)
            read_header(frame.form, frame.header)
    except BadFrame:
        return


@given(st.binary(max_size=200), st.sampled_from([0, 1]))
def test_any_bytes_are_a_header_or_a_bad_frame(header: bytes, form: int) -> None:
    try:
        read_header(form, header)
    except BadFrame:
        return


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "http"),
        (b"GET / HTTP/1.1\r\n\r\n", "http"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", "tls"),
        (b"\x00\x00\x00\x03abcdefgh", "length"),
        (MAX_FRAME_BYTES.to_bytes(4, "big"), "length"),
        (b"\xff\xff\xff\xff", "length"),
        (b"\x00\x00\x00\x10\x00\x00\x00\x20", "length"),
        (b"\x00\x00\x00\x10\x02\x00\x00\x04", "encoding"),
        (b"\x00\x20\x00\x00\x00\x10\x00\x00", "header"),
        (b"PROXY " + b"x" * 200, "proxy"),
    ],
)
def test_bytes_that_are_not_a_frame_are_refused_at_the_start(data: bytes, cause: str) -> None:
    reader = FrameReader()
    reader.feed(data)
    with pytest.raises(BadFrame) as refused:
        reader.next()
    assert refused.value.cause == cause


@pytest.mark.parametrize(
    "preface",
    [
        b"PROXY TCP4 10.0.0.1 10.0.0.2 50000 9876\r\n",
        b"PROXY UNKNOWN\r\n",
        b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes(12),
    ],
)
def test_a_proxy_header_is_skipped_wherever_it_is_cut(preface: bytes) -> None:
    data = preface + recorded.request(recorded.REQUESTS[0])
    for cut in range(1, len(preface) + 4):
        reader = FrameReader()
        reader.feed(data[:cut])
        assert reader.next() is None
        reader.feed(data[cut:])
        assert reader.next() is not None


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b'"x"',
        b"{",
        b'{"code":true}',
        b'{"opaque":4294967296}',
        b'{"code":1.5}',
        b'{"extFields":[]}',
        b"[" * 9_000,
    ],
)
def test_a_malformed_header_is_refused(header: bytes) -> None:
    with pytest.raises(BadFrame):
        read_header(0, header)


def test_a_header_may_lack_everything_and_hold_numbers_as_values() -> None:
    assert read_header(0, b"{}") == Command(code=0, version=0, language="OTHER")
    odd = read_header(0, b'{"code":105,"language":9,"more":[1],"extFields":{"n":7,"b":true,"none":null,"o":{}}}')
    assert odd == Command(code=105, language="GO", version=0, ext={"n": "7", "b": "true"})


@pytest.mark.parametrize("name", recorded.REQUESTS)
def test_requests_are_equal_but_for_their_opaque(name: str) -> None:
    (frame,) = recorded.frames(recorded.request(name))
    cut = cut_opaque(frame.form, frame.header)
    assert cut is not None
    assert int(cut[1]) == read(recorded.request(name)).opaque
    other = frame.header.replace(b'"opaque":' + cut[1], b'"opaque":-77')
    assert cut_opaque(frame.form, other) == (cut[0], b"-77")


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":105}',
        b'{"opaque": 5}',
        b'{"opaque":"5"}',
        b'{"opaque":05}',
        b'{"opaque":5.0}',
        b'{"opaque":}',
        b'{"opaque":-,"code":1}',
        b'{"opaque":123456789012}',
    ],
)
def test_an_opaque_that_is_not_plain_is_left_to_the_parser(header: bytes) -> None:
    assert cut_opaque(0, header) is None


@given(INT32, st.none() | TEXT, st.none() | st.dictionaries(TEXT, TEXT, max_size=2), st.binary(max_size=40))
def test_a_prepared_response_works_with_any_opaque(
    opaque: int, remark: str | None, ext: dict[str, str] | None, body: bytes
) -> None:
    data = ReadyResponse(code=17, remark=remark, ext=ext, body=body).to(b"%d" % opaque)
    (frame,) = recorded.frames(data)
    fields = json.loads(frame.header)
    assert (fields["opaque"], fields["flag"], fields["code"], frame.body) == (opaque, 1, 17, body)
    assert ("extFields" in fields) is (ext is not None)
    assert fields.get("remark") == remark
    assert compact(fields).startswith(b'{"code":17')


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_a_checksum_by_parts_equals_that_of_all_bytes(parts: list[bytes]) -> None:
    crc = BodyCrc32()
    for part in parts:
        crc.add(part)
    assert crc.value == zlib.crc32(b"".join(parts)) & 0x7FFFFFFF


def test_checksum_and_versions_are_rocketmqs() -> None:
    crc = BodyCrc32()
    crc.add(b"123456789")
    assert crc.value == 1274296614
    assert [version_text(v) for v in (213, 317, 407, 478, 479, 513, 0, 612)] == [
        "4.0.0", "4.5.2", "4.9.7", "5.3.3-SNAPSHOT", "5.3.3", "5.5.0", "", "",
    ]  # fmt: skip
