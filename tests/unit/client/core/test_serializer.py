"""Values of the application as bodies of messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pointsman_client.core.message import Message, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.serializer import Decoded, check_serializer, decoded, encoded
from pointsman_client.errors import InvalidMessageError, InvalidOptionError, UndecodableMessageError

RECEIVED = ReceivedMessage(Message("orders", b"{}"), MessageQueue("orders", "c1", "a", 0), 7, "id-7", None)


class Json:
    def encode(self, value: Any) -> bytes:
        return json.dumps(value).encode()

    def decode(self, body: bytes) -> Any:
        return json.loads(body)


def test_a_value_is_encoded_and_decoded() -> None:
    body = encoded(Json(), {"number": 4711})
    assert body == b'{"number": 4711}'
    assert decoded(Json(), body, message_id="id-7") == Decoded({"number": 4711})


def test_a_value_that_is_refused_is_an_error_that_does_not_show_it() -> None:
    with pytest.raises(InvalidMessageError, match=r"^value cannot be encoded \(TypeError\), got set$") as raised:
        encoded(Json(), {"secret"})
    assert isinstance(raised.value.__cause__, TypeError)


def test_without_a_serializer_no_value_can_be_encoded() -> None:
    with pytest.raises(InvalidOptionError, match="serializer = None must be set to make messages of values"):
        encoded(None, 1)


def test_a_body_that_is_refused_has_its_reason() -> None:
    value, error = decoded(Json(), b"{", message_id="id-7")
    assert value is None
    assert isinstance(error, UndecodableMessageError)
    assert str(error).startswith("the body of message id-7 cannot be decoded: JSONDecodeError: Expecting property name")
    assert isinstance(error.__cause__, json.JSONDecodeError)


@pytest.mark.parametrize("value", [4711, None, {"a": [1]}])
def test_a_received_message_has_the_decoded_value(value: Any) -> None:
    message = RECEIVED._replace(decoded=Decoded(value))
    assert message.value == value
    assert message.decode_error is None


def test_a_message_that_was_not_decoded_raises_why() -> None:
    message = RECEIVED._replace(decoded=decoded(Json(), b"{", message_id="id-7"))
    for _ in range(2):
        with pytest.raises(UndecodableMessageError):
            _ = message.value
    assert message.decode_error is not None
    assert message.decode_error.code == "UNDECODABLE_MESSAGE"
    assert message.body == b"{}"


def test_without_a_serializer_the_value_is_the_body() -> None:
    assert (RECEIVED.value, RECEIVED.decode_error) == (b"{}", None)


@pytest.mark.parametrize("given", [json, object(), "json"])
def test_an_object_without_both_methods_is_refused(given: object) -> None:
    with pytest.raises(InvalidOptionError, match=r"must have the methods encode\(value\) -> bytes and decode\(body\)"):
        check_serializer("serializer", given)
