"""Every frame type that a peer may send, and each rule of RFC 9113 about it, by section."""

from __future__ import annotations

import pytest
from hpack import Encoder

from pointsman.http2.frame_codec import (
    ACK,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    PADDED,
    PREFACE,
    PRIORITY,
    SETTINGS_ACK,
    ErrorCode,
    FrameType,
    Setting,
    frame,
    goaway_frame,
    ping_frame,
    reset_frame,
    settings_frame,
    window_update_frame,
)
from pointsman.http2.header_blocks import EMPTY_TABLE, MAX_BLOCKS_OF_ONE, ReadyHeaders, encode_block
from pointsman.http2.http2_connection import Http2Connection
from pointsman.http2.http2_events import DataReceived, PeerLeaving, PingAnswered, RequestReceived, StreamEnded
from pointsman.http2.http2_sending import Http2Shared
from pointsman.http2.peer_limits import Bound, Limits, Rate
from tests.kit.http2.client_frames import BLOCK, METHOD, OK, REQUEST, Client, data, headers

ERROR = ErrorCode
CLOSED = 1
"""A stream that has ended in both directions."""
HALF_CLOSED = 3
OPEN = 5
RESET_BY_SERVER = 7
SKIPPED = 9
IDLE = 99
READY = ReadyHeaders([(b":status", b"200")])


@pytest.fixture
def client() -> Client:
    """A connection with a stream in each state."""
    client = Client()
    client.open(is_end=True)
    client.open(is_end=True)
    client.open()
    client.open()
    client.connection.send_headers(CLOSED, OK, is_end=True)
    client.connection.reset(RESET_BY_SERVER, ErrorCode.CANCEL)
    client.send(headers(11, is_end=True))
    client.received()
    return client


# --- the preface (section 3.4) and frames (section 4) -----------------------------------------------------------


def test_a_server_begins_with_its_settings_and_confirms_those_of_the_client() -> None:
    client = Client(opens=False)
    [settings] = client.received()
    assert settings.kind is FrameType.SETTINGS
    assert settings.payload.hex() == "0001000000000003000003e8000600004000"
    client.send(PREFACE, settings_frame({}))
    assert client.received() == [(FrameType.SETTINGS, ACK, 0, b"")]
    assert not client.connection.is_acknowledged
    client.send(SETTINGS_ACK)
    assert client.connection.is_acknowledged


def test_larger_windows_are_announced() -> None:
    client = Client(Limits(stream_window=100_000, connection_window=200_000), opens=False)
    settings, update = client.received()
    assert settings.payload[-6:].hex() == "0004000186a0"
    assert (update.kind, update.payload) == (FrameType.WINDOW_UPDATE, (200_000 - DEFAULT_WINDOW).to_bytes(4, "big"))


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\n",
        b"PRI * HTTP/2.1",
        PREFACE + ping_frame(b"12345678"),
        PREFACE + headers(1),
        PREFACE + SETTINGS_ACK,
    ],
)
def test_what_does_not_begin_with_the_preface_and_settings_is_refused(first: bytes) -> None:
    client = Client(opens=False)
    assert client.send(first) == []
    assert client.failure() is ERROR.PROTOCOL_ERROR


def test_a_preface_may_come_in_parts() -> None:
    client = Client(opens=False)
    for octet in PREFACE + settings_frame({}):
        client.send(bytes((octet,)))
    assert [each.kind for each in client.received()] == [FrameType.SETTINGS, FrameType.SETTINGS]


def test_a_frame_above_the_largest_size_is_refused_before_its_payload_arrives(client: Client) -> None:
    """Section 4.2."""
    client.send(frame(FrameType.DATA, 0, OPEN, b"a" * 16_385)[:9])
    assert client.failure() is ERROR.FRAME_SIZE_ERROR


def test_frames_of_unknown_types_and_the_reserved_bit_are_ignored(client: Client) -> None:
    """Sections 4.1 and 5.5."""
    assert client.send(frame(0xBE, 0xFF, 123, b"anything")) == []
    assert client.send(frame(FrameType.DATA, 0, OPEN | 1 << 31, b"a")) == [DataReceived(OPEN, b"a", 1, is_end=False)]


