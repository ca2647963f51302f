"""Messages and their headers on RocketMQ's wire: made, recorded, and damaged."""

from __future__ import annotations

import base64
import hmac
import random
import sys
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from pointsman.rocketmq.frames import BINARY_FORM, MAX_FRAME_BYTES, Command, Frame, FrameReader, encode, read_header
from pointsman_client.core.message import Message, OutgoingMessage, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import InvalidMessageError, InvalidOptionError, MessageTooLargeError, OffsetBeyondEndError
from pointsman_client.ports.transport import PulledMessages, Reader
from pointsman_client.rocketmq import AccessKey
from pointsman_client.rocketmq.message_codec import (
    Unread,
    commit_log_offset,
    decode_messages,
    encode_batch,
    milliseconds,
    properties_text,
    store_times,
    tag_code,
)
from pointsman_client.rocketmq.pulling import pull_fields, read_pulled
from pointsman_client.rocketmq.request_frames import request_frame, request_head
from pointsman_client.rocketmq.rocketmq_options import RocketmqOptions
from pointsman_client.rocketmq.sending import SendRequests, delay_property
from tests.kit.broker.rocketmq.stored_messages import (
    BORN_MS,
    IPV6,
    MAGIC_V2,
    STORED_MS,
    batch_record,
    property_map,
    read_batch,
    stored_message,
    text_of,
)
from tests.kit.broker.under_test import BORN_AT, QUEUE, outgoing

MAX_BODY = 1 << 20
MAX_MESSAGES = 50
RETRY = MessageQueue("%RETRY%billing", "c1", "a", 0)
ORIGIN = "POINTSMAN_ORIGIN"


def decode(
    data: bytes, queue: MessageQueue = QUEUE, first_offset: int = 0
) -> tuple[list[ReceivedMessage], Unread | None]:
    return decode_messages(data, queue, first_offset=first_offset, max_messages=MAX_MESSAGES, max_body_bytes=MAX_BODY)


def decode_one(data: bytes, queue: MessageQueue = QUEUE) -> ReceivedMessage:
    (message,), unreadable = decode(data, queue)
    assert unreadable is None
    return message


def problem_of(data: bytes) -> str:
    messages, unreadable = decode(data)
    assert messages == []
    assert unreadable is not None
    return unreadable.problem


def test_a_stored_message_has_all_its_fields() -> None:
    properties = text_of({"UNIQ_KEY": "id-1", "TAGS": "paid", "KEYS": "k1 k2", "trace": "ü", "WAIT": "true"})
    data = stored_message(b"body", offset=7, properties=properties, reconsume_times=2, log_offset=0xABC)
    assert decode_one(data) == ReceivedMessage(
        Message("orders", b"body", "paid", ("k1", "k2"), {"trace": "ü"}),
        QUEUE,
        7,
        "id-1",
        datetime(2026, 1, 1, 0, 0, 0, 123_000, UTC),
        reconsume_times=2,
        offset_message_id="7F00000100002A9F0000000000000ABC",
    )
    assert store_times(data) == [(7, STORED_MS)]


@pytest.mark.parametrize("magic", [0xDAA320A7, MAGIC_V2])
@pytest.mark.parametrize(
    "hosts", [{}, {"born_host": IPV6}, {"store_host": IPV6}, {"born_host": IPV6, "store_host": IPV6}]
)
def test_hosts_of_both_families_and_both_forms_of_a_topic_are_read(magic: int, hosts: dict[str, Any]) -> None:
    data = stored_message(b"a", magic=magic, log_offset=5, properties=text_of({"TAGS": "t"}), **hosts)
    first, second = decode(data + stored_message(b"b", offset=1))[0]
    assert (first.body, first.tags, second.body) == (b"a", "t", b"b")
    host = IPV6.hex().upper() if "store_host" in hosts else "7F000001"
    assert first.offset_message_id == f"{host}00002A9F0000000000000005"
    assert commit_log_offset(first.offset_message_id) == 5


