"""Responses of unmodified RocketMQ 5.3.3 and 4.9.7 brokers, byte for byte; by ``record_broker_frames.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

from pointsman.rocketmq.frames import BINARY_FORM, Command, Frame, FrameReader, encode, read_header
from pointsman_client.core.message import Message, OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import OffsetBeyondEndError
from pointsman_client.ports.transport import PulledMessages, Reader
from pointsman_client.rocketmq.message_codec import store_times
from pointsman_client.rocketmq.pulling import pull_fields, read_pulled
from pointsman_client.rocketmq.request_frames import request_frame, request_head
from pointsman_client.rocketmq.rocketmq_options import RocketmqOptions
from pointsman_client.rocketmq.sending import SendRequests
from tests.kit.broker.under_test import BORN_AT

FOLDER = Path(__file__).parents[3] / "fixtures" / "rocketmq_broker_frames"
QUEUE = MessageQueue("Recorded", "C", "a", 0)
VERSIONS = {"5.3.3": 479, "4.9.7": 407}


def frame(data: bytes) -> Frame:
    reader = FrameReader()
    reader.feed(data)
    found = reader.next()
    assert found is not None
    assert reader.waiting == 0
    return found


def response(name: str, version: str) -> tuple[Command, bytes]:
    """Read a response, of the right version."""
    found = frame((FOLDER / f"{name}_{version}.response.bin").read_bytes())
    command = read_header(found.form, found.header)
    assert (command.is_answer, command.version) == (True, VERSIONS[version])
    return command, found.body


def pulled(name: str, version: str, offset: int = 0) -> PulledMessages:
    return read_pulled("ADDR", QUEUE, offset, *response(name, version), max_messages=50, max_body_bytes=1 << 20)


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_still_those_that_the_brokers_accepted(version: str) -> None:
    plain = OutgoingMessage(Message("Recorded", b"plain", "paid", ("k1", "k2"), {"trace": "ü"}), "id-1", BORN_AT)
    batch = [OutgoingMessage(Message("Recorded", body), f"id-{body.decode()}", BORN_AT) for body in (b"b1", b"b2")]
    requests = SendRequests(RocketmqOptions())
    for opaque, name, messages in ((1, "send", [plain]), (3, "send_batch", batch)):
        head, body = requests.to_request(QUEUE, messages, now=BORN_AT, version=0)
        assert request_frame(head, opaque, body) == (FOLDER / f"{name}_{version}.request.bin").read_bytes()
    fields = pull_fields(QUEUE, 0, max_messages=32, suspend_seconds=0.0, reader=Reader("recorder"))
    assert request_frame(request_head(11, fields), 5, b"") == (FOLDER / f"pull_{version}.request.bin").read_bytes()


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_to_sends(version: str) -> None:
    for name, offset in (("send", "0"), ("send_zlib", "1"), ("send_batch", "2")):
        command, _ = response(name, version)
        assert (command.code, command.ext["queueOffset"]) == (0, offset)
    refused, _ = response("send_refused", version)
    assert refused.code == {"5.3.3": 29, "4.9.7": 1}[version]


def test_messages_of_java_and_python_in_one_response_of_4_9_7() -> None:
    found = pulled("pull", "4.9.7")
    assert found.next_offset == 7
    first, zlib, *batch, java, one, two = found.messages
    assert first.message == Message("Recorded", b"plain", "paid", ("k1", "k2"), {"trace": "ü"})
    assert (first.message_id, first.born_at, first.queue_offset) == ("id-1", BORN_AT, 0)
    assert (zlib.body, [each.body for each in batch]) == (b"z" * 5_000, [b"b1", b"b2"])
    assert java.message == Message("Recorded", b"x" * 5_000, "paid", ("k1", "k2"))
    assert len(java.message_id) in {32, 56}
    assert [one.body, two.body, one.tags] == [b"first", b"second", "t"]
    assert one.message_id != two.message_id


def test_what_java_compresses_in_5_3_3_is_read() -> None:
    found = pulled("pull", "5.3.3")
    bodies = [message.body for message in found.messages]
    assert bodies[:7] == [b"plain", b"z" * 5_000, b"b1", b"b2", b"x" * 5_000, b"first", b"second"]
    assert bodies[7:] == [b"x" * 5_000, b"first", b"second"] * 2
    # The broker gave all messages of a Java batch one more id, the same.
    assert len({message.message_id for message in found.messages}) == len(bodies)
    times = store_times(response("pull", "5.3.3")[1])
    assert [offset for offset, _ in times] == list(range(13))
    assert [stored for _, stored in times] == sorted(stored for _, stored in times)


@pytest.mark.parametrize(("version", "end"), [("5.3.3", 13), ("4.9.7", 7)])
def test_pulls_without_messages(version: str, end: int) -> None:
    assert pulled("pull_nothing_matches", version, 1) == PulledMessages((), end)
    assert pulled("pull_at_end", version, end) == PulledMessages((), end)
    with pytest.raises(OffsetBeyondEndError) as raised:
        pulled("pull_beyond_end", version, 1_000)
    assert (raised.value.offset, raised.value.end) == (1_000, end)
    assert [message.tags for message in pulled("pull_tag", version).messages[:2]] == ["paid", "paid"]


@pytest.mark.parametrize(("version", "end"), [("5.3.3", 13), ("4.9.7", 7)])
def test_offsets(version: str, end: int) -> None:
    found = [response(name, version)[0].ext["offset"] for name in ("min_offset", "max_offset", "search")]
    assert found == ["0", str(end), "0"]


@pytest.mark.parametrize("name", ["send", "pull", "pull_at_end", "send_refused"])
def test_a_binary_header_is_read_as_the_same_response(name: str) -> None:
    command, body = response(name, "5.3.3")
    binary = frame(encode(command, body, form=BINARY_FORM))
    assert (read_header(binary.form, binary.header), binary.body) == (command, body)
