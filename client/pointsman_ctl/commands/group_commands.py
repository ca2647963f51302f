"""Consumer groups as the brokers' agents know them: the commands ``groups``, ``group``, ``pin`` and ``unpin``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import click
from google.protobuf.duration_pb2 import Duration
from rich.text import Text

from pointsman.names import text_problem
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.wire.json_document import Document, enum_name, to_document
from pointsman_client import PointsmanError
from pointsman_ctl.commands.agent_round import (
    AgentChoice,
    QueryResult,
    agent_and_broker_round,
    agent_round,
    finish,
    finish_change,
    missing_report,
    of_agents,
    of_every_agent,
    query_agents,
    to_agents_document,
    warn_of_name_servers,
)
from pointsman_ctl.options.command_options import by_option, duration_option, read_name
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.options.name_completion import chosen_cluster, completer
from pointsman_ctl.output.consumer_group_view import (
    GroupRow,
    GroupView,
    MemberRow,
    Members,
    counted_agents,
    group_parts,
    group_rows,
    group_view,
    groups_parts,
    shared_groups,
)
from pointsman_ctl.output.error_report import ErrorReport
from pointsman_ctl.output.operator_texts import printable, utc_of
from pointsman_ctl.output.output_layout import failure_line
from pointsman_ctl.servers.agent_queries import AgentGroup, AgentServer
from pointsman_ctl.servers.rocketmq_broker import RocketmqBroker

MAX_TARGETS = 16
MAX_TARGET_LENGTH = 255
MAX_CONCURRENT_CALLS = 8
"""Per agent."""


def _group_names(invocation: Invocation, ctx: click.Context) -> Iterable[str]:
    choice = AgentChoice(ctx.params.get("addrs") or (), chosen_cluster(ctx), bool(ctx.params.get("replicas_too")))
    found = query_agents(
        agent_and_broker_round(invocation, choice), lambda server, deadline: server.list_groups(deadline)
    )
    return (each.group for _, response in found.received for each in response.groups)


complete_groups = completer(_group_names)


@click.command()
@of_agents
@pass_invocation
def groups(invocation: Invocation, choice: AgentChoice) -> int:
    """List consumer groups.

    Merged from the agents of all masters, those of brokers that are OUT or departed too: each agent knows the
    consumers that read from its broker. RocketMQ brokers have no agent and are queried themselves. MEMBERS counts each
    client once; >= marks a lower limit, after a timeout. AGENTS is the number of agents that know the group, of those
    that responded. Brokers that are not counted are listed; then it exits 1.

    \b
    FLAGS:
      CONFLICT  members differ in what must be equal, see `pointsmanctl group`
      PINNED    some members have all queues, see `pointsmanctl group`
      DIFFERS   agents know different members
      WARMING   an agent has just started and may not know all members yet
      DRAINING  an agent is stopping and moves its consumers to other brokers

    \b
    JSON: groups[].{group, members, isExact, agents[], messageModels[],
            topics[], flags[]},
          agents[].{addr, brokers[], state, groups[].{group, members,
            messageModel, topics[], isConflicting, isPinned},
            absent[].{broker, state}}
          or {addr, brokers[], absent[], error},
          notCounted[].{broker, state, addr, reason}, isAbsentKnown

    \b
    Examples:
      pointsmanctl groups
      pointsmanctl --namesrv ns1:9876,ns2:9876 groups --cluster DefaultCluster
      pointsmanctl groups --agent 10.0.0.1:9880
      pointsmanctl -o json groups | jq '.groups[] | select(.flags != [])'
    """
    result, members = asyncio.run(_groups_and_members(invocation, choice))
    rows = group_rows(result.received, members)
    document = to_groups_document(result, rows)
    return finish(invocation, result, document, groups_parts(result.received, rows))


async def _groups_and_members(
    invocation: Invocation, choice: AgentChoice
) -> tuple[QueryResult[wire.ListGroupsResponse], Members]:
    async with agent_and_broker_round(invocation, choice) as asking:
        result = await asking.query(lambda server, deadline: server.list_groups(deadline))
        wanted = {agent.addr: names for agent, names in shared_groups(result.received).items()}
        if not any(wanted.values()):
            return result, {}

        members = await asking.query(lambda server, deadline: members_of(server, deadline, wanted.get(server.addr, ())))
        return result, dict(members.received)


@click.command()
@click.argument("group", callback=read_name, shell_complete=complete_groups)
@of_agents
@pass_invocation
def group(invocation: Invocation, group: str, choice: AgentChoice) -> int:
    """Show the members of a consumer group.

    SINCE is when the member joined, LAST HEARTBEAT the time since its last heartbeat to any agent, SUBSCRIPTIONS its
    topics with their tags. AGENTS is the number of agents that know the member, of those that know the group. Lines
    below the table show disagreements, differing settings, the pin, and delayed changes. RocketMQ brokers are queried
    themselves: they know CLIENT, its language and version, and not SINCE and LAST HEARTBEAT. Brokers that are not
    counted are listed; then it exits 1, as for a group without members.

    \b
    FLAGS:
      CONFLICT      differs from the oldest member in what must be equal:
                    message model, push or pull, subscriptions, ordered,
                    allocation strategy
      ASIDE         holds no queues because of that
      UNKNOWN       its client is too old to state strategy and ordered
      DIFFERS       an agent does not know the member
      DISCONNECTED  its connection broke

    \b
    JSON: group, isAgreed, messageModels[],
          members[].{clientId, peers[], client, joinedAt, silentSeconds,
            consumeTypes[], subscriptions[].{topic, expression}, isConnected,
            isConflicting, differences[], standsAside, strategy, isOrdered,
            agents[], missingAt[]}; client, joinedAt, silentSeconds, strategy
            and isOrdered are null if not known,
          pins[].{agent, pinnedClientIds[], pinnedUntil},
          agents[].{addr, brokers[], group.{membership.{group, state,
              revision.{boot, counter}, messageModel, clientIds[],
              pinnedClientIds[], pinnedUntil, settings, holder, differing[]},
            members[].{clientId, peer, consumeType, joinedAt, silentForSeconds,
              subscriptions[], isConnected, isConflicting, differences[],
              standsAside, settings, messageModel}, notifies,
            holdDownSeconds, watchers, holder}, absent[].{broker, state}}
          or {addr, brokers[], absent[], error}; group is null where it has
            no members,
          notCounted[].{broker, state, addr, reason}, isAbsentKnown

    \b
    Examples:
      pointsmanctl group billing
      pointsmanctl group billing --all
      pointsmanctl -o json group billing | jq -r '.members[].clientId'
    """
    result = query_agents(
        agent_and_broker_round(invocation, choice), lambda server, deadline: server.group(group, deadline)
    )
    view = group_view(result.received)
    document = to_group_document(group, result, view)
    if view.known or not result.received:
        return finish(invocation, result, document, group_parts(view))
    return fail_unknown_group(invocation, result, f"consumer group {group} has no members")


def fail_unknown_group(invocation: Invocation, result: QueryResult[object], problem: str) -> int:
    """Report that no agent that responded knows the group, and the brokers not counted; return the exit code."""
    warn_of_name_servers(invocation, result.name_servers, with_absent=True)
    if missing := result.missing:
        report = missing_report(missing)
        invocation.warn(report.code, report.message, report.hint)
    message = f"{problem} at the {counted_agents([agent for agent, _ in result.received])} that responded"
    return invocation.fail(
        ErrorReport("GROUP_NOT_FOUND", message, "see `pointsmanctl groups`, or query replicas with --all")
    )


def _read_targets(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    targets = tuple(dict.fromkeys(values))
    for target in targets:
        problem = text_problem(target, longest=MAX_TARGET_LENGTH) if target else "must not be empty"
        if problem is None and (" " in target or not target.isascii()):
            problem = "may contain only printable ASCII characters without spaces"
        if problem:
            raise click.BadParameter(f"{target!r} {problem}")
    if len(targets) > MAX_TARGETS:
        raise click.BadParameter(f"has {len(targets)} members, at most {MAX_TARGETS} are allowed")
    return targets


@click.command()
@click.argument("group", callback=read_name, shell_complete=complete_groups)
@click.option(
    "--to",
    "targets",
    multiple=True,
    required=True,
    callback=_read_targets,
    metavar="ID|ADDRESS",
    help="Client id, or its part before the @ for all clients of that host. Repeatable (max 16).",
)
@duration_option("7d", required=True, help="Duration, e.g. 90s, 30m, 2h or 1d (max 7d).")
@of_every_agent
@by_option
@pass_invocation
def pin(
    invocation: Invocation, group: str, targets: tuple[str, ...], seconds: int, choice: AgentChoice, by: str
) -> int:
    """Assign all queues of GROUP to some members for a time.

    To try a new version on one host, or to debug one consumer. The other members stay in the group without queues. A
    pinned member may join later; while no pinned member is in the group, it is balanced as usual. The pin ends after
    --for, with unpin, or when the agent restarts. Repeating the command replaces it. Sent to the agents of masters and
    replicas, those of brokers that are OUT too; exits 1 if one failed.

    \b
    JSON: agents[].{addr, brokers[], absent[], pinnedClientIds[], until}
          or {addr, brokers[], absent[], error}

    \b
    Examples:
      pointsmanctl pin billing --to 10.0.0.7@4711 --for 1h
      pointsmanctl pin billing --to 10.0.0.7 --to 10.0.0.8 --for 30m
    """
    request = wire.PinGroupRequest(group=group, to=targets, duration=Duration(seconds=seconds), by=by)
    return _pin_everywhere(invocation, choice, request)


@click.command()
@click.argument("group", callback=read_name, shell_complete=complete_groups)
@of_every_agent
@by_option
@pass_invocation
def unpin(invocation: Invocation, group: str, choice: AgentChoice, by: str) -> int:
    """End the pin of GROUP; all members share its queues again.

    Sent to the agents of masters and replicas, those of brokers that are OUT too; exits 1 if one failed. Repeating it
    is safe.

    \b
    JSON: agents[].{addr, brokers[], absent[], pinnedClientIds[], until}
          or {addr, brokers[], absent[], error}; until is null

    \b
    Examples:
      pointsmanctl unpin billing
      pointsmanctl unpin billing --agent 10.0.0.1:9880
    """
    return _pin_everywhere(invocation, choice, wire.PinGroupRequest(group=group, by=by))


def _pin_everywhere(invocation: Invocation, choice: AgentChoice, request: wire.PinGroupRequest) -> int:
    async def change(server: AgentServer, deadline: float) -> wire.PinGroupResponse:
        return await server.call(server.groups.PinGroup, request, deadline=deadline)

    result = query_agents(agent_round(invocation, choice), change)
    lines = [
        Text(f"{agent}: {_pin_text(request.group, node.response)}") if node.response else failure_line(node)
        for agent, node in result.responses
    ]
    return finish_change(invocation, result, {"agents": to_agents_document(result, to_document)}, lines)


def _pin_text(group: str, pin: wire.PinGroupResponse) -> str:
    if not pin.HasField("until"):
        return f"{group} is not pinned"
    until = f"{group} is pinned until {utc_of(pin.until):%Y-%m-%d %H:%M:%S} UTC"
    members = ", ".join(map(printable, pin.pinned_client_ids))
    return f"{until} to {members}" if members else f"{until}, to members that have not joined yet"


async def members_of(
    server: AgentServer | RocketmqBroker, deadline: float, groups: Iterable[str]
) -> Mapping[str, frozenset[str]]:
    """Return the client ids of several groups, without groups whose response is late."""
    concurrency = asyncio.Semaphore(MAX_CONCURRENT_CALLS)
    members: dict[str, frozenset[str]] = {}

    async def one(group: str) -> None:
        async with concurrency:
            try:
                found = (await server.group(group, deadline)).group
            except PointsmanError:
                return
        members[group] = frozenset(member.client_id for member in found.members) if found else frozenset()

    await asyncio.gather(*map(one, groups))
    return members


def to_groups_document(result: QueryResult[wire.ListGroupsResponse], rows: Sequence[GroupRow]) -> Document:
    """Render the groups, and the response of each agent."""

    def of_agent(response: wire.ListGroupsResponse) -> Document:
        return {"state": enum_name(response, "state"), "groups": list(map(to_document, response.groups))}

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
    return {"groups": groups, "agents": to_agents_document(result, of_agent)}


def to_group_document(group: str, result: QueryResult[AgentGroup], view: GroupView) -> Document:
    """Render one group: its members, and the response of each agent."""

    def of_agent(response: AgentGroup) -> Document:
        return {"group": to_document(response.group) if response.group is not None else None}

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
        "agents": to_agents_document(result, of_agent),
    }


def _to_member_row(row: MemberRow) -> Document:
    return {
        "clientId": row.client_id,
        "peers": list(row.peers),
        "client": row.client or None,
        "joinedAt": row.joined_first.joined_at.ToJsonString() if row.joined_first.HasField("joined_at") else None,
        "silentSeconds": row.silent_seconds,
        "consumeTypes": list(row.consume_types),
        "subscriptions": [{"topic": topic, "expression": expression} for topic, expression in row.subscriptions],
        "isConnected": row.is_connected,
        "isConflicting": row.is_conflicting,
        "differences": list(row.differences),
        "standsAside": row.stands_aside,
        "strategy": row.strategy or None,
        "isOrdered": None if row.settings is None else row.settings.is_ordered,
        "agents": [agent.addr for agent, _ in row.at],
        "missingAt": [agent.addr for agent in row.missing_at],
    }
