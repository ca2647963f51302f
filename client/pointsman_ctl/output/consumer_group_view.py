"""Consumer groups merged from the responses of all agents, and their tables. Agents may disagree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from rich.console import RenderableType
from rich.text import Text

from pointsman.names import printable
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.wire.json_document import enum_name
from pointsman.wire.operator_texts import counted, duration_text, rate_text, utc_of
from pointsman.wire.wire_time import seconds_of
from pointsman_ctl.output.group_queue_view import STYLES, GroupQueuesView, standing_lines
from pointsman_ctl.output.output_layout import ALARM, WARNING, new_table
from pointsman_ctl.servers.agent_queries import AgentGroup
from pointsman_ctl.servers.found_agents import Agent, noun_of

GroupState: TypeAlias = "wire.GroupState.ValueType"
Members: TypeAlias = "Mapping[Agent, Mapping[str, frozenset[str]]]"
"""Client ids by agent and group, where they were received."""
RELIABLE = frozenset({wire.GROUP_STATE_READY, wire.GROUP_STATE_RECOVERED})
"""States of an agent or group whose list of members is complete."""
MAX_HOSTS = 2
"""Hosts of one member that the table shows."""
DIFFERENCES = {
    "MESSAGE_MODEL": "message model",
    "CONSUME_TYPE": "consume type",
    "SUBSCRIPTIONS": "subscriptions",
    "ORDERED": "ordered",
    "STRATEGY": "strategy",
    "ZONE": "no zone in its client id",
}
_FLAG_STYLES = {
    "CONFLICT": ALARM,
    "ASIDE": ALARM,
    "DIFFERS": ALARM,
    "PINNED": "magenta",
    "WARMING": WARNING,
    "DRAINING": "magenta",
    "NO MEMBERS": ALARM,
    **STYLES,
}


def counted_agents(agents: Sequence[Agent]) -> str:
    """Return their number with what they are: RocketMQ brokers, or agents."""
    return counted(len(agents), noun_of(agents))


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group over all agents."""

    group: str
    members: int
    """Number of distinct client ids; a lower limit if ``is_exact`` is false."""
    is_exact: bool
    agents: tuple[Agent, ...]
    """Agents that know the group."""
    models: tuple[str, ...]
    """More than one: agents or members disagree."""
    topics: tuple[str, ...]
    flags: tuple[str, ...]
    """CONFLICT, PINNED, WARMING, DRAINING, DIFFERS, NO MEMBERS, STUCK, BEHIND."""
    loads: tuple[wire.GroupLoad, ...]
    """What it has to read from each broker that knows it; empty: not known."""

    @property
    def lag(self) -> int | None:
        """Number of unread messages; None: not known."""
        return sum(each.lag for each in self.loads) if self.loads else None

    @property
    def put_rate(self) -> float | None:
        """Messages per second that arrive; None: not known."""
        return _sum(each.put_rate for each in self.loads if each.HasField("put_rate"))

    @property
    def commit_rate(self) -> float | None:
        """Messages per second by which its offsets rise; None: not known."""
        return _sum(each.commit_rate for each in self.loads if each.HasField("commit_rate"))

    @property
    def behind_queues(self) -> int:
        """Number of queues in which it falls behind."""
        return sum(each.behind_queue_count for each in self.loads)

    @property
    def stuck_queues(self) -> int:
        """Number of queues in which a member is stuck."""
        return sum(each.stuck_queue_count for each in self.loads)


def _sum(rates: Iterable[float]) -> float | None:
    known = list(rates)
    return sum(known) if known else None


def group_rows(responses: Sequence[tuple[Agent, wire.ListGroupsResponse]], members: Members) -> list[GroupRow]:
    """Return one row per group, sorted by name. Client ids are needed only if several agents know the group."""
    known: dict[str, list[tuple[Agent, GroupState, wire.GroupSummary]]] = defaultdict(list)
    for agent, response in responses:
        for summary in response.groups:
            known[summary.group].append((agent, response.state, summary))
    return [_row(group, known[group], members) for group in sorted(known)]