def test_nothing_is_received_after_an_error_of_the_connection(client: Client) -> None:
    """Section 5.4.1: GOAWAY has the last stream that was handled."""
    assert client.send(frame(FrameType.SETTINGS, 0, 1), headers(13)) == []
    assert client.connection.over == (ERROR.PROTOCOL_ERROR, "SETTINGS on stream 1")
    assert client.received()[-1].payload == b"\0\0\0\x0b\0\0\0\x01SETTINGS on stream 1"
    assert client.send(headers(15)) == []
    assert client.connection.open_streams == 0
    client.connection.acknowledge(OPEN, 100_000)
    client.connection.reset(OPEN, ERROR.CANCEL)
    client.connection.ping(b"12345678")
    client.connection.close()
    client.connection.drain()
    assert client.received() == []


# --- HEADERS and CONTINUATION (sections 6.2, 6.10, 8.1) ---------------------------------------------------------


def test_headers_open_a_stream(client: Client) -> None:
    [event] = client.send(headers(13, is_end=True))
    assert isinstance(event, RequestReceived)
    assert (event.stream_id, event.headers.path, event.is_end) == (13, METHOD, True)
    assert dict(event.headers.fields)[b"te"] == b"trailers"


def test_padding_and_priority_of_headers_are_ignored(client: Client) -> None:
    """Section 5.3.2; a stream that depends on itself was an error of RFC 7540 only."""
    priority = b"\x00\x00\x00\x0d\xff"
    [event] = client.send(headers(13, b"\x02" + priority + BLOCK + b"\0\0", flags=END_HEADERS | PADDED | PRIORITY))
    assert isinstance(event, RequestReceived)
    assert event.headers.path == METHOD


def test_headers_without_room_for_their_priority_are_an_error(client: Client) -> None:
    client.send(headers(13, b"\0\0\0\0", flags=END_HEADERS | PRIORITY))
    assert client.failure() is ERROR.FRAME_SIZE_ERROR


def test_a_block_may_be_divided_over_continuation_frames(client: Client) -> None:
    assert client.send(headers(13, BLOCK[:10], is_end=True, flags=0)) == []
    assert client.send(frame(FrameType.CONTINUATION, 0, 13, BLOCK[10:20])) == []
    assert client.connection.waiting_bytes == 20
    [event] = client.send(frame(FrameType.CONTINUATION, END_HEADERS, 13, BLOCK[20:]))
    assert isinstance(event, RequestReceived)
    assert (event.headers.path, event.is_end) == (METHOD, True)
    assert client.send(ping_frame(b"12345678")) == []


@pytest.mark.parametrize(
    "between",
    [
        data(OPEN, b"a"),
        headers(15),
        settings_frame({}),
        ping_frame(b"12345678"),
        frame(0xBE, 0, 0),
        frame(FrameType.CONTINUATION, END_HEADERS, OPEN, BLOCK[10:]),
    ],
)
def test_nothing_comes_between_headers_and_their_last_continuation(client: Client, between: bytes) -> None:
    client.send(headers(13, BLOCK[:10], flags=0), between)
    assert client.failure() is ERROR.PROTOCOL_ERROR


def test_continuation_without_headers_is_an_error(client: Client) -> None:
    client.send(frame(FrameType.CONTINUATION, END_HEADERS, OPEN, BLOCK))
    assert client.failure() is ERROR.PROTOCOL_ERROR


@pytest.mark.parametrize("stream_id", [0, 2, 14])
def test_a_client_opens_streams_with_odd_identifiers(client: Client, stream_id: int) -> None:
    """Section 5.1.1."""
    client.send(headers(stream_id))
    assert client.failure() is ERROR.PROTOCOL_ERROR


@pytest.mark.parametrize(("stream_id", "code"), [(SKIPPED, ERROR.PROTOCOL_ERROR), (CLOSED, ERROR.STREAM_CLOSED)])
def test_identifiers_are_not_used_again(client: Client, stream_id: int, code: ErrorCode) -> None:
    """Sections 5.1 and 5.1.1."""
    client.send(headers(stream_id))
    assert client.failure() is code


