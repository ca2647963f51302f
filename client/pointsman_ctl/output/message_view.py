"""Messages as rows, JSON and files. Bodies and names come from any program: no control character reaches a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from rich.table import Table

from pointsman.names import printable
from pointsman.wire.json_document import Document
from pointsman_client import InvalidInputError, MessageQueue, PointsmanError, ReceivedMessage
from pointsman_ctl.output.output_layout import new_table
from pointsman_ctl.servers.message_lines import as_text, body_document, time_text

SHORT_CHARACTERS = 60
SHORT_BYTES = 24
EARLIEST = datetime.min.replace(tzinfo=UTC)


class BodyForm(StrEnum):
    """How the body of a message is shown."""

    SHORT = "short"
    """As text up to SHORT_CHARACTERS, else SHORT_BYTES in hexadecimal digits."""
    TEXT = "text"
    """All of it, without control characters."""
    HEX = "hex"
    NONE = "none"


class BodyNotSavedError(PointsmanError):
    """A body could not be written to a file."""

    code = "BODY_NOT_SAVED"


class TooManyBytesError(InvalidInputError):
    """The messages do not fit into the memory that a command takes for them."""

    code = "TOO_MANY_BYTES"

    def __init__(self, allowed: int) -> None:
        super().__init__(f"the messages have more than {allowed} bytes: give a lower --limit, or fewer queues")


def body_fields(body: bytes, form: BodyForm) -> dict[str, str]:
    """Return a body for JSON, under the key that fits it: whole, or nothing."""
    if form is BodyForm.NONE:
        return {}
    return {"bodyHex": body.hex()} if form is BodyForm.HEX else body_document(body)


def body_text(body: bytes, form: BodyForm) -> str:
    """Return a body for a cell of a table."""
    text = None if form is BodyForm.HEX else as_text(body)
    if text is None:
        digits = body.hex() if form is not BodyForm.SHORT else body[:SHORT_BYTES].hex()
        more = "..." if form is BodyForm.SHORT and len(body) > SHORT_BYTES else ""
        return f"0x{digits}{more}"
    shown = printable(text)
    if form is BodyForm.SHORT and len(shown) > SHORT_CHARACTERS:
        return f"{shown[:SHORT_CHARACTERS]}..."
    return shown


def queue_document(queue: MessageQueue) -> Document:
    """Return a queue for JSON."""
    return {
        "topic": queue.topic,
        "cluster": queue.cluster,
        "brokerName": queue.broker_name,
        "queueId": queue.queue_id,
    }


def message_documents(
    messages: Sequence[ReceivedMessage], form: BodyForm, files: Sequence[Path] = ()
) -> list[Document]:
    """Return messages for JSON; ``files``: where the bodies are, too."""
    return [
        {
            "queue": queue_document(message.queue),
            "queueOffset": message.queue_offset,
            "messageId": message.message_id,
            "offsetMessageId": message.offset_message_id or None,
            "bornAt": time_text(message.born_at),
            "topic": message.topic,
            "tag": message.tags,
            "keys": list(message.keys),
            "properties": dict(message.properties),
            "reconsumeTimes": message.reconsume_times,
            "origin": message.origin,
            "reason": message.error,
            "bodyBytes": len(message.body),
            **body_fields(message.body, form),
            **({"file": str(files[position])} if files else {}),
        }
        for position, message in enumerate(messages)
    ]


def messages_table(messages: Sequence[ReceivedMessage], form: BodyForm, files: Sequence[Path] = ()) -> Table:
    """Return one row for each message; ``files``: where the bodies are, shown instead of them."""
    last = () if form is BodyForm.NONE and not files else ("BODY",)
    table = new_table("QUEUE", "OFFSET", "BORN", "ID", "TAG", "KEYS", "BYTES", *last, right=("OFFSET", "BYTES"))
    for position, message in enumerate(messages):
        queue = message.queue
        cells = [
            printable(f"{queue.cluster}/{queue.broker_name}/{queue.queue_id}"),
            str(message.queue_offset),
            time_text(message.born_at) or "-",
            printable(message.message_id),
            printable(message.tags) or "-",
            printable(" ".join(message.keys)) or "-",
            str(len(message.body)),
        ]
        if last:
            cells.append(str(files[position]) if files else body_text(message.body, form))
        table.add_row(*cells)
    return table


def save_bodies(messages: Iterable[ReceivedMessage], folder: Path) -> list[Path]:
    """Write each body to ``TOPIC-CLUSTER-BROKER-QUEUE-OFFSET``; return the files. Raises BodyNotSavedError."""
    files = []
    for message in messages:
        queue = message.queue
        name = f"{queue.topic}-{queue.cluster}-{queue.broker_name}-{queue.queue_id}-{message.queue_offset}"
        file = folder / name.replace("/", "_")
        try:
            with file.open("xb") as opened:
                opened.write(message.body)
        except FileExistsError:
            raise BodyNotSavedError(f"{file} exists already: remove it, or give another folder") from None
        except OSError as error:
            raise BodyNotSavedError(f"{file} cannot be written: {error.strerror}") from error
        files.append(file)
    return files


def birth(message: ReceivedMessage) -> tuple[datetime, MessageQueue, int]:
    """Return a key that sorts messages by their birth, and those of a queue also by offset."""
    return message.born_at or EARLIEST, message.queue, message.queue_offset
