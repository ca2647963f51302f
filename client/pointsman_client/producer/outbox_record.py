"""Parked messages as lines of a file: a CRC-32 in hexadecimal, a space, a JSON object. Pure.

A line says that a message was put in, or that one is done. The CRC finds a line that was written in part.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zlib import crc32

from pointsman_client.core.message import Message, OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue


@dataclass(frozen=True, slots=True)
class Parked:
    """A message in an outbox."""

    number: int
    """Rises in the order in which messages were parked."""
    queue: MessageQueue
    outgoing: OutgoingMessage


def write_parked(parked: Parked) -> bytes:
    """The line that says that a message was put in."""
    outgoing, message, queue = parked.outgoing, parked.outgoing.message, parked.queue
    return _write(
        {
            "parked": parked.number,
            "cluster": queue.cluster,
            "broker_name": queue.broker_name,
            "queue_id": queue.queue_id,
            "topic": message.topic,
            "message_id": outgoing.message_id,
            "born_at": outgoing.born_at.isoformat(),
            "tags": message.tags,
            "keys": list(message.keys),
            "properties": dict(message.properties),
            "body": base64.b64encode(message.body).decode(),
        }
    )


def write_done(number: int) -> bytes:
    """The line that says that a message is out."""
    return _write({"done": number})


def read_line(line: bytes) -> Parked | int:
    """Read a line: what was parked, or the number of what is done. Raises ValueError for a line that is damaged."""
    checksum, space, text = line.rstrip(b"\n").partition(b" ")
    if not (space and checksum == _checksum(text)):
        raise ValueError("the checksum differs")
    try:
        row = json.loads(text)
        if "done" in row:
            return int(row["done"])
        return Parked(
            int(row["parked"]),
            MessageQueue(row["topic"], row["cluster"], row["broker_name"], row["queue_id"]),
            OutgoingMessage(
                Message.unchecked(
                    row["topic"],
                    base64.b64decode(row["body"], validate=True),
                    row["tags"],
                    tuple(row["keys"]),
                    row["properties"],
                ),
                row["message_id"],
                datetime.fromisoformat(row["born_at"]),
            ),
        )
    except (KeyError, TypeError, binascii.Error) as error:
        raise ValueError(f"the record cannot be read: {error!r}") from error


def _write(row: dict[str, Any]) -> bytes:
    text = json.dumps(row, separators=(",", ":")).encode()
    return _checksum(text) + b" " + text + b"\n"


def _checksum(text: bytes) -> bytes:
    return b"%08x" % crc32(text)
