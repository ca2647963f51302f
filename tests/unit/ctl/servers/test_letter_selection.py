"""Which dead letters a selection means."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pointsman_client import Message, MessageQueue, ReceivedMessage
from pointsman_ctl.servers.letter_selection import MAX_CONDITIONS, read_selection

BORN_AT = datetime(2026, 11, 29, 3, 12, tzinfo=UTC)
LETTER = ReceivedMessage(
    Message("orders", b"1", "paid", ("4711", "4712"), {"shop": "7"}),
    MessageQueue("%DLQ%billing", "c1", "a", 0),
    0,
    "id-1",
    BORN_AT,
    error="ValueError: No price",
    offset_message_id="7F0001",
)


@pytest.mark.parametrize(
    ("conditions", "is_meant"),
    [
        ([], True),
        (["key=4712"], True),
        (["key=471"], False),
        (["key=1", "key=4711"], True),
        (["id=id-1"], True),
        (["id=7F0001"], True),
        (["id=id"], False),
        (["tag=paid"], True),
        (["tag=refunded"], False),
        (["topic=orders"], True),
        (["topic=bills"], False),
        (["reason=no PRICE"], True),
        (["reason=timeout"], False),
        (["property.shop=7"], True),
        (["property.shop=8"], False),
        (["property.price=7"], False),
        (["key=4711", "tag=refunded"], False),
        (["property.shop=7=8"], False),
    ],
)
def test_conditions(conditions: list[str], is_meant: bool) -> None:  # a parameter of the test
    selection = read_selection(conditions)
    assert selection.matches(LETTER) is is_meant
    assert selection.is_everything is not bool(conditions)


def test_times_are_those_of_birth_from_since_to_before_until() -> None:
    second = timedelta(seconds=1)
    assert read_selection([], since=BORN_AT).matches(LETTER)
    assert not read_selection([], since=BORN_AT + second).matches(LETTER)
    assert not read_selection([], until=BORN_AT).matches(LETTER)
    both = read_selection([], since=BORN_AT, until=BORN_AT + second)
    assert both.matches(LETTER)
    assert not both.matches(LETTER._replace(born_at=None))
    assert not read_selection([], until=BORN_AT).matches(LETTER._replace(born_at=None))


@pytest.mark.parametrize("condition", ["", "key", "price=7", "=7", "property.=7", "tag="])
def test_what_is_not_a_condition_is_refused_with_its_text(condition: str) -> None:
    with pytest.raises(ValueError, match=f"^{condition!r} "):
        read_selection([condition])


def test_contradicting_times_and_too_many_conditions_are_refused() -> None:
    with pytest.raises(ValueError, match="is not before until"):
        read_selection([], since=BORN_AT, until=BORN_AT)
    with pytest.raises(ValueError, match=f"has {MAX_CONDITIONS + 1} conditions"):
        read_selection(["key=1"] * (MAX_CONDITIONS + 1))


def test_a_selection_is_shown_and_documented() -> None:
    selection = read_selection(["key=1", "key=2", "tag=a"], since=BORN_AT)
    assert str(selection) == "key=1 or 2, tag=a, since 2026-11-29T03:12:00+00:00"
    assert str(read_selection([])) == "all"
    assert selection.to_document() == {
        "fields": {"key": ["1", "2"], "tag": ["a"]},
        "since": "2026-11-29T03:12:00+00:00",
        "until": None,
    }
