"""What is asked of one agent, whole: page after page where the answer comes in pages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import grpc

from pointsman.v1 import consumer_group_service_pb2 as groups_wire
from pointsman.v1 import offset_service_pb2 as offsets_wire
from pointsman.v1 import queue_lock_service_pb2 as locks_wire
from pointsman_client.errors import PointsmanError, RequestRejectedError
from pointsman_client.rpc.agent_link import AgentLink
from pointsman_client.rpc.wire_time import seconds_of

PAGE_SIZE = 1_000
CALLS_AT_ONCE = 8
"""To one agent, which has consumers to serve."""

GroupState: TypeAlias = "groups_wire.GroupState.ValueType"


@dataclass(frozen=True, slots=True)
class AgentGroups:
    """The groups of an agent."""

    state: GroupState
    groups: list[groups_wire.GroupSummary]


@dataclass(frozen=True, slots=True)
class AgentGroup:
    """One group at an agent."""

    group: groups_wire.GetGroupResponse | None
    """None: nobody is in it there."""


@dataclass(frozen=True, slots=True)
class AgentLocks:
    """The locks of an agent."""

    lifetime: float
    """Seconds."""
    locks: list[locks_wire.QueueLock]


@dataclass(frozen=True, slots=True)
class AgentOffsets:
    """The committed offsets of an agent."""

    durable_within: float | None
    """Seconds; None: each commit is written at once."""
    progress: list[offsets_wire.QueueProgress]


async def groups_of(link: AgentLink, deadline: float) -> AgentGroups:
    """Ask for all groups."""
    request = groups_wire.ListGroupsRequest(page_size=PAGE_SIZE)
    groups: list[groups_wire.GroupSummary] = []
    while True:
        page = await link.call(link.groups.ListGroups, request, deadline=deadline)
        groups += page.groups
        if not page.next_page_token:
            return AgentGroups(page.state, groups)
        request.page_token = page.next_page_token


async def group_of(link: AgentLink, deadline: float, group: str) -> AgentGroup:
    """Ask for one group."""
    try:
        request = groups_wire.GetGroupRequest(group=group)
        answer = await link.call(link.groups.GetGroup, request, deadline=deadline)
    except RequestRejectedError as refusal:
        if refusal.status is grpc.StatusCode.NOT_FOUND:
            return AgentGroup(None)
        raise
    return AgentGroup(answer)


async def members_of(link: AgentLink, deadline: float, groups: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """Ask for the client ids of several groups; those that were not told before ``deadline`` are absent."""
    at_once = asyncio.Semaphore(CALLS_AT_ONCE)
    members: dict[str, frozenset[str]] = {}

    async def one(group: str) -> None:
        async with at_once:
            try:
                found = (await group_of(link, deadline, group)).group
            except PointsmanError:
                return
        members[group] = frozenset(member.client_id for member in found.members) if found else frozenset()

    await asyncio.gather(*map(one, groups))
    return members


async def locks_of(link: AgentLink, deadline: float, group: str) -> AgentLocks:
    """Ask for the locks of a group; empty: of all."""
    request = locks_wire.ListQueueLocksRequest(group=group, page_size=PAGE_SIZE)
    locks: list[locks_wire.QueueLock] = []
    while True:
        page = await link.call(link.locks.ListQueueLocks, request, deadline=deadline)
        locks += page.locks
        if not page.next_page_token:
            return AgentLocks(seconds_of(page.lifetime), locks)
        request.page_token = page.next_page_token


async def offsets_of(link: AgentLink, deadline: float, group: str) -> AgentOffsets:
    """Ask for the offsets of a group; empty: of all."""
    request = offsets_wire.ListOffsetsRequest(group=group, page_size=PAGE_SIZE)
    progress: list[offsets_wire.QueueProgress] = []
    while True:
        page = await link.call(link.offsets.ListOffsets, request, deadline=deadline)
        progress += page.progress
        if not page.next_page_token:
            durable = seconds_of(page.durable_within) if page.HasField("durable_within") else None
            return AgentOffsets(durable, progress)
        request.page_token = page.next_page_token
