"""Coordination of a consumer: by the brokers' agents, and for broadcasting with its own offset file."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.wire.clock import Clock
from pointsman_client.client import NameServerClient
from pointsman_client.consumer.agents.membership import AgentMembership
from pointsman_client.consumer.agents.offset_store import AgentOffsetStore, PendingOffsets
from pointsman_client.consumer.agents.queue_lock import AgentQueueLocks
from pointsman_client.consumer.coordination import GroupMembership, OffsetStore, QueueLocks
from pointsman_client.consumer.file_offset_store import FileOffsetStore
from pointsman_client.core.rebalance import MessageModel
from pointsman_client.rpc.links import AgentLinks

LINKS_CLOSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinationRequest:
    """What a coordination is built from."""

    client: NameServerClient
    group: str
    client_id: str
    is_listener: bool
    """Whether the consumer has a listener (RocketMQ CONSUME_PASSIVELY) or pulls (CONSUME_ACTIVELY)."""
    message_model: MessageModel
    subscriptions: Callable[[], Mapping[str, str]]
    """Returns the current subscriptions: topic to tag expression."""
    on_change: Callable[[], None]
    """To be called when the members may have changed."""
    on_agent_joined: Callable[[], None]
    """To be called when an agent accepts this client, for the first time or again; it may have lost its state."""
    offset_file: Path
    """Offset file of a broadcasting consumer."""
    clock: Clock
    rng: random.Random


@dataclass(frozen=True, slots=True)
class Coordination:
    """Membership, locks and offsets of one consumer."""

    membership: GroupMembership
    locks: QueueLocks | None
    """None: every member reads all queues."""
    offsets: OffsetStore
    close: Callable[[], Awaitable[None]]
    """Called last."""


MakeCoordination = Callable[[CoordinationRequest], Coordination]


def agent_coordination(request: CoordinationRequest) -> Coordination:
    """Build the default coordination, by the agents in the routes."""
    links = AgentLinks(request.client.open_channel, request.client.channel_opener)
    is_broadcasting = request.message_model is MessageModel.BROADCASTING
    agent_offsets = AgentOffsetStore(request.client, links, group=request.group, clock=request.clock)
    membership = AgentMembership(
        request.client,
        links,
        group=request.group,
        client_id=request.client_id,
        consume_type=wire.CONSUME_TYPE_PUSH if request.is_listener else wire.CONSUME_TYPE_PULL,
        message_model=wire.MESSAGE_MODEL_BROADCASTING if is_broadcasting else wire.MESSAGE_MODEL_CLUSTERING,
        subscriptions=request.subscriptions,
        on_change=request.on_change,
        on_agent_joined=request.on_agent_joined,
        clock=request.clock,
        rng=request.rng,
        on_agent_broken=agent_offsets.distrust,
    )

    async def close() -> None:
        await links.close(timeout_seconds=LINKS_CLOSE_SECONDS)

    if is_broadcasting:
        file = FileOffsetStore(request.offset_file, clock=request.clock)

        async def close_file_too() -> None:
            await asyncio.gather(close(), file.close())

        return Coordination(membership, None, file, close_file_too)
    return Coordination(
        membership,
        AgentQueueLocks(request.client, links, group=request.group, client_id=request.client_id),
        PendingOffsets(agent_offsets),
        close,
    )
