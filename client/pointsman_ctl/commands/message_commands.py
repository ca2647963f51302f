"""Look at stored messages: the commands ``messages peek`` and ``messages find``, and the group of the others."""

from __future__ import annotations

import asyncio
import heapq
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import click
from rich.console import RenderableType
from rich.text import Text

from pointsman.names import printable
from pointsman.wire.json_document import Document
from pointsman.wire.operator_texts import counted, moment_text
from pointsman_client import PointsmanError, ReceivedMessage, UnreadableMessageError
from pointsman_ctl.commands.message_probe_command import probe
from pointsman_ctl.commands.message_send_command import send
from pointsman_ctl.options.command_options import CommandGroup, in_cluster, read_name
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.options.message_options import (
    Edge,
    QueueChoice,
    Start,
    body_options,
    chosen_queues,
    queues_option,
    start_option,
)
from pointsman_ctl.options.name_completion import complete_topics
from pointsman_ctl.output.error_report import EXIT_OK, ErrorReport, queues_failed
from pointsman_ctl.output.message_view import (
    BodyForm,
    TooManyBytesError,
    birth,
    message_documents,
    messages_table,
    queue_document,
    save_bodies,
)
from pointsman_ctl.output.output_layout import ALARM
from pointsman_ctl.servers.message_lines import time_text
from pointsman_ctl.servers.message_search import INDEX_LIMIT, Found, SearchBounds, Wanted, search
from pointsman_ctl.servers.stored_messages import HeldQueue, StoredMessages, of_every

MAX_PEEKED = 1_000
MAX_HELD_BYTES = 256 * 1024 * 1024
"""Bodies that a command keeps until it shows them."""
MAX_SCANNED = 100_000_000


@click.group(cls=CommandGroup)
def messages() -> None:
    """Look at messages, find, send and probe them.

    \b
    Examples:
      pointsmanctl messages peek orders
      pointsmanctl messages find orders --key 4711
    """


@messages.command()
@click.argument("topic", callback=read_name, shell_complete=complete_topics)
@queues_option
@start_option
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_PEEKED),
    default=10,
    show_default=True,
    help="Maximum number of messages, of all queues together.",
)
@body_options
@in_cluster
@pass_invocation
def peek(
    invocation: Invocation,
    topic: str,
    *,
    choices: tuple[QueueChoice, ...],
    start: Start,
    limit: int,
    form: BodyForm,
    folder: Path | None,
    cluster: str,
) -> int:
    """Show stored messages of TOPIC, by their birth.

    Without --from the newest ones; else the first ones from there. No consumer group is touched. Works for Redis
    brokers, which are read directly, and for RocketMQ brokers. A body that is not text is shown as hexadecimal digits.
    A message that cannot be read is named and passed over. Exits 1 if a queue failed.

    A time is compared with the birth of a message on Redis brokers, and with the time at which the broker stored it on
    RocketMQ brokers.

    \b
    JSON: messages[].{queue.{topic, cluster, brokerName, queueId},
            queueOffset, messageId, offsetMessageId, bornAt, topic, tag,
            keys[], properties, reconsumeTimes, origin, reason, bodyBytes,
            body or bodyBase64 or bodyHex, file},
          queues[].{queue, first, end} or {queue, error},
          unreadable[].{queue, offset, problem}

    \b
    Examples:
      pointsmanctl messages peek orders
      pointsmanctl messages peek orders --queue broker-a/3 --from 1200 --body text
      pointsmanctl messages peek orders --from 10m --limit 100
      pointsmanctl -o json messages peek orders | jq -r '.messages[].body'
    """
    peeked = asyncio.run(_peek(invocation, topic, cluster, choices, start, limit))
    found = peeked.in_order()
    files = save_bodies(found, folder) if folder else []
    document: Document = {
        "messages": message_documents(found, form, files),
        "queues": [*peeked.bounds, *(_failed_document(*each) for each in peeked.failed)],
        "unreadable": [
            {"queue": queue_document(held.queue), "offset": error.offset, "problem": error.problem}
            for held, error in peeked.unreadable
        ],
    }
    parts: list[RenderableType] = [messages_table(found, form, files) if found else "no messages"]
    parts += [
        Text(printable(f"{held.name} offset {error.offset}: cannot be read ({error.problem})"), style=ALARM)
        for held, error in peeked.unreadable
    ]
    if peeked.bounds:
        invocation.show(document, parts)
    failures = {held.name: error for held, error in peeked.failed}
    return invocation.fail(queues_failed(failures)) if failures else EXIT_OK