def test_a_malformed_request_costs_its_stream_and_is_not_seen(client: Client) -> None:
    """Section 8.1.1."""
    assert client.send(headers(13, encode_block(REQUEST[1:]))) == []
    assert client.resets() == [(13, ERROR.PROTOCOL_ERROR)]
    assert client.connection.over is None
    # Its content may be on the way.
    assert client.send(data(13, b"a")) == []
    assert client.send(headers(13, BLOCK, is_end=True)) == []
    assert client.connection.over is None


def test_trailers_end_a_request(client: Client) -> None:
    assert client.send(headers(OPEN, encode_block([(b"a", b"b")]), is_end=True)) == [DataReceived(OPEN, b"", 0, True)]


@pytest.mark.parametrize(
    ("trailers", "is_end"), [([(b"a", b"b")], False), ([(b":path", b"/")], True), ([(b"A", b"b")], True)]
)
def test_malformed_trailers_cost_their_stream(
    client: Client, trailers: list[tuple[bytes, bytes]], is_end: bool
) -> None:
    event = StreamEnded(OPEN, ERROR.PROTOCOL_ERROR, by_peer=False)
    assert client.send(headers(OPEN, encode_block(trailers), is_end=is_end)) == [event]
    assert client.resets() == [(OPEN, ERROR.PROTOCOL_ERROR)]


# --- HPACK (section 4.3) ----------------------------------------------------------------------------------------


def test_until_the_settings_are_acknowledged_a_dynamic_table_is_allowed() -> None:
    client = Client(opens=False)
    encoder = Encoder()
    client.send(PREFACE, settings_frame({}))
    events = client.send(headers(1, encoder.encode(REQUEST)), headers(3, encoder.encode(REQUEST)))
    assert [event.headers.path for event in events if isinstance(event, RequestReceived)] == [METHOD] * 2
    assert len(client.shared.known) == 0
    encoder.header_table_size = 0
    client.send(SETTINGS_ACK, headers(5, encoder.encode(REQUEST)), headers(7, encoder.encode(REQUEST)))
    assert len(client.shared.known) == 2
    assert client.connection.over is None


def test_the_first_block_after_the_acknowledgement_must_empty_the_table() -> None:
    """Section 4.3.1."""
    client = Client()
    client.send(headers(1, BLOCK))
    assert client.failure() is ERROR.COMPRESSION_ERROR
    client = Client()
    client.send(headers(1, EMPTY_TABLE + BLOCK), headers(3, b"\x3f\xe1\x1f" + BLOCK))
    assert client.failure() is ERROR.COMPRESSION_ERROR


def test_the_same_bytes_are_decoded_once_for_all_connections() -> None:
    shared = Http2Shared()
    found = []
    for _ in range(3):
        client = Client(shared=shared)
        client.open()
        [event] = client.send(headers(3))
        assert isinstance(event, RequestReceived)
        found.append(event.headers)
    assert found[0] is found[1] is found[2]
    assert len(shared.known) == 2


def test_one_connection_adds_few_blocks() -> None:
    client = Client()
    client.open(is_end=True)
    for number in range(3, 3 + 4 * MAX_BLOCKS_OF_ONE, 2):
        client.send(headers(number, BLOCK + encode_block([(b"n", b"%d" % number)]), is_end=True))
    assert len(client.shared.known) == MAX_BLOCKS_OF_ONE


def test_a_block_that_is_not_hpack_ends_the_connection(client: Client) -> None:
    client.send(headers(13, b"\xff" * 20))
    assert client.failure() is ERROR.COMPRESSION_ERROR


def test_blocks_are_decoded_with_a_table_where_the_server_allows_one() -> None:
    client = Client(Limits(header_table_size=4_096))
    encoder = Encoder()
    for stream_id in (1, 3, 5):
        [event] = client.send(headers(stream_id, encoder.encode(REQUEST)))
        assert isinstance(event, RequestReceived)
    assert len(client.shared.known) == 0


# --- DATA (section 6.1) -----------------------------------------------------------------------------------------


