"""Whatever a RocketMQ broker sends ends as a result or as an error of the library."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.rocketmq.frames import Command, FrameReader, encode, read_header
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import BrokerTimeoutError, BrokerUnreachableError, PointsmanError
from pointsman_client.rocketmq.broker_connection import BrokerConnection, Response
from pointsman_client.rocketmq.message_codec import store_times, stored_queue
from pointsman_client.rocketmq.pulling import read_pulled
from pointsman_client.rocketmq.request_frames import request_head
from pointsman_client.rocketmq.rocketmq_options import RocketmqOptions
from tests.kit.broker.rocketmq.stored_messages import batch_record, stored_message

FOLDER = Path(__file__).parents[1] / "fixtures" / "rocketmq_broker_frames"
RESPONSES = [path.read_bytes() for path in sorted(FOLDER.glob("*.response.bin"))]
BATCH = batch_record(b"a") + batch_record(b"b", "TAGS\x01t\x02")
RECORDS = [
    stored_message(b"plain", offset=1, properties="UNIQ_KEY\x01u\x02TAGS\x01t\x02KEYS\x01a b\x02"),
    stored_message(zlib.compress(b"z" * 99), offset=2, sys_flag=1),
    stored_message(BATCH, offset=3, sys_flag=0xC0),
    stored_message(zlib.compress(BATCH), offset=5, sys_flag=0xC1),
    stored_message(b"", offset=-1),
    stored_message(b"last", offset=2**63 - 1),
]
OFFSETS = st.sampled_from(["", "0", "4", "-7", "x", "9223372036854775807", "9223372036854775808"])
MAX_MESSAGES, MAX_BODY = 4, 1_000


def damaged(whole: list[bytes]) -> st.SearchStrategy[bytes]:
    """Some of these in a row, with bytes replaced, removed or added at one place."""

    def damage(parts: list[bytes], at: int, put: bytes, cut: int) -> bytes:
        data = b"".join(parts)
        return data[:at] + put + data[at + cut :]

    lists = st.lists(st.sampled_from(whole), max_size=6)
    return st.builds(damage, lists, st.integers(0, 400), st.binary(max_size=9), st.integers(0, 40))


@given(damaged(RECORDS), st.integers(0, 6), st.sampled_from([0, 19, 20, 21, 1]), OFFSETS, OFFSETS)
def test_a_response_to_a_pull_moves_forward_or_is_refused(
    body: bytes, offset: int, code: int, next_offset: str, end: str
) -> None:
    command = Command(code=code, ext={"nextBeginOffset": next_offset, "minOffset": "0", "maxOffset": end})
    queue = MessageQueue("orders", "c1", "a", 0)
    stored_queue(body)
    with contextlib.suppress(ValueError):
        store_times(body)
    try:
        found = read_pulled("a:1", queue, offset, command, body, max_messages=MAX_MESSAGES, max_body_bytes=MAX_BODY)
    except PointsmanError:
        return
    offsets = [message.queue_offset for message in found.messages]
    assert offsets == sorted(set(offsets))
    assert found.is_reset or offset <= found.next_offset
    assert not offsets or offset <= offsets[0] <= offsets[-1] < found.next_offset


class Wire(asyncio.Transport):
    """The connection's side of a socket."""

    def __init__(self) -> None:
        super().__init__()
        self.written = FrameReader()
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview[int]) -> None:
        self.written.feed(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is buffered."""

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close


async def exchange(chunks: list[bytes]) -> None:
    handled: list[Command] = []
    loop, wire = asyncio.get_running_loop(), Wire()
    connection = BrokerConnection("a:1", RocketmqOptions(), lambda command, *_: handled.append(command), lambda _: None)
    connection.connection_made(wire)
    head = request_head(Request.GET_MAX_OFFSET, {})
    outcomes = [connection.request(head, b"", loop.time() + 60.0) for _ in range(6)]
    await asyncio.sleep(0)
    for chunk in chunks:
        if not wire.is_closed:
            connection.data_received(chunk)
    connection.connection_lost(None)
    for outcome in await asyncio.gather(*outcomes, return_exceptions=True):
        assert isinstance(outcome, Response | BrokerTimeoutError | BrokerUnreachableError)
    assert not any(command.is_answer for command in handled)
    sent = [read_header(frame.form, frame.header).opaque for frame in iter(wire.written.next, None)]
    assert sent == [1, 2, 3, 4, 5, 6]


@given(damaged([*RESPONSES, encode(Command(code=Request.GET_CONSUMER_RUNNING_INFO, opaque=1))]), st.integers(1, 2_000))
def test_every_request_ends_whatever_arrives_in_whatever_pieces(data: bytes, size: int) -> None:
    asyncio.run(exchange([data[at : at + size] for at in range(0, len(data), size)]))
