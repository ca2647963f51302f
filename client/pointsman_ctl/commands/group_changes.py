"""Changes of a consumer group at its brokers: the commands ``group delete`` and ``group set``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf import json_format, struct_pb2
from rich.console import RenderableType
from rich.text import Text

from pointsman.group_topics import dlq_topic, retry_topic
from pointsman.names import is_rocketmq, printable
from pointsman.redis_queues import stream_key
from pointsman.rocketmq.codes import RequestCode
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import offset_service_pb2 as offsets_wire
from pointsman.wire.json_document import MASTER_ID, Document
from pointsman.wire.operator_texts import counted
from pointsman_client import PointsmanError, RequestRejectedError, TopicNotFoundError
from pointsman_ctl.commands.agent_round import AgentChoice, QueryResult, agent_and_broker_round, query_agents
from pointsman_ctl.commands.planned_change import PlannedChange, carry_out
from pointsman_ctl.commands.server_changes import Outcome
from pointsman_ctl.options.command_options import Consent
from pointsman_ctl.options.invocation import Invocation
from pointsman_ctl.output.error_report import ErrorReport, agents_failed
from pointsman_ctl.output.output_layout import new_table
from pointsman_ctl.servers.agent_queries import AgentServer
from pointsman_ctl.servers.found_agents import Agent
from pointsman_ctl.servers.rocketmq_broker import RocketmqBroker
from pointsman_ctl.servers.rocketmq_groups import GroupSettings, RocketmqGroups
from pointsman_ctl.servers.server_calls import NodeResponse, query_every
from pointsman_ctl.servers.stored_messages import BrokerKind
from pointsman_ctl.servers.stream_removal import remove_streams

MAX_NAMED = 5
"""Members that an error names."""
MAX_BROKER_NAMES = 1_000
"""In a record of the history."""
FactsT = TypeVar("FactsT")


@dataclass(frozen=True, slots=True)
class HeldGroup:
    """What a server has of a group."""

    members: tuple[str, ...]
    offset_count: int
    read_retries: Mapping[int, int]
    """The committed offset in each queue of its retry topic."""
    is_configured: bool
    """Whether a RocketMQ broker has settings of it; agents have none."""

    @property
    def is_there(self) -> bool:
        """Whether anything is left to delete."""
        return bool(self.offset_count) or self.is_configured


@dataclass(frozen=True, slots=True)
class HeldSettings:
    """What a server has of a group's settings."""

    settings: GroupSettings | None
    """None: a RocketMQ broker does not have the group, or it is an agent, whose settings are in its file."""


@dataclass(frozen=True, slots=True)
class GroupMessages:
    """Messages in the topics of a group itself; None: the number is not known."""

    retries: int | None
    dead_letters: int | None

    @property
    def is_empty(self) -> bool:
        """Whether there is none, for certain."""
        return self.retries == 0 and self.dead_letters == 0

    @property
    def text(self) -> str:
        """The numbers, for operators."""
        named = ((self.retries, "unread retry", "unread retries"), (self.dead_letters, "dead letter", "dead letters"))
        return " and ".join(
            f"an unknown number of {several}" if count is None else f"{count} {one if count == 1 else several}"
            for count, one, several in named
            if count != 0
        )


def delete_group(
    invocation: Invocation, group: str, choice: AgentChoice, consent: Consent, *, with_messages: bool
) -> int:
    """Delete a group at every broker; return the exit code. ``with_messages``: also if messages of it are lost."""
    found = query_agents(
        agent_and_broker_round(invocation, choice), lambda server, until: held_group(server, group, until)
    )
    if report := _incomplete(found):
        return invocation.fail(report)
    _warn_of_unknown_agents(invocation, found)
    if used := {agent: held.members for agent, held in found.received if held.members}:
        return invocation.fail(_in_use(group, used))
    read = {
        (agent.queues_of, queue_id): offset
        for agent, held in found.received
        for queue_id, offset in held.read_retries.items()
    }
    messages = asyncio.run(group_messages(invocation, group, choice.cluster, read))
    if not messages.is_empty and not with_messages:
        hint = "add --delete-messages, or see `pointsmanctl dlq`"
        text = f"{messages.text} of group {group} would be lost: nothing was deleted"
        return invocation.fail(ErrorReport("GROUP_HAS_MESSAGES", text, hint))
    if messages.is_empty and not any(held.is_there for _, held in found.received):
        where = ", ".join(agent.name for agent, _ in found.received)
        return invocation.fail(ErrorReport("GROUP_NOT_FOUND", f"nothing of group {group} is at {where}"))
    plan = _deletion(group, found, messages)

    async def apply() -> list[NodeResponse[Outcome]]:
        done = await _of_servers(
            invocation,
            choice,
            lambda server, until: _delete(server, group, until, by=consent.by),
            is_wanted=lambda agent: not agent.is_rocketmq or _is_master(agent),
        )
        return [*done, *await _without_streams(invocation, group, choice.cluster), *await _unlisted(invocation, group)]

    return carry_out(invocation, plan, apply, consent)


