"""Queue locks and committed offsets at the agents: the commands ``locks`` and ``offsets``."""

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
from pointsman_ctl.agent_round import (
    Agent,
    AgentChoice,
    QueryResult,
    finish,
    of_agents,
    query_agents,
    to_agents_document,
)
from pointsman_ctl.command_options import read_name
from pointsman_ctl.group_commands import complete_groups, fail_unknown_group
from pointsman_ctl.invocation import Invocation, pass_invocation
from pointsman_ctl.operator_texts import counted, duration_text, printable
from pointsman_ctl.output_layout import ALARM, WARNING, new_table
from pointsman_ctl.server_calls import Server

PAGE_SIZE = 1_000


@click.command()
@click.option(
    "--group",
    callback=read_name,
    shell_complete=complete_groups,
    metavar="NAME",
    help="Only locks of this consumer group.",
)
@of_agents
@pass_invocation
def locks(invocation: Invocation, group: str, choice: AgentChoice) -> int:
    """Show the queue locks of consumers.

    A consumer locks the queues that it reads at the broker's agent. LAST RENEWAL is the time since the owner renewed
    the lock. An EXPIRED lock goes to the next consumer that requests it. Failed agents are listed on standard error;
    exits 1 if all failed.

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
    result = query_agents(invocation, choice, lambda server, deadline: locks_of(server, deadline, group))
    return finish(invocation, result, to_locks_document(result), locks_parts(result.received))


@click.command()
@click.argument("group", required=False, callback=read_name, shell_complete=complete_groups)
@click.option("--retry", is_flag=True, help="Show empty queues of retry topics too.")
@of_agents
@pass_invocation
def offsets(invocation: Invocation, group: str, choice: AgentChoice, *, retry: bool) -> int:
    """Show committed offsets and lag of consumer groups.

    Of all groups, or of GROUP. COMMITTED is the offset of the next message to read, MAX that after the last message,
    LAG the difference; MAX is missing if the broker does not report it. BEYOND END: the committed offset is above MAX,
    so the queue has lost messages. RocketMQ brokers are queried themselves; they report 0 for a queue that the group
    has not committed. The second table has the total of each group. Empty queues of retry topics are
    hidden without --retry; totals and JSON include them. Failed agents are listed on standard error; exits 1 if all
    failed, or if GROUP has no committed offset.

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
    result = query_agents(
        invocation,
        choice,
        lambda server, deadline: offsets_of(server, deadline, group),
        lambda broker, deadline: broker.list_offsets(group, deadline),
    )
    rows = offset_rows(result.received)
    totals = group_totals(rows)
    if group and result.received and not totals:
        return fail_unknown_group(invocation, result, f"consumer group {group} has no committed offset")
    document = to_offsets_document(result, rows, totals)
    shown = rows if retry else without_empty_retries(rows)
    return finish(invocation, result, document, offsets_parts(shown, totals, folded=len(rows) - len(shown)))


async def locks_of(server: Server, deadline: float, group: str) -> locks_wire.ListQueueLocksResponse:
    """Return the locks of a group at an agent; of all groups if ``group`` is empty."""
    request = locks_wire.ListQueueLocksRequest(group=group, page_size=PAGE_SIZE)
    return await server.all_pages(server.locks.ListQueueLocks, request, deadline=deadline)


async def offsets_of(server: Server, deadline: float, group: str) -> offsets_wire.ListOffsetsResponse:
    """Return the offsets of a group at an agent; of all groups if ``group`` is empty."""
    request = offsets_wire.ListOffsetsRequest(group=group, page_size=PAGE_SIZE)
    return await server.all_pages(server.offsets.ListOffsets, request, deadline=deadline)


@dataclass(frozen=True, slots=True)
class OffsetRow:
    """The progress of a group in one queue, according to one agent."""

    agent: Agent
    progress: offsets_wire.QueueProgress

    @property
    def max_offset(self) -> int | None:
        """The offset after the last message; None: unknown."""
        return self.progress.max_offset if self.progress.HasField("max_offset") else None

    @property
    def lag(self) -> int | None:
        """Number of unread messages; None: unknown."""
        return None if self.max_offset is None else max(0, self.max_offset - self.progress.committed.offset)

    @property
    def is_beyond_end(self) -> bool:
        """Whether the committed offset is above the end: messages were lost, and new ones will be skipped."""
        return self.max_offset is not None and self.progress.committed.offset > self.max_offset


@dataclass(frozen=True, slots=True)
class GroupTotal:
    """The total progress of a group."""

    group: str
    queues: int
    lag: int
    """Sum over the queues whose end is known."""
    without_end: int
    """Number of queues whose end is unknown."""