def test_a_message_without_an_id_has_that_of_its_place() -> None:
    message = decode_one(stored_message(b"a"))
    assert message.message_id == message.offset_message_id == "7F00000100002A9F0000000000000000"


@pytest.mark.parametrize("sys_flag", [0x1, 0x301, 0x003])
def test_zlib_is_read_by_both_of_its_numbers(sys_flag: int) -> None:
    assert decode_one(stored_message(zlib.compress(b"x" * 10_000), sys_flag=sys_flag)).body == b"x" * 10_000


@pytest.mark.parametrize(
    ("sys_flag", "module", "package"), [(0x101, "lz4.frame", "lz4"), (0x201, "zstandard", "zstandard")]
)
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, sys_flag: int, module: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert problem_of(stored_message(b"?", sys_flag=sys_flag)).endswith(
        f"needs {package}: pip install 'pointsman-client[rocketmq]'"
    )


@pytest.mark.parametrize(
    ("sys_flag", "compress"), [(0x101, lz4.frame.compress), (0x201, zstandard.compress)], ids=["lz4", "zstd"]
)
def test_lz4_and_zstd_are_read_within_the_limit(sys_flag: int, compress: Callable[[bytes], bytes]) -> None:
    assert decode_one(stored_message(compress(b"ab" * 5_000), sys_flag=sys_flag)).body == b"ab" * 5_000
    assert len(decode_one(stored_message(compress(bytes(MAX_BODY)), sys_flag=sys_flag)).body) == MAX_BODY
    assert "max_body_bytes" in problem_of(stored_message(compress(bytes(MAX_BODY + 1)), sys_flag=sys_flag))
    for damaged in (b"", b"?", compress(b"ab" * 5_000)[:-6]):
        assert "cannot be decompressed" in problem_of(stored_message(damaged, sys_flag=sys_flag))


def test_a_body_is_not_decompressed_beyond_its_limit() -> None:
    exact = stored_message(zlib.compress(bytes(MAX_BODY)), sys_flag=1)
    assert len(decode_one(exact).body) == MAX_BODY
    bomb = stored_message(zlib.compress(bytes(MAX_BODY + 1)), sys_flag=1)
    assert problem_of(bomb) == f"its body has more than {MAX_BODY} bytes after decompression (max_body_bytes)"


def test_an_inner_batch_is_unwrapped_from_the_offset_on() -> None:
    inner = b"".join(batch_record(body, text_of({"UNIQ_KEY": f"id-{body.decode()}"})) for body in (b"a", b"b", b"c"))
    for data in (
        stored_message(inner, offset=10, sys_flag=0xC0),
        stored_message(zlib.compress(inner), offset=10, sys_flag=0xC1),
    ):
        messages, unreadable = decode(data + stored_message(b"d", offset=13), first_offset=11)
        assert unreadable is None
        assert [(each.queue_offset, each.body, each.message_id[:4]) for each in messages] == [
            (11, b"b", "id-b"),
            (12, b"c", "id-c"),
            (13, b"d", "7F00"),
        ]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (stored_message(b"a", crc=1), "the CRC-32 of its body is"),
        (stored_message(b"a", magic=0xDAA320A8), "unknown magic number DAA320A8"),
        (stored_message(b"a")[:50], "cut off after 50 bytes"),
        (stored_message(b"a", born_host=IPV6, store_host=IPV6)[:100], "cut off after 100 bytes"),
        (stored_message(b"abcdef")[:-1], "the lengths in a stored message of"),
        (b"\x00\x00\x00\x5b" + stored_message(b"abcdef")[4:], "the lengths in a stored message of 91 bytes exceed it"),
        (stored_message(b"no zlib", sys_flag=1), "cannot be decompressed"),
        (stored_message(zlib.compress(b"abc" * 100)[:-6], sys_flag=1), "its end is missing"),
        (stored_message(b"a", sys_flag=0x401), "unknown method 4"),
        (stored_message(b"short", sys_flag=0xC0), "a stored batch is cut off"),
        (stored_message(batch_record(b"abc")[:-1], sys_flag=0xC0), "the lengths in a stored batch exceed it"),
        (stored_message(bytes(4) + batch_record(b"abc")[4:], sys_flag=0xC0), "the lengths in a stored batch exceed it"),
    ],
)
def test_what_cannot_be_read_is_named(data: bytes, problem: str) -> None:
    assert problem in problem_of(data)


