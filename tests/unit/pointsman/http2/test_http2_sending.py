"""Responses: their frames, the peer's windows, turns between streams, and the end of a connection."""

from __future__ import annotations

import pytest
from hpack import Decoder

from pointsman.http2.frame_codec import (
    ACK,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    MAX_STREAM_ID,
    ErrorCode,
    FrameType,
    Setting,
    goaway_frame,
    ping_frame,
    reset_frame,
    settings_frame,
)
from pointsman.http2.header_blocks import EMPTY_TABLE, ReadyHeaders
from pointsman.http2.http2_events import SendingResumed
from pointsman.http2.peer_limits import Limits, Rate
from tests.kit.http2.client_frames import OK, TRAILERS, Client, data, frames_of, headers

HEAD = ReadyHeaders([(b":status", b"200"), (b"content-type", b"application/grpc")])
TAIL = ReadyHeaders([(b"grpc-status", b"0")])
WINDOW = DEFAULT_WINDOW


@pytest.fixture
def client() -> Client:
    """A client with one complete request."""
    client = Client()
    client.open(is_end=True)
    return client


def test_a_complete_response_is_three_frames_and_ends_its_stream(client: Client) -> None:
    client.connection.respond(1, HEAD, b"\0\0\0\0\x02", b"ab", TAIL)
    assert client.received() == [
        (FrameType.HEADERS, END_HEADERS, 1, HEAD.block),
        (FrameType.DATA, 0, 1, b"\0\0\0\0\x02ab"),
        (FrameType.HEADERS, END_HEADERS | END_STREAM, 1, TAIL.block),
    ]
    assert client.connection.open_streams == 0
    client.connection.respond(1, HEAD, b"", b"", TAIL)
    assert client.received() == []


