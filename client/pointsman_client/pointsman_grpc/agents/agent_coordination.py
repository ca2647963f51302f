"""Coordination of a consumer by the brokers' agents."""

from __future__ import annotations

from functools import partial

from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman_client.core.rebalance import MessageModel
from pointsman_client.pointsman_grpc.agents.group_settings import own_settings
from pointsman_client.pointsman_grpc.agents.membership import AgentMembership
from pointsman_client.pointsman_grpc.agents.offset_store import AgentOffsetStore, PendingOffsets
from pointsman_client.pointsman_grpc.agents.queue_lock import AgentQueueLocks
from pointsman_client.pointsman_grpc.links import AgentLinks
from pointsman_client.ports.coordination import Coordination, CoordinationRequest

LINKS_CLOSE_SECONDS = 1.0


def agent_coordination(request: CoordinationRequest, links: AgentLinks) -> Coordination:
    """Build the coordination by the agents in the routes; it closes ``links``."""
    is_broadcasting = request.message_model is MessageModel.BROADCASTING
    # Members that lease messages may differ in this, since no queues are assigned to them.
    is_push = request.call_listener is not None and not request.leases
    agent_offsets = AgentOffsetStore(request.routes, links, group=request.group, clock=request.clock)
    membership = AgentMembership(
        request.routes,
        links,
        group=request.group,
        client_id=request.client_id,
        consume_type=wire.CONSUME_TYPE_PUSH if is_push else wire.CONSUME_TYPE_PULL,
        message_model=wire.MESSAGE_MODEL_BROADCASTING if is_broadcasting else wire.MESSAGE_MODEL_CLUSTERING,
        settings=own_settings(request.strategy, is_ordered=request.is_ordered, started_at=request.clock.utc_now()),
        subscriptions=request.subscriptions,
        reading=lambda is_wanted: consumer.reading(is_wanted) if (consumer := request.consumer()) is not None else None,
        on_change=request.on_change,
        on_agent_joined=request.on_joined,
        on_reset=lambda is_wanted: consumer.follow_resets(is_wanted) if (consumer := request.consumer()) else None,
        clock=request.clock,
        rng=request.rng,
        on_agent_broken=agent_offsets.distrust,
    )
    return Coordination(
        membership,
        AgentQueueLocks(request.routes, links, group=request.group, client_id=request.client_id),
        request.own_offsets or PendingOffsets(agent_offsets),
        partial(links.close, timeout_seconds=LINKS_CLOSE_SECONDS),
    )
