"""Consumer groups as the brokers' agents know them: the commands ``groups``, ``group``, ``pin`` and ``unpin``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import click
import grpc
from google.protobuf.duration_pb2 import Duration
from rich.text import Text

from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.wire.json_document import Document, enum_name, to_document
from pointsman.wire.names import text_problem
from pointsman_client import PointsmanError, RequestRejectedError
from pointsman_ctl.agent_round import (
    AgentChoice,
    Asked,
    agent_round,
    ask_agents,
    finish,
    of_agents,
    of_every_agent,
    to_agents_document,
)
from pointsman_ctl.answer_layout import failure_line
from pointsman_ctl.command_options import by_option, duration_option, read_name
from pointsman_ctl.consumer_group_view import (
    AgentGroup,
    GroupRow,
    GroupView,
    MemberRow,
    Members,
    group_parts,
    group_rows,
    group_view,
    groups_parts,
    shared_groups,
)
from pointsman_ctl.error_report import ErrorReport, answer_words
from pointsman_ctl.invocation import Invocation, pass_invocation
from pointsman_ctl.operator_texts import counted, printable, utc_of
from pointsman_ctl.server_calls import Server

MAX_TARGETS = 16
MAX_TARGET_LENGTH = 255
PAGE_SIZE = 1_000
CALLS_AT_ONCE = 8
"""To one agent, which has consumers to serve."""


@click.command()
@of_agents
@pass_invocation
def groups(invocation: Invocation, choice: AgentChoice) -> int:
    """Show the consumer groups, one a row.

    Put together from what all agents say: each broker's agent knows the consumers that read from it. The name servers
    say where the agents are; those of masters are asked. MEMBERS counts each client once, or says >= where the time
    was too short for that; AGENTS says how many of those that answered know the group. Agents that did not answer are
    named on standard error; exits 1 if none did.

    \b
    CONFLICT  members differ in what they read, or how they share it
    PINNED    some members have all queues, see `pointsmanctl group`
    DIFFERS   agents know different members
    WARMING   an agent has just started and may not know all members yet
    DRAINING  an agent stops, and sends its consumers elsewhere

    \b
    JSON: groups[].{group, members, isExact, agents[], messageModels[],
            topics[], flags[]},
          agents[].{addr, brokers[], state, groups[].{group, members,
            messageModel, topics[], isConflicting, isPinned}}
          or {addr, brokers[], error}

    \b
    Examples:
      pointsmanctl groups
      pointsmanctl --namesrv ns1:9876,ns2:9876 groups --cluster DefaultCluster
      pointsmanctl groups --agent 10.0.0.1:9880
      pointsmanctl -o json groups | jq '.groups[] | select(.flags != [])'
    """
    asked, members = asyncio.run(_groups_and_members(invocation, choice))
    rows = group_rows(asked.whole, members)
    whole = to_groups_document(asked, rows)
    return finish(invocation, asked, whole, groups_parts(asked.whole, rows))


async def _groups_and_members(
    invocation: Invocation, choice: AgentChoice
) -> tuple[Asked[wire.ListGroupsResponse], Members]:
    async with agent_round(invocation, choice) as asking:
        asked = await asking.ask(groups_of)
        wanted = {agent.addr: names for agent, names in shared_groups(asked.whole).items()}
        if not any(wanted.values()):
            return asked, {}
        members = await asking.ask(lambda server, deadline: members_of(server, deadline, wanted.get(server.addr, ())))
        return asked, dict(members.whole)


@click.command()
@click.argument("group", callback=read_name)
@of_agents
@pass_invocation
def group(invocation: Invocation, group: str, choice: AgentChoice) -> int:
    """Show who is in a consumer group, and who disagrees on it.

    SINCE is when the first of the agents saw the member come, SILENT the time since its last beat to any of them,
    READS its topics, with the tags where it does not read all. AGENTS says how many of those that have the group know
    the member. Below stand disagreements, conflicts, the pin, and changes that are held back. Exits 1 if nobody is in
    the group, or no agent answered.

    \b
    JSON: group, isAgreed, messageModels[],
          members[].{clientId, peers[], joinedAt, silentSeconds,
            consumeTypes[], subscriptions[].{topic, expression}, isConnected,
            isConflicting, agents[], missingAt[]},
          pins[].{agent, pinnedClientIds[], pinnedUntil},
          agents[].{addr, brokers[], group.{membership.{group, state,
              revision.{boot, counter}, messageModel, clientIds[],
              pinnedClientIds[], pinnedUntil},
            members[].{clientId, peer, consumeType, joinedAt, silentForSeconds,
              subscriptions[], isConnected, isConflicting}, notifies,
            holdDownSeconds, watchers}}
          or {addr, brokers[], error}; group is null where it has no members

    \b
    Examples:
      pointsmanctl group billing
      pointsmanctl group billing --all
      pointsmanctl -o json group billing | jq -r '.members[].clientId'
    """
    asked = ask_agents(invocation, choice, lambda server, deadline: group_of(server, deadline, group))
    view = group_view(asked.whole)
    whole = to_group_document(group, asked, view)
    if view.known or not asked.whole:
        return finish(invocation, asked, whole, group_parts(view))
    for _, node in asked.answers:
        if node.failure is not None:
            invocation.warn("AGENT_FAILED", answer_words(node.addr, node.failure))
    message = f"nobody is in consumer group {group} at the {counted(len(view.unknown_at), 'agent')} that answered"
    return invocation.fail(
        ErrorReport("GROUP_NOT_FOUND", message, "see `pointsmanctl groups`, or ask replicas with --all")
    )


def _read_targets(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    targets = tuple(dict.fromkeys(values))
    for target in targets:
        problem = text_problem(target, longest=MAX_TARGET_LENGTH) if target else "must not be empty"
        if problem is None and (" " in target or not target.isascii()):
            problem = "may hold only printable ASCII characters without spaces"
        if problem:
            raise click.BadParameter(f"{target!r} {problem}")
    if len(targets) > MAX_TARGETS:
        raise click.BadParameter(f"has {len(targets)} members, at most {MAX_TARGETS} are allowed")
    return targets


@click.command()
@click.argument("group", callback=read_name)
@click.option(
    "--to",
    "targets",
    multiple=True,
    required=True,
    callback=_read_targets,
    metavar="ID|ADDRESS",
    help="A client id, or its part before the @: every client there. Up to 16.",
)
@duration_option("7d", required=True, help="How long, as 90s, 30m, 2h or 1d; at most 7d.")
@of_every_agent
@by_option
@pass_invocation
def pin(
    invocation: Invocation, group: str, targets: tuple[str, ...], seconds: int, choice: AgentChoice, by: str
) -> int:
    """Give all queues of GROUP to some members for a time.

    To try a new version on one machine, or to look at one consumer alone: the others stay members and get nothing. A
    member that is not there yet has the pin when it comes; while none of them is there, the group shares as always. It
    ends by itself, or with unpin; again replaces it. Agents forget it when they restart. Sent to the agents of masters
    and replicas; exits 1 if one failed, and may be repeated.

    \b
    JSON: agents[].{addr, brokers[], pinnedClientIds[], until}
          or {addr, brokers[], error}

    \b
    Examples:
      pointsmanctl pin billing --to 10.0.0.7@4711 --for 1h
      pointsmanctl pin billing --to 10.0.0.7 --to 10.0.0.8 --for 30m
    """
    request = wire.PinGroupRequest(group=group, to=targets, duration=Duration(seconds=seconds), by=by)
    return _pin_everywhere(invocation, choice, request)


@click.command()
@click.argument("group", callback=read_name)
@of_every_agent
@by_option
@pass_invocation
def unpin(invocation: Invocation, group: str, choice: AgentChoice, by: str) -> int:
    """End the pin of GROUP: all members share again.

    Sent to the agents of masters and replicas; exits 1 if one failed, and may be repeated. A group without a pin stays
    as it is.

    \b
    JSON: agents[].{addr, brokers[], pinnedClientIds[], until}
          or {addr, brokers[], error}; until is null

    \b
    Examples:
      pointsmanctl unpin billing
      pointsmanctl unpin billing --agent 10.0.0.1:9880
    """
    return _pin_everywhere(invocation, choice, wire.PinGroupRequest(group=group, by=by))


def _pin_everywhere(invocation: Invocation, choice: AgentChoice, request: wire.PinGroupRequest) -> int:
    async def change(server: Server, deadline: float) -> wire.PinGroupResponse:
        return await server.call(server.groups.PinGroup, request, deadline=deadline)

    asked = ask_agents(invocation, choice, change)
    lines = [
        Text(f"{agent}: {_pin_words(request.group, node.answer)}") if node.answer else failure_line(node)
        for agent, node in asked.answers
    ]
    return finish(invocation, asked, {"agents": to_agents_document(asked, to_document)}, lines, is_change=True)


def _pin_words(group: str, pin: wire.PinGroupResponse) -> str:
    if not pin.HasField("until"):
        return f"{group} is not pinned"
    until = f"{group} is pinned until {utc_of(pin.until):%Y-%m-%d %H:%M:%S} UTC"
    members = ", ".join(map(printable, pin.pinned_client_ids))
    return f"{until} to {members}" if members else f"{until}, to members that are not there yet"


async def groups_of(server: Server, deadline: float) -> wire.ListGroupsResponse:
    """Ask for all groups."""
    request = wire.ListGroupsRequest(page_size=PAGE_SIZE)
    return await server.whole(server.groups.ListGroups, request, deadline=deadline)


async def group_of(server: Server, deadline: float, group: str) -> AgentGroup:
    """Ask for one group."""
    try:
        request = wire.GetGroupRequest(group=group)
        answer = await server.call(server.groups.GetGroup, request, deadline=deadline)
    except RequestRejectedError as refusal:
        if refusal.status is grpc.StatusCode.NOT_FOUND:
            return AgentGroup(None)
        raise
    return AgentGroup(answer)


async def members_of(server: Server, deadline: float, groups: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """Ask for the client ids of several groups; groups without an answer before ``deadline`` are absent."""
    at_once = asyncio.Semaphore(CALLS_AT_ONCE)
    members: dict[str, frozenset[str]] = {}

    async def one(group: str) -> None:
        async with at_once:
            try:
                found = (await group_of(server, deadline, group)).group
            except PointsmanError:
                return
        members[group] = frozenset(member.client_id for member in found.members) if found else frozenset()

    await asyncio.gather(*map(one, groups))
    return members


def to_groups_document(asked: Asked[wire.ListGroupsResponse], rows: Sequence[GroupRow]) -> Document:
    """Render the groups, and the answer of each agent."""

    def of_agent(answer: wire.ListGroupsResponse) -> Document:
        return {"state": enum_name(answer, "state"), "groups": list(map(to_document, answer.groups))}

    groups = [
        {
            "group": row.group,
            "members": row.members,
            "isExact": row.is_exact,
            "agents": [agent.addr for agent in row.agents],
            "messageModels": list(row.models),
            "topics": list(row.topics),
            "flags": list(row.flags),
        }
        for row in rows
    ]
    return {"groups": groups, "agents": to_agents_document(asked, of_agent)}


def to_group_document(group: str, asked: Asked[AgentGroup], view: GroupView) -> Document:
    """Render one group: its members, and the answer of each agent."""

    def of_agent(answer: AgentGroup) -> Document:
        return {"group": to_document(answer.group) if answer.group is not None else None}

    return {
        "group": group,
        "isAgreed": view.is_agreed,
        "messageModels": list(view.models),
        "members": [_to_member_row(row) for row in view.members],
        "pins": [
            {
                "agent": agent.addr,
                "pinnedClientIds": list(membership.pinned_client_ids),
                "pinnedUntil": membership.pinned_until.ToJsonString(),
            }
            for agent, membership in view.pins
        ],
        "agents": to_agents_document(asked, of_agent),
    }


def _to_member_row(row: MemberRow) -> Document:
    return {
        "clientId": row.client_id,
        "peers": list(row.peers),
        "joinedAt": row.joined_first.joined_at.ToJsonString(),
        "silentSeconds": row.silent_seconds,
        "consumeTypes": list(row.consume_types),
        "subscriptions": [{"topic": topic, "expression": expression} for topic, expression in row.subscriptions],
        "isConnected": row.is_connected,
        "isConflicting": row.is_conflicting,
        "agents": [agent.addr for agent, _ in row.at],
        "missingAt": [agent.addr for agent in row.missing_at],
    }


COMMANDS = (groups, group, pin, unpin)
