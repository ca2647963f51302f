"""Queues as the brokers' agents know them: the commands ``locks`` and ``offsets``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import click
from rich.console import RenderableType
from rich.text import Text

from pointsman.v1 import offset_service_pb2 as offsets_wire
from pointsman.v1 import queue_lock_service_pb2 as locks_wire
from pointsman.wire.group_topics import is_retry_topic
from pointsman.wire.json_document import Document, to_document
from pointsman.wire.wire_time import seconds_of
from pointsman_ctl.agent_round import Agent, AgentChoice, Asked, ask_agents, finish, of_agents, to_agents_document
from pointsman_ctl.answer_layout import ALARM, WARNING, new_table
from pointsman_ctl.command_options import read_name
from pointsman_ctl.invocation import Invocation, pass_invocation
from pointsman_ctl.operator_texts import counted, duration_words, printable
from pointsman_ctl.server_calls import Server

PAGE_SIZE = 1_000


@click.command()
@click.option("--group", callback=read_name, metavar="NAME", help="Only locks of this consumer group.")
@of_agents
@pass_invocation
def locks(invocation: Invocation, group: str, choice: AgentChoice) -> int:
    """Show which consumers have locked which queues.

    A consumer locks the queues that it reads at the broker's agent. RENEWED is the time since the holder said that
    it still wants the lock; an EXPIRED one is given to whoever asks next. Agents that did not answer are named on
    standard error; exits 1 if none did.

    \b
    JSON: locks[].{group, topic, agent, brokers[], queueId, clientId,
            renewedAgoSeconds, isExpired},
          agents[].{addr, brokers[], lifetimeSeconds, locks}
          or {addr, brokers[], error}

    \b
    Examples:
      pointsmanctl locks
      pointsmanctl locks --group billing --cluster DefaultCluster
    """
    asked = ask_agents(invocation, choice, lambda server, deadline: locks_of(server, deadline, group))
    return finish(invocation, asked, to_locks_document(asked), locks_parts(asked.whole))


@click.command()
@click.argument("group", required=False, callback=read_name)
@click.option("--retry", is_flag=True, help="Show empty queues of retry topics too.")
@of_agents
@pass_invocation
def offsets(invocation: Invocation, group: str, choice: AgentChoice, *, retry: bool) -> int:
    """Show how far consumer groups have read each queue.

    All groups, or GROUP. COMMITTED is the next message to read, MAX one beyond the last message, LAG what lies between.
    Where a broker does not tell where its queues end, there is no MAX. BEYOND END: the queue is shorter than what was
    read of it, so it has lost messages. Queues of retry topics that are read to their end are left out of the table,
    unless --retry is given; totals and JSON have them. Below is the total lag of each group. Agents that did not answer
    are named on standard error; exits 1 if none did.

    \b
    JSON: offsets[].{group, topic, agent, brokers[], queueId, committedOffset,
            maxOffset, lag, isBeyondEnd}; maxOffset and lag are null if not known,
          totals[].{group, queues, lag, queuesWithoutEnd},
          agents[].{addr, brokers[], durableWithinSeconds, offsets}
          or {addr, brokers[], error}

    \b
    Examples:
      pointsmanctl offsets billing
      pointsmanctl offsets
      pointsmanctl -o json offsets billing | jq '.totals[0].lag'
    """
    asked = ask_agents(invocation, choice, lambda server, deadline: offsets_of(server, deadline, group))
    rows = offset_rows(asked.whole)
    totals = group_totals(rows)
    whole = to_offsets_document(asked, rows, totals)
    shown = rows if retry else without_empty_retries(rows)
    return finish(invocation, asked, whole, offsets_parts(shown, totals, folded=len(rows) - len(shown)))


async def locks_of(server: Server, deadline: float, group: str) -> locks_wire.ListQueueLocksResponse:
    """Ask for the locks of a group; empty: of all."""
    request = locks_wire.ListQueueLocksRequest(group=group, page_size=PAGE_SIZE)
    return await server.whole(server.locks.ListQueueLocks, request, deadline=deadline)


async def offsets_of(server: Server, deadline: float, group: str) -> offsets_wire.ListOffsetsResponse:
    """Ask for the offsets of a group; empty: of all."""
    request = offsets_wire.ListOffsetsRequest(group=group, page_size=PAGE_SIZE)
    return await server.whole(server.offsets.ListOffsets, request, deadline=deadline)


@dataclass(frozen=True, slots=True)
class OffsetRow:
    """How far a group is in one queue, by the word of one agent."""

    agent: Agent
    progress: offsets_wire.QueueProgress

    @property
    def max_offset(self) -> int | None:
        """One beyond the last message; None: not known."""
        return self.progress.max_offset if self.progress.HasField("max_offset") else None

    @property
    def lag(self) -> int | None:
        """Messages that the group has still to read; None: not known."""
        return None if self.max_offset is None else max(0, self.max_offset - self.progress.committed.offset)

    @property
    def is_beyond_end(self) -> bool:
        """Whether more is committed than there is: the queue has lost messages, and new ones will be passed over."""
        return self.max_offset is not None and self.progress.committed.offset > self.max_offset


@dataclass(frozen=True, slots=True)
class GroupTotal:
    """How far a group is in all."""

    group: str
    queues: int
    lag: int
    """In the queues whose end is known."""
    without_end: int
    """Queues whose end is not known."""


def offset_rows(answers: Iterable[tuple[Agent, offsets_wire.ListOffsetsResponse]]) -> list[OffsetRow]:
    """Return the offsets by (group, topic, agent, queue)."""
    rows = [OffsetRow(agent, progress) for agent, answer in answers for progress in answer.progress]
    return sorted(rows, key=lambda row: (*_place(row.progress), row.agent.name, row.progress.committed.queue_id))


def without_empty_retries(rows: Sequence[OffsetRow]) -> list[OffsetRow]:
    """Leave out queues of retry topics that are read to their end: 16 a broker and group, nearly always empty."""
    return [
        row
        for row in rows
        if not (is_retry_topic(row.progress.committed.topic) and row.lag == 0 and not row.is_beyond_end)
    ]


def group_totals(rows: Sequence[OffsetRow]) -> list[GroupTotal]:
    """Return a total for each group; a queue that agents of several replicas list counts once, as the furthest."""
    furthest: dict[tuple[str, str, str, int], OffsetRow] = {}
    for row in rows:
        committed = row.progress.committed
        queue = (row.progress.group, committed.topic, row.agent.queues_of, committed.queue_id)
        other = furthest.get(queue)
        if other is None or committed.offset > other.progress.committed.offset:
            furthest[queue] = row
    of_group: dict[str, list[int | None]] = {}
    for (group, *_), row in furthest.items():
        of_group.setdefault(group, []).append(row.lag)
    return [
        GroupTotal(group, len(lags), sum(lag for lag in lags if lag is not None), lags.count(None))
        for group, lags in sorted(of_group.items())
    ]


def _place(progress: offsets_wire.QueueProgress) -> tuple[str, str]:
    return progress.group, progress.committed.topic


def to_locks_document(asked: Asked[locks_wire.ListQueueLocksResponse]) -> Document:
    """Render the locks, and how long they live at each agent."""

    def of_agent(answer: locks_wire.ListQueueLocksResponse) -> Document:
        return {"lifetimeSeconds": seconds_of(answer.lifetime), "locks": len(answer.locks)}

    locks = []
    for agent, answer in asked.whole:
        for lock in answer.locks:
            document = to_document(lock)
            queue = document.pop("queue")
            locks.append({**document, **queue, **_to_where(agent), "isExpired": _is_expired(lock, answer)})
    return {"locks": locks, "agents": to_agents_document(asked, of_agent)}


def _is_expired(lock: locks_wire.QueueLock, answer: locks_wire.ListQueueLocksResponse) -> bool:
    return seconds_of(lock.renewed_ago) > seconds_of(answer.lifetime)


def to_offsets_document(
    asked: Asked[offsets_wire.ListOffsetsResponse], rows: Sequence[OffsetRow], totals: Sequence[GroupTotal]
) -> Document:
    """Render the offsets, their totals, and how safe they are at each agent."""

    def of_agent(answer: offsets_wire.ListOffsetsResponse) -> Document:
        return {
            "durableWithinSeconds": seconds_of(answer.durable_within) if answer.HasField("durable_within") else None,
            "offsets": len(answer.progress),
        }

    offsets = [
        {
            "group": row.progress.group,
            "topic": row.progress.committed.topic,
            **_to_where(row.agent),
            "queueId": row.progress.committed.queue_id,
            "committedOffset": row.progress.committed.offset,
            "maxOffset": row.max_offset,
            "lag": row.lag,
            "isBeyondEnd": row.is_beyond_end,
        }
        for row in rows
    ]
    sums = [
        {"group": total.group, "queues": total.queues, "lag": total.lag, "queuesWithoutEnd": total.without_end}
        for total in totals
    ]
    return {"offsets": offsets, "totals": sums, "agents": to_agents_document(asked, of_agent)}


def _to_where(agent: Agent) -> Document:
    return {"agent": agent.addr, "brokers": list(agent.brokers)}


def locks_parts(answers: Sequence[tuple[Agent, locks_wire.ListQueueLocksResponse]]) -> Iterable[RenderableType]:
    """Show one row a lock."""
    if not any(answer.locks for _, answer in answers):
        yield Text("no queue is locked")
        return
    table = new_table("GROUP", "TOPIC", "BROKER", "QUEUE", "HELD BY", "RENEWED", "", right=("QUEUE", "RENEWED"))
    found = [(lock, agent, answer) for agent, answer in answers for lock in answer.locks]
    found.sort(key=lambda row: (row[0].group, row[0].queue.topic, row[1].name, row[0].queue.queue_id))
    for lock, agent, answer in found:
        table.add_row(
            printable(lock.group),
            printable(lock.queue.topic),
            agent.name,
            str(lock.queue.queue_id),
            printable(lock.client_id),
            duration_words(seconds_of(lock.renewed_ago)),
            Text("EXPIRED", style=WARNING) if _is_expired(lock, answer) else "",
        )
    yield table


def offsets_parts(rows: Sequence[OffsetRow], totals: Sequence[GroupTotal], *, folded: int) -> Iterable[RenderableType]:
    """Show one row a queue, how many queues are not shown, and below them one row a group."""
    if not totals:
        yield Text("no offset is committed")
        return
    numbers = ("QUEUE", "COMMITTED", "MAX", "LAG")
    table = new_table("GROUP", "TOPIC", "BROKER", *numbers, "", right=numbers)
    for row in rows:
        committed = row.progress.committed
        table.add_row(
            printable(row.progress.group),
            printable(committed.topic),
            row.agent.name,
            str(committed.queue_id),
            str(committed.offset),
            _number(row.max_offset),
            _number(row.lag),
            Text("BEYOND END", style=ALARM) if row.is_beyond_end else "",
        )
    if rows:
        yield table
    if folded:
        yield Text(f"{counted(folded, 'empty queue')} of retry topics not shown: --retry", style="dim")
    yield ""
    sums = new_table("GROUP", "QUEUES", "LAG", "", right=("QUEUES", "LAG"))
    for total in totals:
        known = total.queues - total.without_end
        rest = f"and {counted(total.without_end, 'queue')} whose end is not known" if total.without_end else ""
        sums.add_row(printable(total.group), str(total.queues), str(total.lag) if known else "-", rest)
    yield sums


def _number(number: int | None) -> str:
    return "-" if number is None else str(number)


COMMANDS = (locks, offsets)
