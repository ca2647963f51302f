"""Messages as entries: what was sent is received, and an entry of any other writer is a message too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman_client.core.message import Message, OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.stream_entry import born_at, to_fields, to_received

QUEUE = MessageQueue("orders", "c1", "a", 3)
AT = datetime(2026, 1, 1, tzinfo=UTC)

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
TIME = st.integers(0, 4_000_000_000_000).map(lambda ms: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms))
MESSAGE = st.builds(
    Message.unchecked,
    st.sampled_from(["orders", "payments"]),
    st.binary(),
    TEXT,
    st.lists(st.from_regex(r"\A[!-~]+\Z")).map(tuple),
    st.dictionaries(TEXT, TEXT),
)
OUTGOING = st.builds(
    OutgoingMessage,
    MESSAGE,
    TEXT.filter(bool),
    TIME,
    st.integers(0, 20),
    st.none() | TIME,
    origin=st.just(""),
    error=st.just(""),
)
DEAD = MessageQueue("%DLQ%billing", "c1", "a", 0)


@given(OUTGOING)
def test_a_sent_message_is_received_equal(sent: OutgoingMessage) -> None:
    received = to_received(to_fields(sent, QUEUE.topic), QUEUE, 17)
    assert received.message == sent.message
    assert (received.queue, received.queue_offset) == (QUEUE, 17)
    assert (received.message_id, received.born_at) == (sent.message_id, sent.born_at)
    assert (received.reconsume_times, received.due_at) == (sent.reconsume_times, sent.due_at)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"body", b"id", b"born_at", b"keys", b"properties", b"due_at"]) | st.binary(), st.binary()
        )
    )
)
def test_an_entry_of_any_writer_is_a_message(pairs: list[tuple[bytes, bytes]]) -> None:
    received = to_received([part for pair in pairs for part in pair], QUEUE, 4)
    assert received.queue_offset == 4
    assert received.message_id
    assert all(isinstance(text, str) for item in received.properties.items() for text in item)


def test_an_entry_is_readable_for_others() -> None:
    message = Message("orders", b"{}", "paid", ("k1", "k2"), {"trace": "7"})
    assert to_fields(OutgoingMessage(message, "id-1", AT, 2, AT), "%RETRY%g") == [
        b"body", b"{}",
        b"id", b"id-1",
        b"born_at", b"1767225600000",
        b"tags", b"paid",
        b"keys", b"k1 k2",
        b"properties", b'{"trace":"7"}',
        b"reconsume", b"2",
        b"due_at", b"1767225600000",
        b"topic", b"orders",
    ]  # fmt: skip


def test_a_dead_letter_keeps_where_it_was_first_read_and_its_last_error() -> None:
    origin, error = "c1/a/orders/3@17", "ValueError: \ud800 in two\nlines"
    fields = to_fields(OutgoingMessage(Message("orders", b"1"), "i", AT, 3, None, origin, error), DEAD.topic)
    assert fields[-4:] == [b"origin", origin.encode(), b"error", b"ValueError: ? in two\nlines"]
    received = to_received(fields, DEAD, 0)
    assert (received.origin, received.error) == (origin, "ValueError: ? in two\nlines")
    assert received.properties == {}


def test_fields_named_origin_and_error_are_properties_where_no_listener_failed() -> None:
    received = to_received([b"body", b"1", b"origin", b"web", b"error", b"none"], QUEUE, 4)
    assert received.properties == {"origin": "web", "error": "none"}
    assert (received.origin, received.error) == ("", "")


def test_empty_fields_are_omitted() -> None:
    assert to_fields(OutgoingMessage(Message.unchecked("orders", b""), "i", AT), "orders")[::2] == [
        b"body",
        b"id",
        b"born_at",
    ]


def test_a_foreign_field_is_a_property_and_the_position_serves_as_id() -> None:
    received = to_received([b"user", b"7", b"properties", b'{"a":"b"}', b"name", b"\xff"], QUEUE, 4)
    assert received.properties == {"user": "7", "a": "b", "name": "\N{REPLACEMENT CHARACTER}"}
    assert received.message_id == "orders:queue:3@4"
    assert (received.body, received.topic, received.born_at) == (b"", "orders", None)


@pytest.mark.parametrize("value", [b"", b"x", b"-5", b"1e3", b"9" * 16, b"9" * 15, b" 7"])
def test_an_unreadable_time_counts_as_missing(value: bytes) -> None:
    assert born_at([b"body", b"", b"born_at", value]) is None


@pytest.mark.parametrize("value", [b"", b"[]", b"7", b'{"a":1}', b"{", b"[" * 100_000, b"\xff"])
def test_unreadable_properties_count_as_missing(value: bytes) -> None:
    assert to_received([b"properties", value], QUEUE, 0).properties == {}


def test_the_born_timestamp_is_read_without_the_other_fields() -> None:
    assert born_at(to_fields(OutgoingMessage(Message("orders", b"x"), "i", AT), "orders")) == AT
    assert born_at([b"body", b"x"]) is None