def test_data_of_a_request_arrives_with_its_size_for_flow_control(client: Client) -> None:
    assert client.send(data(OPEN, b"ab"), frame(FrameType.DATA, PADDED | END_STREAM, OPEN, b"\x02c\0\0")) == [
        DataReceived(OPEN, b"ab", 2, is_end=False),
        DataReceived(OPEN, b"c", 4, is_end=True),
    ]


@pytest.mark.parametrize(
    ("stream_id", "code"),
    [
        (0, ERROR.PROTOCOL_ERROR),
        (2, ERROR.PROTOCOL_ERROR),
        (IDLE, ERROR.PROTOCOL_ERROR),
        (SKIPPED, ERROR.PROTOCOL_ERROR),
        (CLOSED, ERROR.STREAM_CLOSED),
    ],
)
def test_data_outside_an_open_stream_ends_the_connection(client: Client, stream_id: int, code: ErrorCode) -> None:
    client.send(data(stream_id, b"a"))
    assert client.failure() is code


@pytest.mark.parametrize("late", [data(HALF_CLOSED, b"a"), headers(HALF_CLOSED), headers(HALF_CLOSED, is_end=True)])
def test_what_follows_the_end_of_a_request_costs_its_stream(client: Client, late: bytes) -> None:
    """Section 5.1, half-closed (remote)."""
    assert client.send(late) == [StreamEnded(HALF_CLOSED, ERROR.STREAM_CLOSED, by_peer=False)]
    assert client.resets() == [(HALF_CLOSED, ERROR.STREAM_CLOSED)]


@pytest.mark.parametrize("late", [data(RESET_BY_SERVER, b"a"), headers(RESET_BY_SERVER, is_end=True)])
def test_what_was_on_the_way_when_the_server_reset_a_stream_is_ignored(client: Client, late: bytes) -> None:
    """Section 5.1, closed."""
    assert client.send(late) == []
    assert client.connection.over is None


@pytest.mark.parametrize(
    ("declared", "frames"),
    [
        (3, [data(13, b"ab", is_end=True)]),
        (3, [data(13, b"abcd")]),
        (3, [data(13, b"ab"), headers(13, encode_block([(b"a", b"b")]), is_end=True)]),
    ],
)
def test_content_has_the_length_that_the_request_declares(client: Client, declared: int, frames: list[bytes]) -> None:
    """Section 8.1.1."""
    client.send(headers(13, BLOCK + encode_block([(b"content-length", b"%d" % declared)])))
    assert client.send(*frames)[-1] == StreamEnded(13, ERROR.PROTOCOL_ERROR, by_peer=False)
    client.send(headers(15, BLOCK + encode_block([(b"content-length", b"2")]), is_end=True))
    assert client.resets() == [(13, ERROR.PROTOCOL_ERROR), (15, ERROR.PROTOCOL_ERROR)]
    client.send(headers(17, BLOCK + encode_block([(b"content-length", b"2")])))
    assert client.send(data(17, b"a"), data(17, b"b", is_end=True))[-1] == DataReceived(17, b"b", 1, is_end=True)


# --- flow control of what is received (sections 5.2, 6.9) -------------------------------------------------------


def test_data_beyond_the_window_of_its_stream_costs_the_stream() -> None:
    client = Client(Limits(connection_window=1 << 20))
    client.open()
    assert len(client.send(*[data(1, b"a" * 16_384)] * 3)) == 3
    assert client.send(data(1, b"a" * 16_384)) == [StreamEnded(1, ERROR.FLOW_CONTROL_ERROR, by_peer=False)]


def test_data_beyond_the_window_of_the_connection_ends_it() -> None:
    client = Client()
    for _ in range(2):
        client.open()
    client.send(*[data(1, b"a" * 16_384)] * 2, *[data(3, b"a" * 16_384)] * 2)
    assert client.failure() is ERROR.FLOW_CONTROL_ERROR