async def held_group(server: AgentServer | RocketmqBroker, group: str, deadline: float) -> HeldGroup:
    """Return what a server has of a group."""
    found = (await server.group(group, deadline)).group
    members = tuple(member.client_id for member in found.members) if found is not None else ()
    offsets = await server.list_offsets(group, deadline)
    config = await RocketmqGroups(server).config(group, deadline) if isinstance(server, RocketmqBroker) else None
    committed = [each.committed for each in offsets.progress]
    read = {each.queue_id: each.offset for each in committed if each.topic == retry_topic(group)}
    return HeldGroup(members, len(committed), read, config is not None)


async def group_messages(
    invocation: Invocation, group: str, cluster: str, read: Mapping[tuple[str, int], int]
) -> GroupMessages:
    """Count the unread messages in the retry topic, and the dead letters.

    ``read``: committed offsets in the retry topic, by CLUSTER/BROKER and queue id.
    """
    async with invocation.stored_messages() as stored:

        async def count(topic: str, committed: Mapping[tuple[str, int], int]) -> int | None:
            try:
                queues = await stored.queues(topic, cluster)
                bounds = [(held.queue, *await stored.bounds(held)) for held in queues]
            except TopicNotFoundError:
                return 0
            except PointsmanError:
                return None
            begins = [
                max(begin, committed.get((f"{queue.cluster}/{queue.broker_name}", queue.queue_id), 0))
                for queue, begin, _ in bounds
            ]
            return sum(max(0, end - begin) for begin, (_, _, end) in zip(begins, bounds, strict=True))

        return GroupMessages(await count(retry_topic(group), read), await count(dlq_topic(group), {}))


async def _delete(server: AgentServer | RocketmqBroker, group: str, deadline: float, *, by: str) -> Outcome:
    if isinstance(server, RocketmqBroker):
        await RocketmqGroups(server).delete(group, deadline)
        return Outcome(f"group {group} deleted, with its offsets, retries and dead letters")
    request = offsets_wire.DeleteOffsetsRequest(group=group, by=by)
    response = await server.call(server.offsets.DeleteOffsets, request, deadline=deadline)
    count = response.offset_count
    return Outcome(f"{counted(count, 'offset')} of group {group} deleted", bool(count), {"offsetCount": count})


async def _without_streams(invocation: Invocation, group: str, cluster: str) -> list[NodeResponse[Outcome]]:
    """Remove the retries and dead letters that Redis brokers have; RocketMQ's remove theirs with the group."""
    streams: dict[str, list[str]] = {}
    async with invocation.stored_messages() as stored:
        for topic in (retry_topic(group), dlq_topic(group)):
            try:
                queues = await stored.queues(topic, cluster)
            except TopicNotFoundError:
                continue
            for held in queues:
                if held.kind is BrokerKind.REDIS:
                    streams.setdefault(held.addr, []).append(stream_key(topic, held.queue.queue_id))

    async def remove(addr: str, keys: Sequence[str]) -> NodeResponse[Outcome]:
        try:
            count = await remove_streams(
                invocation.access.to_redis(), addr, keys, timeout_seconds=invocation.timeout_seconds
            )
        except PointsmanError as failure:
            return NodeResponse(addr, None, failure)
        return NodeResponse(addr, Outcome(f"{counted(count, 'queue')} of retries and dead letters removed"), None)

    return await asyncio.gather(*(remove(addr, keys) for addr, keys in sorted(streams.items())))


