"""Messages as rows, JSON and files. Bodies and names come from any program: no control character reaches a terminal."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.table import Table

from pointsman.names import printable
from pointsman.wire.json_document import Document
from pointsman.wire.operator_texts import moment_text
from pointsman_client import InvalidInputError, MessageQueue, PointsmanError, ReceivedMessage
from pointsman_ctl.output.output_layout import new_table

SHOWN_CHARACTERS = 80
"""Of a body in a table, unless all of it is wanted."""
EARLIEST = datetime.min.replace(tzinfo=UTC)


class BodyNotSavedError(PointsmanError):
    """A body could not be written to a file."""

    code = "BODY_NOT_SAVED"


class TooManyBytesError(InvalidInputError):
    """The messages do not fit into the memory that a command takes for them."""

    code = "TOO_MANY_BYTES"

    def __init__(self, allowed: int) -> None:
        super().__init__(f"the messages have more than {allowed} bytes: give a lower --limit, or fewer queues")


def text_of(body: bytes) -> str | None:
    """Return the body as text; None: it is not UTF-8."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def body_cell(body: bytes, *, as_hex: bool = False, is_full: bool = False) -> str:
    """Return the body for a terminal: text, or ``0x`` and digits; cut after SHOWN_CHARACTERS with ``...``."""
    text = None if as_hex else text_of(body)
    if text is None:
        shown = body if is_full else body[: SHOWN_CHARACTERS // 2]
        return f"0x{shown.hex()}" + ("..." if len(shown) < len(body) else "")
    return printable(text if is_full else text[:SHOWN_CHARACTERS]) + (
        "..." if len(text) > SHOWN_CHARACTERS and not is_full else ""
    )


def time_text(at: datetime | None) -> str:
    """Return a time as ``2026-11-29T03:12:00.123Z``; ``-``: unknown."""
    return "-" if at is None else moment_text(at)


def queue_document(queue: MessageQueue) -> Document:
    """Return a queue for JSON."""
    return {
        "topic": queue.topic,
        "cluster": queue.cluster,
        "brokerName": queue.broker_name,
        "queueId": queue.queue_id,
    }


def message_document(message: ReceivedMessage, *, file: Path | None = None) -> Document:
    """Return a message for JSON; a body that is not UTF-8 is in ``bodyBase64``. ``file``: where the body is, too."""
    text = text_of(message.body)
    return {
        "queue": queue_document(message.queue),
        "offset": message.queue_offset,
        "messageId": message.message_id,
        "offsetMessageId": message.offset_message_id or None,
        "bornAt": None if message.born_at is None else moment_text(message.born_at),
        "topic": message.topic,
        "tags": message.tags,
        "keys": list(message.keys),
        "properties": dict(message.properties),
        "reconsumeTimes": message.reconsume_times,
        "origin": message.origin or None,
        "error": message.error or None,
        "size": len(message.body),
        "body": text,
        "bodyBase64": base64.b64encode(message.body).decode() if text is None else None,
        "file": None if file is None else str(file),
    }


def message_documents(messages: Sequence[ReceivedMessage], files: Sequence[Path] = ()) -> list[Document]:
    """Return messages for JSON; ``files``: where the bodies are, too."""
    return [
        message_document(message, file=files[position] if files else None) for position, message in enumerate(messages)
    ]


def messages_table(
    messages: Iterable[ReceivedMessage], *, as_hex: bool = False, is_full: bool = False, files: Sequence[Path] = ()
) -> Table:
    """Return one row for each message; ``files``: where the bodies are, shown instead of them."""
    table = new_table("QUEUE", "OFFSET", "BORN", "ID", "TAG", "KEYS", "BYTES", "BODY", right=("OFFSET", "BYTES"))
    for position, message in enumerate(messages):
        queue = message.queue
        shown = str(files[position]) if files else body_cell(message.body, as_hex=as_hex, is_full=is_full)
        table.add_row(
            printable(f"{queue.cluster}/{queue.broker_name}/{queue.queue_id}"),
            str(message.queue_offset),
            time_text(message.born_at),
            printable(message.message_id),
            printable(message.tags) or "-",
            printable(" ".join(message.keys)) or "-",
            str(len(message.body)),
            shown,
        )
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
