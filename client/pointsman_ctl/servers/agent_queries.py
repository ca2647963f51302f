"""Queries to one agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import grpc

from pointsman.v1 import agent_service_pb2 as agent_wire
from pointsman.v1 import agent_service_pb2_grpc, topic_service_pb2_grpc
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.v1 import offset_service_pb2 as offsets_wire
from pointsman.v1 import queue_lock_service_pb2 as locks_wire
from pointsman_client import RequestRejectedError
from pointsman_client.pointsman_grpc.links import AgentLink

PAGE_SIZE = 1_000


@dataclass(frozen=True, slots=True)
class AgentGroup:
    """One group at an agent."""

    group: wire.GetGroupResponse | None
    """None: it has no members there."""
    clients: Mapping[str, str] = field(default_factory=dict)
    """Language and version by client id, such as ``JAVA 5.3.3``; only RocketMQ brokers know them."""
    has_retry_subscription: bool | None = None
    """Whether members subscribe to the group's retry topic; None: an agent does not know it."""

    @property
    def reads_retries(self) -> bool:
        """Whether a member reads the group's retry topic: one with a listener that is not ordered."""
        if self.has_retry_subscription is not None:
            return self.has_retry_subscription
        members = self.group.members if self.group is not None else ()
        return any(each.consume_type != wire.CONSUME_TYPE_PULL and not each.settings.is_ordered for each in members)


@dataclass(frozen=True, slots=True)
class QueueCache:
    """What a client of RocketMQ's protocol reports of a queue that it reads."""

    client_id: str
    cached: int
    """Messages that it has pulled and not finished."""
    since_pull_seconds: float | None
    """Time since its last pull, by its clock; None: it does not report it."""


@dataclass(frozen=True, slots=True)
class AgentQueues:
    """The queues of one group at an agent."""

    response: wire.ListGroupQueuesResponse
    caches: Mapping[tuple[str, int], QueueCache] = field(default_factory=dict)
    """By topic and queue id, of queues whose client responded; only RocketMQ brokers pass this on."""


class AgentServer(AgentLink):
    """One agent. All methods raise AgentFailedError and RequestRejectedError.

    :class:`~pointsman_ctl.servers.rocketmq_broker.RocketmqBroker` has the same queries for groups and offsets.
    """

    knows_readers = True
    """Whether :meth:`group_queues` says who reads a queue."""

    def __init__(self, addr: str, channel: grpc.aio.Channel, version: int) -> None:
        super().__init__(addr, channel, version)
        self.agent = agent_service_pb2_grpc.AgentServiceStub(channel)
        self.topics = topic_service_pb2_grpc.TopicServiceStub(channel)

    async def info(self, deadline: float) -> agent_wire.GetAgentInfoResponse:
        """Return the state of the agent's broker."""
        return await self.call(self.agent.GetAgentInfo, agent_wire.GetAgentInfoRequest(), deadline=deadline)

    async def list_groups(self, deadline: float, *, with_loads: bool = False) -> wire.ListGroupsResponse:  # noqa: ARG002  # agents know the loads in any case
        """Return all groups; ``with_loads``: and what they have to read."""
        request = wire.ListGroupsRequest(page_size=PAGE_SIZE)
        return await self.all_pages(self.groups.ListGroups, request, deadline=deadline)

    async def group(self, group: str, deadline: float) -> AgentGroup:
        """Return one group."""
        try:
            response = await self.call(self.groups.GetGroup, wire.GetGroupRequest(group=group), deadline=deadline)
        except RequestRejectedError as refusal:
            if refusal.status is grpc.StatusCode.NOT_FOUND:
                return AgentGroup(None)
            raise
        return AgentGroup(response)

    async def group_queues(self, group: str, deadline: float) -> AgentQueues:
        """Return the queues of a group, and what its members report of themselves."""
        request = wire.ListGroupQueuesRequest(group=group, page_size=PAGE_SIZE)
        return AgentQueues(await self.all_pages(self.groups.ListGroupQueues, request, deadline=deadline))

    async def list_locks(self, group: str, deadline: float) -> locks_wire.ListQueueLocksResponse:
        """Return the locks of a group; of all groups if ``group`` is empty."""
        request = locks_wire.ListQueueLocksRequest(group=group, page_size=PAGE_SIZE)
        return await self.all_pages(self.locks.ListQueueLocks, request, deadline=deadline)

    async def list_offsets(self, group: str, deadline: float) -> offsets_wire.ListOffsetsResponse:
        """Return the offsets of a group; of all groups if ``group`` is empty."""
        request = offsets_wire.ListOffsetsRequest(group=group, page_size=PAGE_SIZE)
        return await self.all_pages(self.offsets.ListOffsets, request, deadline=deadline)