async def _unlisted(invocation: Invocation, group: str) -> list[NodeResponse[Outcome]]:
    """Remove the group's topics from RocketMQ's name servers, which keep what brokers no longer have."""
    addrs = [addr for addr in invocation.name_servers if is_rocketmq(addr)]
    servers = {addr: RocketmqBroker(addr.removeprefix("rocketmq://"), invocation.rocketmq_access) for addr in addrs}

    async def remove(server: RocketmqBroker, deadline: float) -> Outcome:
        kept = 0
        for topic in (retry_topic(group), dlq_topic(group)):
            try:
                await server.request(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic}, deadline, is_read=False)
            except RequestRejectedError:
                # Pointsman's: the route goes with the broker's next registration.
                kept += 1
        ends = "end with the brokers' next registration" if kept else "removed"
        return Outcome(f"routes of its topics {ends}")

    try:
        return await query_every(servers.__getitem__, addrs, remove, invocation.timeout_seconds)
    finally:
        await asyncio.gather(*(server.close() for server in servers.values()))


def _deletion(group: str, found: QueryResult[HeldGroup], messages: GroupMessages) -> PlannedChange:
    rows = [(agent, held) for agent, held in found.received]
    lost = f" and {messages.text}" if not messages.is_empty else ""
    offsets = sum(held.offset_count for _, held in rows)
    record = _record(f"deletion of group {group}", group, [agent for agent, _ in rows])
    counts: Document = {"retries": messages.retries, "deadLetters": messages.dead_letters}
    record.before.CopyFrom(_value({"offsets": offsets, **counts}))
    brokers = [
        {"brokers": list(agent.brokers), "addr": agent.addr, "offsetCount": held.offset_count} for agent, held in rows
    ]
    return PlannedChange(
        question=f"Delete group {group} with {counted(offsets, 'offset')}{lost}?",
        document={"group": group, **counts, "brokers": brokers},
        parts=list(_deletion_parts(rows, messages)),
        record=record,
    )


def _deletion_parts(rows: Sequence[tuple[Agent, HeldGroup]], messages: GroupMessages) -> Iterator[RenderableType]:
    table = new_table("BROKER", "OFFSETS", right=("OFFSETS",))
    for agent, held in rows:
        table.add_row(agent.name, str(held.offset_count))
    yield table
    if not messages.is_empty:
        yield Text(f"lost with it: {messages.text}")


def set_group(
    invocation: Invocation,
    group: str,
    choice: AgentChoice,
    consent: Consent,
    settings: GroupSettings,
    hold_down: float | None,
) -> int:
    """Change the settings of a group at every RocketMQ broker; return the exit code.

    ``hold_down``: seconds; agents alone have it, in their configuration.
    """

    async def current(server: AgentServer | RocketmqBroker, deadline: float) -> HeldSettings:
        if isinstance(server, RocketmqBroker):
            return HeldSettings(await RocketmqGroups(server).settings(group, deadline))
        return HeldSettings(None)

    found = query_agents(agent_and_broker_round(invocation, choice), current)
    if report := _incomplete(found):
        return invocation.fail(report)
    _warn_of_unknown_agents(invocation, found)
    agents = ", ".join(agent.name for agent, _ in found.received if not agent.is_rocketmq)
    brokers = [(agent, held.settings) for agent, held in found.received if _is_master(agent)]
    reports = list(_not_set(group, settings, hold_down, agents, ", ".join(agent.name for agent, _ in brokers)))
    if not brokers or not settings.document:
        return invocation.fail(reports[0])
    for report in reports:
        invocation.warn(report.code, report.message, report.hint)

    async def write(server: AgentServer | RocketmqBroker, deadline: float) -> Outcome:
        if isinstance(server, RocketmqBroker):
            await RocketmqGroups(server).write(group, settings, deadline)
        return Outcome(f"group {group}: {settings.text}")

    async def apply() -> list[NodeResponse[Outcome]]:
        return await _of_servers(invocation, choice, write, is_wanted=_is_master)

    return carry_out(invocation, _setting(group, settings, brokers), apply, consent)


def _not_set(
    group: str, settings: GroupSettings, hold_down: float | None, agents: str, brokers: str
) -> Iterator[ErrorReport]:
    """Report what brokers of one kind or the other do not have, and what to use instead."""
    if agents and (hold_down is not None or settings.notifies is not None):
        text = f"the configuration of {agents} has the settings of their groups"
        hint = f"add this to it and restart these agents:\n{_block(group, settings, hold_down)}"
        yield ErrorReport("SETTINGS_IN_FILE", text, hint)
    if agents and settings.retry_max is not None:
        text = f"the retries of groups at {agents} are a setting of their consumers"
        yield ErrorReport("NOT_SUPPORTED", text, "set max_reconsume_times of the consumers")
    if brokers and hold_down is not None:
        yield ErrorReport("NOT_SUPPORTED", f"RocketMQ brokers have no hold-down: {brokers}", "leave out --hold-down")


