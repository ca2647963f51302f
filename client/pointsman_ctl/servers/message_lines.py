"""Dead letters as JSON lines, for files: one object a line, which another program may edit. Pure.

================== ==============================================================================================
``group``          the consumer group whose dead letter it is
``broker``         where it was stored: ``CLUSTER/BROKER``; not used by an import
``queueOffset``    and at which offset; not used by an import
``topic``          the topic that it was sent to
``messageId``      the id that its producer assigned
``bornAt``         by the producer's clock, to the millisecond, such as 2026-11-29T03:12:00.000Z; null: not known
``tag``            empty: none
``keys``           a list
``properties``     an object from string to string
``reconsumeTimes`` number of failed calls of a listener
``origin``         where it was first read; empty: not known
``reason``         the last error of the listener; empty: not known
``body``           the body, if it is text in UTF-8 without control characters but tab, CR and LF; else
``bodyBase64``     the body in base64
================== ==============================================================================================
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pointsman.names import name_problem
from pointsman_client import InvalidInputError, Message, OutgoingMessage, PointsmanError, ReceivedMessage

MAX_LINE_BYTES = 8 * 1024 * 1024
MAX_TIMES = 2**31 - 1
_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)
_OF_TEXT = {"\t", "\r", "\n"}
_UNUSED = {"broker", "queueOffset"}


class LineError(PointsmanError):
    """A line of a file is not a dead letter."""

    code = "LINE_INVALID"

    def __init__(self, number: int, problem: str) -> None:
        super().__init__(f"line {number}: {problem}")
        self.number = number


@dataclass(frozen=True, slots=True)
class MessageLine:
    """A dead letter from a file."""

    number: int
    """Of the line, from 1 on."""
    group: str
    letter: OutgoingMessage


def as_text(body: bytes) -> str | None:
    """Return a body as the text that it is; None: it is not text."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if all(each.isprintable() or each in _OF_TEXT for each in text) else None


def body_document(body: bytes) -> dict[str, str]:
    """Return a body under the key that fits it."""
    text = as_text(body)
    return {"bodyBase64": base64.b64encode(body).decode()} if text is None else {"body": text}


def time_text(at: datetime | None) -> str | None:
    """Return a time to the millisecond."""
    return None if at is None else at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def letter_document(group: str, letter: ReceivedMessage) -> dict[str, Any]:
    """Render a dead letter without its body."""
    queue = letter.queue
    return {
        "group": group,
        "broker": f"{queue.cluster}/{queue.broker_name}",
        "queueOffset": letter.queue_offset,
        "topic": letter.topic,
        "messageId": letter.message_id,
        "bornAt": time_text(letter.born_at),
        "tag": letter.tags,
        "keys": list(letter.keys),
        "properties": dict(letter.properties),
        "reconsumeTimes": letter.reconsume_times,
        "origin": letter.origin,
        "reason": letter.error,
    }


def to_line(group: str, letter: ReceivedMessage) -> str:
    """Return a dead letter as a line, with its end."""
    return json.dumps(letter_document(group, letter) | body_document(letter.body), ensure_ascii=False) + "\n"


def read_line(line: bytes, number: int, *, now: datetime) -> MessageLine:
    """Read a line; ``now`` is when a message without a time was born. Raises LineError, which names line and field."""
    if len(line) > MAX_LINE_BYTES:
        raise LineError(number, f"it has more than {MAX_LINE_BYTES} bytes")
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LineError(number, f"it is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise LineError(number, f"it must be a JSON object, got {_shown(document)}")
    fields = _Fields(number, document)
    unknown = document.keys() - _READERS.keys() - _UNUSED
    if unknown:
        raise LineError(number, f"field {min(unknown)!r} is not known")
    values = {name: read(fields, name) for name, read in _READERS.items()}
    if ("body" in document) == ("bodyBase64" in document):
        raise LineError(number, "it must have either field 'body' or field 'bodyBase64'")
    body = values["bodyBase64"] if "bodyBase64" in document else values["body"].encode()
    try:
        message = Message(values["topic"], body, values["tag"], tuple(values["keys"]), values["properties"])
    except InvalidInputError as error:
        raise LineError(number, str(error)) from None
    letter = OutgoingMessage(
        message,
        values["messageId"],
        values["bornAt"] or now,
        reconsume_times=values["reconsumeTimes"],
        origin=values["origin"],
        error=values["reason"],
    )
    return MessageLine(number, values["group"], letter)


class _Fields:
    """The fields of a line."""

    def __init__(self, number: int, document: Mapping[str, Any]) -> None:
        self._number = number
        self._document = document

    def wrong(self, name: str, rule: str) -> LineError:
        return LineError(self._number, f"field {name!r} {rule}, got {_shown(self._document.get(name))}")

    def text(self, name: str, *, otherwise: str | None = "") -> str:
        value = self._document.get(name, otherwise)
        if value is None:
            raise LineError(self._number, f"field {name!r} is missing")
        if not isinstance(value, str):
            raise self.wrong(name, "must be a string")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise self.wrong(name, "must be text that UTF-8 can encode") from None
        return value

    def name(self, name: str) -> str:
        value = self.text(name, otherwise=None)
        if problem := name_problem(value):
            raise self.wrong(name, problem)
        return value

    def shown(self, name: str) -> str:
        value = self.text(name)
        if value and not value.isprintable():
            raise self.wrong(name, "must not have control characters")
        return value

    def identity(self, name: str) -> str:
        value = self.text(name, otherwise=None)
        if not value or not value.isprintable():
            raise self.wrong(name, "must not be empty, nor have control characters")
        return value

    def times(self, name: str) -> int:
        value = self._document.get(name, 0)
        if type(value) is not int or not 0 <= value <= MAX_TIMES:
            raise self.wrong(name, f"must be a number from 0 to {MAX_TIMES}")
        return value

    def time(self, name: str) -> datetime | None:
        value = self._document.get(name)
        if value is None:
            return None
        try:
            at = datetime.fromisoformat(value)
        except (TypeError, ValueError):
            at = None
        if at is None or at.tzinfo is None or not _EARLIEST <= at <= _LATEST:
            raise self.wrong(name, "must be null or a time with its offset from UTC, such as 2026-11-29T03:12:00.000Z")
        return at.astimezone(UTC)

    def texts(self, name: str) -> list[str]:
        value = self._document.get(name, [])
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self.wrong(name, "must be a list of strings")
        return value

    def properties(self, name: str) -> dict[str, str]:
        value = self._document.get(name, {})
        if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
            raise self.wrong(name, "must be an object from string to string")
        return value

    def decoded(self, name: str) -> bytes:
        try:
            return base64.b64decode(self.text(name), validate=True)
        except (binascii.Error, ValueError):
            raise self.wrong(name, "must be base64") from None


_READERS: Mapping[str, Callable[[_Fields, str], Any]] = {
    "group": _Fields.name,
    "topic": _Fields.name,
    "messageId": _Fields.identity,
    "bornAt": _Fields.time,
    "tag": _Fields.text,
    "keys": _Fields.texts,
    "properties": _Fields.properties,
    "reconsumeTimes": _Fields.times,
    "origin": _Fields.shown,
    "reason": _Fields.text,
    "body": _Fields.text,
    "bodyBase64": _Fields.decoded,
}


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else f"{text[:100]}..."