@dataclass(slots=True)
class _Peeked:
    """What was read: the ``limit`` newest messages, or the oldest."""

    limit: int
    is_newest: bool
    messages: list[tuple[float, int, ReceivedMessage]] = field(default_factory=list)
    """A heap; its first is the one to drop."""
    held_bytes: int = 0
    bounds: list[Document] = field(default_factory=list)
    unreadable: list[tuple[HeldQueue, UnreadableMessageError]] = field(default_factory=list)
    failed: list[tuple[HeldQueue, PointsmanError]] = field(default_factory=list)
    count: int = 0

    def add(self, message: ReceivedMessage) -> None:
        """Keep it if it is one of the wanted. Raises TooManyBytesError."""
        born = message.born_at.timestamp() if message.born_at else 0.0
        self.count += 1
        self.held_bytes += len(message.body)
        entry = (born if self.is_newest else -born, self.count if self.is_newest else -self.count, message)
        if len(self.messages) < self.limit:
            heapq.heappush(self.messages, entry)
        else:
            _, _, dropped = heapq.heappushpop(self.messages, entry)
            self.held_bytes -= len(dropped.body)
        if self.held_bytes > MAX_HELD_BYTES:
            raise TooManyBytesError(MAX_HELD_BYTES)

    def in_order(self) -> list[ReceivedMessage]:
        """Return the messages by birth."""
        return sorted((message for _, _, message in self.messages), key=birth)


async def _peek(
    invocation: Invocation, topic: str, cluster: str, choices: Sequence[QueueChoice], start: Start, limit: int
) -> _Peeked:
    async with invocation.stored_messages() as stored:
        queues = chosen_queues(topic, await stored.queues(topic, cluster), choices)
        peeked = _Peeked(limit, is_newest=start is Edge.LATEST)

        async def read(held: HeldQueue) -> None:
            first, end = await stored.bounds(held)
            begin = max(first, await _begin(stored, held, start, end, limit))
            await _read(stored, held, begin, min(end, begin + limit), peeked)
            peeked.bounds.append({"queue": queue_document(held.queue), "first": first, "end": end})

        for held, result in await of_every(queues, read):
            if isinstance(result, TooManyBytesError):
                raise result
            if isinstance(result, PointsmanError):
                peeked.failed.append((held, result))
        peeked.bounds.sort(key=lambda each: str(each["queue"]))
        return peeked


async def _begin(stored: StoredMessages, held: HeldQueue, start: Start, end: int, limit: int) -> int:
    if isinstance(start, datetime):
        return await stored.offset_at(held, start)
    if start is Edge.LATEST:
        return end - limit
    return 0 if start is Edge.EARLIEST else int(start)


async def _read(stored: StoredMessages, held: HeldQueue, begin: int, end: int, peeked: _Peeked) -> None:
    while begin < end:
        try:
            async for message in stored.read(held, begin, end):
                peeked.add(message)
        except UnreadableMessageError as error:
            peeked.unreadable.append((held, error))
            begin = error.offset + 1
        else:
            return


def _failed_document(held: HeldQueue, error: PointsmanError) -> Document:
    return {"queue": queue_document(held.queue), "error": queues_failed({held.name: error}).to_document()}