def test_messages_before_one_that_cannot_be_read_are_returned() -> None:
    data = stored_message(b"a", offset=4) + stored_message(b"b", offset=9, crc=0) + stored_message(b"c", offset=10)
    messages, unreadable = decode(data)
    assert [each.body for each in messages] == [b"a"]
    assert unreadable is not None
    assert unreadable.queue_offset == 9
    with pytest.raises(ValueError, match="exceed it"):
        store_times(data[:-100])


@given(st.binary(max_size=300), st.integers(0, 255), st.integers(0, 130))
def test_any_damage_ends_the_reading_in_order(tail: bytes, value: int, at: int) -> None:
    whole = bytearray(stored_message(b"body", properties=text_of({"TAGS": "t", "UNIQ_KEY": "u"})))
    whole[at % len(whole)] = value
    for data in (bytes(whole) + tail, tail):
        messages, _ = decode(data)
        offsets = [message.queue_offset for message in messages]
        assert offsets == sorted(set(offsets))


def test_a_broker_that_repeats_or_rewinds_brings_nothing_twice() -> None:
    data = b"".join(stored_message(b"%d" % offset, offset=offset) for offset in (3, 4, 4, 3, 5))
    assert [each.queue_offset for each in decode(data, first_offset=4)[0]] == [4, 5]


