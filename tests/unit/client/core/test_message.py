"""Valid and invalid messages."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import UTC, datetime
from typing import Any

import pytest

from pointsman_client.core.message import Message, check_batch
from pointsman_client.errors import InvalidMessageError, InvalidNameError, MessageTooLargeError

LARGE = 2**22


@pytest.mark.parametrize(
    "message",
    [
        Message("%RETRY%g", b"1"),
        Message("orders", b"1", "a-tag", ("k1", "ключ"), {"name": "any text\nof two lines", "empty": ""}),
        Message("orders", b"\0"),
        Message("orders", b"1", deliver_at=datetime(1969, 1, 1, tzinfo=UTC)),
    ],
)
def test_these_may_be_sent(message: Message) -> None:
    check_batch([message], max_message_size=LARGE)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("body", {"body": b""}),
        ("body", {"body": "text"}),
        ("tags", {"tags": "a || b"}),
        ("tags", {"tags": "a|b"}),
        ("tags", {"tags": "*"}),
        ("tags", {"tags": "two words"}),
        ("tags", {"tags": "a\tb"}),
        ("tags", {"tags": "paid,refunded"}),
        ("tags", {"tags": "\ud800"}),
        ("tags", {"tags": None}),
        ("tags", {"tags": 7}),
        ("keys", {"keys": "one"}),
        ("keys", {"keys": (7,)}),
        ("properties", {"properties": None}),
        ("properties", {"properties": ["a"]}),
        ("properties", {"properties": {7: "x"}}),
        ("keys", {"keys": ("a b",)}),
        ("keys", {"keys": ("",)}),
        ("keys", {"keys": ("a\nb",)}),
        ("properties", {"properties": {"": "x"}}),
        ("properties", {"properties": {"a\x01": "x"}}),
        ("properties['a']", {"properties": {"a": 1}}),
        ("properties['a']", {"properties": {"a": "\ud800"}}),
    ],
)
def test_these_are_refused_with_the_field_and_the_value(field: str, wrong: dict[str, Any]) -> None:
    values = {"topic": "orders", "body": b"1", **wrong}
    with pytest.raises(InvalidMessageError) as when_made:
        Message(**values)
    with pytest.raises(InvalidMessageError) as when_sent:
        check_batch([Message.unchecked(**values)], max_message_size=LARGE)

    assert when_made.value.field == when_sent.value.field == field


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"body": "text"}, "body must be bytes, got str"),
        ({"keys": "4711"}, "keys must be a tuple of str, got str"),
        ({"properties": ["a"]}, "properties must be a mapping of str to str, got list"),
        ({"tags": 7}, "tags must be a str, got int"),
        ({"deliver_at": 7}, "deliver_at must be a datetime or None, got int"),
        (
            {"deliver_at": datetime(2026, 1, 1)},  # noqa: DTZ001  what the test is about
            "deliver_at '2026-01-01T00:00:00' must have a time zone, as datetime.now(UTC) has",
        ),
        ({"tags": "paid,refunded"}, "tags 'paid,refunded' must be one tag: it must not hold a comma"),
    ],
)
def test_a_wrong_field_is_named_with_its_valid_type(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidMessageError) as refusal:
        Message(**{"topic": "orders", "body": b"1", **wrong})
    assert str(refusal.value) == text


def test_a_message_that_was_read_is_kept_as_it_is_and_equals_one_that_was_made() -> None:
    read = Message.unchecked("or ders", b"", "two words")
    assert type(read) is Message
    assert read.tags == "two words"
    with pytest.raises(FrozenInstanceError):
        read.tags = "other"  # type: ignore[misc]
    assert Message.unchecked("orders", b"1", "a", ("k",), {"n": "v"}) == Message(
        "orders", b"1", "a", ("k",), {"n": "v"}
    )


@pytest.mark.parametrize("wrong", [None, "text", b"body", ("orders", b"1")])
def test_an_object_that_is_not_a_message_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidMessageError, match=r"^message must be a Message, got "):
        check_batch([wrong], max_message_size=LARGE)


@pytest.mark.parametrize("wrong", [None, [], Message("orders", b"1"), iter([Message("orders", b"1")])])
def test_an_object_that_is_not_a_list_of_messages_is_refused_as_a_batch(wrong: Any) -> None:
    with pytest.raises(InvalidMessageError, match=r"^messages .* must be a list with at least one message"):
        check_batch(wrong, max_message_size=LARGE)


@pytest.mark.parametrize("topic", ["", "a.b", "a b", "x" * 128, None, 7])
def test_a_topic_outside_the_grammar_is_refused(topic: Any) -> None:
    with pytest.raises(InvalidNameError):
        Message(topic, b"1")
    with pytest.raises(InvalidNameError):
        check_batch([Message.unchecked(topic, b"1")], max_message_size=LARGE)


def test_body_keys_tags_and_properties_count_against_the_bound_and_the_bound_itself_is_allowed() -> None:
    message = Message("orders", b"12", "ä", ("k",), {"n": "v"})

    check_batch([message], max_message_size=7)
    with pytest.raises(MessageTooLargeError):
        check_batch([message], max_message_size=6)
    with pytest.raises(MessageTooLargeError, match="14 bytes, at most 13"):
        check_batch([message, message], max_message_size=13)


def test_a_batch_is_of_one_topic_and_each_message_is_checked() -> None:
    check_batch([Message("orders", b"1"), Message("orders", b"2")], max_message_size=LARGE)
    for wrong in (
        [],
        [Message("orders", b"1"), Message("bills", b"2")],
        [Message("orders", b"1"), Message.unchecked("orders", b"")],
    ):
        with pytest.raises(InvalidMessageError):
            check_batch(wrong, max_message_size=LARGE)
