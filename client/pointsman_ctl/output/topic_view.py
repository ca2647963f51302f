"""Tables of topics: queues with what they hold, and plans of changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from pointsman.names import PERM_READ, PERM_WRITE, printable
from pointsman.wire.json_document import Document
from pointsman.wire.operator_texts import counted
from pointsman_ctl.output.output_layout import ALARM, WARNING, new_table
from pointsman_ctl.output.topic_plan import TopicChange, TopicPlan, settings_document
from pointsman_ctl.servers.topic_brokers import HeldQueue, HeldTopic

UNUSED = "UNUSED"


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """A topic at one broker, and the messages per second that arrive in each queue."""

    addr: str
    broker: str
    held: HeldTopic
    put_rates: Mapping[int, float]
    """By queue; absent where the broker does not report ends."""


def queue_status(held: HeldTopic, queue: HeldQueue) -> str:
    """Return what can be done with a queue: rw, r or w; UNUSED: neither, though it may hold messages."""
    settings = held.settings
    if settings is None:
        return UNUSED
    read = "r" if settings.perm & PERM_READ and queue.queue_id < settings.read_queues else ""
    write = "w" if settings.perm & PERM_WRITE and queue.queue_id < settings.write_queues else ""
    return read + write or UNUSED


def status_document(status: TopicStatus) -> Document:
    """Return a topic at one broker for the output in JSON."""
    return {
        "broker": status.broker,
        "source": status.held.kind,
        "unwritable": status.held.unwritable or None,
        "settings": settings_document(status.held.settings),
        "queues": [
            {
                "queueId": each.queue_id,
                "status": queue_status(status.held, each),
                "minOffset": each.min_offset,
                "maxOffset": each.max_offset,
                "messages": each.message_count,
                "lastWriteAt": None if each.last_write_at is None else f"{each.last_write_at:%Y-%m-%dT%H:%M:%S.%fZ}",
                "putRate": status.put_rates.get(each.queue_id),
            }
            for each in status.held.queues
        ],
    }


def status_parts(statuses: Sequence[TopicStatus]) -> Iterable[RenderableType]:
    """Show one row per queue, and a line with the settings of each broker."""
    right = ("QUEUE", "MIN", "MAX", "MESSAGES", "IN/S")
    table = new_table("BROKER", "QUEUE", "MIN", "MAX", "MESSAGES", "LAST WRITE", "IN/S", "STATUS", right=right)
    for status in statuses:
        for each in status.held.queues:
            rate = status.put_rates.get(each.queue_id)
            word = queue_status(status.held, each)
            table.add_row(
                printable(status.broker),
                str(each.queue_id),
                _number(each.min_offset),
                _number(each.max_offset),
                _number(each.message_count),
                "-" if each.last_write_at is None else f"{each.last_write_at:%Y-%m-%dT%H:%M:%SZ}",
                "-" if rate is None else f"{rate:.1f}",
                Text(word, style=WARNING) if word == UNUSED else word,
            )
    if table.row_count:
        yield table
        yield ""
    for status in statuses:
        reason = f"; cannot be changed here: {status.held.unwritable}" if status.held.unwritable else ""
        yield Text(f"{printable(status.broker)}: {status.held.settings or 'deleted'}{printable(reason)}")


def plan_parts(plan: TopicPlan) -> Iterable[RenderableType]:
    """Show what changes at each broker, then keys and groups."""
    table = new_table("BROKER", "NOW", "THEN")
    for each in plan.changes:
        then = "deleted" if each.after is None else str(each.after)
        note = " (already)" if each.is_done else ""
        table.add_row(printable(each.broker), str(each.before or "-"), f"{then}{note}")
    yield table
    moves = plan.key_moves
    if plan.is_ordered_by_operators:
        yield Text("keys: none moves before `pointsmanctl order-topic set`, which says the queues of this topic's keys")
    elif moves.moves_keys:
        yield Text(f"keys: {moves.text()}")
    rebalancing = [
        f"{printable(group)} ({counted(members, 'member')})" for group, members in plan.groups.items() if members
    ]
    if rebalancing:
        yield Text(f"rebalances: {', '.join(rebalancing)}")
    for behind in plan.behind:
        yield Text(printable(behind.text()), style=ALARM if behind.is_stuck else WARNING)
    unused = [each for each in plan.changes if each.unused_messages]
    for each in unused:
        yield Text(_unused_text(each), style=WARNING)


def _unused_text(change: TopicChange) -> str:
    queues = [str(each.queue_id) for each in change.unused if each.message_count]
    some = f"{', '.join(queues[:8])}{' ...' if len(queues) > 8 else ''}"
    messages = counted(change.unused_messages, "message")
    return f"{printable(change.broker)}: {messages} in queues that are not in use then: {some}"


def block_lines(plan: TopicPlan) -> list[str]:
    """Return the table of the topic, for an agent's file that cannot be changed by its agent."""
    settings = next((each.after for each in plan.changes if each.held.unwritable and each.after is not None), None)
    if settings is None:
        return []
    perm = {6: "rw", 4: "r", 2: "w", 0: "none"}[settings.perm]
    return [
        "[[topics.topic]]",
        f'name = "{plan.topic}"',
        f"read_queues = {settings.read_queues}",
        f"write_queues = {settings.write_queues}",
        *([f'perm = "{perm}"'] if perm != "rw" else []),
    ]


def _number(number: int | None) -> str:
    return "-" if number is None else str(number)