@pytest.mark.parametrize("size", [16_379, 16_380, WINDOW - 5, WINDOW - 4, 200_000])
def test_the_hot_path_and_the_general_one_send_the_same(size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    client = Client()
    client.open(is_end=True)
    client.connection.respond(1, HEAD, b"12345", content[:size], TAIL)
    frames = client.received()
    while client.connection.open_streams:
        client.widen(0, 50_000)
        client.widen(1, 30_000)
        frames += client.received()
    assert frames[0] == (FrameType.HEADERS, END_HEADERS, 1, HEAD.block)
    assert b"".join(each.payload for each in frames[1:-1]) == b"12345" + content[:size]
    assert frames[-1] == (FrameType.HEADERS, END_HEADERS | END_STREAM, 1, TAIL.block)


def test_complete_responses_use_up_the_window_of_the_connection() -> None:
    client = Client()
    for _ in range(5):
        client.connection.respond(client.open(is_end=True), HEAD, b"", b"a" * 16_000, TAIL)
    assert sum(map(len, client.content().values())) == WINDOW
    assert client.connection.unsent_of(9) == 5 * 16_000 - WINDOW


def test_frames_are_as_large_as_the_peer_accepts(client: Client) -> None:
    """Section 4.2; the prefix of a message gets no frame for itself."""
    client.connection.send_data(1, b"12345", b"a" * 20_000)
    assert [len(each.payload) for each in client.received()] == [16_384, 3_621]
    client.send(settings_frame({Setting.MAX_FRAME_SIZE: 20_000}))
    client.connection.send_data(1, b"a" * 20_000)
    assert [len(each.payload) for each in client.received()] == [0, 20_000]


def test_large_trailers_continue(client: Client) -> None:
    client.connection.send_headers(1, b"a" * 20_000, is_end=True)
    assert [(each.kind, each.flags, len(each.payload)) for each in client.received()] == [
        (FrameType.HEADERS, END_STREAM, 16_384),
        (FrameType.CONTINUATION, END_HEADERS, 3_616),
    ]


def test_content_waits_for_both_windows_and_trailers_follow_it(client: Client) -> None:
    client.connection.send_headers(1, OK)
    client.connection.send_data(1, b"a" * 70_000)
    client.connection.send_headers(1, TRAILERS, is_end=True)
    assert sum(len(each.payload) for each in client.received() if each.kind is FrameType.DATA) == WINDOW
    assert client.connection.unsent_of(1) == 70_000 - WINDOW
    assert client.widen(0, 10_000) == []
    assert client.received() == []
    assert client.widen(1, 10_000) == []
    assert [(each.kind, each.flags) for each in client.received()] == [
        (FrameType.DATA, 0),
        (FrameType.HEADERS, END_HEADERS | END_STREAM),
    ]
    assert client.connection.open_streams == client.connection.unsent_bytes == 0


def test_the_end_stands_on_the_last_data_where_there_are_no_trailers(client: Client) -> None:
    client.connection.send_data(1, b"a" * (WINDOW + 1), is_end=True)
    assert END_STREAM not in {each.flags for each in client.received()}
    assert client.widen(1, 1) == client.widen(0, 1) == []
    assert client.received() == [(FrameType.DATA, END_STREAM, 1, b"a")]


def test_a_complete_response_follows_content_that_waits(client: Client) -> None:
    client.connection.send_data(1, b"a" * (WINDOW + 1))
    client.received()
    client.connection.respond(1, HEAD, b"", b"", TAIL)
    client.widen(0, 1)
    client.widen(1, 1)
    assert client.content() == {1: b"a"}
    assert client.connection.open_streams == client.connection.unsent_bytes == 0


def test_an_end_without_content_needs_no_window(client: Client) -> None:
    """Section 6.9.1."""
    client.connection.send_data(1, b"a" * WINDOW)
    client.received()
    client.connection.send_data(1, b"", is_end=True)
    assert client.received() == [(FrameType.DATA, END_STREAM, 1, b"")]


def test_the_application_learns_when_waiting_content_is_sent(client: Client) -> None:
    client.connection.send_data(1, b"a" * (WINDOW + 10))
    client.widen(0, 10)
    assert client.widen(1, 9) == []
    assert client.widen(1, 1) == [SendingResumed(1)]


def test_streams_that_wait_for_the_connection_send_in_turn() -> None:
    client = Client()
    client.send(settings_frame({Setting.INITIAL_WINDOW_SIZE: 1 << 20}))
    for _ in range(2):
        client.open(is_end=True)
    client.connection.send_data(1, b"a" * 200_000)
    client.connection.send_data(3, b"b" * 20_000, is_end=True)
    client.received()
    client.widen(0, 100_000)
    sent = client.received()
    assert [each.stream_id for each in sent[:4]] == [1, 3, 1, 3]
    assert sent[3].flags == END_STREAM
    assert client.connection.unsent_bytes == 200_000 - WINDOW - (100_000 - 20_000)


def test_a_stream_with_a_closed_window_holds_back_no_other() -> None:
    client = Client()
    client.widen(0, 1 << 20)
    for _ in range(2):
        client.open(is_end=True)
    client.connection.send_data(1, b"a" * (WINDOW + 1))
    client.received()
    client.connection.send_data(3, b"b")
    assert client.content() == {3: b"b"}


@pytest.mark.parametrize(
    "end",
    [data(1, b"end", is_end=True), headers(1, is_end=True), reset_frame(1, ErrorCode.NO_ERROR)],
)
def test_what_a_client_sends_after_the_response_is_ignored_until_its_end(end: bytes) -> None:
    """Section 8.1; and it is not an attack when it resets the stream."""
    client = Client(Limits(resets=Rate(1, 0.001), ignored_frames=Rate(1, 0.001)))
    client.open()
    client.connection.respond(1, HEAD, b"", b"ab", TAIL)
    assert [each.kind for each in client.received()] == [FrameType.HEADERS, FrameType.DATA, FrameType.HEADERS]
    assert client.connection.open_streams == 0
    assert client.send(data(1, b"late"), end) == []
    assert client.connection.over is None
    assert not client.connection._ignored
    client.send(data(1, b"later"))
    assert client.failure() is ErrorCode.STREAM_CLOSED


def test_a_peer_that_limits_the_table_is_assured_that_it_is_empty(client: Client) -> None:
    """RFC 7541 section 4.2."""
    client.send(settings_frame({Setting.HEADER_TABLE_SIZE: 0}))
    client.received()
    decoder = Decoder()
    decoder.max_allowed_table_size = 0
    client.connection.respond(1, HEAD, b"", b"ab", TAIL)
    head, _, tail = client.received()
    assert head.payload == EMPTY_TABLE + HEAD.block
    assert next(iter(decoder.decode(head.payload, raw=True))) == (b":status", b"200")
    assert list(decoder.decode(tail.payload, raw=True)) == [(b"grpc-status", b"0")]


def test_a_reset_is_sent_once() -> None:
    client = Client()
    client.open()
    for _ in range(2):
        client.connection.reset(1, ErrorCode.CANCEL)
    assert client.received() == [(FrameType.RST_STREAM, 0, 1, b"\0\0\0\x08")]


# --- the end (section 6.8) --------------------------------------------------------------------------------------


def test_a_drain_serves_what_the_client_sent_before_it_knew(client: Client) -> None:
    client.connection.drain()
    first, ping = client.received()
    assert first.payload == goaway_frame(MAX_STREAM_ID, ErrorCode.NO_ERROR)[9:]
    client.open(is_end=True)
    client.send(ping_frame(ping.payload, ack=True))
    assert client.received() == [(FrameType.GOAWAY, 0, 0, goaway_frame(3, ErrorCode.NO_ERROR)[9:])]
    assert client.send(headers(5)) == client.send(data(5, b"a")) == []
    client.connection.respond(1, HEAD, b"", b"", TAIL)
    assert client.connection.over is None
    client.connection.respond(3, HEAD, b"", b"", TAIL)
    assert client.connection.over == (ErrorCode.NO_ERROR, "drained")


def test_a_drain_without_streams_is_over_when_the_client_knows(client: Client) -> None:
    client.connection.respond(1, HEAD, b"", b"", TAIL)
    client.connection.drain()
    client.connection.drain()
    *_, ping = client.received()
    assert client.connection.over is None
    client.send(ping_frame(ping.payload, ack=True))
    assert client.connection.over is not None
    assert client.received()[-1].kind is FrameType.GOAWAY


def test_a_drain_is_over_when_the_last_stream_is_reset_by_either_side() -> None:
    for ends in ("client", "server"):
        client = Client()
        client.open()
        client.connection.drain()
        client.send(ping_frame(client.received()[-1].payload, ack=True))
        if ends == "client":
            client.reset(1)
        else:
            client.connection.reset(1, ErrorCode.CANCEL)
        assert client.connection.over == (ErrorCode.NO_ERROR, "drained")


def test_a_close_ends_everything_immediately(client: Client) -> None:
    client.connection.close(ErrorCode.INTERNAL_ERROR, "why")
    assert client.received() == [(FrameType.GOAWAY, 0, 0, goaway_frame(1, ErrorCode.INTERNAL_ERROR, b"why")[9:])]
    assert client.connection.open_streams == 0
    assert client.connection.take_output() == b""


def test_the_output_is_taken_once(client: Client) -> None:
    client.send(ping_frame(b"12345678"), ping_frame(b"abcdefgh"))
    assert [each.flags for each in frames_of(client.connection.take_output())] == [ACK, ACK]
    assert client.connection.take_output() == b""
