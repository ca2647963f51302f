"""HTTP/2 for any bytes of a client: nothing raises, division does not matter, and windows are kept and used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from hypothesis import event, given
from hypothesis import strategies as st

from pointsman.http2.frame_codec import (
    ACK,
    DEFAULT_WINDOW,
    END_STREAM,
    PREFACE,
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
from pointsman.http2.header_blocks import EMPTY_TABLE, ReadyHeaders, encode_block
from pointsman.http2.http2_connection import Http2Connection
from pointsman.http2.http2_events import DataReceived, RequestReceived
from pointsman.http2.http2_sending import Http2Shared
from tests.kit.http2.client_frames import BLOCK, OK, TRAILERS, Client, data, frames_of, headers
from tests.property.http2_checks import outcome

OPENING = PREFACE + settings_frame({}) + frame(FrameType.SETTINGS, ACK, 0)
STREAM_IDS = st.sampled_from([0, 1, 1, 1, 2, 3, 3, 5, 7, 101])
BLOCKS = st.sampled_from([EMPTY_TABLE + BLOCK, BLOCK, encode_block([(b"a", b"b")]), BLOCK[:20], b"\xff\xff", b""])
CONTENT = st.binary(max_size=30)
READY = ReadyHeaders([(b"grpc-status", b"0")])


def any_frame() -> st.SearchStrategy[bytes]:
    """Frames of every type: usual ones, and ones with any flags and payload."""
    return st.one_of(
        st.builds(headers, STREAM_IDS, BLOCKS, is_end=st.booleans()),
        st.builds(headers, st.sampled_from([1, 3, 5, 7]), BLOCKS, flags=st.sampled_from([0, 4, 4, 0x2C])),
        st.builds(data, STREAM_IDS, CONTENT, is_end=st.booleans()),
        st.builds(reset_frame, STREAM_IDS, st.integers(0, 20)),
        st.builds(window_update_frame, STREAM_IDS, st.integers(0, (1 << 31) - 1)),
        st.builds(
            settings_frame,
            st.dictionaries(st.sampled_from([1, 2, 3, 4, 5, 6, 99]), st.sampled_from([0, 1, 20_000, 1 << 31])),
        ),
        st.builds(ping_frame, st.binary(min_size=8, max_size=8), ack=st.booleans()),
        st.builds(goaway_frame, STREAM_IDS, st.integers(0, 20), CONTENT),
        st.builds(frame, st.integers(0, 12), st.integers(0, 255), STREAM_IDS, CONTENT),
        st.binary(max_size=20),
    )


STREAMS_OF_BYTES = st.builds(
    lambda opening, frames: opening + b"".join(frames),
    st.sampled_from([OPENING, OPENING, OPENING, PREFACE, b""]),
    st.lists(any_frame(), max_size=15),
)


def divided(content: bytes, cuts: Sequence[int]) -> Iterator[bytes]:
    edges = sorted({0, len(content), *(cut % (len(content) + 1) for cut in cuts)})
    return (content[a:b] for a, b in pairwise(edges))


@given(content=STREAMS_OF_BYTES, cuts=st.lists(st.integers(0, 10_000), max_size=10))
def test_the_events_and_the_output_do_not_depend_on_how_the_bytes_are_divided(content: bytes, cuts: list[int]) -> None:
    whole = outcome(iter((content,)))
    assert outcome(divided(content, cuts)) == whole
    assert outcome(bytes((octet,)) for octet in content) == whole
    event("error" if whole[2] is not None else f"{min(5, len(whole[0]))} events")


@given(content=STREAMS_OF_BYTES, cuts=st.lists(st.integers(0, 10_000), max_size=5), size=st.integers(0, 100_000))
def test_no_bytes_raise_while_requests_are_served(content: bytes, cuts: list[int], size: int) -> None:
    connection = Http2Connection(Http2Shared())
    for part in divided(content, cuts):
        for each in connection.receive(part, now=0.0):
            if isinstance(each, DataReceived):
                connection.acknowledge(each.stream_id, each.octets)
            if isinstance(each, RequestReceived | DataReceived) and each.is_end:
                connection.send_headers(each.stream_id, OK)
                connection.send_data(each.stream_id, b"a" * size)
                connection.send_headers(each.stream_id, TRAILERS, is_end=True)
        frames = list(frames_of(connection.take_output()))
        assert all(len(each.payload) <= 1 << 24 for each in frames)
        assert connection.unsent_bytes == sum(stream.unsent_bytes for stream in connection._streams.values())
        if connection.over is not None:
            assert frames[-1].kind is FrameType.GOAWAY
            assert connection.open_streams == 0
            break


Action = tuple[str, int, int]
ACTIONS: st.SearchStrategy[list[Action]] = st.lists(
    st.tuples(
        st.sampled_from(["open", "open", "respond", "respond", "write", "widen", "widen", "settings", "reset"]),
        st.integers(0, 5),
        st.one_of(st.integers(1, 100), st.integers(1, 120_000)),
    ),
    max_size=40,
)


class Accounts:
    """A client that adds up, by the rules of section 6.9, what the server may send."""

    def __init__(self) -> None:
        self.client = Client()
        self.windows = {0: DEFAULT_WINDOW}
        self.initial = DEFAULT_WINDOW
        self.expected: dict[int, bytes] = {}
        self.content: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.responded: set[int] = set()

    def act(self, action: str, nth: int, size: int) -> None:
        opened = list(self.expected)
        stream_id = opened[nth % len(opened)] if opened else 0
        if action == "open":
            stream_id = self.client.open(is_end=True)
            self.windows[stream_id] = self.initial
            self.expected[stream_id] = self.content[stream_id] = b""
        elif action == "settings":
            self.set_initial(size)
        elif action == "widen":
            self.widen(0 if nth == 0 else stream_id, size)
        elif not opened or stream_id in self.responded:
            return
        elif action == "reset":
            self.client.reset(stream_id)
            for known in (self.expected, self.windows, self.content):
                known.pop(stream_id)
        else:
            content = bytes((stream_id % 251,)) * size
            self.expected[stream_id] += content
            if action == "respond":
                self.client.connection.respond(stream_id, READY, b"", content, READY)
                self.responded.add(stream_id)
            else:
                self.client.connection.send_data(stream_id, content)
        self.read()

    def set_initial(self, size: int) -> None:
        for stream_id in self.windows.keys() - {0}:
            self.windows[stream_id] += size - self.initial
        self.initial = size
        self.client.send(settings_frame({Setting.INITIAL_WINDOW_SIZE: size}))

    def widen(self, stream_id: int, size: int) -> None:
        self.windows[stream_id] += size
        self.client.widen(stream_id, size)

    def read(self) -> None:
        """Account for what the server has sent."""
        for each in self.client.received():
            if each.kind is FrameType.DATA:
                self.windows[0] -= len(each.payload)
                self.windows[each.stream_id] -= len(each.payload)
                assert self.windows[0] >= 0
                assert self.windows[each.stream_id] >= 0
                assert each.stream_id not in self.ended
                self.content[each.stream_id] += each.payload
            if each.flags & END_STREAM and each.kind is FrameType.HEADERS:
                self.ended.add(each.stream_id)
        # What may be sent is sent.
        for stream_id, expected in self.expected.items():
            if len(self.content[stream_id]) < len(expected):
                assert self.windows[0] <= 0 or self.windows[stream_id] <= 0


@given(ACTIONS)
def test_windows_are_kept_and_used_and_all_content_arrives_in_order(actions: list[Action]) -> None:
    accounts = Accounts()
    for action in actions:
        accounts.act(*action)
        assert accounts.client.connection.over is None
    for stream_id in accounts.windows:
        accounts.widen(stream_id, 1 << 30)
        accounts.read()
    assert accounts.content == accounts.expected
    assert accounts.responded == accounts.ended
    assert accounts.client.connection.unsent_bytes == 0
    assert accounts.client.connection.open_streams == len(accounts.expected.keys() - accounts.responded)


@given(code=st.sampled_from(ErrorCode), text=st.text(max_size=20))
def test_a_close_is_one_goaway_whatever_was_received(code: ErrorCode, text: str) -> None:
    client = Client()
    client.open()
    client.connection.close(code, text)
    assert [each.kind for each in client.received()] == [FrameType.GOAWAY]