def shared_groups(responses: Sequence[tuple[Agent, wire.ListGroupsResponse]]) -> dict[Agent, list[str]]:
    """Return the groups of each agent that other agents know, too: their members must be merged."""
    count: dict[str, int] = defaultdict(int)
    for _, response in responses:
        for summary in response.groups:
            count[summary.group] += 1
    return {
        agent: [summary.group for summary in response.groups if count[summary.group] > 1]
        for agent, response in responses
    }


def _row(group: str, known: Sequence[tuple[Agent, GroupState, wire.GroupSummary]], members: Members) -> GroupRow:
    summaries = [summary for _, _, summary in known]
    states = {state for _, state, _ in known}
    listed = {agent: members[agent][group] for agent, _, _ in known if group in members.get(agent, {})}
    is_exact = len(known) == 1 or len(listed) == len(known)
    most = max(summary.members for summary in summaries)
    count = len(frozenset().union(*listed.values()))
    ready = [listed[agent] for agent, state, _ in known if agent in listed and state in RELIABLE]
    models = {enum_name(summary, "message_model") for summary in summaries if summary.message_model}
    loads = tuple(summary.load for summary in summaries if summary.HasField("load"))
    flags = {
        "CONFLICT": len(models) > 1 or any(summary.is_conflicting for summary in summaries),
        "PINNED": any(summary.is_pinned for summary in summaries),
        "WARMING": wire.GROUP_STATE_WARMING in states,
        "DRAINING": wire.GROUP_STATE_DRAINING in states,
        "DIFFERS": len(set(ready)) > 1,
        "NO MEMBERS": not most and states.isdisjoint({wire.GROUP_STATE_WARMING}),
        "STUCK": any(load.stuck_queue_count for load in loads),
        "BEHIND": any(load.behind_queue_count for load in loads),
    }
    return GroupRow(
        group,
        count if listed and is_exact else max(most, count),
        is_exact,
        tuple(agent for agent, _, _ in known),
        tuple(sorted(models)),
        tuple(sorted({topic for summary in summaries for topic in summary.topics})),
        tuple(flag for flag, is_set in flags.items() if is_set),
        loads,
    )


