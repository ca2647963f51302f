"""Responses to pulls from brokers that send too much, or offsets that cannot be right."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import pytest

from pointsman.rocketmq.codes import BrokerResponseCode as Code
from pointsman.rocketmq.frames import Command
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.subscription import SqlFilter
from pointsman_client.errors import BrokerRefusedError, OffsetBeyondEndError, UnreadableMessageError
from pointsman_client.ports.transport import PulledMessages, Reader
from pointsman_client.rocketmq.message_codec import MAX_BATCHED, MAX_UNWRAPPED
from pointsman_client.rocketmq.pulling import pull_fields, read_pulled
from tests.kit.broker.rocketmq.stored_messages import batch_record, stored_message

QUEUE = MessageQueue("orders", "c1", "a", 0)
MAX_BODY = 100_000


def pulled(
    body: bytes = b"", offset: int = 0, *, code: int = 0, remark: str | None = None, **ext: str
) -> PulledMessages:
    command = Command(code=code, ext=ext, remark=remark)
    return read_pulled("ADDR", QUEUE, offset, command, body, max_messages=32, max_body_bytes=MAX_BODY)


def records(offsets: Iterable[int], body: bytes = b"a", sys_flag: int = 0) -> bytes:
    return b"".join(stored_message(body, offset=offset, sys_flag=sys_flag) for offset in offsets)


@pytest.mark.parametrize(("expression", "kind"), [("a || b", "TAG"), (SqlFilter("a > 1"), "SQL92")])
def test_a_pull_states_what_kind_its_expression_is(expression: str, kind: str) -> None:
    reader = Reader("billing", expression)
    fields = pull_fields(QUEUE, 0, max_messages=1, suspend_seconds=0.0, reader=reader)
    assert (fields["subscription"], fields["expressionType"]) == (str(expression), kind)


def test_of_more_messages_than_were_requested_the_rest_is_pulled_again() -> None:
    found = pulled(records(range(3, 10_003)), 3, nextBeginOffset="10003")
    assert [message.queue_offset for message in found.messages] == list(range(3, 35))
    assert found.next_offset == 35


def test_all_bodies_of_a_response_have_one_limit() -> None:
    bomb = zlib.compress(bytes(MAX_BODY))
    found = pulled(records(range(32), bomb, sys_flag=1), nextBeginOffset="32")
    assert ([len(message.body) for message in found.messages], found.next_offset) == ([MAX_BODY] * 2, 2)


def test_a_stored_batch_is_read_in_parts() -> None:
    count = 2 * MAX_UNWRAPPED + 5
    batch = zlib.compress(batch_record(b"") * count)
    data = stored_message(batch, offset=7, sys_flag=0xC1) + stored_message(b"next", offset=7 + count)
    command, sizes, offset = Command(code=0, ext={"nextBeginOffset": str(8 + count)}), [], 0
    while offset < 8 + count:
        found = read_pulled("ADDR", QUEUE, offset, command, data, max_messages=32, max_body_bytes=1 << 20)
        assert found.messages[0].queue_offset == max(offset, 7)
        sizes.append(len(found.messages))
        offset = found.next_offset
    assert sizes == [MAX_UNWRAPPED, MAX_UNWRAPPED, 6]


def test_batches_that_end_before_the_offset_cost_a_bounded_time() -> None:
    body = batch_record(b"")
    far = stored_message(zlib.compress(body), offset=0, sys_flag=0xC1)
    assert pulled(far, MAX_BATCHED + 1, nextBeginOffset=str(MAX_BATCHED + 1)).messages == ()
    before = stored_message(zlib.compress(body * (MAX_BODY // len(body))), offset=0, sys_flag=0xC1)
    with pytest.raises(UnreadableMessageError, match=f"batches before it have more than {MAX_BODY} bytes"):
        pulled(before * 2, 50_000, nextBeginOffset="50000")


@pytest.mark.parametrize("next_offset", ["-9223372036854775808", "0", "1"])
def test_a_next_offset_before_the_messages_does_not_repeat_them(next_offset: str) -> None:
    assert pulled(records((4, 6)), 4, nextBeginOffset=next_offset).next_offset == 7
    assert pulled(b"", 4, nextBeginOffset=next_offset).next_offset == 4


@pytest.mark.parametrize("value", ["", "1e3", "9223372036854775808", "-9223372036854775809", "\u0663", "9" * 60_000])
def test_a_next_offset_out_of_range_is_named(value: str) -> None:
    with pytest.raises(
        BrokerRefusedError, match=r"nextBeginOffset of its response is '.*', which is not a number"
    ) as raised:
        pulled(records((0,)), nextBeginOffset=value)
    assert len(str(raised.value)) < 250


def test_a_reset_to_a_negative_offset_goes_to_the_start() -> None:
    moved = Code.PULL_OFFSET_MOVED
    found = pulled(b"", 5, code=moved, remark="OFFSET_RESET", nextBeginOffset="-7", minOffset="0", maxOffset="9")
    assert (found.next_offset, found.is_reset) == (0, True)
    with pytest.raises(OffsetBeyondEndError):
        pulled(b"", 10, code=moved, nextBeginOffset="9", minOffset="0", maxOffset="9")


@pytest.mark.parametrize("offset", [-(2**63), -1])
def test_messages_and_batches_at_negative_offsets_are_skipped(offset: int) -> None:
    data = records((offset,)) + stored_message(batch_record(b"x"), offset=offset, sys_flag=0xC0)
    assert pulled(data, nextBeginOffset="1") == PulledMessages((), 1)


def test_an_unreadable_message_is_named_with_its_offset() -> None:
    with pytest.raises(UnreadableMessageError, match="offset 3 of queue 0 of orders"):
        pulled(stored_message(b"a", offset=3, crc=1), nextBeginOffset="4")