def test_windows_open_as_the_application_uses_what_it_received() -> None:
    client = Client()
    client.open()
    client.send(data(1, b"a" * 16_384))
    client.connection.acknowledge(1, 16_384)
    assert client.received() == []
    client.send(data(1, b"a" * 16_384))
    client.connection.acknowledge(1, 16_384)
    assert [(each.kind, each.stream_id, each.payload.hex()) for each in client.received()] == [
        (FrameType.WINDOW_UPDATE, 0, "00008000"),
        (FrameType.WINDOW_UPDATE, 1, "00008000"),
    ]
    for _ in range(100):
        assert client.send(data(1, b"a" * 16_384)) == [DataReceived(1, b"a" * 16_384, 16_384, is_end=False)]
        client.connection.acknowledge(1, 16_384)


def test_a_stream_that_has_ended_needs_no_window_but_the_connection_does() -> None:
    client = Client()
    for _ in range(50):
        stream_id = client.open()
        client.send(data(stream_id, b"a" * 16_384, is_end=True))
        client.connection.acknowledge(stream_id, 16_384)
    updates = [each for each in client.received() if each.kind is FrameType.WINDOW_UPDATE]
    assert {each.stream_id for each in updates} == {0}
    assert client.connection.over is None


def test_what_is_ignored_or_refused_counts_as_used(client: Client) -> None:
    """Section 6.9.1: otherwise the window of the connection would shrink for ever."""
    for _ in range(20):
        client.send(data(RESET_BY_SERVER, b"a" * 16_384))
    for stream_id in range(13, 53, 2):
        client.send(headers(stream_id, is_end=True), data(stream_id, b"a" * 16_384))
    assert client.connection.over is None


# --- RST_STREAM (section 6.4), PRIORITY (6.3), PUSH_PROMISE (6.6) -----------------------------------------------


def test_a_reset_ends_a_stream_and_what_waits_on_it() -> None:
    client = Client()
    client.open(is_end=True)
    client.connection.send_data(1, b"a" * 100_000)
    assert client.connection.unsent_bytes == 100_000 - DEFAULT_WINDOW
    assert client.reset(1) == [StreamEnded(1, ERROR.CANCEL, by_peer=True)]
    assert (client.connection.unsent_bytes, client.connection.open_streams) == (0, 0)
    client.received()
    client.connection.send_data(1, b"a")
    client.connection.send_headers(1, OK, is_end=True)
    assert client.received() == []
    assert client.reset(1) == []


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (reset_frame(0, 0), ERROR.PROTOCOL_ERROR),
        (reset_frame(IDLE, 0), ERROR.PROTOCOL_ERROR),
        (frame(FrameType.RST_STREAM, 0, OPEN, b"abc"), ERROR.FRAME_SIZE_ERROR),
        (frame(FrameType.PRIORITY, 0, 0, b"abcde"), ERROR.PROTOCOL_ERROR),
        (frame(FrameType.PRIORITY, 0, IDLE, b"abcd"), ERROR.FRAME_SIZE_ERROR),
        (frame(FrameType.PUSH_PROMISE, END_HEADERS, OPEN, b"\0\0\0\2" + BLOCK), ERROR.PROTOCOL_ERROR),
    ],
)
def test_such_a_frame_ends_the_connection(client: Client, bad: bytes, code: ErrorCode) -> None:
    client.send(bad)
    assert client.failure() is code


def test_priority_is_ignored_on_any_stream(client: Client) -> None:
    for stream_id in (CLOSED, OPEN, IDLE, 2):
        assert client.send(frame(FrameType.PRIORITY, 0, stream_id, b"\0\0\0\0\0")) == []
    assert client.send(frame(FrameType.PRIORITY, 0, OPEN, b"\0\0\0\0")) == [
        StreamEnded(OPEN, ERROR.FRAME_SIZE_ERROR, by_peer=False)
    ]


# --- SETTINGS (section 6.5) -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (frame(FrameType.SETTINGS, 0, 1), ERROR.PROTOCOL_ERROR),
        (frame(FrameType.SETTINGS, ACK, 0, b"\0" * 6), ERROR.FRAME_SIZE_ERROR),
        (frame(FrameType.SETTINGS, 0, 0, b"\0" * 5), ERROR.FRAME_SIZE_ERROR),
        (settings_frame({Setting.ENABLE_PUSH: 2}), ERROR.PROTOCOL_ERROR),
    ],
)
def test_wrong_settings_end_the_connection(client: Client, bad: bytes, code: ErrorCode) -> None:
    client.send(bad)
    assert client.failure() is code


