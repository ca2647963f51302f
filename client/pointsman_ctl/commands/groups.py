"""Consumer groups as the brokers' agents know them: who is in them, and pins."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import click
from google.protobuf.duration_pb2 import Duration
from rich.text import Text

from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.wire.names import text_problem
from pointsman_client.routes.route_document import Document
from pointsman_client.rpc.agent_link import AgentLink
from pointsman_client.rpc.wire_time import utc_of, utc_text
from pointsman_ctl import group_document, group_table
from pointsman_ctl.agent_asking import (
    Asked,
    agent_round,
    ask_agents,
    complain,
    finish,
    to_agents_document,
)
from pointsman_ctl.agent_choice import AgentChoice, of_agents, of_every_agent
from pointsman_ctl.agent_failure import agent_sentence
from pointsman_ctl.agent_question import AgentGroups, group_of, groups_of, members_of
from pointsman_ctl.argument import by_option, duration_option, read_name
from pointsman_ctl.failure import Complaint
from pointsman_ctl.group_view import Members, group_rows, group_view, shared_groups
from pointsman_ctl.layout import ALARM
from pointsman_ctl.settings import Settings, pass_settings
from pointsman_ctl.wording import printable

MAX_TARGETS = 16
MAX_TARGET_LENGTH = 255


@click.command()
@of_agents
@pass_settings
def groups(settings: Settings, choice: AgentChoice) -> int:
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
    asked, members = asyncio.run(_groups_and_members(settings, choice))
    rows = group_rows(asked.whole, members)
    whole = group_document.to_groups_document(asked, rows)
    return finish(settings, asked, whole, group_table.groups_parts(asked.whole, rows))


async def _groups_and_members(settings: Settings, choice: AgentChoice) -> tuple[Asked[AgentGroups], Members]:
    async with agent_round(settings, choice) as asking:
        asked = await asking.ask(groups_of)
        wanted = {agent.addr: names for agent, names in shared_groups(asked.whole).items()}
        if not any(wanted.values()):
            return asked, {}
        told = await asking.ask(lambda link, deadline: members_of(link, deadline, wanted.get(link.addr, ())))
        return asked, dict(told.whole)


@click.command()
@click.argument("group", callback=read_name)
@of_agents
@pass_settings
def group(settings: Settings, group: str, choice: AgentChoice) -> int:
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
          agents[].{addr, brokers[], group.{state, revision.{boot, counter},
            messageModel, clientIds[], pinnedClientIds[], pinnedUntil, notifies,
            holdDownSeconds, watchers, members[]}}
          or {addr, brokers[], error}; group is null where nobody is in it

    \b
    Examples:
      pointsmanctl group billing
      pointsmanctl group billing --all
      pointsmanctl -o json group billing | jq -r '.members[].clientId'
    """
    asked = ask_agents(settings, choice, lambda link, deadline: group_of(link, deadline, group))
    view = group_view(asked.whole)
    whole = group_document.to_group_document(group, asked, view)
    if view.known or not asked.whole:
        return finish(settings, asked, whole, group_table.group_parts(view))
    silent = [each for each in asked.answers if each.failure is not None]
    where = f"{len(view.unknown_at)} agent{'' if len(view.unknown_at) == 1 else 's'}"
    for each in silent:
        if each.failure is not None:
            settings.warn("AGENT_FAILED", agent_sentence(each.agent.addr, each.failure))
    message = f"nobody is in consumer group {group} at the {where} that answered"
    return complain(
        settings, Complaint("GROUP_NOT_FOUND", message, "see `pointsmanctl groups`, or ask replicas with --all")
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
@pass_settings
def pin(settings: Settings, group: str, targets: tuple[str, ...], seconds: int, choice: AgentChoice, by: str) -> int:
    """Give all queues of GROUP to some members for a time.

    To try a new version on one machine, or to look at one consumer alone: the others stay members and get nothing. A
    member that is not there yet has the pin when it comes; while none of them is there, the group shares as always. It
    ends by itself, or with unpin; again replaces it. Agents forget it when they restart. Sent to the agents of masters
    and replicas; exits 1 if one failed, and may be repeated.

    \b
    JSON: agents[].{addr, brokers[], pinnedClientIds[], pinnedUntil}
          or {addr, brokers[], error}

    \b
    Examples:
      pointsmanctl pin billing --to 10.0.0.7@4711 --for 1h
      pointsmanctl pin billing --to 10.0.0.7 --to 10.0.0.8 --for 30m
    """
    request = wire.PinGroupRequest(group=group, to=targets, duration=Duration(seconds=seconds), by=by)
    return _pin_everywhere(settings, choice, request)


@click.command()
@click.argument("group", callback=read_name)
@of_every_agent
@by_option
@pass_settings
def unpin(settings: Settings, group: str, choice: AgentChoice, by: str) -> int:
    """End the pin of GROUP: all members share again.

    Sent to the agents of masters and replicas; exits 1 if one failed, and may be repeated. A group without a pin stays
    as it is.

    \b
    JSON: agents[].{addr, brokers[], pinnedClientIds[], pinnedUntil}
          or {addr, brokers[], error}; pinnedUntil is null

    \b
    Examples:
      pointsmanctl unpin billing
      pointsmanctl unpin billing --agent 10.0.0.1:9880
    """
    return _pin_everywhere(settings, choice, wire.PinGroupRequest(group=group, by=by))


def _pin_everywhere(settings: Settings, choice: AgentChoice, request: wire.PinGroupRequest) -> int:
    async def change(link: AgentLink, deadline: float) -> wire.PinGroupResponse:
        return await link.call(link.groups.PinGroup, request, deadline=deadline)

    asked = ask_agents(settings, choice, change)
    lines = [
        Text(f"{each.agent}: {_pin_words(request.group, each.answer)}")
        if each.answer is not None
        else Text(agent_sentence(each.agent.addr, each.failure) if each.failure else "", style=ALARM)
        for each in asked.answers
    ]
    return finish(settings, asked, {"agents": to_agents_document(asked.answers, _to_pin)}, lines, is_change=True)


def _pin_words(group: str, pin: wire.PinGroupResponse) -> str:
    if not pin.HasField("until"):
        return f"{group} is not pinned"
    until = f"{group} is pinned until {utc_of(pin.until):%Y-%m-%d %H:%M:%S} UTC"
    members = ", ".join(map(printable, pin.pinned_client_ids))
    return f"{until} to {members}" if members else f"{until}, to members that are not there yet"


def _to_pin(pin: wire.PinGroupResponse) -> Document:
    return {
        "pinnedClientIds": list(pin.pinned_client_ids),
        "pinnedUntil": utc_text(pin.until) if pin.HasField("until") else None,
    }


COMMANDS = (groups, group, pin, unpin)
