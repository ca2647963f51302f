"""The commands ``dlq``: dead letters of consumer groups are listed, shown and exported; others replay and import."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import IO

import click
from rich.text import Text

from pointsman.wire.operator_texts import counted
from pointsman_client import NoBrokerUpError, PointsmanError
from pointsman_ctl.commands.replay_commands import dlq_import, dlq_replay, is_complete
from pointsman_ctl.options.command_options import CommandGroup, in_cluster, read_name
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.options.letter_options import complete_dead_groups, file_errors, selection_options
from pointsman_ctl.options.message_options import body_option
from pointsman_ctl.output.dead_letter_view import (
    CountedQueue,
    ShownLetter,
    letters_parts,
    list_parts,
    to_letters_document,
    to_list_document,
)
from pointsman_ctl.output.error_report import EXIT_FAILED, EXIT_OK, ErrorReport, agents_failed
from pointsman_ctl.output.message_view import BodyForm
from pointsman_ctl.servers.dead_letters import DeadLetters, LetterQueue, group_of
from pointsman_ctl.servers.letter_selection import Selection
from pointsman_ctl.servers.message_lines import to_line
from pointsman_ctl.servers.name_servers import name_servers
from pointsman_ctl.servers.server_calls import query_first
from pointsman_ctl.servers.stored_messages import HeldQueue, StoredMessages, of_every

MAX_CONCURRENT_GROUPS = 8
MAX_SHOWN = 10_000


@click.group(cls=CommandGroup)
def dlq() -> None:
    """Show and replay dead letters, which a group gave up on.

    A dead letter stays where it is when it is replayed. A record at the same broker has what was replayed, for all
    operators.

    \b
    Examples:
      pointsmanctl dlq list
      pointsmanctl dlq replay billing --dry-run
    """


dlq.add_command(dlq_replay)
dlq.add_command(dlq_import)


@dlq.command("list")
@in_cluster
@pass_invocation
def dlq_list(invocation: Invocation, cluster: str) -> int:
    """List the groups that have dead letters, at each broker.

    STORED is the number of dead letters, NOT REPLAYED that of those without a replay. OLDEST BORN is when the first one
    was sent by its producer; brokers do not store when a message became a dead letter. Brokers that are down are not
    counted and named; then it exits 1, as it does if a broker failed.

    \b
    JSON: groups[].{group, stored, notReplayed, oldestBornAt,
            brokers[].{broker, addr, stored, notReplayed, oldestBornAt}
            or {broker, addr, error}}; null: not known

    \b
    Examples:
      pointsmanctl dlq list
      pointsmanctl -o json dlq list | jq '.groups[] | select(.notReplayed > 0)'
    """
    rows = asyncio.run(_counted(invocation, cluster))
    invocation.show(to_list_document(rows), list_parts(rows))
    failures = {row.addr: row.failure for row in rows if row.failure is not None}
    is_known = is_complete(invocation, cluster)
    code = _failed_brokers(invocation, failures, of=[row.addr for row in rows])
    return code if is_known else EXIT_FAILED


async def _counted(invocation: Invocation, cluster: str) -> list[CountedQueue]:
    async with invocation.stored_messages() as messages:
        async with invocation.connections() as to:
            listed = await query_first(
                name_servers(to, invocation.rocketmq_access),
                invocation.name_servers,
                lambda server, deadline: server.topics(deadline, cluster=cluster),
                invocation.timeout_seconds,
            )
        invocation.warn_if_warming(listed.node_state)
        turns = asyncio.Semaphore(MAX_CONCURRENT_GROUPS)

        async def one(group: str) -> list[CountedQueue]:
            async with turns:
                return await _counted_group(messages, group, cluster)

        groups = sorted(filter(None, map(group_of, listed.topics)))
        found = await asyncio.gather(*map(one, groups))
        return [row for rows in found for row in rows]


async def _counted_group(messages: StoredMessages, group: str, cluster: str) -> list[CountedQueue]:
    letters = DeadLetters(messages, group)

    async def count(held: HeldQueue) -> CountedQueue:
        queue = await letters.of_queue(held)
        async with aclosing(letters.read(queue, Selection(), with_done=True, on_unreadable=_skip)) as found:
            first = await anext(found, None)
        return CountedQueue(group, held, queue, None if first is None else first.born_at)

    try:
        queues = await letters.queues(cluster)
    except NoBrokerUpError as failure:
        # It went down after the list of topics.
        return [CountedQueue(group, None, None, failure=failure)]
    rows = [
        CountedQueue(group, held, None, failure=result) if isinstance(result, PointsmanError) else result
        for held, result in await of_every(queues, count)
    ]
    return [row for row in rows if row.queue is None or row.queue.stored]


def _skip(_offset: int, _problem: str) -> None:
    """Leave out a message that cannot be read."""


@dlq.command("show")
@click.argument("group", callback=read_name, shell_complete=complete_dead_groups)
@selection_options
@click.option("--limit", type=click.IntRange(1, MAX_SHOWN), default=20, show_default=True, help="Show this number.")
@click.option("--not-replayed", is_flag=True, help="Without those that were replayed.")
@body_option
@click.option(
    "--body-file", type=click.Path(dir_okay=False, path_type=Path), help="Write the body of the only one to this file."
)
@in_cluster
@pass_invocation
def dlq_show(
    invocation: Invocation,
    group: str,
    selection: Selection,
    limit: int,
    form: str,
    body_file: Path | None,
    cluster: str,
    *,
    not_replayed: bool,
) -> int:
    """Show dead letters of GROUP, from the oldest.

    TRIES is the number of failed calls of a listener, REASON the last error; RocketMQ brokers and their own clients
    store no reason. STATUS is REPLAYED after a replay. A body that is not text is shown as 0x and hexadecimal digits.
    Conditions for different fields must all hold, for the same field one of them. `reason` is a part of the reason,
    in upper or lower case. Brokers that are down are not counted and named. Exits 1 if a broker failed or a message
    cannot be read.

    \b
    JSON: group, isCut,
          deadLetters[].{group, broker, queueOffset, topic, messageId, bornAt,
            tag, keys[], properties, reconsumeTimes, origin, reason, body or
            bodyBase64 or bodyHex, bodyBytes, isReplayed}

    \b
    Examples:
      pointsmanctl dlq show billing --limit 5
      pointsmanctl dlq show billing --key 4711 --since 2h
      pointsmanctl dlq show billing --select reason=timeout --body text
      pointsmanctl dlq show billing --select id=7F0001 --body-file body.bin
    """
    is_complete(invocation, cluster)
    wanted = 1 if body_file else limit
    shown, failures, addrs, is_cut = asyncio.run(
        _letters(invocation, group, selection, cluster, limit=wanted, with_done=not not_replayed)
    )
    if body_file is not None and (len(shown) != 1 or is_cut):
        number = "more than one dead letter is" if is_cut else "no dead letter is"
        return invocation.fail(
            ErrorReport("NOT_ONE_DEAD_LETTER", f"{number} selected", "select one with --select id=ID")
        )
    if body_file is not None:
        with file_errors(body_file):
            body_file.write_bytes(shown[0].letter.body)
    shown_form = BodyForm(form)
    invocation.show(
        to_letters_document(group, shown, shown_form, is_cut=is_cut), letters_parts(shown, shown_form, is_cut=is_cut)
    )
    return _failed_brokers(invocation, failures, of=addrs)


async def _letters(
    invocation: Invocation, group: str, selection: Selection, cluster: str, *, limit: int, with_done: bool
) -> tuple[list[ShownLetter], Mapping[str, PointsmanError], Sequence[str], bool]:
    """Return the first dead letters, what failed by address, all addresses, and whether there are more."""
    shown: list[ShownLetter] = []
    failures: dict[str, PointsmanError] = {}
    async with invocation.stored_messages() as messages:
        letters = DeadLetters(messages, group)
        held = await letters.queues(cluster)
        for each in held:
            try:
                queue = await letters.of_queue(each)
                async with aclosing(letters.read(queue, selection, with_done=with_done)) as found:
                    async for letter in found:
                        if len(shown) == limit:
                            return shown, failures, [one.addr for one in held], True
                        shown.append(ShownLetter(letter, letter.queue_offset in queue.done))
            except PointsmanError as failure:
                failures[each.addr] = failure
    return shown, failures, [each.addr for each in held], False


@dlq.command("export")
@click.argument("group", callback=read_name, shell_complete=complete_dead_groups)
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@selection_options
@in_cluster
@pass_invocation
def dlq_export(invocation: Invocation, group: str, file: Path, selection: Selection, cluster: str) -> int:
    """Write dead letters of GROUP to FILE as JSON lines; - is standard output.

    All dead letters, also replayed ones, or those that are selected. Those of a broker that is down are missing; then
    its name is in a warning. A file that exists is not overwritten. FILE
    appears when it is complete: not if a broker failed or a message cannot be read.

    \b
    JSON lines: {group, broker, queueOffset, topic, messageId, bornAt, tag,
            keys[], properties, reconsumeTimes, origin, reason, body or
            bodyBase64}; `dlq import` does not use broker and queueOffset
    JSON: group, file, exported; not with - as FILE

    \b
    Examples:
      pointsmanctl dlq export billing billing.jsonl
      pointsmanctl dlq export billing - --since 1d | jq -r .reason
    """
    is_complete(invocation, cluster)
    if str(file) == "-":
        asyncio.run(_export(invocation, group, selection, cluster, sys.stdout))
        return EXIT_OK
    if file.exists():
        raise click.BadParameter(f"{str(file)!r} exists", param_hint="'FILE'")
    part = file.with_name(f"{file.name}.part")
    with file_errors(file):
        try:
            with part.open("w", encoding="utf-8", newline="\n") as out:
                exported = asyncio.run(_export(invocation, group, selection, cluster, out))
                out.flush()
                os.fsync(out.fileno())
            part.rename(file)
        finally:
            part.unlink(missing_ok=True)
    text = Text(f"{counted(exported, 'dead letter')} of group {group} exported to {file}")
    invocation.show({"group": group, "file": str(file), "exported": exported}, [text])
    return EXIT_OK


async def _export(invocation: Invocation, group: str, selection: Selection, cluster: str, out: IO[str]) -> int:
    exported = 0
    async with invocation.stored_messages() as messages:
        letters = DeadLetters(messages, group)
        queues: list[LetterQueue] = [await letters.of_queue(held) for held in await letters.queues(cluster)]
        for queue in queues:
            async for letter in letters.read(queue, selection, with_done=True):
                out.write(to_line(group, letter))
                exported += 1
    return exported


def _failed_brokers(invocation: Invocation, failures: Mapping[str, PointsmanError], *, of: Sequence[str]) -> int:
    if not failures:
        return EXIT_OK
    addrs = list(dict.fromkeys(of))
    return invocation.fail(agents_failed(failures, of=addrs, is_change=False, noun="broker"))