@messages.command()
@click.argument("topic", callback=read_name, shell_complete=complete_topics)
@click.option(
    "--id", "message_id", default="", metavar="ID", help="The id of a message, as producers and peek show it."
)
@click.option("--key", default="", metavar="KEY", help="One of its keys.")
@queues_option
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_PEEKED),
    help="Maximum number of messages.  [default: 10; with --id 1]",
)
@click.option(
    "--scan",
    "most",
    type=click.IntRange(1, MAX_SCANNED),
    default=100_000,
    show_default=True,
    help="Maximum number of messages that are read from Redis brokers.",
)
@body_options
@in_cluster
@pass_invocation
def find(
    invocation: Invocation,
    topic: str,
    *,
    message_id: str,
    key: str,
    choices: tuple[QueueChoice, ...],
    limit: int | None,
    most: int,
    form: BodyForm,
    folder: Path | None,
    cluster: str,
) -> int:
    """Find messages of TOPIC by id or key, the newest first.

    RocketMQ brokers use their index, for at most 64 messages each; an id is that of the producer, or an offsetMsgId.
    Redis has no index: the streams are read backwards from their ends, all queues in turn, until enough messages were
    found or --scan were read. The last lines show how far that was. Exits 1 if none was found or a queue failed.

    \b
    JSON: messages[] as of `messages peek`,
          searched.{isWhole, indexes[] (CLUSTER/BROKER), scanned[].{queue,
            first, end, from, oldestBornAt}}, failed[].{name, error};
            isWhole: every stored message was read

    \b
    Examples:
      pointsmanctl messages find orders --key 4711
      pointsmanctl messages find orders --id 7F00000100002A9F0000000000000400
      pointsmanctl messages find orders --key 4711 --scan 5000000 --body text
    """
    if bool(message_id) == bool(key):
        raise click.UsageError("give --id or --key, one of both")
    wanted = Wanted(message_id, key)
    bounds = SearchBounds(limit or (1 if message_id else 10), most)
    found = asyncio.run(_find(invocation, topic, cluster, choices, wanted, bounds))
    files = save_bodies(found.messages, folder) if folder else []
    if found.scanned or found.indexes:
        invocation.show(_found_document(found, form, files), _found_parts(found, form, files))
    if found.failures:
        return invocation.fail(queues_failed(found.failures))
    if not found.messages:
        message = f"no message of topic {topic} with {printable(str(wanted))} was found"
        hint = "" if found.is_whole else "older ones were not looked at: give a higher --scan"
        return invocation.fail(ErrorReport("MESSAGE_NOT_FOUND", message, hint))
    return EXIT_OK


async def _find(
    invocation: Invocation,
    topic: str,
    cluster: str,
    choices: Sequence[QueueChoice],
    wanted: Wanted,
    bounds: SearchBounds,
) -> Found:
    shows_progress = sys.stderr.isatty() and not invocation.is_json

    def progress(done: int, of: int) -> None:
        if shows_progress:
            click.echo(f"\r{done} of {of} messages looked at", nl=False, err=True)

    async with invocation.stored_messages() as stored:
        queues = chosen_queues(topic, await stored.queues(topic, cluster), choices)
        try:
            return await search(stored, queues, wanted, bounds, progress=progress)
        finally:
            if shows_progress:
                click.echo("\r\x1b[K", nl=False, err=True)


def _found_document(found: Found, form: BodyForm, files: Sequence[Path]) -> Document:
    return {
        "messages": message_documents(found.messages, form, files),
        "searched": {
            "isWhole": found.is_whole,
            "indexes": ["/".join(each.queue.broker_key) for each in found.indexes],
            "scanned": [
                {
                    "queue": queue_document(each.held.queue),
                    "first": each.first,
                    "end": each.end,
                    "from": each.position,
                    "oldestBornAt": time_text(each.oldest),
                }
                for each in found.scanned
            ],
        },
        "failed": [
            {"name": name, "error": queues_failed({name: error}).to_document()}
            for name, error in found.failures.items()
        ],
    }


def _found_parts(found: Found, form: BodyForm, files: Sequence[Path]) -> Iterable[RenderableType]:
    if found.messages:
        yield messages_table(found.messages, form, files)
    if found.indexes:
        names = ", ".join("/".join(each.queue.broker_key) for each in found.indexes)
        yield Text(printable(f"looked up in the index of {names}"), style="dim")
    for held in found.cut:
        name = "/".join(held.queue.broker_key)
        yield Text(printable(f"{name} returned {INDEX_LIMIT} messages, and may have older ones"), style="dim")
    if found.scanned:
        scanned = sum(each.scanned for each in found.scanned)
        stored = sum(each.end - each.first for each in found.scanned)
        births = [each.oldest for each in found.scanned if each.oldest is not None and not each.is_whole]
        back_to = f", back to {moment_text(max(births))}" if births else ""
        yield Text(
            f"looked at {scanned} of {counted(stored, 'message')} in {counted(len(found.scanned), 'queue')}{back_to}",
            style="dim",
        )


messages.add_command(send)
messages.add_command(probe)