@dataclass(frozen=True, slots=True)
class MemberRow:
    """One member over all agents that know it."""

    client_id: str
    at: tuple[tuple[Agent, wire.GroupMember], ...]
    missing_at: tuple[Agent, ...]
    """Agents that know the group and not this member, except agents whose list is not complete yet."""
    client: str = ""
    """Its language and version, such as ``JAVA 5.3.3``; empty: not known."""

    @property
    def joined_first(self) -> wire.GroupMember:
        """The member at the agent that has known it longest."""
        members = [member for _, member in self.at]
        known = [member for member in members if member.HasField("joined_at")]
        return min(known or members, key=lambda member: member.joined_at.ToNanoseconds())

    @property
    def silent_seconds(self) -> float | None:
        """Seconds since its last heartbeat to any agent; None: RocketMQ brokers do not report it."""
        silences = [seconds_of(member.silent_for) for _, member in self.at if member.HasField("silent_for")]
        return min(silences, default=None)

    @property
    def peers(self) -> tuple[str, ...]:
        """Hosts and ports of its connections."""
        return tuple(dict.fromkeys(member.peer for _, member in self.at))

    @property
    def subscriptions(self) -> tuple[tuple[str, str], ...]:
        """(topic, expression) of its subscriptions, sorted."""
        return tuple(sorted({(each.topic, each.expression) for _, member in self.at for each in member.subscriptions}))

    @property
    def consume_types(self) -> tuple[str, ...]:
        """Its consume types, push or pull."""
        return tuple(sorted({enum_name(member, "consume_type") for _, member in self.at}))

    @property
    def is_connected(self) -> bool:
        """Whether every agent that knows it has its stream open."""
        return all(member.is_connected for _, member in self.at)

    @property
    def is_conflicting(self) -> bool:
        """Whether it differs, at any agent, from what holds in the group."""
        return any(member.is_conflicting for _, member in self.at)

    @property
    def differences(self) -> tuple[str, ...]:
        """In what it differs, as the wire names it."""
        found = {each for _, member in self.at for each in member.differences}
        return tuple(wire.SettingDifference.Name(each).removeprefix("SETTING_DIFFERENCE_") for each in sorted(found))

    @property
    def stands_aside(self) -> bool:
        """Whether it holds no queues because of that."""
        return any(member.stands_aside for _, member in self.at)

    @property
    def settings(self) -> wire.MemberSettings | None:
        """What it states; None: its client or the agents are too old for that, or it reads from a RocketMQ broker."""
        return next((member.settings for _, member in self.at if member.HasField("settings")), None)

    @property
    def strategy(self) -> str:
        """Its allocation strategy with settings; empty: not known."""
        return "" if self.settings is None else strategy_text(self.settings.strategy)


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group over all agents."""

    known: tuple[tuple[Agent, wire.GetGroupResponse], ...]
    unknown_at: tuple[Agent, ...]
    """Agents where it has no members."""
    members: tuple[MemberRow, ...]
    """Sorted by client id."""
    queues: GroupQueuesView
    now: datetime

    @property
    def is_agreed(self) -> bool:
        """Whether all agents with a complete list have the same members."""
        return not any(row.missing_at for row in self.members)

    @property
    def models(self) -> tuple[str, ...]:
        """Message models of the group; more than one: agents disagree."""
        return tuple(sorted({enum_name(response.membership, "message_model") for _, response in self.known}))

    @property
    def pins(self) -> list[tuple[Agent, wire.GroupMembership]]:
        """The agents at which it is pinned, with the pin."""
        return [
            (agent, response.membership)
            for agent, response in self.known
            if response.membership.HasField("pinned_until")
        ]

    @property
    def queue_pins(self) -> list[tuple[Agent, wire.QueuePin]]:
        """The pins of its queues at each agent."""
        return [(agent, pin) for agent, response in self.known for pin in response.membership.queue_pins]


def group_view(responses: Iterable[tuple[Agent, AgentGroup]], queues: GroupQueuesView, *, now: datetime) -> GroupView:
    """Merge the responses about one group."""
    known: list[tuple[Agent, wire.GetGroupResponse]] = []
    unknown_at: list[Agent] = []
    clients: dict[str, str] = {}
    for agent, response in responses:
        clients.update(response.clients)
        if response.group is None:
            unknown_at.append(agent)
        else:
            known.append((agent, response.group))
    members: dict[str, list[tuple[Agent, wire.GroupMember]]] = defaultdict(list)
    for agent, group in known:
        for member in group.members:
            members[member.client_id].append((agent, member))
    ready = [agent for agent, group in known if group.membership.state in RELIABLE]
    rows = []
    for client_id, at in sorted(members.items()):
        has = {agent for agent, _ in at}
        missing_at = tuple(agent for agent in ready if agent not in has)
        rows.append(MemberRow(client_id, tuple(at), missing_at, clients.get(client_id, "")))
    return GroupView(tuple(known), tuple(unknown_at), tuple(rows), queues, now)


def groups_parts(
    responses: Sequence[tuple[Agent, wire.ListGroupsResponse]], rows: Sequence[GroupRow]
) -> Iterable[RenderableType]:
    """Show one row per group, then agents with incomplete lists."""
    if not rows:
        yield Text(f"no consumer group has members at {counted_agents([agent for agent, _ in responses])}")
    else:
        numbers = ("MEMBERS", "AGENTS", "LAG", "IN/S", "OUT/S")
        table = new_table("GROUP", *numbers, "MODEL", "TOPICS", "FLAGS", right=numbers)
        for row in rows:
            table.add_row(
                printable(row.group),
                str(row.members) if row.is_exact else f">={row.members}",
                f"{len(row.agents)}/{len(responses)}",
                "-" if row.lag is None else str(row.lag),
                *("-" if rate is None else rate_text(rate) for rate in (row.put_rate, row.commit_rate)),
                "/".join(row.models) or "-",
                printable(" ".join(row.topics)) or "-",
                _flags(row.flags),
            )
        yield table
    for flag, state in (("WARMING", wire.GROUP_STATE_WARMING), ("DRAINING", wire.GROUP_STATE_DRAINING)):
        agents = [str(agent) for agent, response in responses if response.state == state]
        if agents:
            yield Text(f"{flag}: {', '.join(agents)}", style=_FLAG_STYLES[flag])


def group_parts(view: GroupView) -> Iterable[RenderableType]:
    """Show the members of a group, then disagreements, differing settings and pins."""
    numbers = ("LAST HEARTBEAT", "AGENTS")
    has_clients = any(row.client for row in view.members)
    client = ("CLIENT",) if has_clients else ()
    table = new_table("MEMBER", "PEER", *client, "SINCE (UTC)", *numbers, "SUBSCRIPTIONS", "FLAGS", right=numbers)
    for row in view.members:
        joined = row.joined_first
        table.add_row(
            printable(row.client_id),
            printable(_peer_text(row.peers)),
            *((printable(row.client) or "-",) if has_clients else ()),
            f"{utc_of(joined.joined_at):%Y-%m-%d %H:%M:%S}" if joined.HasField("joined_at") else "-",
            "-" if row.silent_seconds is None else duration_text(row.silent_seconds),
            f"{len(row.at)}/{len(view.known)}",
            printable(", ".join(map(_subscription_text, row.subscriptions))) or "-",
            _flags(member_flags(row, view)),
        )
    yield table
    for flag, sentence in group_disagreements(view):
        yield Text(printable(f"{flag}: {sentence}"), style=_FLAG_STYLES.get(flag, WARNING))
    yield from _agent_remarks(view)
    yield from standing_lines(view.queues)
    where = f"at {len(view.known)} of {counted_agents([agent for agent, _ in view.known] + [*view.unknown_at])}"
    yield Text(f"{counted(len(view.members), 'member')}, {'/'.join(view.models)}, {where}", style="dim")


def group_disagreements(view: GroupView) -> Iterator[tuple[str, str]]:
    """Yield in what agents or members disagree: a flag and a sentence."""
    lacks: dict[Agent, list[str]] = {}
    for row in view.members:
        for agent in row.missing_at:
            lacks.setdefault(agent, []).append(row.client_id)
    for agent, client_ids in lacks.items():
        yield "DIFFERS", f"{agent} does not know {', '.join(client_ids)}"
    if len(view.models) > 1:
        yield "CONFLICT", f"members have different message models: {', '.join(view.models)}"
    for row in view.members:
        if not row.is_conflicting:
            continue
        at = {agent for agent, _ in row.at}
        holder = next((group.holder for agent, group in view.known if agent in at and group.holder), "")
        oldest = f"the oldest member {holder}" if holder else "the member that joined first"
        held = next((each.strategy for each in view.members if each.client_id == holder), "")
        names = [DIFFERENCES.get(each, each) for each in row.differences] or ["subscriptions or message model"]
        strategy = f" ({row.strategy}, not {held})" if "STRATEGY" in row.differences else ""
        if row.stands_aside:
            effect = "it holds no queues"
        elif row.settings is not None:
            effect = f"it follows {oldest}"
        elif not row.differences or "SUBSCRIPTIONS" in row.differences:
            effect = "messages may reach no member"
        else:
            effect = "its client is too old to follow"
        yield "CONFLICT", f"{row.client_id} differs from {oldest} in {', '.join(names)}{strategy}: {effect}"
    unknown = [row.client_id for row in view.members if is_unknown(row, view)]
    if unknown:
        yield "UNKNOWN", f"the clients of {', '.join(unknown)} do not state their settings"


def is_unknown(row: MemberRow, view: GroupView) -> bool:
    """Whether a member does not state its settings beside others that do."""
    return row.settings is None and any(each.settings is not None for each in view.members)


def strategy_text(strategy: wire.AllocationSetting) -> str:
    """Return name and settings of a strategy, for people."""
    return strategy.name if strategy.settings in {"", "{}"} else f"{strategy.name} {strategy.settings}"


def _agent_remarks(view: GroupView) -> Iterator[Text]:
    pins: dict[str, list[Agent]] = {}
    for agent, membership in view.pins:
        to = printable(", ".join(membership.pinned_client_ids)) or "no current member"
        until = f"{utc_of(membership.pinned_until):%Y-%m-%d %H:%M:%S} UTC"
        pins.setdefault(f"PINNED to {to} until {until}", []).append(agent)
    for agent, response in view.known:
        for pin in response.membership.queue_pins:
            pins.setdefault(f"PINNED {_queue_pin_text(pin, response.membership)}", []).append(agent)
    for text, agents in pins.items():
        yield Text(f"{text}: {_listed(agents)}", style=_FLAG_STYLES["PINNED"])
    for agent, group in view.known:
        membership = group.membership
        listed = {*membership.client_ids, *(each.client_id for each in membership.differing if each.stands_aside)}
        late = listed ^ {member.client_id for member in group.members}
        if late:
            names = printable(", ".join(sorted(late)))
            yield Text(f"DELAYED: {agent} has not pushed {names} yet", style=WARNING)
    states = (
        ("WARMING", wire.GROUP_STATE_WARMING, "may not know all members yet"),
        ("DRAINING", wire.GROUP_STATE_DRAINING, "moves its consumers to other brokers"),
    )
    for flag, state, text in states:
        for agent, group in view.known:
            if group.membership.state == state:
                yield Text(f"{flag}: {agent} {text}", style=_FLAG_STYLES[flag])
    if view.unknown_at:
        yield Text(f"no members at {_listed(view.unknown_at)}", style="dim")


def _queue_pin_text(pin: wire.QueuePin, membership: wire.GroupMembership) -> str:
    text = pin_text(pin)
    if not pin.client_id and membership.not_following_queue_pins:
        unable = printable(", ".join(membership.not_following_queue_pins))
        return f"{text} (the clients of {unable} do not follow pins of queues)"
    return text


def pin_text(pin: wire.QueuePin) -> str:
    """Return the pin of a queue, for people."""
    to = f"to {printable(pin.client_id or pin.to)} until {utc_of(pin.until):%Y-%m-%d %H:%M:%S} UTC"
    no_effect = "" if pin.client_id else ", without effect now"
    return f"{pin.topic}/{pin.cluster}/{pin.broker_name}/{pin.queue_id} {to}{no_effect}"


def member_flags(row: MemberRow, view: GroupView) -> Iterator[str]:
    """Yield what is to be noticed about a member."""
    if row.is_conflicting:
        yield "CONFLICT"
    if row.stands_aside:
        yield "ASIDE"
    if is_unknown(row, view):
        yield "UNKNOWN"
    if row.missing_at:
        yield "DIFFERS"
    if not row.is_connected:
        yield "DISCONNECTED"
    joined = row.joined_first
    since = (view.now - utc_of(joined.joined_at)).total_seconds() if joined.HasField("joined_at") else None
    yield from view.queues.flags_of(
        row.client_id, since_seconds=since, is_clustering=view.models == ("CLUSTERING",) and not row.stands_aside
    )


def _flags(flags: Iterable[str]) -> Text:
    return Text(" ").join(Text(flag, style=_FLAG_STYLES.get(flag, WARNING)) for flag in flags) or Text("-")


def _peer_text(peers: Sequence[str]) -> str:
    if len(peers) == 1:
        return peers[0]
    # It has a connection to each broker, each with its own port.
    hosts = list(dict.fromkeys(peer.rpartition(":")[0] for peer in peers))
    more = f" and {len(hosts) - MAX_HOSTS} more" if len(hosts) > MAX_HOSTS else ""
    return " ".join(hosts[:MAX_HOSTS]) + more


def _subscription_text(subscription: tuple[str, str]) -> str:
    topic, expression = subscription
    return topic if expression in {"", "*"} else f"{topic} ({expression})"


def _listed(agents: Iterable[Agent]) -> str:
    return ", ".join(map(str, agents))
