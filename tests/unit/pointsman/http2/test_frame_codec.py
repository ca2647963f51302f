"""Frames as bytes, against the examples of RFC 9113."""

from __future__ import annotations

import doctest

import pytest

import pointsman.http2
from pointsman.http2.frame_codec import (
    PADDED,
    ConnectionFailed,
    ErrorCode,
    FrameType,
    Setting,
    fixed_payload,
    goaway_frame,
    header_frames,
    ping_frame,
    read_settings,
    reset_frame,
    settings_frame,
    window_update_frame,
    without_padding,
)
from tests.kit.http2.client_frames import frames_of


def test_the_example_of_the_package_runs() -> None:
    assert doctest.testmod(pointsman.http2).failed == 0
    assert doctest.testmod(pointsman.http2).attempted > 4


def test_each_frame_has_its_header_of_nine_octets() -> None:
    assert settings_frame({Setting.MAX_CONCURRENT_STREAMS: 100}).hex() == "000006040000000000000300000064"
    assert ping_frame(b"12345678", ack=True).hex() == "0000080601000000003132333435363738"
    assert reset_frame(3, ErrorCode.CANCEL).hex() == "00000403000000000300000008"
    assert goaway_frame(5, ErrorCode.NO_ERROR, b"x").hex() == "000009070000000000000000050000000078"
    assert window_update_frame(0, 1).hex() == "00000408000000000000000001"


def test_a_large_header_block_continues_in_continuation_frames() -> None:
    frames = list(frames_of(b"".join(header_frames(1, b"a" * 25, end_stream=True, max_frame=10))))
    assert [each.kind for each in frames] == [FrameType.HEADERS, FrameType.CONTINUATION, FrameType.CONTINUATION]
    assert [each.flags for each in frames] == [1, 0, 4]
    assert b"".join(each.payload for each in frames) == b"a" * 25


@pytest.mark.parametrize(
    ("payload", "content"),
    [(b"\x00abc", b"abc"), (b"\x02abc\0\0", b"abc"), (b"\x00", b""), (b"\x03\0\0\0", b"")],
)
def test_padding_is_removed(payload: bytes, content: bytes) -> None:
    assert without_padding(PADDED, payload) == content
    assert without_padding(0, payload) == payload


@pytest.mark.parametrize(
    ("payload", "code"),
    [(b"", ErrorCode.FRAME_SIZE_ERROR), (b"\x01", ErrorCode.PROTOCOL_ERROR), (b"\x04abc", ErrorCode.PROTOCOL_ERROR)],
)
def test_padding_that_is_longer_than_its_frame_is_an_error(payload: bytes, code: ErrorCode) -> None:
    with pytest.raises(ConnectionFailed) as failed:
        without_padding(PADDED, payload)
    assert failed.value.code is code


@pytest.mark.parametrize(
    ("setting", "value", "code"),
    [
        (Setting.ENABLE_PUSH, 2, ErrorCode.PROTOCOL_ERROR),
        (Setting.INITIAL_WINDOW_SIZE, 1 << 31, ErrorCode.FLOW_CONTROL_ERROR),
        (Setting.MAX_FRAME_SIZE, 16_383, ErrorCode.PROTOCOL_ERROR),
        (Setting.MAX_FRAME_SIZE, 1 << 24, ErrorCode.PROTOCOL_ERROR),
    ],
)
def test_a_setting_outside_its_range_is_an_error(setting: Setting, value: int, code: ErrorCode) -> None:
    with pytest.raises(ConnectionFailed) as failed:
        list(read_settings(settings_frame({setting: value})[9:]))
    assert failed.value.code is code


def test_settings_are_read_in_order_with_unknown_ones() -> None:
    payload = settings_frame({4: 1, 0x99: 7, 5: 16_384})[9:] + settings_frame({4: 2})[9:]
    assert list(read_settings(payload)) == [(4, 1), (0x99, 7), (5, 16_384), (4, 2)]
    with pytest.raises(ConnectionFailed, match="has 5 octets, not a multiple of 6"):
        list(read_settings(b"\0" * 5))


def test_a_frame_of_one_size_has_that_size() -> None:
    fixed_payload(FrameType.PING, b"12345678", 8)
    with pytest.raises(ConnectionFailed, match="PING has 7 octets, must be 8"):
        fixed_payload(FrameType.PING, b"1234567", 8)
