"""Dead letters as tables and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from pointsman.names import printable
from pointsman.wire.json_document import Document
from pointsman.wire.operator_texts import counted
from pointsman_client import PointsmanError, ReceivedMessage
from pointsman_ctl.output.error_report import to_error_report
from pointsman_ctl.output.message_view import BodyForm, body_fields, body_text
from pointsman_ctl.output.output_layout import ALARM, new_table
from pointsman_ctl.servers.dead_letters import LetterQueue
from pointsman_ctl.servers.message_lines import letter_document, time_text
from pointsman_ctl.servers.stored_messages import HeldQueue


@dataclass(frozen=True, slots=True)
class CountedQueue:
    """The number of dead letters in one queue, or why it is not known."""

    group: str
    held: HeldQueue | None
    """None: none of its brokers is known."""
    queue: LetterQueue | None
    oldest: datetime | None = None
    """When the first one was born."""
    failure: PointsmanError | None = None

    @property
    def broker(self) -> str:
        """``CLUSTER/BROKER``; ``-`` where it is not known."""
        return f"{self.held.queue.cluster}/{self.held.queue.broker_name}" if self.held else "-"

    @property
    def addr(self) -> str:
        """The address that was queried; if there is none, the name of the group."""
        return self.held.addr if self.held else self.group


@dataclass(frozen=True, slots=True)
class ShownLetter:
    """A dead letter, and whether it was replayed."""

    letter: ReceivedMessage
    is_replayed: bool


def to_list_document(rows: Sequence[CountedQueue]) -> Document:
    """Render the groups with their brokers."""
    groups: list[Document] = []
    for group in dict.fromkeys(row.group for row in rows):
        own = [row for row in rows if row.group == group]
        known = [row.queue for row in own if row.queue is not None]
        born = [row.oldest for row in own if row.oldest is not None]
        groups.append(
            {
                "group": group,
                "stored": sum(queue.stored for queue in known),
                "notReplayed": sum(queue.left for queue in known),
                "oldestBornAt": time_text(min(born, default=None)),
                "brokers": [_to_broker(row) for row in own],
            }
        )
    return {"groups": groups}


def _to_broker(row: CountedQueue) -> Document:
    where: Document = {"broker": row.broker if row.held else None, "addr": row.held.addr if row.held else None}
    if row.queue is None:
        return {**where, "error": to_error_report(row.failure).to_document() if row.failure else None}
    return {
        **where,
        "stored": row.queue.stored,
        "notReplayed": row.queue.left,
        "oldestBornAt": time_text(row.oldest),
    }


def list_parts(rows: Sequence[CountedQueue]) -> Iterable[RenderableType]:
    """Show one row per group and broker."""
    if not rows:
        yield Text("no group has dead letters")
        return
    numbers = ("STORED", "NOT REPLAYED")
    table = new_table("GROUP", "BROKER", *numbers, "OLDEST BORN", right=numbers)
    for row in rows:
        if row.queue is None:
            table.add_row(printable(row.group), row.broker, "-", "-", Text("not known", style=ALARM))
        else:
            table.add_row(
                printable(row.group),
                row.broker,
                str(row.queue.stored),
                str(row.queue.left),
                time_text(row.oldest) or "-",
            )
    yield table


def to_letters_document(group: str, shown: Sequence[ShownLetter], form: BodyForm, *, is_cut: bool) -> Document:
    """Render dead letters; ``is_cut``: there are more."""
    return {
        "group": group,
        "isCut": is_cut,
        "deadLetters": [
            {
                **letter_document(group, each.letter),
                **body_fields(each.letter.body, form),
                "bodyBytes": len(each.letter.body),
                "isReplayed": each.is_replayed,
            }
            for each in shown
        ],
    }


def letters_parts(shown: Sequence[ShownLetter], form: BodyForm, *, is_cut: bool) -> Iterable[RenderableType]:
    """Show one row per dead letter; ``is_cut``: there are more."""
    if not shown:
        yield Text("no dead letter")
        return
    columns = ("BROKER", "OFFSET", "ID", "KEYS", "TAG", "TOPIC", "BORN", "TRIES", "STATUS", "REASON")
    table = new_table(*columns, *(() if form is BodyForm.NONE else ("BODY",)), right=("OFFSET", "TRIES"))
    for each in shown:
        letter = each.letter
        cells = [
            f"{letter.queue.cluster}/{letter.queue.broker_name}",
            str(letter.queue_offset),
            printable(letter.message_id),
            printable(" ".join(letter.keys)) or "-",
            printable(letter.tags) or "-",
            printable(letter.topic),
            time_text(letter.born_at) or "-",
            str(letter.reconsume_times),
            "REPLAYED" if each.is_replayed else "-",
            printable(letter.error) or "-",
        ]
        if form is not BodyForm.NONE:
            cells.append(body_text(letter.body, form))
        table.add_row(*cells)
    yield table
    if is_cut:
        yield Text(f"the first {counted(len(shown), 'dead letter')}; show more with --limit", style="dim")
