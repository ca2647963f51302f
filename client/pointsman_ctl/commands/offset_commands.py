"""Queue locks and committed offsets at the agents: the commands ``locks`` and ``offsets show``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import click
from rich.console import RenderableType
from rich.text import Text

from pointsman.group_topics import is_retry_topic
from pointsman.names import printable
from pointsman.v1 import offset_service_pb2 as offsets_wire
from pointsman.v1 import queue_lock_service_pb2 as locks_wire
from pointsman.wire.json_document import Document, to_document
from pointsman.wire.operator_texts import counted, duration_text
from pointsman.wire.wire_time import seconds_of
from pointsman_ctl.commands.agent_round import (
    AgentChoice,
    QueryResult,
    agent_and_broker_round,
    agent_round,
    finish,
    of_agents,
    query_agents,
    to_agents_document,
)
from pointsman_ctl.commands.group_commands import complete_groups, fail_unknown_group
from pointsman_ctl.commands.offset_reset_commands import clone, reset, skip
from pointsman_ctl.options.command_options import DefaultCommandGroup, read_name
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.output.output_layout import ALARM, WARNING, new_table
from pointsman_ctl.servers.found_agents import Agent


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
    the lock. An EXPIRED lock goes to the next consumer that requests it. The locks of a group's retry topic are listed
    after its others. Agents of brokers that are OUT or departed are queried too. Brokers that are not counted are
    listed; then it exits 1.

    \b
    JSON: locks[].{group, topic, agent, brokers[], queueId, clientId,
            renewedAgoSeconds, isExpired},
          agents[].{addr, brokers[], absent[].{broker, state},
            lifetimeSeconds, locks}
          or {addr, brokers[], absent[], error},
          notCounted[].{broker, state, addr, reason}, isAbsentKnown

    \b
    Examples:
      pointsmanctl locks
      pointsmanctl locks --group billing --cluster DefaultCluster
    """
    result = query_agents(agent_round(invocation, choice), lambda server, deadline: server.list_locks(group, deadline))
    return finish(invocation, result, to_locks_document(result), locks_parts(result.received))


@click.group(cls=DefaultCommandGroup)
def offsets() -> None:
    """Show and reset committed offsets of consumer groups.

    `offsets` and `offsets GROUP` are short for `offsets show`.

    \b
    Examples:
      pointsmanctl offsets billing
      pointsmanctl offsets reset billing orders --to 90m --dry-run
      pointsmanctl offsets skip billing orders
    """


@offsets.command("show")
@click.argument("group", required=False, callback=read_name, shell_complete=complete_groups)
@click.option("--retry", is_flag=True, help="Show empty queues of retry topics too.")
@of_agents
@pass_invocation
def show(invocation: Invocation, group: str, choice: AgentChoice, *, retry: bool) -> int:
    """Show committed offsets and lag of consumer groups.

    Of all groups, or of GROUP. COMMITTED is the offset of the next message to read, MAX that after the last message,
    LAG the difference; MAX is missing if the broker does not report it. BEYOND END: the committed offset is above MAX,
    so the queue has lost messages. RocketMQ brokers are queried themselves; they report 0 for a queue that the group
    has not committed. The second table has the total of each group: QUEUES without those of retry topics, LAG with
    them. Queues of retry topics without known messages are hidden without --retry; JSON includes them.

    Agents of brokers that are OUT or departed are queried too. A broker that is not counted is listed, and so is one
    that is OUT and does not report MAX; then it exits 1, as it does if GROUP has no committed offset. A broker that
    unregistered or was evicted is not queried.

    \b
    JSON: offsets[].{group, topic, agent, brokers[], queueId, committedOffset,
            maxOffset, lag, isBeyondEnd}; maxOffset and lag are null if not known,
          totals[].{group, queues, lag, queuesWithoutEnd, retryQueues,
            retryQueuesWithoutEnd},
          agents[].{addr, brokers[], absent[].{broker, state},
            durableWithinSeconds, offsets}
          or {addr, brokers[], absent[], error},
          notCounted[].{broker, state, addr, reason}, isAbsentKnown

    \b
    Examples:
      pointsmanctl offsets show billing
      pointsmanctl offsets show
      pointsmanctl -o json offsets show billing | jq '.totals[0].lag'
    """
    result = query_agents(
        agent_and_broker_round(invocation, choice), lambda server, deadline: server.list_offsets(group, deadline)
    )
    rows = offset_rows(result.received)
    totals = group_totals(rows)
    if group and result.received and not totals:
        return fail_unknown_group(invocation, result, f"consumer group {group} has no committed offset")
    document = to_offsets_document(result, rows, totals)
    shown = rows if retry else without_empty_retries(rows)
    parts = offsets_parts(shown, totals, folded=len(rows) - len(shown))
    return finish(invocation, result, document, parts, unknown=unknown_ends(rows, result.found.absent))


