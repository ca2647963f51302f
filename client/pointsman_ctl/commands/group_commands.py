"""Consumer groups as the brokers' agents know them: the commands ``groups`` and ``group``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import click

from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.wire.json_document import Document, enum_name, to_document
from pointsman.wire.operator_texts import counted
from pointsman_client import PointsmanError
from pointsman_ctl.commands.agent_round import (
    AgentChoice,
    QueryResult,
    agent_and_broker_round,
    finish,
    missing_report,
    of_agents,
    query_agents,
    to_agents_document,
    warn_of_name_servers,
)
from pointsman_ctl.options.command_options import (
    Consent,
    DefaultCommandGroup,
    change_options,
    in_cluster,
    read_name,
)
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
    member_flags,
    shared_groups,
)
from pointsman_ctl.output.error_report import ErrorReport
from pointsman_ctl.output.group_queue_view import group_queues_view, queue_parts, to_queues_document
from pointsman_ctl.servers.agent_queries import AgentGroup, AgentQueues, AgentServer
from pointsman_ctl.servers.rocketmq_broker import RocketmqBroker
from pointsman_ctl.servers.rocketmq_groups import MAX_RETRIES, GroupSettings

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
    that responded. LAG is the number of unread messages, IN/S how many arrive per second, OUT/S by how many its offsets
    rise, at the agents' last measurement (30 s); RocketMQ brokers know LAG alone. Brokers that are not counted are
    listed; then it exits 1.

    \b
    FLAGS:
      CONFLICT    members differ in what must be equal
      PINNED      an operator assigned queues to members
      DIFFERS     agents know different members
      WARMING     an agent has just started and may not know all members yet
      DRAINING    an agent is stopping and moves its consumers to other brokers
      NO MEMBERS  it has unread messages, and no member
      STUCK       in a queue a member is stuck
      BEHIND      in a queue more arrives than it reads
    `pointsmanctl group GROUP` names members and queues.

    \b
    JSON: groups[].{group, members, isExact, agents[], messageModels[],
            topics[], lag, putRate, commitRate, behindQueues, stuckQueues,
            flags[]}; lag and the rates are null if not known,
          agents[].{addr, brokers[], state, groups[].{group, members,
            messageModel, topics[], isConflicting, isPinned, load.{lag,
              putRate, commitRate, behindQueueCount, stuckQueueCount}},
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
    result, members = query_all_groups(invocation, choice)
    rows = group_rows(result.received, members)
    document = to_groups_document(result, rows)
    return finish(invocation, result, document, groups_parts(result.received, rows))


def query_all_groups(
    invocation: Invocation, choice: AgentChoice
) -> tuple[QueryResult[wire.ListGroupsResponse], Members]:
    """Query all groups, and the members of those that several agents know. Raises what ``agent_round`` raises."""
    return asyncio.run(_groups_and_members(invocation, choice))


async def _groups_and_members(
    invocation: Invocation, choice: AgentChoice
) -> tuple[QueryResult[wire.ListGroupsResponse], Members]:
    async with agent_and_broker_round(invocation, choice) as asking:
        result = await asking.query(lambda server, deadline: server.list_groups(deadline, with_loads=True))
        wanted = {agent.addr: names for agent, names in shared_groups(result.received).items()}
        if not any(wanted.values()):
            return result, {}

        members = await asking.query(lambda server, deadline: members_of(server, deadline, wanted.get(server.addr, ())))
        return result, dict(members.received)


@click.group(cls=DefaultCommandGroup)
def group() -> None:
    """Show, change or delete a consumer group.

    `group GROUP` is `group show GROUP`.

    \b
    Examples:
      pointsmanctl group billing
      pointsmanctl group delete billing --dry-run
    """


_group_argument = click.argument("group", callback=read_name, shell_complete=complete_groups)


@group.command("show")
@_group_argument
@click.option("--queues", "with_queues", is_flag=True, help="Show its queues too: owner, lag, rates, what is stuck.")
@of_agents
@pass_invocation
def group_show(invocation: Invocation, group: str, choice: AgentChoice, *, with_queues: bool) -> int:
    """Show the members of a consumer group.

    SINCE is when the member joined, LAST HEARTBEAT the time since its last heartbeat to any agent, SUBSCRIPTIONS its
    topics with their tags. AGENTS is the number of agents that know the member, of those that know the group. Lines
    below the table show disagreements, differing settings, pins, delayed changes, and queues that are stuck or fall
    behind, by the members' last heartbeats (30 s). RocketMQ brokers are queried themselves: they know CLIENT, its
    language and version, and not SINCE and LAST HEARTBEAT. Brokers that are not counted are listed; then it exits 1, as
    for a group without members.

    \b
    FLAGS:
      CONFLICT      differs from the oldest member in what must be equal:
                    message model, push or pull, subscriptions, ordered,
                    allocation strategy
      ASIDE         holds no queues because of that
      UNKNOWN       its client is too old to state strategy and ordered
      DIFFERS       an agent does not know the member
      DISCONNECTED  its connection broke
      STUCK         a listener call has run for 60 s, or an offset has not
                    moved for 120 s although there are unread messages
      BEHIND        more arrives in a queue than it reads, and messages of
                    more than a minute are unread
      IDLE          holds no queues

    With --queues: IN/S and OUT/S are messages per second that arrive and by which the offset rises, at the agent's last
    measurement (30 s). CATCH-UP is the time until LAG is 0 at these rates, LAST COMMIT the time since the last commit,
    UNMOVED the time for which the offset has not moved although there are unread messages, OLDEST CALL that of the
    listener. NO READER: no member reports the queue. RocketMQ brokers know LAG; their clients report OWNER, CACHED,
    messages pulled and not finished, and LAST PULL, the time since the last pull. A client has 1 s to respond, the
    clients of a broker 3 s. "-" is not known.

    \b
    JSON: group, isAgreed, messageModels[],
          members[].{clientId, peers[], client, joinedAt, silentSeconds,
            consumeTypes[], subscriptions[].{topic, expression}, isConnected,
            isConflicting, differences[], standsAside, strategy, isOrdered,
            agents[], missingAt[], flags[], retries, deadLetters,
            rebalances.{TRIGGER}}; client, joinedAt, silentSeconds, strategy,
            isOrdered, retries, deadLetters and rebalances are null if not
            known,
          queues[].{topic, agent, brokers[], queueId, clientId, position,
            inFlight, isWaiting, committedOffset, maxOffset, lag, putRate,
            commitRate, catchUpSeconds, sinceCommitSeconds, unmovedSeconds,
            oldestCallSeconds, cachedMessages, sinceLastPullSeconds,
            standing}; null if not known; RocketMQ brokers' with --queues,
          pins[].{agent, pinnedClientIds[], pinnedUntil},
          queuePins[].{agent, topic, cluster, brokerName, queueId, to,
            clientId, until}; clientId is empty without effect,
          agents[].{addr, brokers[], group.{membership.{group, state,
              revision.{boot, counter}, messageModel, clientIds[],
              pinnedClientIds[], pinnedUntil, settings, holder, differing[],
              queuePins[], notFollowingQueuePins[]},
            members[].{clientId, peer, consumeType, joinedAt, silentForSeconds,
              subscriptions[], isConnected, isConflicting, differences[],
              standsAside, settings, messageModel}, notifies,
            holdDownSeconds, watchers, holder}, absent[].{broker, state}}
          or {addr, brokers[], absent[], error}; group is null where it has
            no members,
          notCounted[].{broker, state, addr, reason}, isAbsentKnown

    \b
    Examples:
      pointsmanctl group show billing
      pointsmanctl group show billing --queues
      pointsmanctl group show billing --all
      pointsmanctl -o json group show billing | jq -r '.members[].clientId'
    """
    result = query_group(invocation, choice, group, with_queues=with_queues)
    view = view_of(result)
    queues = view.queues
    document = to_group_document(group, result, view)
    if view.known or not result.received:
        parts = [*group_parts(view), *(queue_parts(queues) if with_queues else ())]
        return finish(invocation, result, document, parts)
    unread = sum(row.lag or 0 for row in queues.rows)
    left = f" and {counted(unread, 'unread message')}" if unread else ""
    return fail_unknown_group(invocation, result, f"consumer group {group} has no members{left}")


@group.command("delete")
@_group_argument
@in_cluster
@click.option("--delete-messages", "with_messages", is_flag=True, help="Also if retries or dead letters are lost.")
@change_options
@pass_invocation
def group_delete(invocation: Invocation, group: str, cluster: str, consent: Consent, *, with_messages: bool) -> int:
    """Delete GROUP at every broker: its offsets, retries and dead letters.

    For a group that no application uses. A group with members is rejected: stop them first, for they would
    commit again. A group with retries or dead letters needs --delete-messages. Shows what is deleted, and you must
    confirm (without a terminal: --yes). The change is recorded at every name server listed, and sent to the agents of
    masters and replicas, to the masters of Redis brokers (--redis-username) and to the masters of RocketMQ brokers,
    where it does what mqadmin's deleteSubGroup does; exits 1 if one failed. Repeating it is safe. Brokers that are down
    keep what they have: run it again when they are back.

    \b
    JSON: {plan, dryRun, recorded[].{addr, inHistory}, servers[]}
          plan: {group, retries, deadLetters, brokers[].{brokers[], addr,
            offsetCount}}; retries and deadLetters are null if not known
          servers[]: {addr, changed, offsetCount} or {addr, error}

    \b
    Examples:
      pointsmanctl group delete billing --dry-run
      pointsmanctl group delete billing --delete-messages
    """
    from pointsman_ctl.commands.group_changes import delete_group  # noqa: PLC0415  # what reads messages: not to show

    choice = AgentChoice((), cluster, replicas_too=True, absent=frozenset({"OUT"}))
    return delete_group(invocation, group, choice, consent, with_messages=with_messages)


@group.command("set")
@_group_argument
@in_cluster
@click.option("--notify/--no-notify", default=None, help="Whether members are notified when the group changes.")
@click.option(
    "--hold-down",
    type=click.FloatRange(min=0.0, max=300.0),
    metavar="SECONDS",
    help="Agents: delay after a first change, so that several cause one rebalance.",
)
@click.option(
    "--retry-max",
    type=click.IntRange(min=0, max=MAX_RETRIES),
    metavar="N",
    help="RocketMQ brokers: retries of a message before it is a dead letter.",
)
@change_options
@pass_invocation
def group_set(
    invocation: Invocation,
    group: str,
    cluster: str,
    consent: Consent,
    *,
    notify: bool | None,
    hold_down: float | None,
    retry_max: int | None,
) -> int:
    """Change settings of GROUP at RocketMQ brokers.

    Only what is given changes; a group that a broker does not have is created there, as with mqadmin's updateSubGroup.
    Shows what is and what will be, and you must confirm (without a terminal: --yes). The change is recorded at every
    name server listed, and sent to the masters of RocketMQ brokers, which their slaves follow; exits 1 if one failed.
    Repeating it is safe.

    Agents have these settings in their configuration: the command shows what to add to it. --hold-down is a setting of
    agents alone, --retry-max one of RocketMQ brokers alone (of others it is max_reconsume_times of the consumers).

    \b
    JSON: {plan, dryRun, recorded[].{addr, inHistory}, servers[]}
          plan: {group, brokers[].{brokers[], addr, before, after}}; before
            and after: {notify, retryMax}; before is null for a new group
          servers[]: {addr, changed} or {addr, error}

    \b
    Examples:
      pointsmanctl group set billing --retry-max 5
      pointsmanctl group set billing --no-notify --cluster DefaultCluster
    """
    if notify is None and hold_down is None and retry_max is None:
        raise click.UsageError("give --notify, --no-notify, --hold-down or --retry-max")
    from pointsman_ctl.commands.group_changes import set_group  # noqa: PLC0415  # as above

    choice = AgentChoice((), cluster, replicas_too=True)
    return set_group(invocation, group, choice, consent, GroupSettings(notify, retry_max), hold_down)


def query_group(
    invocation: Invocation, choice: AgentChoice, group: str, *, with_queues: bool
) -> QueryResult[tuple[AgentGroup, AgentQueues]]:
    """Query one group; ``with_queues``: also the queues at RocketMQ brokers. Raises what ``agent_round`` raises."""

    async def ask(server: AgentServer | RocketmqBroker, deadline: float) -> tuple[AgentGroup, AgentQueues]:
        found = await server.group(group, deadline)
        if with_queues or server.knows_readers:
            return found, await server.group_queues(group, deadline)
        return found, AgentQueues(wire.ListGroupQueuesResponse())

    return query_agents(agent_and_broker_round(invocation, choice), ask)


def view_of(result: QueryResult[tuple[AgentGroup, AgentQueues]]) -> GroupView:
    """Merge the responses about one group."""
    queues = group_queues_view((agent, queues) for agent, (_, queues) in result.received)
    return group_view(((agent, found) for agent, (found, _) in result.received), queues, now=datetime.now(UTC))


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
            "lag": row.lag,
            "putRate": row.put_rate,
            "commitRate": row.commit_rate,
            "behindQueues": row.behind_queues,
            "stuckQueues": row.stuck_queues,
            "flags": list(row.flags),
        }
        for row in rows
    ]
    return {"groups": groups, "agents": to_agents_document(result, of_agent)}


def to_group_document(group: str, result: QueryResult[tuple[AgentGroup, AgentQueues]], view: GroupView) -> Document:
    """Render one group: its members, its queues, and the response of each agent."""

    def of_agent(response: tuple[AgentGroup, AgentQueues]) -> Document:
        found = response[0].group
        return {"group": to_document(found) if found is not None else None}

    return {
        "group": group,
        "isAgreed": view.is_agreed,
        "messageModels": list(view.models),
        "members": [_to_member_row(row, view) for row in view.members],
        "queues": to_queues_document(view.queues),
        "pins": [
            {
                "agent": agent.addr,
                "pinnedClientIds": list(membership.pinned_client_ids),
                "pinnedUntil": membership.pinned_until.ToJsonString(),
            }
            for agent, membership in view.pins
        ],
        "queuePins": [{"agent": agent.addr, **to_document(pin)} for agent, pin in view.queue_pins],
        "agents": to_agents_document(result, of_agent),
    }


def _to_member_row(row: MemberRow, view: GroupView) -> Document:
    counts = view.queues.counts.get(row.client_id)
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
        "flags": list(member_flags(row, view)),
        "retries": None if counts is None else counts.retries,
        "deadLetters": None if counts is None else counts.dead_letters,
        "rebalances": None if counts is None else {each.trigger: each.count for each in counts.rebalances},
    }