def test_in_the_topics_of_a_group_the_original_topic_counts() -> None:
    properties = text_of({"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "7F01", "UNIQ_KEY": "u", "DELAY": 3})
    message = decode_one(stored_message(b"a", topic=RETRY.topic, properties=properties), RETRY)
    assert (message.topic, message.queue, message.origin, dict(message.properties)) == ("orders", RETRY, "7F01", {})
    assert decode_one(stored_message(b"a", properties=text_of({"RETRY_TOPIC": "x"}))).topic == "orders"


def test_a_dead_letter_of_a_group_that_leases_has_the_applications_topic() -> None:
    queue = MessageQueue("%DLQ%billing", "c1", "a", 0)
    properties = text_of({"RETRY_TOPIC": "%RETRY%billing_orders"})
    assert decode_one(stored_message(b"a", topic=queue.topic, properties=properties), queue).topic == "orders"


def test_a_failed_message_keeps_where_and_why_it_failed() -> None:
    sent = outgoing("a", origin="c1/a/orders/3@5", error="it broke\x01\x02\ud800")
    text = properties_text(sent, RETRY.topic)
    message = decode_one(stored_message(b"a", topic=RETRY.topic, properties=text), RETRY)
    assert (message.topic, message.origin, message.error) == ("orders", "c1/a/orders/3@5", "it broke  ?")


ITEM = st.one_of(
    st.sampled_from(["", "CLUSTER", "own", "\x01a", "own\x01b\x01c"]),
    st.builds(
        "{}\x01{}".format,
        st.sampled_from(["UNIQ_KEY", "TAGS", "KEYS", "CLUSTER", "WAIT", "RETRY_TOPIC", ORIGIN, "own"]),
        st.sampled_from(["a", "b", "a b", ""]),
    ),
)


@pytest.mark.parametrize("queue", [QUEUE, RETRY])
@given(texts=st.lists(st.lists(ITEM).map("\x02".join)))
def test_properties_of_a_message_do_not_depend_on_others_in_its_response(queue: MessageQueue, texts: list[str]) -> None:
    stored = [stored_message(b"a", offset=at, properties=text) for at, text in enumerate(texts)]
    assert decode(b"".join(stored), queue)[0] == [decode_one(each, queue) for each in stored]


@pytest.mark.parametrize("birth", [-(2**63), 2**63 - 1])
def test_an_impossible_birth_is_none(birth: int) -> None:
    assert decode_one(stored_message(b"a", born_ms=birth)).born_at is None


# --- out ------------------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)


@given(st.dictionaries(TEXT, TEXT), st.binary(min_size=1))
def test_what_is_sent_is_received(properties: dict[str, str], body: bytes) -> None:
    message = Message.unchecked(
        "orders", body, "paid", ("k1", "k2"), {f"x{name}": text for name, text in properties.items()}
    )
    sent = OutgoingMessage(message, "id-1", BORN_AT)
    received = decode_one(stored_message(body, properties=properties_text(sent, "orders")))
    assert (received.message, received.message_id) == (message, "id-1")


@given(st.lists(st.tuples(st.binary(), st.dictionaries(TEXT, TEXT, max_size=3))))
def test_a_batch_is_read_as_it_was_written(messages: list[tuple[bytes, dict[str, str]]]) -> None:
    batch = [
        OutgoingMessage(Message.unchecked("orders", body, properties=properties), f"id-{at}", BORN_AT)
        for at, (body, properties) in enumerate(messages)
    ]
    assert read_batch(encode_batch(batch, "orders")) == [
        (each.message.body, properties_text(each, "orders")) for each in batch
    ]


@pytest.mark.parametrize(
    "properties", [{"": "v"}, {"k": ""}, {"k": "\x01"}, {"k": "v\x02w"}, {"k\x01": "v"}, {"k": "\x01\x02"}]
)
def test_properties_that_would_not_arrive_are_refused(properties: dict[str, str]) -> None:
    message = Message.unchecked("orders", b"a", properties=properties)
    with pytest.raises(InvalidMessageError, match="not empty"):
        properties_text(OutgoingMessage(message, "id", BORN_AT), "orders")


@pytest.mark.parametrize("name", ["TAGS", "DELAY", "UNIQ_KEY", "POINTSMAN_ORIGIN", "TIMER_DELIVER_MS"])
def test_reserved_names_are_refused(name: str) -> None:
    message = Message("orders", b"a", properties={"fine": "x", name: "x"})
    with pytest.raises(InvalidMessageError, match=f"{name}' is a name that RocketMQ uses itself"):
        properties_text(OutgoingMessage(message, "id", BORN_AT), "orders")


def test_properties_above_what_brokers_store_are_refused() -> None:
    for text, is_too_long in (("x" * 32_700, False), ("x" * 32_767, True), ("ü" * 17_000, True)):
        sent = OutgoingMessage(Message("orders", b"a", properties={"k": text}), "id", BORN_AT)
        if is_too_long:
            with pytest.raises(InvalidMessageError, match="32767 bytes"):
                properties_text(sent, "orders")
        else:
            assert len(properties_text(sent, "orders")) < 32_767


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("", 0),
        ("A", 65),
        ("Aa", 2112),
        ("BB", 2112),
        ("paid", 3433164),
        ("polygenelubricants", -(2**31)),
        ("😀", 1772899),
    ],
)
def test_a_tag_has_the_hash_of_java(tag: str, code: int) -> None:
    assert tag_code(tag) == code


@pytest.mark.parametrize(
    ("text", "offset"), [("7F00000100002A9F0000000000000ABC", 0xABC), ("", None), ("x" * 32, None), ("A" * 31, None)]
)
def test_the_offset_in_the_log_stands_at_the_end_of_an_id(text: str, offset: int | None) -> None:
    assert commit_log_offset(text) == offset


