"""The outbox: an SQLite file with messages that wait for their queue, used by one process at a time.

:meth:`Outbox.open`, :meth:`Outbox.write` and :meth:`Outbox.close` block on the disk: call them in a thread, one at a
time.
"""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pointsman.storage.tables import DurableTables, OnRefusal, Row, Table, TablesRefused
from pointsman_client.core.checks import check_number
from pointsman_client.core.message import Message, OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.sharding import OrderKey
from pointsman_client.errors import OutboxFailedError, OutboxFullError

logger = logging.getLogger(__name__)

APPLICATION_ID = 0x504D4F58  # "PMOX"
ROW_BYTES = 256
"""Bytes counted per message in addition to its size: names, ids, times."""

_MESSAGES = Table("messages", ("number",), ("head", "body"))


@dataclass(frozen=True, slots=True)
class Parked:
    """A message in an outbox."""

    number: int
    """Sequence number, in the order of parking."""
    queue: MessageQueue
    outgoing: OutgoingMessage
    order_key: OrderKey | None = None
    """What it is kept in order with besides its queue; None: nothing."""

    @property
    def size(self) -> int:
        """Bytes that count against ``max_bytes``."""
        return self.outgoing.message.size + ROW_BYTES + sum(len((text or "").encode()) for text in self.order_key or ())


class Outbox:
    """One file with at most ``max_bytes`` of waiting messages. The constructor does not open it."""

    def __init__(self, path: str | Path, *, max_bytes: int = 64 * 1024 * 1024) -> None:
        check_number("max_bytes", max_bytes)
        self.path = Path(path)
        self.max_bytes = max_bytes
        self._tables = DurableTables(
            self.path, [_MESSAGES], application_id=APPLICATION_ID, mode=0o600, creates_folder=False
        )
        self._is_open = False
        self._waiting_bytes = 0
        self._next_number = 0

    def open(self) -> tuple[Parked, ...]:
        """Lock and read the file; return the waiting messages, in order.

        A damaged file is moved to the directory ``damaged``, and its readable messages are copied to a new file. Raises
        :class:`OutboxFailedError`, also if no message is readable, or if this or another process has the file open.
        """
        if self._is_open:
            raise _in_use(self.path)
        try:
            opened = self._tables.open(OnRefusal.SALVAGE)
        except TablesRefused as error:
            advice = "use another file, or move this one; messages in it are then not sent"
            raise OutboxFailedError(str(self.path), f"{error}: {advice}") from error
        except OSError as error:
            raise (_in_use(self.path) if error.errno == errno.EBUSY else _failed(self.path, error)) from error
        rows = opened.rows[_MESSAGES.name]
        if opened.refused is not None:
            text = "outbox %s %s: moved it to the directory damaged; %d readable messages will be sent"
            logger.error(text, self.path, opened.refused, len(rows))
        waiting = tuple(map(_read, rows))
        self._is_open = True
        self._waiting_bytes = sum(parked.size for parked in waiting)
        self._next_number = waiting[-1].number + 1 if waiting else 0
        return waiting

    def add(self, queue: MessageQueue, outgoing: OutgoingMessage, order_key: OrderKey | None = None) -> Parked:
        """Number and count a message that is to be written. Raises :class:`OutboxFullError`. Does not block."""
        parked = Parked(self._next_number, queue, outgoing, order_key)
        if self._waiting_bytes + parked.size > self.max_bytes:
            raise OutboxFullError(str(self.path), self.max_bytes)
        self._next_number += 1
        self._waiting_bytes += parked.size
        return parked

    def discount(self, parked: Iterable[Parked]) -> None:
        """Stop counting messages that were sent, or could not be written. Does not block."""
        self._waiting_bytes -= sum(each.size for each in parked)

    def write(self, added: Sequence[Parked], sent: Sequence[Parked]) -> None:
        """Write and remove messages; they are on the disk when it returns. Raises :class:`OutboxFailedError`."""
        if not self._is_open:
            raise OutboxFailedError(str(self.path), "is not open")
        if not self._tables.is_current():
            raise OutboxFailedError(str(self.path), "was removed: start the producer again")
        changes: list[tuple[str, Row, Row | None]] = [(_MESSAGES.name, (each.number,), None) for each in sent]
        changes += [(_MESSAGES.name, (each.number,), _values(each)) for each in added]
        try:
            self._tables.write(changes)
        except OSError as error:
            raise _failed(self.path, error) from error

    def close(self) -> None:
        """Close the file, which retains unsent messages. A second call does nothing."""
        self._is_open = False
        self._tables.close()


def _values(parked: Parked) -> Row:
    queue, outgoing, message = parked.queue, parked.outgoing, parked.outgoing.message
    head = {
        "cluster": queue.cluster,
        "broker_name": queue.broker_name,
        "queue_id": queue.queue_id,
        "topic": message.topic,
        "message_id": outgoing.message_id,
        "born_at": outgoing.born_at.isoformat(),
        "tags": message.tags,
        "keys": list(message.keys),
        "properties": dict(message.properties),
        "due_at": None if outgoing.due_at is None else outgoing.due_at.isoformat(),
        "order_key": parked.order_key,
    }
    return json.dumps(head), bytes(message.body)


def _read(row: Row) -> Parked:
    number, head, body = row
    if not (isinstance(number, int) and isinstance(head, str) and isinstance(body, bytes)):
        raise TablesRefused("is damaged: a row is not a message")
    values = json.loads(head)
    due_at, order_key = values["due_at"], values["order_key"]
    return Parked(
        number,
        MessageQueue(values["topic"], values["cluster"], values["broker_name"], values["queue_id"]),
        OutgoingMessage(
            Message.unchecked(values["topic"], body, values["tags"], tuple(values["keys"]), values["properties"]),
            values["message_id"],
            datetime.fromisoformat(values["born_at"]),
            due_at=None if due_at is None else datetime.fromisoformat(due_at),
        ),
        None if order_key is None else OrderKey(*order_key),
    )


def _in_use(path: Path) -> OutboxFailedError:
    return OutboxFailedError(str(path), "is already in use: give each process its own outbox")


def _failed(path: Path, error: Exception) -> OutboxFailedError:
    return OutboxFailedError(str(path), f"cannot be written: {error}")