def test_settings_apply_to_open_streams_and_are_acknowledged() -> None:
    """Section 6.9.2: a changed initial window changes those of all streams, below 0 too."""
    client = Client()
    client.open(is_end=True)
    client.widen(0, 1 << 20)
    client.connection.send_data(1, b"a" * 60_000)
    client.received()
    client.send(settings_frame({Setting.INITIAL_WINDOW_SIZE: 10_000, 0x99: 1}))
    client.connection.send_data(1, b"b" * 10_000)
    assert client.received() == [(FrameType.SETTINGS, ACK, 0, b"")]
    assert client.connection.unsent_of(1) == 10_000
    client.send(settings_frame({Setting.INITIAL_WINDOW_SIZE: 60_001}))
    assert client.content() == {1: b"b"}
    client.send(settings_frame({Setting.INITIAL_WINDOW_SIZE: 70_000}))
    assert client.content() == {1: b"b" * 9_999}


def test_a_window_that_settings_move_beyond_the_maximum_ends_the_connection(client: Client) -> None:
    client.widen(OPEN, (1 << 31) - 1 - DEFAULT_WINDOW)
    client.send(settings_frame({Setting.INITIAL_WINDOW_SIZE: DEFAULT_WINDOW + 1}))
    assert client.failure() is ERROR.FLOW_CONTROL_ERROR


# --- PING (6.7), GOAWAY (6.8), WINDOW_UPDATE (6.9) --------------------------------------------------------------


def test_a_ping_is_acknowledged_with_its_octets(client: Client) -> None:
    assert client.send(ping_frame(b"12345678")) == []
    assert client.received() == [(FrameType.PING, ACK, 0, b"12345678")]
    client.connection.ping(b"abcdefgh")
    assert client.received() == [(FrameType.PING, 0, 0, b"abcdefgh")]
    assert client.send(ping_frame(b"abcdefgh", ack=True)) == [PingAnswered(b"abcdefgh")]


def test_a_peer_that_leaves_is_an_event_and_its_streams_continue(client: Client) -> None:
    assert client.send(goaway_frame(0, ERROR.NO_ERROR, b"bye")) == [PeerLeaving(0, b"bye")]
    assert client.send(data(OPEN, b"a", is_end=True)) == [DataReceived(OPEN, b"a", 1, is_end=True)]


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (frame(FrameType.PING, 0, 1, b"12345678"), ERROR.PROTOCOL_ERROR),
        (frame(FrameType.PING, 0, 0, b"1234567"), ERROR.FRAME_SIZE_ERROR),
        (frame(FrameType.GOAWAY, 0, 1, b"\0" * 8), ERROR.PROTOCOL_ERROR),
        (frame(FrameType.GOAWAY, 0, 0, b"\0" * 7), ERROR.FRAME_SIZE_ERROR),
        (frame(FrameType.WINDOW_UPDATE, 0, 0, b"abc"), ERROR.FRAME_SIZE_ERROR),
        (window_update_frame(0, 0), ERROR.PROTOCOL_ERROR),
        (window_update_frame(IDLE, 1), ERROR.PROTOCOL_ERROR),
        (window_update_frame(2, 1), ERROR.PROTOCOL_ERROR),
        (window_update_frame(0, (1 << 31) - DEFAULT_WINDOW), ERROR.FLOW_CONTROL_ERROR),
    ],
)
def test_such_a_frame_is_an_error_of_the_connection(client: Client, bad: bytes, code: ErrorCode) -> None:
    client.send(bad)
    assert client.failure() is code


@pytest.mark.parametrize(
    ("increment", "code"), [(0, ERROR.PROTOCOL_ERROR), ((1 << 31) - DEFAULT_WINDOW, ERROR.FLOW_CONTROL_ERROR)]
)
def test_a_wrong_window_update_costs_its_stream(client: Client, increment: int, code: ErrorCode) -> None:
    assert client.widen(OPEN, increment) == [StreamEnded(OPEN, code, by_peer=False)]
    assert client.resets() == [(OPEN, code)]