def offset_rows(responses: Iterable[tuple[Agent, offsets_wire.ListOffsetsResponse]]) -> list[OffsetRow]:
    """Return the offsets sorted by group, topic, agent and queue."""
    rows = [OffsetRow(agent, progress) for agent, response in responses for progress in response.progress]
    return sorted(rows, key=lambda row: (*_place(row.progress), row.agent.name, row.progress.committed.queue_id))


def without_empty_retries(rows: Sequence[OffsetRow]) -> list[OffsetRow]:
    """Remove empty queues of retry topics: each group has 16 per broker, and most are empty."""
    return [
        row
        for row in rows
        if not (is_retry_topic(row.progress.committed.topic) and row.lag == 0 and not row.is_beyond_end)
    ]


def group_totals(rows: Sequence[OffsetRow]) -> list[GroupTotal]:
    """Return a total for each group; a queue listed by several replicas counts once, with its highest offset."""
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


def to_locks_document(result: QueryResult[locks_wire.ListQueueLocksResponse]) -> Document:
    """Render the locks, and their lifetime at each agent."""

    def of_agent(response: locks_wire.ListQueueLocksResponse) -> Document:
        return {"lifetimeSeconds": seconds_of(response.lifetime), "locks": len(response.locks)}

    locks = []
    for agent, response in result.received:
        for lock in response.locks:
            document = to_document(lock)
            queue = document.pop("queue")
            locks.append({**document, **queue, **_to_where(agent), "isExpired": _is_expired(lock, response)})
    return {"locks": locks, "agents": to_agents_document(result, of_agent)}


def _is_expired(lock: locks_wire.QueueLock, response: locks_wire.ListQueueLocksResponse) -> bool:
    return seconds_of(lock.renewed_ago) > seconds_of(response.lifetime)


def to_offsets_document(
    result: QueryResult[offsets_wire.ListOffsetsResponse], rows: Sequence[OffsetRow], totals: Sequence[GroupTotal]
) -> Document:
    """Render the offsets, their totals, and within what time each agent persists them."""

    def of_agent(response: offsets_wire.ListOffsetsResponse) -> Document:
        return {
            "durableWithinSeconds": seconds_of(response.durable_within)
            if response.HasField("durable_within")
            else None,
            "offsets": len(response.progress),
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
    return {"offsets": offsets, "totals": sums, "agents": to_agents_document(result, of_agent)}


def _to_where(agent: Agent) -> Document:
    return {"agent": agent.addr, "brokers": list(agent.brokers)}


def locks_parts(responses: Sequence[tuple[Agent, locks_wire.ListQueueLocksResponse]]) -> Iterable[RenderableType]:
    """Show one row per lock."""
    if not any(response.locks for _, response in responses):
        yield Text("no queue is locked")
        return
    table = new_table(
        "GROUP", "TOPIC", "BROKER", "QUEUE", "OWNER", "LAST RENEWAL", "STATUS", right=("QUEUE", "LAST RENEWAL")
    )
    found = [(lock, agent, response) for agent, response in responses for lock in response.locks]
    found.sort(key=lambda row: (row[0].group, row[0].queue.topic, row[1].name, row[0].queue.queue_id))
    for lock, agent, response in found:
        table.add_row(
            printable(lock.group),
            printable(lock.queue.topic),
            agent.name,
            str(lock.queue.queue_id),
            printable(lock.client_id),
            duration_text(seconds_of(lock.renewed_ago)),
            Text("EXPIRED", style=WARNING) if _is_expired(lock, response) else "-",
        )
    yield table


def offsets_parts(rows: Sequence[OffsetRow], totals: Sequence[GroupTotal], *, folded: int) -> Iterable[RenderableType]:
    """Show one row per queue, the number of hidden queues, then one row per group."""
    if not totals:
        yield Text("no offset is committed")
        return
    numbers = ("QUEUE", "COMMITTED", "MAX", "LAG")
    table = new_table("GROUP", "TOPIC", "BROKER", *numbers, "STATUS", right=numbers)
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
            Text("BEYOND END", style=ALARM) if row.is_beyond_end else "-",
        )
    if rows:
        yield table
    if folded:
        yield Text(f"{counted(folded, 'empty queue')} of retry topics hidden; show with --retry", style="dim")
    yield ""
    sums = new_table("GROUP", "QUEUES", "LAG", "UNKNOWN LAG", right=("QUEUES", "LAG", "UNKNOWN LAG"))
    for total in totals:
        known = total.queues - total.without_end
        unknown = counted(total.without_end, "queue") if total.without_end else "-"
        sums.add_row(printable(total.group), str(total.queues), str(total.lag) if known else "-", unknown)
    yield sums


def _number(number: int | None) -> str:
    return "-" if number is None else str(number)