def _setting(group: str, settings: GroupSettings, rows: Sequence[tuple[Agent, GroupSettings | None]]) -> PlannedChange:
    new = [agent.name for agent, now in rows if now is None]
    record = _record(f"settings of group {group}", group, [agent for agent, _ in rows])
    record.after.CopyFrom(_value(settings.document))
    befores = {now for _, now in rows}
    if len(befores) == 1 and (before := befores.pop()) is not None:
        record.before.CopyFrom(_value(before.document))
        record.undo = f"pointsmanctl group set {group} {before.options}"
    created = f", which is created at {', '.join(new)}" if new else ""
    table = new_table("BROKER", "NOW", "NEW")
    for agent, now in rows:
        table.add_row(agent.name, "no such group" if now is None else now.text, settings.over(now).text)
    brokers = [
        {
            "brokers": list(agent.brokers),
            "addr": agent.addr,
            "before": None if now is None else now.document,
            "after": settings.over(now).document,
        }
        for agent, now in rows
    ]
    return PlannedChange(
        question=f"Set {settings.text} of group {group}{created}?",
        document={"group": group, "brokers": brokers},
        parts=[table],
        record=record,
        is_empty=all(now is not None and settings.over(now) == now for _, now in rows),
    )


def _block(group: str, settings: GroupSettings, hold_down: float | None) -> str:
    lines = ["[[groups.group]]", f'name = "{group}"']
    if settings.notifies is not None:
        lines.append(f"notify = {str(settings.notifies).lower()}")
    if hold_down is not None:
        lines.append(f"hold_down_seconds = {hold_down:g}")
    return "\n".join(lines)


async def _of_servers(
    invocation: Invocation,
    choice: AgentChoice,
    change: Callable[[AgentServer | RocketmqBroker, float], Awaitable[Outcome]],
    *,
    is_wanted: Callable[[Agent], bool],
) -> list[NodeResponse[Outcome]]:
    """Make a change at each of the wanted servers."""
    async with agent_and_broker_round(invocation, choice) as asking:
        wanted = {agent.addr for agent in asking.found.agents if is_wanted(agent)}

        async def one(server: AgentServer | RocketmqBroker, deadline: float) -> Outcome:
            return await change(server, deadline) if server.addr in wanted else Outcome("", changed=False)

        result = await asking.query(one)
    return [node for agent, node in result.responses if agent.addr in wanted]


def _is_master(agent: Agent) -> bool:
    """Whether it is a RocketMQ master: slaves refuse changes and follow it."""
    return agent.is_rocketmq and any(name.endswith(f"/{MASTER_ID}") for name in agent.brokers)


def _incomplete(found: QueryResult[FactsT]) -> ErrorReport | None:
    """Report servers that did not respond: a group that is deleted at some brokers is still in use at others."""
    failures = {node.addr: node.failure for _, node in found.responses if node.failure is not None}
    if failures:
        return agents_failed(failures, of=[node.addr for _, node in found.responses], is_change=False)
    if not found.responses:
        return ErrorReport("NO_AGENT", "the name servers know no broker", "see `pointsmanctl brokers`")
    return None


def _warn_of_unknown_agents(invocation: Invocation, found: QueryResult[FactsT]) -> None:
    if missing := found.found.missing:
        text = f"not changed at {', '.join(map(str, missing))}: agent address unknown"
        invocation.warn("AGENT_UNKNOWN", text, "set [rpc] listen of their agents")


def _in_use(group: str, used: Mapping[Agent, Sequence[str]]) -> ErrorReport:
    members = sorted({member for held in used.values() for member in held})
    more = f" and {len(members) - MAX_NAMED} more" if len(members) > MAX_NAMED else ""
    named = ", ".join(map(printable, members[:MAX_NAMED])) + more
    text = f"consumer group {group} has {counted(len(members), 'member')}: {named}"
    return ErrorReport("GROUP_IN_USE", text, "stop its consumers first")


def _record(what: str, group: str, agents: Sequence[Agent]) -> admin.RecordChangeRequest:
    names = sorted({name.rpartition("/")[0] for agent in agents for name in agent.brokers})
    clusters = {name.partition("/")[0] for name in names}
    return admin.RecordChangeRequest(
        what=what,
        group=group,
        cluster=clusters.pop() if len(clusters) == 1 else "",
        broker_names=[name.partition("/")[2] for name in names][:MAX_BROKER_NAMES],
    )


def _value(document: Document) -> struct_pb2.Value:
    return json_format.ParseDict(document, struct_pb2.Value())