def test_a_window_update_may_come_after_the_end_of_its_stream(client: Client) -> None:
    assert client.widen(CLOSED, 1) == client.widen(RESET_BY_SERVER, 1) == []


# --- limits (section 10.5) --------------------------------------------------------------------------------------


def flood(bound: Bound, number: int) -> bytes:
    """The n-th frames of an attack of this kind, on a connection whose first stream is open."""
    stream_id = 2 * number + 3
    return {
        Bound.RESETS: headers(stream_id) + reset_frame(stream_id, ERROR.CANCEL),
        Bound.PINGS: ping_frame(b"12345678"),
        Bound.SETTINGS: settings_frame({}),
        Bound.WINDOW_UPDATES: window_update_frame(0, 1),
        Bound.EMPTY_FRAMES: data(1),
        Bound.IGNORED_FRAMES: frame(FrameType.PRIORITY, 0, 1, b"12345"),
    }[bound]


FLOODS = [
    Bound.RESETS,
    Bound.PINGS,
    Bound.SETTINGS,
    Bound.WINDOW_UPDATES,
    Bound.EMPTY_FRAMES,
    Bound.IGNORED_FRAMES,
]


@pytest.mark.parametrize("bound", FLOODS)
def test_a_flood_ends_the_connection_and_is_counted(bound: Bound) -> None:
    client = Client()
    client.open()
    rate: Rate = getattr(client.shared.limits, bound)
    for number in range(rate.burst - 5):
        client.send(flood(bound, number))
        client.connection.forget_rates(0.0)
        assert client.connection.over is None
    for number in range(rate.burst - 5, rate.burst + 5):
        client.send(flood(bound, number))
    assert client.shared.excesses.counts == {bound: 1}
    assert client.failure() is ERROR.ENHANCE_YOUR_CALM


@pytest.mark.parametrize("bound", FLOODS)
def test_a_peer_within_the_rate_is_served_for_ever(bound: Bound) -> None:
    client = Client()
    client.open()
    rate: Rate = getattr(client.shared.limits, bound)
    for number in range(3 * rate.burst):
        client.send(flood(bound, number), now=number / rate.per_second)
    assert client.connection.over is None
    assert not client.shared.excesses.counts


def test_what_is_kept_for_a_rate_is_released_when_it_is_refilled(client: Client) -> None:
    client.send(ping_frame(b"12345678"), now=1.0)
    client.connection.forget_rates(1.0)
    assert client.connection._allowances is not None
    client.connection.forget_rates(100.0)
    assert client.connection._allowances is None


def test_the_clients_of_grpc_know_by_this_text_that_they_ping_too_often() -> None:
    client = Client()
    client.send(ping_frame(b"12345678") * 60)
    assert client.received()[-1].payload[8:] == b"too_many_pings"


def test_pings_and_window_updates_that_follow_responses_are_no_flood() -> None:
    """gRPC's clients measure their bandwidth with PING, and open windows for what they have read."""
    client = Client()
    for _ in range(3_000):
        stream_id = client.open(is_end=True)
        client.connection.respond(stream_id, READY, b"", b"a", READY)
        client.send(ping_frame(b"12345678"), window_update_frame(0, 1), window_update_frame(stream_id, 1))
    assert client.connection.over is None


def test_frames_that_make_the_server_reset_streams_are_rapid_resets_too() -> None:
    """CVE-2025-8671."""
    client = Client()
    for _ in range(1_010):
        client.open(block=encode_block(REQUEST[1:]))
    assert client.shared.excesses.counts == {Bound.RESETS: 1}
    assert client.failure() is ERROR.ENHANCE_YOUR_CALM


def test_the_number_of_continuation_frames_is_bounded(client: Client) -> None:
    client.send(headers(13, BLOCK[:1], flags=0))
    for _ in range(129):
        assert client.connection.over is None
        client.send(frame(FrameType.CONTINUATION, 0, 13, b"a"))
    assert client.shared.excesses.counts == {Bound.CONTINUATIONS: 1}
    assert client.failure() is ERROR.ENHANCE_YOUR_CALM