offsets.add_command(reset)
offsets.add_command(skip)
offsets.add_command(clone)


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
    """Number of queues, except those of retry topics."""
    lag: int
    """Sum over the queues whose end is known, those of retry topics too."""
    without_end: int
    """Number of queues whose end is unknown, except those of retry topics."""
    retry_queues: int = 0
    """Number of queues of retry topics."""
    retry_without_end: int = 0
    """Number of queues of retry topics whose end is unknown."""


def offset_rows(responses: Iterable[tuple[Agent, offsets_wire.ListOffsetsResponse]]) -> list[OffsetRow]:
    """Return the offsets sorted by group, topic, agent and queue."""
    rows = [OffsetRow(agent, progress) for agent, response in responses for progress in response.progress]
    return sorted(
        rows,
        key=lambda row: (
            *_place(row.progress.group, row.progress.committed.topic),
            row.agent.name,
            row.progress.committed.queue_id,
        ),
    )


def without_empty_retries(rows: Sequence[OffsetRow]) -> list[OffsetRow]:
    """Remove queues of retry topics without known messages: each group has 16 per broker, and most are empty."""
    return [
        row
        for row in rows
        if not (is_retry_topic(row.progress.committed.topic) and not row.lag and not row.is_beyond_end)
    ]


def group_totals(rows: Sequence[OffsetRow]) -> list[GroupTotal]:
    """Return a total for each group; a queue listed by several replicas counts once, with its highest offset and end.

    The end may be known at another replica than the offset: that of a master that is OUT, at the one acting for it.
    """
    replicas: dict[tuple[str, str, str, int], list[OffsetRow]] = {}
    for row in rows:
        replicas.setdefault(_queue_of(row), []).append(row)
    lags: dict[str, dict[bool, list[int | None]]] = {}
    for (group, topic, *_), listed in replicas.items():
        of_group = lags.setdefault(group, {False: [], True: []})
        of_group[is_retry_topic(topic)].append(_lag_of(listed))
    return [
        GroupTotal(
            group,
            queues=len(own),
            lag=sum(lag for lag in (*own, *retry) if lag is not None),
            without_end=own.count(None),
            retry_queues=len(retry),
            retry_without_end=retry.count(None),
        )
        for group, (own, retry) in sorted((group, (each[False], each[True])) for group, each in lags.items())
    ]


def _lag_of(replicas: Sequence[OffsetRow]) -> int | None:
    """Return the number of unread messages of one queue; None: unknown at all its replicas."""
    ends = [row.max_offset for row in replicas if row.max_offset is not None]
    return max(0, max(ends) - max(row.progress.committed.offset for row in replicas)) if ends else None


def unknown_ends(rows: Sequence[OffsetRow], absent: Mapping[str, str]) -> list[str]:
    """Name the brokers that are not routed, responded, and have queues whose end no replica knows.

    ``absent``: OUT or GONE by CLUSTER/BROKER/ID.
    """
    known = {_queue_of(row) for row in rows if row.max_offset is not None}
    without = Counter(
        name
        for row in rows
        if row.max_offset is None and _queue_of(row) not in known
        for name in row.agent.brokers
        if name in absent
    )
    return [
        f"{name} {absent[name]}: the lag of {counted(count, 'queue')} is unknown" for name, count in without.items()
    ]


def _queue_of(row: OffsetRow) -> tuple[str, str, str, int]:
    committed = row.progress.committed
    return row.progress.group, committed.topic, row.agent.queues_of, committed.queue_id


def _place(group: str, topic: str) -> tuple[str, bool, str]:
    """Sort the retry topic of a group after its others."""
    return group, is_retry_topic(topic), topic


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
        {
            "group": total.group,
            "queues": total.queues,
            "lag": total.lag,
            "queuesWithoutEnd": total.without_end,
            "retryQueues": total.retry_queues,
            "retryQueuesWithoutEnd": total.retry_without_end,
        }
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
    found.sort(key=lambda row: (*_place(row[0].group, row[0].queue.topic), row[1].name, row[0].queue.queue_id))
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
        yield Text(f"{counted(folded, 'queue')} of retry topics hidden; show with --retry", style="dim")
    yield ""
    sums = new_table("GROUP", "QUEUES", "LAG", "UNKNOWN LAG", right=("QUEUES", "LAG", "UNKNOWN LAG"))
    for total in totals:
        known = total.queues + total.retry_queues - total.without_end - total.retry_without_end
        lag = str(total.lag) if known else "-"
        sums.add_row(printable(total.group), str(total.queues), lag, _unknown_text(total))
    yield sums


def _unknown_text(total: GroupTotal) -> str:
    unknown = counted(total.without_end, "queue") if total.without_end else ""
    if total.retry_without_end:
        unknown += f"{' and ' if unknown else ''}{counted(total.retry_without_end, 'retry queue')}"
    return unknown or "-"


def _number(number: int | None) -> str:
    return "-" if number is None else str(number)
