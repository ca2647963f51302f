"""Coordination of a consumer: by the brokers' agents, and for broadcasting with its own offset file."""

from __future__ import annotations

import asyncio

from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman_client.consumer.agents.group_settings import own_settings
from pointsman_client.consumer.agents.membership import AgentMembership
from pointsman_client.consumer.agents.offset_store import AgentOffsetStore, PendingOffsets
from pointsman_client.consumer.agents.queue_lock import AgentQueueLocks
from pointsman_client.consumer.coordination import Coordination, CoordinationRequest
from pointsman_client.consumer.file_offset_store import FileOffsetStore
from pointsman_client.core.rebalance import MessageModel
from pointsman_client.rpc.links import AgentLinks

LINKS_CLOSE_SECONDS = 1.0


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
        consume_type=wire.CONSUME_TYPE_PUSH if request.call_listener is not None else wire.CONSUME_TYPE_PULL,
        message_model=wire.MESSAGE_MODEL_BROADCASTING if is_broadcasting else wire.MESSAGE_MODEL_CLUSTERING,
        settings=own_settings(request.strategy, is_ordered=request.is_ordered, started_at=request.clock.utc_now()),
        subscriptions=request.subscriptions,
        on_change=request.on_change,
        on_agent_joined=request.on_joined,
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
