"""Consumer groups put together from what each agent knows of them: agents share nothing, and may disagree. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman_client.rpc.wire_time import seconds_of
from pointsman_ctl.agent_question import AgentGroup, AgentGroups, GroupState
from pointsman_ctl.agents import Agent

Members: TypeAlias = "Mapping[Agent, Mapping[str, frozenset[str]]]"
"""Client ids by agent and group, where they were asked for and told."""


RELIABLE = frozenset({wire.GROUP_STATE_READY, wire.GROUP_STATE_RECOVERED})
"""States of an agent or group whose list of members is complete."""


def state_words(state: GroupState) -> str:
    """Name a state; one that is newer than this program is a number."""
    known = state in wire.GroupState.values()
    return wire.GroupState.Name(state).removeprefix("GROUP_STATE_") if known else str(state)


def model_words(model: wire.MessageModel.ValueType) -> str:
    """Name a message model; one that is newer than this program is a number."""
    known = model in wire.MessageModel.values()
    return wire.MessageModel.Name(model).removeprefix("MESSAGE_MODEL_") if known else str(model)


def consume_type_words(consume_type: wire.ConsumeType.ValueType) -> str:
    """Name how messages come to a consumer; one that is newer than this program is a number."""
    known = consume_type in wire.ConsumeType.values()
    return wire.ConsumeType.Name(consume_type).removeprefix("CONSUME_TYPE_") if known else str(consume_type)


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group over all agents."""

    group: str
    members: int
    """All client ids together; at least so many where ``is_exact`` is false."""
    is_exact: bool
    agents: tuple[Agent, ...]
    """Those that know it."""
    models: tuple[str, ...]
    """More than one: agents or members share differently."""
    topics: tuple[str, ...]
    flags: tuple[str, ...]
    """CONFLICT, PINNED, WARMING, DRAINING, DIFFERS."""


def group_rows(answers: Sequence[tuple[Agent, AgentGroups]], members: Members) -> list[GroupRow]:
    """Return one row a group, sorted by name. One that a single agent knows needs no client ids to be counted."""
    known: dict[str, list[tuple[Agent, GroupState, wire.GroupSummary]]] = defaultdict(list)
    for agent, answer in answers:
        for summary in answer.groups:
            known[summary.group].append((agent, answer.state, summary))
    return [_row(group, known[group], members) for group in sorted(known)]


def shared_groups(answers: Sequence[tuple[Agent, AgentGroups]]) -> dict[Agent, list[str]]:
    """Return which groups of each agent others know as well: their members must be put together."""
    count: dict[str, int] = defaultdict(int)
    for _, answer in answers:
        for summary in answer.groups:
            count[summary.group] += 1
    return {
        agent: [summary.group for summary in answer.groups if count[summary.group] > 1] for agent, answer in answers
    }


def _row(group: str, known: Sequence[tuple[Agent, GroupState, wire.GroupSummary]], members: Members) -> GroupRow:
    summaries = [summary for _, _, summary in known]
    states = {state for _, state, _ in known}
    told = {agent: members[agent][group] for agent, _, _ in known if group in members.get(agent, {})}
    is_exact = len(known) == 1 or len(told) == len(known)
    most = max(summary.members for summary in summaries)
    count = len(frozenset().union(*told.values()))
    ready = [told[agent] for agent, state, _ in known if agent in told and state in RELIABLE]
    models = {model_words(summary.message_model) for summary in summaries}
    flags = {
        "CONFLICT": len(models) > 1 or any(summary.is_conflicting for summary in summaries),
        "PINNED": any(summary.is_pinned for summary in summaries),
        "WARMING": wire.GROUP_STATE_WARMING in states,
        "DRAINING": wire.GROUP_STATE_DRAINING in states,
        "DIFFERS": len(set(ready)) > 1,
    }
    return GroupRow(
        group,
        count if told and is_exact else max(most, count),
        is_exact,
        tuple(agent for agent, _, _ in known),
        tuple(sorted(models)),
        tuple(sorted({topic for summary in summaries for topic in summary.topics})),
        tuple(flag for flag, is_set in flags.items() if is_set),
    )


@dataclass(frozen=True, slots=True)
class MemberRow:
    """One member over all agents that know it."""

    client_id: str
    at: tuple[tuple[Agent, wire.GroupMember], ...]
    missing_at: tuple[Agent, ...]
    """Agents that know the group and not this member, those aside that do not know everybody yet."""

    @property
    def joined_first(self) -> wire.GroupMember:
        """As the agent sees it that has known it for longest."""
        return min((member for _, member in self.at), key=lambda member: member.joined_at.ToNanoseconds())

    @property
    def silent_seconds(self) -> float:
        """Since its last beat anywhere."""
        return min(seconds_of(member.silent_for) for _, member in self.at)

    @property
    def peers(self) -> tuple[str, ...]:
        """Hosts and ports that its connections come from."""
        return tuple(dict.fromkeys(member.peer for _, member in self.at))

    @property
    def subscriptions(self) -> tuple[tuple[str, str], ...]:
        """(topic, expression) of all that it reads, sorted."""
        return tuple(sorted({(each.topic, each.expression) for _, member in self.at for each in member.subscriptions}))

    @property
    def consume_types(self) -> tuple[str, ...]:
        """How messages come to it."""
        return tuple(sorted({consume_type_words(member.consume_type) for _, member in self.at}))

    @property
    def is_connected(self) -> bool:
        """Whether every agent that knows it has its stream open."""
        return all(member.is_connected for _, member in self.at)

    @property
    def is_conflicting(self) -> bool:
        """Whether it subscribes otherwise than the member that joined first, by any agent's word."""
        return any(member.is_conflicting for _, member in self.at)


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group over all agents."""

    known: tuple[tuple[Agent, wire.GetGroupResponse], ...]
    unknown_at: tuple[Agent, ...]
    """Agents where nobody is in it."""
    members: tuple[MemberRow, ...]
    """Sorted by client id."""

    @property
    def is_agreed(self) -> bool:
        """Whether all agents that know everybody know the same members."""
        return not any(row.missing_at for row in self.members)

    @property
    def models(self) -> tuple[str, ...]:
        """How its members share messages; more than one: agents disagree."""
        return tuple(sorted({model_words(answer.membership.message_model) for _, answer in self.known}))

    @property
    def pins(self) -> list[tuple[Agent, wire.GroupMembership]]:
        """Where it is pinned, and how."""
        return [
            (agent, answer.membership) for agent, answer in self.known if answer.membership.HasField("pinned_until")
        ]


def group_view(answers: Iterable[tuple[Agent, AgentGroup]]) -> GroupView:
    """Put one group together."""
    known: list[tuple[Agent, wire.GetGroupResponse]] = []
    unknown_at: list[Agent] = []
    for agent, answer in answers:
        if answer.group is None:
            unknown_at.append(agent)
        else:
            known.append((agent, answer.group))
    members: dict[str, list[tuple[Agent, wire.GroupMember]]] = defaultdict(list)
    for agent, group in known:
        for member in group.members:
            members[member.client_id].append((agent, member))
    ready = [agent for agent, group in known if group.membership.state in RELIABLE]
    rows = []
    for client_id, at in sorted(members.items()):
        has = {agent for agent, _ in at}
        rows.append(MemberRow(client_id, tuple(at), tuple(agent for agent in ready if agent not in has)))
    return GroupView(tuple(known), tuple(unknown_at), tuple(rows))