# --- requests -------------------------------------------------------------------------------------------------


def request(
    *messages: OutgoingMessage, version: int = 479, is_one_way: bool = False, **options: Any
) -> tuple[Any, bytes]:
    requests = SendRequests(RocketmqOptions(**options))
    for _ in range(2):  # the second time from the prepared header
        head, body = requests.to_request(QUEUE, messages, now=BORN_AT, version=version, is_one_way=is_one_way)
    reader = FrameReader()
    reader.feed(request_frame(head, 77, body))
    frame = reader.next()
    assert frame is not None
    assert frame.body == body
    return read_header(frame.form, frame.header), frame.body


def test_a_message_is_sent_as_the_java_client_sends_it() -> None:
    command, body = request(outgoing("a", reconsume_times=3), producer_group="g")
    assert (command.code, command.flag, command.opaque, command.language, body) == (310, 0, 77, "PYTHON", b"a")
    assert command.ext == {
        "a": "g", "b": "orders", "c": "TBW102", "d": "4", "e": "3", "f": "0", "g": str(milliseconds(BORN_AT)), "h": "0",
        "i": "UNIQ_KEY\x01id-a\x02", "j": "3", "k": "false", "l": "2147483647", "m": "false", "n": "a",
    }  # fmt: skip
    assert request(outgoing("a"), is_one_way=True)[0].flag == 2


def test_several_messages_are_a_batch_that_is_not_compressed() -> None:
    command, body = request(outgoing("a" * 5_000), outgoing("b"))
    assert (command.code, command.ext["m"], command.ext["f"], command.ext["i"]) == (
        320,
        "true",
        "0",
        "WAIT\x01true\x02",
    )
    assert [(text[:1], property_map(more)["UNIQ_KEY"][:4]) for text, more in read_batch(body)] == [
        (b"a", "id-a"),
        (b"b", "id-b"),
    ]
    with pytest.raises(InvalidMessageError, match=r"deliver_at '2026-01-01T00:00:00\+00:00' cannot be set in a batch"):
        request(outgoing("a"), outgoing("b", due_at=BORN_AT))


@pytest.mark.parametrize(
    ("size", "options", "is_compressed"),
    [
        (4_095, {}, False),
        (4_096, {}, True),
        (100, {"compress_from_bytes": 50}, True),
        (9_000, {"compress_from_bytes": None}, False),
    ],
)
def test_large_bodies_are_compressed(size: int, options: dict[str, Any], is_compressed: bool) -> None:
    command, body = request(outgoing("x" * size), **options)
    assert command.ext["f"] == str(int(is_compressed))
    assert (zlib.decompress(body) if is_compressed else body) == b"x" * size


def test_a_body_that_zlib_makes_larger_is_sent_as_it_is() -> None:
    noise = random.Random(1).randbytes(1_000)
    message = OutgoingMessage(Message("orders", noise), "id", BORN_AT)
    assert request(message, compress_from_bytes=1)[0].ext["f"] == "0"