def test_a_divided_block_that_is_too_large_costs_its_stream_and_is_not_kept(client: Client) -> None:
    client.send(headers(13, BLOCK, flags=0))
    for _ in range(100):
        client.send(frame(FrameType.CONTINUATION, 0, 13, b"a" * 16_384))
        assert client.connection.waiting_bytes == 0
    assert client.send(frame(FrameType.CONTINUATION, END_HEADERS, 13)) == []
    assert client.resets() == [(13, ERROR.ENHANCE_YOUR_CALM)]
    assert client.shared.excesses.counts == {Bound.HEADER_BYTES: 1}
    assert len(client.send(headers(15))) == 1


def test_a_divided_block_that_is_too_large_ends_the_connection_while_a_table_is_in_use() -> None:
    client = Client(opens=False)
    client.send(PREFACE, settings_frame({}))
    client.send(headers(1, b"a" * 16_000, flags=0), frame(FrameType.CONTINUATION, 0, 1, b"a" * 500))
    assert client.shared.excesses.counts == {Bound.HEADER_BYTES: 1}
    assert client.failure() is ERROR.ENHANCE_YOUR_CALM


def test_an_empty_continuation_is_an_empty_frame() -> None:
    client = Client(Limits(empty_frames=Rate(2, 1)))
    client.send(headers(1, EMPTY_TABLE, flags=0), *[frame(FrameType.CONTINUATION, 0, 1)] * 3)
    assert client.shared.excesses.counts == {Bound.EMPTY_FRAMES: 1}


def test_an_hpack_bomb_ends_the_connection_while_a_table_is_in_use() -> None:
    """A small block whose entries repeat a large one of the dynamic table."""
    client = Client(opens=False)
    large = b"\x40\x01a\x7f\xa1\x1e" + b"b" * 4_000  # a literal with indexing
    client.send(PREFACE, settings_frame({}), headers(1, large + b"\xbe" * 1_000))
    assert client.shared.excesses.counts == {Bound.HEADER_BYTES: 1}
    assert client.failure() is ERROR.ENHANCE_YOUR_CALM


def test_afterwards_a_list_that_is_too_large_costs_its_stream(client: Client) -> None:
    assert client.send(headers(13, BLOCK + b"\x82" * 1_000)) == []
    assert client.resets() == [(13, ERROR.ENHANCE_YOUR_CALM)]
    assert client.shared.excesses.counts == {Bound.HEADER_BYTES: 1}


def test_streams_beyond_the_limit_are_refused_and_may_be_repeated() -> None:
    """Section 5.1.2; REFUSED_STREAM: nothing was done (section 8.7)."""
    client = Client(Limits(max_concurrent_streams=2))
    for _ in range(2):
        client.open(is_end=True)
    assert client.open() == 5
    assert client.resets() == [(5, ERROR.REFUSED_STREAM)]
    assert client.shared.excesses.counts == {Bound.STREAMS: 1}
    client.connection.send_headers(1, OK, is_end=True)
    client.open()
    assert client.resets() == []


def test_a_peer_whose_windows_stay_closed_opens_no_streams_while_much_waits() -> None:
    client = Client(Limits(max_unsent_bytes=1_000))
    client.send(settings_frame({Setting.INITIAL_WINDOW_SIZE: 0}))
    for _ in range(2):
        client.connection.send_data(client.open(is_end=True), b"a" * 600)
    client.open(is_end=True)
    assert client.resets() == [(5, ERROR.REFUSED_STREAM)]
    assert client.shared.excesses.counts == {Bound.UNSENT: 1}
    client.widen(1, 600)
    client.open(is_end=True)
    assert client.resets() == []


def test_what_a_connection_remembers_of_reset_streams_is_bounded() -> None:
    client = Client(Limits(max_concurrent_streams=10))
    for _ in range(100):
        client.connection.reset(client.open(), ERROR.CANCEL)
    assert len(client.connection._ignored) == 10


def test_a_new_connection_keeps_little() -> None:
    connection = Http2Connection(Http2Shared())
    assert not hasattr(connection, "__dict__")
    assert connection._decoder is None
