"""Dead letters as lines of a file."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman_client import Message, MessageQueue, ReceivedMessage
from pointsman_ctl.servers.message_lines import MAX_LINE_BYTES, LineError, as_text, read_line, to_line

NOW = datetime(2026, 11, 29, 3, 12, tzinfo=UTC)
WORDS = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=6)
LETTERS = st.builds(
    lambda body, tag, keys, properties, times, error, milliseconds: ReceivedMessage(
        Message("orders", body, tag, tuple(keys), properties),
        MessageQueue("%DLQ%billing", "c1", "a", 0),
        7,
        "id-1",
        datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds),
        reconsume_times=times,
        origin="c1/a/orders/3@9",
        error=error,
    ),
    st.binary(min_size=1, max_size=20) | st.text(min_size=1, max_size=20).map(lambda text: text.encode()),
    st.just("") | WORDS,
    st.lists(WORDS, max_size=3),
    st.dictionaries(WORDS, st.text(max_size=8), max_size=3),
    st.integers(0, 2**31 - 1),
    st.text(max_size=20),
    st.integers(0, 4_000_000_000_000),
)
LINE: dict[str, Any] = {"group": "billing", "topic": "orders", "messageId": "id-1", "body": "one"}


@given(LETTERS)
def test_a_line_is_read_as_the_letter_that_it_was(letter: ReceivedMessage) -> None:
    line = to_line("billing", letter)
    assert line.count("\n") == 1
    assert "\r" not in line
    read = read_line(line.encode(), 3, now=NOW)

    assert (read.group, read.number) == ("billing", 3)
    assert read.letter.message == letter.message
    assert read.letter.born_at == letter.born_at
    assert (read.letter.message_id, read.letter.reconsume_times) == (letter.message_id, letter.reconsume_times)
    assert (read.letter.origin, read.letter.error) == (letter.origin, letter.error)


def test_only_what_a_message_needs_is_required() -> None:
    letter = read_line(json.dumps(LINE).encode(), 1, now=NOW).letter
    assert letter.message == Message("orders", b"one")
    assert (letter.born_at, letter.reconsume_times, letter.origin, letter.error) == (NOW, 0, "", "")
    offset = read_line(json.dumps(LINE | {"bornAt": "2026-11-29T04:12:00+01:00"}).encode(), 1, now=NOW).letter
    assert (offset.born_at, offset.born_at.tzinfo) == (NOW, UTC)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{", "it is not JSON"),
        (b"\xff", "it is not JSON"),
        (b"7", "it must be a JSON object, got 7"),
        (b" " * (MAX_LINE_BYTES + 1), f"it has more than {MAX_LINE_BYTES} bytes"),
        ({"group": None}, "field 'group' is missing"),
        ({"group": "a b"}, "field 'group' may hold only letters"),
        ({"topic": 7}, "field 'topic' must be a string, got 7"),
        ({"messageId": ""}, "field 'messageId' must not be empty"),
        ({"bornAt": "yesterday"}, "field 'bornAt' must be null or a time"),
        ({"bornAt": "2026-11-29T03:12:00"}, "field 'bornAt' must be null or a time"),
        ({"bornAt": 7}, "field 'bornAt' must be null or a time"),
        ({"tag": "a||b"}, "tags 'a||b' must be one tag"),
        ({"tag": "\ud800"}, "field 'tag' must be text that UTF-8 can encode"),
        ({"keys": "4711"}, "field 'keys' must be a list of strings, got \"4711\""),
        ({"keys": ["a b"]}, "keys 'a b'"),
        ({"properties": {"a": 1}}, "field 'properties' must be an object from string to string"),
        ({"reconsumeTimes": -1}, "field 'reconsumeTimes' must be a number from 0 to"),
        ({"reconsumeTimes": True}, "field 'reconsumeTimes' must be a number from 0 to"),
        ({"origin": "a\x01b"}, "field 'origin' must not have control characters"),
        ({"body": ""}, "body b'' must not be empty"),
        ({"bodyBase64": "AA=="}, "it must have either field 'body' or field 'bodyBase64'"),
        ({"price": 7}, "field 'price' is not known"),
    ],
)
def test_an_invalid_line_is_named_with_field_and_value(line: bytes | dict[str, Any], problem: str) -> None:
    data = line if isinstance(line, bytes) else json.dumps(LINE | line).encode()
    with pytest.raises(LineError) as raised:
        read_line(data, 12, now=NOW)
    assert str(raised.value).startswith(f"line 12: {problem}")


def test_a_body_that_is_not_base64_is_refused() -> None:
    line = {name: value for name, value in LINE.items() if name != "body"} | {"bodyBase64": "A"}
    with pytest.raises(LineError, match="field 'bodyBase64' must be base64, got \"A\""):
        read_line(json.dumps(line).encode(), 1, now=NOW)


@pytest.mark.parametrize(
    ("body", "text"),
    [(b"a\tb\r\n", "a\tb\r\n"), ("\u00e9".encode(), "\u00e9"), (b"\xff", None), (b"a\x00", None), (b"", "")],
)
def test_text_is_what_has_no_control_characters(body: bytes, text: str | None) -> None:
    assert as_text(body) == text
