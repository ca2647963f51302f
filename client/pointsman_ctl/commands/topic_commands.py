"""Topics at the brokers: the command ``topic``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import click
import grpc
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value
from rich.text import Text

from pointsman.group_topics import is_group_topic
from pointsman.names import MAX_QUEUES, PERM_READ, PERM_WRITE, is_rocketmq
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.wire.json_document import MASTER_ID
from pointsman.wire.operator_texts import counted, perm_text
from pointsman_client import PointsmanError, RequestRejectedError
from pointsman_ctl.commands.agent_round import (
    OUT_AND_GONE,
    AgentChoice,
    QueryResult,
    agent_and_broker_round,
    finish,
    missing_report,
    query_agents,
    read_agent_addrs,
    warn_of_name_servers,
)
from pointsman_ctl.commands.planned_change import PlannedChange, carry_out
from pointsman_ctl.commands.server_changes import Outcome
from pointsman_ctl.commands.topic_steps import Steps, TopicSteps
from pointsman_ctl.options.command_options import (
    CommandGroup,
    CommandT,
    Consent,
    change_options,
    in_cluster,
    read_duration,
    read_name,
)
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.options.name_completion import complete_broker_names, complete_topics
from pointsman_ctl.output.error_report import EXIT_OK, EXIT_TIMED_OUT, ErrorReport
from pointsman_ctl.output.topic_plan import TopicChange, TopicPlan
from pointsman_ctl.output.topic_view import (
    TopicStatus,
    block_lines,
    plan_parts,
    status_document,
    status_parts,
)
from pointsman_ctl.servers.agent_queries import AgentServer
from pointsman_ctl.servers.found_agents import Agent
from pointsman_ctl.servers.name_servers import PointsmanNameServer
from pointsman_ctl.servers.rocketmq_broker import RocketmqBroker
from pointsman_ctl.servers.server_calls import NodeResponse, query_every
from pointsman_ctl.servers.topic_brokers import (
    HeldTopic,
    TopicGroup,
    TopicSettings,
    delete_at_rocketmq_name_server,
    topic_broker,
)

PERMS: Mapping[str, int] = {"rw": PERM_READ | PERM_WRITE, "r": PERM_READ, "w": PERM_WRITE, "none": 0}
RETRY_SECONDS = 0.2
MAX_RECORDED_BYTES = 4_000
"""Of the settings of all brokers, in JSON; of more brokers the history has the number."""

Found = tuple[HeldTopic, Sequence[TopicGroup]]


@click.group(cls=CommandGroup)
def topic() -> None:
    """Show and change topics at their brokers.

    At RocketMQ brokers, over their own protocol, and at agents whose topic source can be written: `toml` with
    topics.writable, and `redis`. The name servers learn of a change from the brokers.

    \b
    Examples:
      pointsmanctl topic status orders
      pointsmanctl topic create orders --queues 8 --cluster c1
      pointsmanctl topic alter orders --queues 16 --dry-run
    """


def _read_topic(ctx: click.Context, param: click.Parameter, value: str) -> str:
    name: str = read_name(ctx, param, value)
    if is_group_topic(name):
        raise click.BadParameter(f"{name!r} is the retry topic or the dead letters of a group")
    return name


def _read_agents(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    return read_agent_addrs(ctx, param, values)


def _seconds(name: str, default: str, longest: str, text: str) -> Callable[[CommandT], CommandT]:
    def read(_ctx: click.Context, _param: click.Parameter, value: str) -> int:
        return read_duration(value, longest=longest)

    return click.option(name, default=default, show_default=True, callback=read, metavar="DURATION", help=text)


_topic_argument = click.argument("topic", callback=read_name, shell_complete=complete_topics)
_changed_topic = click.argument("topic", callback=_read_topic, shell_complete=complete_topics)
_new_topic = click.argument("topic", callback=_read_topic)
_queues_option = click.option(
    "--queues", type=click.IntRange(1, MAX_QUEUES), required=True, help="Queues of each broker, readable and writable."
)
_perm_option = click.option("--perm", type=click.Choice(list(PERMS)), help="Permission.  [default: rw, or as it is]")
_of_broker = click.option(
    "--broker", callback=read_name, shell_complete=complete_broker_names, metavar="NAME", help="Only this broker."
)
_delete_messages_option = click.option(
    "--delete-messages", is_flag=True, help="Delete the messages of queues that are then not in use."
)


@topic.command("status")
@_topic_argument
@in_cluster
@_of_broker
@_seconds("--over", "1s", "60s", "Time over which IN/S is measured.")
@pass_invocation
def topic_status(invocation: Invocation, topic: str, cluster: str, broker: str, over: int) -> int:
    """Show what each queue of TOPIC holds, and how fast messages arrive.

    MIN is the offset of the first message, MAX that after the last one, LAST WRITE when the last message was sent (at
    RocketMQ brokers: stored), IN/S messages per second between two reads. STATUS r: the topic shrinks, consumers still
    read the queue. UNUSED: neither readable nor writable; its messages stay until they are deleted. An agent whose
    broker is not a Redis server reports no offsets.

    \b
    JSON: topic, brokers[].{broker, source, unwritable, settings.{readQueueNums,
            writeQueueNums, perm}, queues[].{queueId, status, minOffset,
            maxOffset, messages, lastWriteAt, putRate}},
          notCounted[], isAbsentKnown

    \b
    Examples:
      pointsmanctl topic status orders
      pointsmanctl topic status orders --over 10s
      pointsmanctl -o json topic status orders | jq '.brokers[].queues[].putRate'
    """
    choice = AgentChoice(cluster=cluster, absent=OUT_AND_GONE)

    async def twice() -> tuple[QueryResult[HeldTopic], QueryResult[HeldTopic], float]:
        async with agent_and_broker_round(invocation, choice) as asking:

            async def look(server: AgentServer | RocketmqBroker, deadline: float) -> HeldTopic:
                return await topic_broker(server).topic(topic, deadline)

            loop = asyncio.get_running_loop()
            first, started = await asking.query(look), loop.time()
            await asyncio.sleep(over)
            return first, await asking.query(look), loop.time() - started

    first, second, seconds = asyncio.run(twice())
    ends = {agent.addr: {each.queue_id: each.max_offset for each in held.queues} for agent, held in first.received}
    statuses = [
        TopicStatus(agent.addr, agent.queues_of, held, _rates(ends.get(agent.addr, {}), held, seconds))
        for agent, held in sorted(second.received, key=lambda row: row[0].queues_of)
        if _is_of(agent, broker) and (held.settings is not None or held.queues)
    ]
    if second.received and not statuses:
        return invocation.fail(_unknown_topic(topic))
    document = {"topic": topic, "brokers": [status_document(each) for each in statuses]}
    return finish(invocation, second, document, status_parts(statuses))


@topic.command("create")
@_new_topic
@_queues_option
@_perm_option
@in_cluster
@_of_broker
@change_options
@pass_invocation
def topic_create(
    invocation: Invocation,
    topic: str,
    queues: int,
    perm: str | None,
    cluster: str,
    broker: str,
    consent: Consent,
) -> int:
    """Create TOPIC at every broker of a cluster, or at one.

    --cluster may be left out if there is one cluster. A broker that has the topic with other queues is left as it is,
    and the command fails: use `topic alter`. Repeating the command finishes what was interrupted. At an agent
    whose topics are the streams of a Redis server, this makes empty streams.

    \b
    JSON: plan.{topic, brokers[].{addr, broker, source, before, after, unwritable,
            queuesAdded, queuesGoing[], unusedMessages}, keyMoves, groups[],
            behind[], unusedMessages}, dryRun, recorded[],
          servers[].{addr, changed, broker, note} or {addr, error}

    \b
    Examples:
      pointsmanctl topic create orders --queues 8
      pointsmanctl topic create orders --queues 8 --cluster c1 --broker broker-a
    """
    wanted = TopicSettings(queues, queues, PERMS[perm or "rw"])
    fleet = _Fleet.read(invocation, topic, cluster=cluster, broker=broker)
    if isinstance(fleet, int):
        return fleet
    clusters = {each.broker.partition("/")[0] for each in fleet.found}
    if not cluster and len(clusters) > 1:
        raise click.UsageError(f"there are clusters {', '.join(sorted(clusters))}: choose one with --cluster")
    others = [each for each in fleet.found if not _may_create(each.held, wanted)]
    if others:
        first = others[0]
        message = f"topic {topic} exists at {first.broker} with {first.held.settings}"
        return invocation.fail(ErrorReport("TOPIC_EXISTS", message, "use `pointsmanctl topic alter`"))
    plan = fleet.plan(lambda _: wanted)
    steps = _steps(invocation, consent)
    undo = f"pointsmanctl topic delete {topic}"
    return _carry_out(invocation, fleet, plan, steps, consent, f"Create topic {topic} with {wanted}", undo)


@topic.command("alter")
@_changed_topic
@_queues_option
@_perm_option
@in_cluster
@_of_broker
@click.option("--no-wait", is_flag=True, help="Shrinking: leave the queues readable that go; repeat to finish.")
@_seconds("--wait", "10m", "7d", "Shrinking: longest wait for groups to read the queues that go.")
@_seconds("--quiet", "5s", "10m", "Shrinking: time without a new message in the queues that go.")
@click.option("--force", is_flag=True, help="Shrinking: do not wait for broadcasting groups and those without members.")
@_delete_messages_option
@change_options
@pass_invocation
def topic_alter(
    invocation: Invocation,
    topic: str,
    queues: int,
    perm: str | None,
    cluster: str,
    broker: str,
    *,
    no_wait: bool,
    wait: int,
    quiet: int,
    force: bool,
    delete_messages: bool,
    consent: Consent,
) -> int:
    """Give TOPIC another number of queues at each of its brokers.

    Shows first how many queues and keys change, and which groups rebalance. A topic shrinks in steps: producers stop
    writing to the queues that go; the command waits until every group has committed their end and no message arrives;
    then consumers stop reading them. Groups that are broadcasting or have no member, and have messages there, need
    --force. With --no-wait, after --wait (exit code 3) or if it is interrupted, the same command finishes it. A client
    that polls its route every 30 s, as RocketMQ's do, needs --quiet 35s at a Redis server.

    The messages of queues that are no longer in use stay, and are back when the topic grows again. With
    --delete-messages they are deleted, at agents of Redis servers; a RocketMQ broker deletes them when they are old.

    \b
    JSON: as of `topic create`; behind[].{group, broker, members,
            isBroadcasting, messages, isStuck}

    \b
    Examples:
      pointsmanctl topic alter orders --queues 16 --dry-run
      pointsmanctl topic alter orders --queues 16 --yes
      pointsmanctl topic alter orders --queues 4 --wait 1h
      pointsmanctl topic alter orders --queues 4 --delete-messages
    """
    if no_wait and delete_messages:
        raise click.UsageError("--delete-messages is for the command that finishes: leave out --no-wait")
    fleet = _Fleet.read(invocation, topic, cluster=cluster, broker=broker)
    if isinstance(fleet, int):
        return fleet

    def wanted(held: HeldTopic) -> TopicSettings | None:
        if held.settings is None:
            return None
        return TopicSettings(queues, queues, held.settings.perm if perm is None else PERMS[perm])

    plan = fleet.plan(wanted)
    if not plan.changes:
        return invocation.fail(_unknown_topic(topic))
    stuck = [each for each in plan.behind if each.is_stuck]
    if stuck and not force and not no_wait and not consent.dry_run:
        message = f"these groups would not read the queues that go: {'; '.join(each.text() for each in stuck[:5])}"
        return invocation.fail(ErrorReport("GROUPS_BEHIND", message, "start them, or give --force"))
    unknown = [each.broker for each in plan.changes if each.has_unknown_ends]
    if unknown and not force and not no_wait and not consent.dry_run:
        message = f"what groups have read of the queues that go is not known at {', '.join(unknown[:5])}"
        return invocation.fail(
            ErrorReport("ENDS_UNKNOWN", message, "give --force, or use --no-wait and repeat it later")
        )
    steps = _steps(
        invocation,
        consent,
        wait_seconds=0 if no_wait else wait,
        quiet_seconds=quiet,
        ignores_stuck=force,
        deletes_messages=delete_messages,
    )
    before = {str(each.before.queues) for each in plan.changes if each.before is not None}
    undo = f"pointsmanctl topic alter {topic} --queues {min(before)}" if len(before) == 1 else ""
    return _carry_out(invocation, fleet, plan, steps, consent, f"Give topic {topic} {counted(queues, 'queue')}", undo)


@topic.command("perm")
@_changed_topic
@click.argument("perm", type=click.Choice(list(PERMS)))
@in_cluster
@_of_broker
@change_options
@pass_invocation
def topic_perm(invocation: Invocation, topic: str, perm: str, cluster: str, broker: str, consent: Consent) -> int:
    """Allow reads and writes of TOPIC (rw), one of them (r, w) or none.

    At each of its brokers, or at one. wipe-write-perm, in contrast, is for all topics of a broker, at the name servers.

    \b
    JSON: as of `topic create`

    \b
    Examples:
      pointsmanctl topic perm orders r
      pointsmanctl topic perm orders rw --broker broker-a --yes
    """
    fleet = _Fleet.read(invocation, topic, cluster=cluster, broker=broker)
    if isinstance(fleet, int):
        return fleet
    plan = fleet.plan(lambda held: None if held.settings is None else held.settings._replace(perm=PERMS[perm]))
    if not plan.changes:
        return invocation.fail(_unknown_topic(topic))
    before = {perm_text(each.before.perm) for each in plan.changes if each.before is not None}
    undo = f"pointsmanctl topic perm {topic} {min(before).replace('-', 'none')}" if len(before) == 1 else ""
    # The queues stay as they are, also those that go: nothing is waited for.
    steps = _steps(invocation, consent)
    return _carry_out(invocation, fleet, plan, steps, consent, f"Set the permission of topic {topic} to {perm}", undo)


@topic.command("delete")
@_changed_topic
@in_cluster
@_of_broker
@_delete_messages_option
@_seconds("--quiet", "5s", "10m", "Before messages are deleted: time without a new one.")
@change_options
@pass_invocation
def topic_delete(
    invocation: Invocation,
    topic: str,
    cluster: str,
    broker: str,
    delete_messages: bool,
    quiet: int,
    consent: Consent,
) -> int:
    """Delete TOPIC at its brokers, then at the name servers.

    Groups that read it, and messages that they have not read, are shown first. Its messages stay at a Redis server,
    without use, unless --delete-messages is given; RocketMQ brokers delete them with the topic, so this is required
    where they hold any. `delete-topic`, in contrast, is for the name servers alone, for topics that no broker has.
    Repeating the command finishes what was interrupted.

    \b
    JSON: as of `topic create`; servers[] has the name servers, too

    \b
    Examples:
      pointsmanctl topic delete orders --dry-run
      pointsmanctl topic delete orders --delete-messages
    """
    fleet = _Fleet.read(invocation, topic, cluster=cluster, broker=broker)
    if isinstance(fleet, int):
        return fleet
    plan = fleet.plan(lambda _: None, with_unused=True)
    if not plan.changes:
        return invocation.fail(_unknown_topic(topic))
    at_rocketmq = [each for each in plan.changes if each.held.kind == "broker" and each.unused_messages]
    if at_rocketmq and not delete_messages and not consent.dry_run:
        messages = counted(sum(each.unused_messages for each in at_rocketmq), "message")
        message = f"RocketMQ brokers delete the messages with the topic: {messages}"
        return invocation.fail(ErrorReport("MESSAGES_HELD", message, "give --delete-messages"))
    steps = _steps(invocation, consent, wait_seconds=600, quiet_seconds=quiet, deletes_messages=delete_messages)
    return _carry_out(invocation, fleet, plan, steps, consent, f"Delete topic {topic}", "", is_deletion=True)


@dataclass(frozen=True, slots=True)
class _Fleet:
    """The brokers of a topic."""

    topic: str
    choice: AgentChoice
    is_whole: bool
    """Whether no broker was left out."""
    found: Sequence[TopicChange]
    """Chosen brokers, each with its present settings in place of new ones."""
    others: Sequence[tuple[str, HeldTopic]]
    """Brokers that are not chosen and have the topic."""
    is_ordered: bool

    @classmethod
    def read(cls, invocation: Invocation, topic: str, *, cluster: str, broker: str) -> _Fleet | int:
        """Query all brokers; return the exit code if one that is chosen does not respond."""
        # A replica that may become the master has its own file of topics.
        choice = AgentChoice(cluster=cluster, replicas_too=True, absent=frozenset({"OUT"}))

        async def look(server: AgentServer | RocketmqBroker, deadline: float) -> Found:
            at = topic_broker(server)
            held = await at.topic(topic, deadline)
            has_groups = held.settings is not None and not held.is_replica
            return held, await at.groups(topic, deadline) if has_groups else ()

        result = query_agents(agent_and_broker_round(invocation, choice), look)
        if not result.responses:
            return finish(invocation, result, {}, [])
        warn_of_name_servers(invocation, result.name_servers, with_absent=True)
        missing = [each for each in result.missing if not broker or each.group.rpartition("/")[2] == broker]
        if missing:
            report = missing_report(missing)
            return invocation.fail(replace(report, message=f"nothing was changed: {report.message}"))
        received = sorted(result.received, key=lambda row: (row[0].queues_of, row[0].name))
        changeable = [(agent, *found) for agent, found in received if not _is_copy(agent, found[0])]
        found = [
            TopicChange(agent.addr, agent.queues_of, held, groups, held.settings)
            for agent, held, groups in changeable
            if _is_of(agent, broker)
        ]
        if not found:
            name = f"broker {broker}" if broker else "a broker whose topics can be changed"
            return invocation.fail(
                ErrorReport("BROKER_NOT_FOUND", f"there is not {name}", "see `pointsmanctl brokers`")
            )
        others = [
            (agent.queues_of, held)
            for agent, held, _ in changeable
            if not _is_of(agent, broker) and held.settings is not None
        ]
        is_whole = not broker and not cluster
        return cls(topic, choice, is_whole, found, others, _is_ordered(invocation, topic))

    def plan(self, wanted: Callable[[HeldTopic], TopicSettings | None], *, with_unused: bool = False) -> TopicPlan:
        """Plan these settings for each broker; one for which there are none is left out unless it has the topic.

        ``with_unused``: brokers that only have messages of the topic are concerned, too.
        """
        changes = [replace(each, after=wanted(each.held)) for each in self.found]
        return TopicPlan(
            self.topic,
            [
                each
                for each in changes
                if each.after is not None or each.before is not None or (with_unused and each.held.queues)
            ],
            self.others,
            self.is_ordered,
        )


def _carry_out(
    invocation: Invocation,
    fleet: _Fleet,
    plan: TopicPlan,
    steps: Steps,
    consent: Consent,
    what: str,
    undo: str,
    *,
    is_deletion: bool = False,
) -> int:
    unwritable = [each for each in plan.open_changes if each.held.unwritable]
    if unwritable and not consent.dry_run:
        return invocation.fail(_unwritable(unwritable, plan))
    removes = steps.deletes_messages and any(each.held.removes_queues and each.unused for each in plan.changes)
    messages = f", and delete {counted(plan.unused_messages, 'message')}" if steps.deletes_messages else ""
    timed_out: list[str] = []

    async def apply() -> Sequence[NodeResponse[Outcome]]:
        patient = invocation.patient()
        async with agent_and_broker_round(patient, fleet.choice) as asking:
            changing = TopicSteps(asking, fleet.topic, plan.changes, steps)
            nodes = await (changing.delete() if is_deletion else changing.write())
        if changing.is_timed_out:
            timed_out.append("wait")
        if is_deletion and not any(each.failure for each in nodes):
            nodes += await _delete_at_name_servers(invocation, fleet, plan, by=consent.by)
        return nodes

    parts = [*plan_parts(plan)]
    if unwritable:
        report = _unwritable(unwritable, plan)
        parts.append(Text(f"{report.message}; {report.hint}"))
    planned = PlannedChange(
        question=f"{what}{messages}?",
        document=plan.document(),
        parts=parts,
        record=_record(plan, what, undo),
        is_empty=not plan.open_changes and not removes and not is_deletion,
    )
    code = carry_out(invocation, planned, apply, consent)
    if code == EXIT_OK and timed_out:
        hint = "the queues that go stay readable; run the same command again to finish"
        invocation.warn("WAIT_TIMED_OUT", "not all groups read the queues that go in time", hint)
        return EXIT_TIMED_OUT
    return code


def _record(plan: TopicPlan, what: str, undo: str) -> admin.RecordChangeRequest:
    clusters = {each.broker.partition("/")[0] for each in plan.changes if "/" in each.broker}
    brokers = sorted({each.broker.rpartition("/")[2] for each in plan.changes if "/" in each.broker})

    def value(of: Callable[[TopicChange], TopicSettings | None]) -> Value:
        texts = {each.broker: str(of(each) or "none") for each in plan.changes}
        fits = len(json.dumps(texts)) <= MAX_RECORDED_BYTES
        return ParseDict(texts if fits else {"brokers": len(texts)}, Value())

    return admin.RecordChangeRequest(
        what=f"topic {plan.topic}: {what[0].lower()}{what[1:]}"[:256],
        cluster=clusters.pop() if len(clusters) == 1 else "",
        broker_names=brokers[:1_000],
        topic=plan.topic,
        before=value(lambda each: each.before),
        after=value(lambda each: each.after),
        undo=undo,
    )


def _steps(
    invocation: Invocation,
    consent: Consent,
    *,
    wait_seconds: float = 0,
    quiet_seconds: float = 0,
    ignores_stuck: bool = False,
    deletes_messages: bool = False,
) -> Steps:
    return Steps(
        by=consent.by,
        wait_seconds=wait_seconds,
        quiet_seconds=quiet_seconds,
        ignores_stuck=ignores_stuck,
        deletes_messages=deletes_messages,
        report=(lambda _: None) if invocation.is_json else (lambda line: click.echo(line, err=True)),
    )


async def _delete_at_name_servers(
    invocation: Invocation, fleet: _Fleet, plan: TopicPlan, *, by: str
) -> list[NodeResponse[Outcome]]:
    cluster = fleet.choice.cluster
    if is_rocketmq(invocation.name_servers[0]):
        return [await _delete_at_rocketmq(invocation, addr, fleet.topic, cluster) for addr in invocation.name_servers]
    # A RocketMQ broker adds topics to its registration, and takes none from it.
    force = bool(plan.changes) and all(each.held.kind == "broker" for each in plan.changes) and not fleet.others
    request = admin.DeleteTopicRequest(topic=fleet.topic, cluster=cluster, force=force, by=by)

    async def one(server: PointsmanNameServer, deadline: float) -> Outcome:
        while True:
            try:
                await server.call(server.admin.DeleteTopic, request, deadline=deadline)
            except RequestRejectedError as error:
                if error.status is grpc.StatusCode.NOT_FOUND:
                    return Outcome(f"topic {fleet.topic} did not exist", changed=False)
                loop = asyncio.get_running_loop()
                if error.details.code != "TOPIC_HELD":
                    raise
                if not fleet.is_whole and loop.time() + RETRY_SECONDS > deadline:
                    return Outcome(f"{error.message}: it stays", changed=False)
                if loop.time() + RETRY_SECONDS > deadline:
                    raise
                # The brokers' agents report the change within moments.
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return Outcome(f"topic {fleet.topic} deleted")

    async with invocation.connections() as to:
        return await query_every(to, invocation.name_servers, one, invocation.timeout_seconds)


async def _delete_at_rocketmq(invocation: Invocation, addr: str, topic: str, cluster: str) -> NodeResponse[Outcome]:
    deadline = asyncio.get_running_loop().time() + invocation.timeout_seconds
    try:
        await delete_at_rocketmq_name_server(
            addr.removeprefix("rocketmq://"), topic, deadline, cluster=cluster, access=invocation.rocketmq_access
        )
    except PointsmanError as failure:
        return NodeResponse(addr, None, failure)
    return NodeResponse(addr, Outcome(f"topic {topic} deleted"), None)


def _is_ordered(invocation: Invocation, topic: str) -> bool:
    try:
        return bool(invocation.query_first(lambda server, deadline: server.route(topic, deadline)).order_topic_conf)
    except PointsmanError:
        return False


def _is_of(agent: Agent, broker: str) -> bool:
    return not broker or any(name.split("/")[1] == broker for name in agent.brokers)


def _is_copy(agent: Agent, held: HeldTopic) -> bool:
    """Whether the broker copies its topics from its master, where they are changed."""
    is_slave = agent.is_rocketmq and not any(name.endswith(f"/{MASTER_ID}") for name in agent.brokers)
    return is_slave or held.is_copy


def _may_create(held: HeldTopic, wanted: TopicSettings) -> bool:
    if held.settings is None or held.settings == wanted:
        return True
    # Empty streams are created one after the other.
    is_part = held.settings.queues < wanted.queues and held.settings.perm == wanted.perm
    return held.kind == "redis" and is_part and all(each.is_empty for each in held.queues)


def _rates(ends: Mapping[int, int | None], held: HeldTopic, seconds: float) -> dict[int, float]:
    rates: dict[int, float] = {}
    for each in held.queues:
        before = ends.get(each.queue_id)
        if before is not None and each.max_offset is not None and seconds > 0:
            rates[each.queue_id] = round(max(0, each.max_offset - before) / seconds, 1)
    return rates


def _unknown_topic(topic: str) -> ErrorReport:
    return ErrorReport("TOPIC_NOT_FOUND", f"no broker has topic {topic}", "see `pointsmanctl topics`")


def _unwritable(changes: Sequence[TopicChange], plan: TopicPlan) -> ErrorReport:
    named = "; ".join(f"{each.broker}: {each.held.unwritable}" for each in changes[:5])
    message = f"nothing was changed: topics cannot be changed at {named}"
    block = block_lines(plan)
    hint = "write this to the file of each such agent: " + " | ".join(block) if block else "remove its table there"
    is_toml = all(each.held.kind == "toml" for each in changes)
    return ErrorReport("TOPIC_UNWRITABLE", message, hint if is_toml else "choose other brokers with --broker")
