"""What agents know of consumer groups, as JSON documents: groups, members, locks, offsets. Pure.

The revision's boot is text: a JavaScript reader would round it. Offsets are numbers, as reports reckon with them.
"""

from __future__ import annotations

from collections.abc import Sequence

from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman_client.routes.route_document import Document
from pointsman_client.rpc.wire_time import seconds_of, utc_text
from pointsman_ctl.agent_asking import Asked, to_agents_document
from pointsman_ctl.agent_question import AgentGroup, AgentGroups, AgentLocks, AgentOffsets
from pointsman_ctl.agents import Agent
from pointsman_ctl.group_view import (
    GroupRow,
    GroupView,
    MemberRow,
    consume_type_words,
    model_words,
    state_words,
)
from pointsman_ctl.offset_view import GroupTotal, OffsetRow


def to_groups_document(asked: Asked[AgentGroups], rows: Sequence[GroupRow]) -> Document:
    """Render the groups, and what each agent says of them."""

    def of_agent(answer: AgentGroups) -> Document:
        return {
            "state": state_words(answer.state),
            "groups": [
                {
                    "group": summary.group,
                    "members": summary.members,
                    "messageModel": model_words(summary.message_model),
                    "topics": list(summary.topics),
                    "isConflicting": summary.is_conflicting,
                    "isPinned": summary.is_pinned,
                }
                for summary in answer.groups
            ],
        }

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
    return {"groups": groups, "agents": to_agents_document(asked.answers, of_agent)}


def to_group_document(group: str, asked: Asked[AgentGroup], view: GroupView) -> Document:
    """Render one group: its members, and what each agent says of it."""

    def of_agent(answer: AgentGroup) -> Document:
        return {"group": _to_known_group(answer.group) if answer.group is not None else None}

    return {
        "group": group,
        "isAgreed": view.is_agreed,
        "messageModels": list(view.models),
        "members": [_to_member_row(row) for row in view.members],
        "pins": [
            {
                "agent": agent.addr,
                "pinnedClientIds": list(membership.pinned_client_ids),
                "pinnedUntil": utc_text(membership.pinned_until),
            }
            for agent, membership in view.pins
        ],
        "agents": to_agents_document(asked.answers, of_agent),
    }


def to_locks_document(asked: Asked[AgentLocks]) -> Document:
    """Render the locks, and how long they live at each agent."""

    def of_agent(answer: AgentLocks) -> Document:
        return {"lifetimeSeconds": answer.lifetime, "locks": len(answer.locks)}

    locks = [
        {
            "group": lock.group,
            "topic": lock.queue.topic,
            **_to_where(agent),
            "queueId": lock.queue.queue_id,
            "clientId": lock.client_id,
            "renewedAgoSeconds": seconds_of(lock.renewed_ago),
            "isExpired": seconds_of(lock.renewed_ago) > answer.lifetime,
        }
        for agent, answer in asked.whole
        for lock in answer.locks
    ]
    return {"locks": locks, "agents": to_agents_document(asked.answers, of_agent)}


def to_offsets_document(
    asked: Asked[AgentOffsets], rows: Sequence[OffsetRow], totals: Sequence[GroupTotal]
) -> Document:
    """Render the offsets, their totals, and how safe they are at each agent."""

    def of_agent(answer: AgentOffsets) -> Document:
        return {"durableWithinSeconds": answer.durable_within, "offsets": len(answer.progress)}

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
    in_all = [
        {"group": total.group, "queues": total.queues, "lag": total.lag, "queuesWithoutEnd": total.without_end}
        for total in totals
    ]
    return {"offsets": offsets, "totals": in_all, "agents": to_agents_document(asked.answers, of_agent)}


def _to_where(agent: Agent) -> Document:
    return {"agent": agent.addr, "brokers": list(agent.brokers)}


def _to_member_row(row: MemberRow) -> Document:
    return {
        "clientId": row.client_id,
        "peers": list(row.peers),
        "joinedAt": utc_text(row.joined_first.joined_at),
        "silentSeconds": row.silent_seconds,
        "consumeTypes": list(row.consume_types),
        "subscriptions": [{"topic": topic, "expression": expression} for topic, expression in row.subscriptions],
        "isConnected": row.is_connected,
        "isConflicting": row.is_conflicting,
        "agents": [agent.addr for agent, _ in row.at],
        "missingAt": [agent.addr for agent in row.missing_at],
    }


def _to_known_group(group: wire.GetGroupResponse) -> Document:
    membership = group.membership
    return {
        "state": state_words(membership.state),
        "revision": {"boot": f"{membership.revision.boot:016x}", "counter": membership.revision.counter},
        "messageModel": model_words(membership.message_model),
        "clientIds": list(membership.client_ids),
        "pinnedClientIds": list(membership.pinned_client_ids),
        "pinnedUntil": utc_text(membership.pinned_until) if membership.HasField("pinned_until") else None,
        "notifies": group.notifies,
        "holdDownSeconds": seconds_of(group.hold_down),
        "watchers": group.watchers,
        "members": [
            {
                "clientId": member.client_id,
                "peer": member.peer,
                "consumeType": consume_type_words(member.consume_type),
                "subscriptions": [
                    {"topic": each.topic, "expression": each.expression} for each in member.subscriptions
                ],
                "joinedAt": utc_text(member.joined_at),
                "silentSeconds": seconds_of(member.silent_for),
                "isConnected": member.is_connected,
                "isConflicting": member.is_conflicting,
            }
            for member in group.members
        ],
    }