def test_what_exceeds_a_frame_is_refused_before_it_is_sent() -> None:
    with pytest.raises(MessageTooLargeError):
        request(*[OutgoingMessage(Message("orders", bytes(MAX_FRAME_BYTES // 2)), "id", BORN_AT)] * 2)


@pytest.mark.parametrize(
    ("seconds", "version", "expected"),
    [
        (0, 479, ""),
        (-5, 407, ""),
        (2.5, 413, f"TIMER_DELIVER_MS\x01{milliseconds(BORN_AT) + 2_500}\x02"),
        (0.001, 407, "DELAY\x011\x02"),
        (1.0, 407, "DELAY\x011\x02"),
        (1.001, 411, "DELAY\x012\x02"),
        (61, 407, "DELAY\x016\x02"),
        (7_200, 407, "DELAY\x0118\x02"),
    ],
)
def test_a_delay_is_a_time_or_the_first_level_that_is_not_too_early(
    seconds: float, version: int, expected: str
) -> None:
    assert delay_property(BORN_AT + timedelta(seconds=seconds), now=BORN_AT, version=version) == expected


def test_a_delay_beyond_the_levels_is_refused() -> None:
    with pytest.raises(InvalidMessageError, match=r"deliver_at '2026-01-01T02:00:00\.001000\+00:00' is more than 2 h"):
        delay_property(BORN_AT + timedelta(hours=2, milliseconds=1), now=BORN_AT, version=407)


@pytest.mark.parametrize("values", [("", "s"), ("a", ""), ("a", None)])
def test_an_empty_account_is_refused(values: tuple[Any, Any]) -> None:
    with pytest.raises(InvalidOptionError, match=r"^(access|secret)_key = .* must be a str that is not empty"):
        AccessKey(*values)


def test_a_signature_covers_all_fields_by_name_and_the_body() -> None:
    account = AccessKey("RocketMQ12", "12345678ab")
    signed = account.signed({"b": "2", "a": "1"}, b"body")
    digest = hmac.digest(b"12345678ab", b"RocketMQ1212body", "sha1")
    assert signed == {
        "b": "2",
        "a": "1",
        "AccessKey": "RocketMQ12",
        "Signature": base64.b64encode(digest).decode(),
    }
    with_token = AccessKey("RocketMQ12", "12345678ab", "token").signed({"a": "1"}, b"")
    digest = hmac.digest(b"12345678ab", b"RocketMQ12token1", "sha1")
    assert (with_token["SecurityToken"], with_token["Signature"]) == ("token", base64.b64encode(digest).decode())
    assert "12345678ab" not in repr(account)


def test_signed_sends_have_the_fields_of_others() -> None:
    account = AccessKey("RocketMQ12", "12345678ab")
    for messages in ([outgoing("a")], [outgoing("a"), outgoing("b")]):
        command, body = request(*messages)
        signed, signed_body = request(*messages, access_key=account)
        assert (signed.code, signed_body) == (command.code, body)
        assert signed.ext == account.signed(command.ext, body)
    assert request(outgoing("a"), access_key=account, is_one_way=True)[0].flag == 2


def test_names_that_json_must_escape_do_not_break_a_header() -> None:
    head = request_head(11, {"topic": 'a"\\\x01ü'})
    reader = FrameReader()
    reader.feed(request_frame(head, 1, b""))
    frame = reader.next()
    assert frame is not None
    assert read_header(frame.form, frame.header).ext == {"topic": 'a"\\\x01ü'}


def test_times_are_whole_milliseconds() -> None:
    assert milliseconds(datetime(2026, 1, 1, 0, 0, 0, 123_999, UTC)) == BORN_MS


FOLDER = Path(__file__).parents[3] / "fixtures" / "rocketmq_broker_frames"
RECORDED = MessageQueue("Recorded", "C", "a", 0)
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
    return read_pulled("ADDR", RECORDED, offset, *response(name, version), max_messages=50, max_body_bytes=1 << 20)


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_still_those_that_the_brokers_accepted(version: str) -> None:
    plain = OutgoingMessage(Message("Recorded", b"plain", "paid", ("k1", "k2"), {"trace": "ü"}), "id-1", BORN_AT)
    batch = [OutgoingMessage(Message("Recorded", body), f"id-{body.decode()}", BORN_AT) for body in (b"b1", b"b2")]
    requests = SendRequests(RocketmqOptions())
    for opaque, name, messages in ((1, "send", [plain]), (3, "send_batch", batch)):
        head, body = requests.to_request(RECORDED, messages, now=BORN_AT, version=0)
        assert request_frame(head, opaque, body) == (FOLDER / f"{name}_{version}.request.bin").read_bytes()
    fields = pull_fields(RECORDED, 0, max_messages=32, suspend_seconds=0.0, reader=Reader("recorder"))
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
