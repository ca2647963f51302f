"""The commands ``dlq replay`` and ``dlq import``: dead letters are sent again, or come back from a file."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
from google.protobuf import json_format, struct_pb2
from rich.console import RenderableType
from rich.text import Text

from pointsman.clock import Clock, SystemClock
from pointsman.group_topics import dlq_topic, retry_topic
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.wire.json_document import Document
from pointsman.wire.operator_texts import counted
from pointsman_client import PointsmanError
from pointsman_ctl.commands.agent_round import AgentChoice, agent_and_broker_round, missing_report, query_agents
from pointsman_ctl.commands.planned_change import PlannedChange, carry_out
from pointsman_ctl.commands.server_changes import Outcome
from pointsman_ctl.options.command_options import Consent, change_options, in_cluster, read_name
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.options.letter_options import complete_dead_groups, file_errors, selection_options
from pointsman_ctl.output.error_report import ErrorReport, agents_failed
from pointsman_ctl.output.output_layout import failure_line, new_table, node_document
from pointsman_ctl.servers.dead_letters import DeadLetters, LetterQueue
from pointsman_ctl.servers.found_agents import MissingBroker, agents_in
from pointsman_ctl.servers.letter_import import FileLines, LetterImport, PlannedImport, read_file
from pointsman_ctl.servers.letter_replay import Destinations, Pace, Replay, Run, SentTo, each_at_its_broker
from pointsman_ctl.servers.letter_selection import Selection
from pointsman_ctl.servers.server_calls import NodeResponse
from pointsman_ctl.servers.stored_messages import HeldQueue, of_every

PROGRESS_SECONDS = 5.0
MAX_TOPICS, MORE_TOPICS = 100, "others"
"""Topics that a plan counts; the other ones are counted together."""
CLOCK: Clock = SystemClock()
rate_option = click.option(
    "--rate",
    type=click.FloatRange(min=0.01, max=1_000_000),
    metavar="N",
    help="Send at most this number per second.  [default: no limit]",
)


@dataclass(frozen=True, slots=True)
class PlannedQueue:
    """What a replay will send of one queue."""

    queue: LetterQueue
    selected: int
    topics: Counter[str] = field(default_factory=Counter)
    """Number of the selected dead letters by topic; empty: not counted."""


@click.command("replay")
@click.argument("group", callback=read_name, shell_complete=complete_dead_groups)
@selection_options
@click.option(
    "--to",
    type=click.Choice([each.value for each in SentTo]),
    default=SentTo.GROUP.value,
    show_default=True,
    help="Only to this group, or to the topic and all its groups.",
)
@rate_option
@in_cluster
@change_options
@pass_invocation
def dlq_replay(
    invocation: Invocation,
    group: str,
    selection: Selection,
    to: str,
    rate: float | None,
    cluster: str,
    consent: Consent,
) -> int:
    """Send dead letters of GROUP again, those that were not replayed yet.

    To the group itself, through its retry topic: other groups of the topic have processed the message, and do not get
    it again. Ordered members do not read the retry topic: use `--to topic`, which every group of the topic gets. The
    message has its id, key, tag, body and properties, all its attempts again, and in the property POINTSMAN_REPLAY_OF
    the position of the dead letter.

    A message that fails again becomes a new dead letter; this run does not replay it. After each batch of at most 32
    messages a record at the same broker has their offsets. A run that was killed is finished by the same command, also
    of another operator: it sends again at most the one batch of each broker that was not recorded. Brokers that are
    down are not counted and named. Exits 1 if a broker failed or a message cannot be sent; such a message stays, not
    replayed.

    \b
    JSON: plan.{group, to, selection.{fields, since, until}, membersOnline,
            brokers[].{broker, addr, stored, alreadyReplayed, selected,
              topics} or {addr, error}}, dryRun, recorded[].{addr, inHistory},
          servers[].{addr, changed, sent} or {addr, error}

    \b
    Examples:
      pointsmanctl dlq replay billing --dry-run
      pointsmanctl dlq replay billing --select reason=timeout --rate 50
      pointsmanctl dlq replay billing --to topic --since 2h --yes
    """
    target = SentTo(to)
    members, reads_retries = _members(invocation, group, cluster)
    if members and not reads_retries and target is SentTo.GROUP:
        problem = f"no member of group {group} reads its retry topic: they are ordered, or pull messages"
        hint = "use --to topic: all groups of the topic get it"
        return invocation.fail(ErrorReport("RETRY_TOPIC_NOT_READ", problem, hint))
    is_complete(invocation, cluster)
    planned, failed = asyncio.run(_planned(invocation, group, selection, cluster))
    if failed and not planned:
        failures = {node.addr: node.failure for node in failed if node.failure is not None}
        return invocation.fail(agents_failed(failures, of=list(failures), is_change=False, noun="broker"))
    total = sum(each.selected for each in planned)
    destination = f"retry topic of {group}" if target is SentTo.GROUP else "topic they were sent to"
    plan = PlannedChange(
        question=f"Send {counted(total, 'dead letter')} of group {group} to the {destination}?",
        document={
            "group": group,
            "to": target.value,
            "selection": selection.to_document(),
            "membersOnline": members,
            "brokers": [*map(_to_planned, planned), *(node_document(node, lambda _: {}) for node in failed)],
        },
        parts=[*_plan_parts(planned, group, target, members), *map(failure_line, failed)],
        record=admin.RecordChangeRequest(
            what=f"replay of dead letters of group {group}",
            cluster=cluster,
            broker_names=sorted({each.queue.held.queue.broker_name for each in planned}),
            topic=dlq_topic(group),
            group=group,
            after=_value({"to": target.value, "selected": total, "selection": str(selection)[:1_000]}),
        ),
        is_empty=not total and not failed,
    )
    pace = Pace(rate, CLOCK)

    async def apply() -> Sequence[NodeResponse[Outcome]]:
        async with invocation.stored_messages() as messages:
            letters = DeadLetters(messages, group)
            destinations = Destinations(messages, group, target, cluster=cluster)
            run = Run(uuid.uuid4().hex, consent.by, pace, Progress(total, is_quiet=invocation.is_json))

            async def replay(queue: LetterQueue) -> int:
                # Another run may have replayed some since the plan.
                now = await letters.of_queue(queue.held)
                bounded = LetterQueue(now.held, now.begin, queue.end, now.record, now.record_end, now.done)
                return await Replay(messages, letters, bounded, destinations, run, CLOCK).run(selection)

            return [*await _outcomes([each.queue for each in planned if each.selected], replay), *failed]

    return carry_out(invocation, plan, apply, consent)


async def _planned(
    invocation: Invocation, group: str, selection: Selection, cluster: str
) -> tuple[list[PlannedQueue], list[NodeResponse[Outcome]]]:
    """Return what is to be sent of each queue, and the brokers that failed."""
    async with invocation.stored_messages() as messages:
        letters = DeadLetters(messages, group)

        async def plan(held: HeldQueue) -> PlannedQueue:
            return await _planned_queue(letters, await letters.of_queue(held), selection)

        found = await of_every(await letters.queues(cluster), plan)
    planned = [each for _, each in found if isinstance(each, PlannedQueue) and each.queue.stored]
    failed = {held.addr: each for held, each in found if isinstance(each, PointsmanError)}
    return planned, [NodeResponse(addr, None, failure) for addr, failure in failed.items()]


async def _planned_queue(letters: DeadLetters, queue: LetterQueue, selection: Selection) -> PlannedQueue:
    unreadable: list[int] = []
    topics = Counter[str]()
    async for letter in letters.read(queue, selection, on_unreadable=lambda offset, _: unreadable.append(offset)):
        topics[letter.topic if letter.topic in topics or len(topics) < MAX_TOPICS else MORE_TOPICS] += 1
    return PlannedQueue(queue, topics.total() + len(unreadable), topics)


def _to_planned(planned: PlannedQueue) -> Document:
    queue = planned.queue
    return {
        "broker": queue.broker,
        "addr": queue.held.addr,
        "stored": queue.stored,
        "alreadyReplayed": queue.stored - queue.left,
        "selected": planned.selected,
        "topics": dict(planned.topics),
    }


def _plan_parts(
    planned: Sequence[PlannedQueue], group: str, target: SentTo, members: int | None
) -> list[RenderableType]:
    if not planned:
        return [Text(f"group {group} has no dead letters")]
    numbers = ("STORED", "REPLAYED", "TO SEND")
    table = new_table("BROKER", *numbers, "TOPICS", right=numbers)
    for each in planned:
        queue = each.queue
        topics = ", ".join(f"{topic} ({count})" for topic, count in sorted(each.topics.items()))
        table.add_row(
            queue.broker, str(queue.stored), str(queue.stored - queue.left), str(each.selected), topics or "-"
        )
    online = "not known" if members is None else str(members)
    to = retry_topic(group) if target is SentTo.GROUP else "the topic, for all its groups"
    return [table, Text(f"to {to}; members of {group} online: {online}")]


def _members(invocation: Invocation, group: str, cluster: str) -> tuple[int | None, bool]:
    """Return the number of members online, None if no agent or broker responded, and if one reads the retry topic."""
    result = query_agents(
        agent_and_broker_round(invocation, AgentChoice(cluster=cluster)),
        lambda server, deadline: server.group(group, deadline),
    )
    found = [response for _, response in result.received if response.group is not None]
    members = {member.client_id for each in found if each.group is not None for member in each.group.members}
    return (len(members) if result.received else None), any(each.reads_retries for each in found)


def is_complete(invocation: Invocation, cluster: str) -> bool:
    """Warn of brokers that are OUT or departed, whose dead letters cannot be read; return whether there are none."""
    found = invocation.query_first(lambda server, deadline: server.clusters(deadline, cluster=cluster))
    groups = [data for each in found.clusters for data in each.broker_datas if data.replicas]
    routed = {f"{data.cluster}/{data.broker_name}" for data in groups}
    absent = agents_in(found.clusters, replicas_too=False, absent=found.absent.brokers).absent
    missing = [MissingBroker(name, state, "its messages cannot be read") for name, state in sorted(absent.items())]
    missing = [each for each in missing if each.group not in routed]
    if missing:
        report = missing_report(missing)
        invocation.warn(report.code, report.message, report.hint)
    return not missing


class Progress:
    """Counts what was sent, and shows it every PROGRESS_SECONDS on standard error."""

    def __init__(self, total: int, *, is_quiet: bool) -> None:
        self._total = total
        self._is_quiet = is_quiet
        self._sent = 0
        self._next_at = CLOCK.monotonic() + PROGRESS_SECONDS

    def __call__(self, count: int) -> None:
        """Count messages that were sent."""
        self._sent += count
        now = CLOCK.monotonic()
        if now >= self._next_at and not self._is_quiet:
            self._next_at = now + PROGRESS_SECONDS
            click.echo(f"sent {self._sent} of {self._total}", err=True)


async def _outcomes(
    queues: Sequence[LetterQueue], work: Callable[[LetterQueue], Awaitable[int]]
) -> list[NodeResponse[Outcome]]:
    results = await each_at_its_broker(queues, work)
    return [_node(queue.held.addr, result) for queue, result in zip(queues, results, strict=True)]


def _node(addr: str, result: int | PointsmanError) -> NodeResponse[Outcome]:
    if isinstance(result, PointsmanError):
        return NodeResponse(addr, None, result)
    return NodeResponse(addr, Outcome(f"sent {result}", changed=result > 0, facts={"sent": result}), None)


@click.command("import")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@rate_option
@in_cluster
@change_options
@pass_invocation
def dlq_import(invocation: Invocation, file: Path, rate: float | None, cluster: str, consent: Consent) -> int:
    """Store the dead letters of FILE, JSON lines of `dlq export`, as dead letters of their groups.

    `dlq replay` sends them then. All lines are checked first: at the first invalid one nothing is imported. They are
    stored at one broker of each group: the first with dead letters of the group, else with the topic of its first line.
    A record there has the lines of this file that were stored. So a run that was killed is finished by the same
    command, which repeats at most 32 lines, and a file that was imported is not imported again.

    \b
    JSON: plan.{file, sha256, groups[].{group, broker, addr, lines,
            alreadyImported}}, dryRun, recorded[].{addr, inHistory},
          servers[].{addr, changed, sent} or {addr, error}

    \b
    Examples:
      pointsmanctl dlq import billing.jsonl --dry-run
      pointsmanctl dlq import billing.jsonl --rate 500 --yes
    """
    content, counts, planned = asyncio.run(_planned_imports(invocation, file, cluster))
    left = sum(counts[each.group] - each.already for each in planned)
    plan = PlannedChange(
        question=f"Store {counted(left, 'dead letter')} of {file}?",
        document={
            "file": str(file),
            "sha256": content.digest,
            "groups": [
                {
                    "group": each.group,
                    "broker": each.broker,
                    "addr": each.addr,
                    "lines": counts[each.group],
                    "alreadyImported": each.already,
                }
                for each in planned
            ],
        },
        parts=_import_parts(planned, counts),
        record=admin.RecordChangeRequest(
            what=f"import of {counted(left, 'dead letter')}",
            cluster=cluster,
            broker_names=sorted({each.broker.partition("/")[2] for each in planned}),
            group=planned[0].group if len(planned) == 1 else "",
            after=_value({"sha256": content.digest, "groups": sorted(counts)[:20], "lines": left}),
        ),
        is_empty=not left,
    )
    pace = Pace(rate, CLOCK)

    async def apply() -> Sequence[NodeResponse[Outcome]]:
        nodes: list[NodeResponse[Outcome]] = []
        run = Run(uuid.uuid4().hex, consent.by, pace, Progress(left, is_quiet=invocation.is_json))
        async with invocation.stored_messages() as messages:
            for each in planned:
                importing = LetterImport(messages, each.group, content, cluster=cluster)
                try:
                    with file_errors(file):
                        result: int | PointsmanError = await importing.run(each.held, run, now=CLOCK.utc_now())
                except PointsmanError as failure:
                    result = failure
                nodes.append(_node(each.addr, result))
        return nodes

    return carry_out(invocation, plan, apply, consent)


async def _planned_imports(
    invocation: Invocation, file: Path, cluster: str
) -> tuple[FileLines, Counter[str], list[PlannedImport]]:
    """Check all lines; return them, their number by group, and where each group goes."""
    counts, topics = Counter[str](), dict[str, str]()
    with file_errors(file):
        content = read_file(file)
        for line in content.lines(now=CLOCK.utc_now()):
            counts[line.group] += 1
            topics.setdefault(line.group, line.letter.message.topic)
    async with invocation.stored_messages() as messages:
        planned = [
            await LetterImport(messages, group, content, cluster=cluster).planned(topic)
            for group, topic in topics.items()
        ]
    return content, counts, planned


def _import_parts(planned: Sequence[PlannedImport], counts: Counter[str]) -> list[RenderableType]:
    numbers = ("LINES", "IMPORTED", "TO STORE")
    table = new_table("GROUP", "BROKER", *numbers, right=numbers)
    for each in planned:
        lines = counts[each.group]
        table.add_row(each.group, each.broker, str(lines), str(each.already), str(lines - each.already))
    return [table if planned else Text("the file has no line")]


def _value(document: Document) -> struct_pb2.Value:
    return json_format.ParseDict(document, struct_pb2.Value())
