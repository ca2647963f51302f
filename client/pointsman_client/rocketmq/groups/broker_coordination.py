"""Coordination of a consumer by RocketMQ brokers."""

from __future__ import annotations

from pointsman_client.ports.coordination import Coordination, CoordinationRequest
from pointsman_client.ports.transport import Transport
from pointsman_client.rocketmq.groups.broker_locks import BrokerQueueLocks
from pointsman_client.rocketmq.groups.broker_membership import BrokerMembership
from pointsman_client.rocketmq.groups.broker_offsets import BrokerOffsetStore
from pointsman_client.rocketmq.groups.broker_requests import BrokerRequests
from pointsman_client.rocketmq.groups.member_links import MemberLinks
from pointsman_client.rocketmq.rocketmq_options import RocketmqOptions


def broker_coordination(request: CoordinationRequest, transport: Transport, options: RocketmqOptions) -> Coordination:
    """Make the coordination of a consumer whose brokers are RocketMQ's.

    Concurrent consumers have no locks, as with RocketMQ's client; see :mod:`broker_locks`.
    """
    requests = BrokerRequests(
        request,
        on_list_changed=lambda: membership.list_changed(),  # noqa: PLW0108  made below
        max_body_bytes=options.max_body_bytes,
    )
    links = MemberLinks(
        options,
        on_request=requests.handle,
        on_lost=lambda addr: membership.connection_lost(addr),  # noqa: PLW0108  made below
    )
    membership = BrokerMembership(
        request.routes,
        links,
        group=request.group,
        client_id=request.client_id,
        is_listener=request.call_listener is not None,
        leases=request.leases,
        retries=request.retries,
        message_model=request.message_model,
        consume_from=request.consume_from,
        subscriptions=request.subscriptions,
        on_change=request.on_change,
        on_joined=request.on_joined,
        clock=request.clock,
    )

    async def close() -> None:
        await requests.close()
        await links.close()

    locks = BrokerQueueLocks(request.routes, links, group=request.group, client_id=request.client_id)
    offsets = request.own_offsets or BrokerOffsetStore(
        request.routes,
        links,
        transport,
        route=request.routes.topic_route,
        group=request.group,
        clock=request.clock,
    )
    return Coordination(membership, locks if request.is_ordered else None, offsets, close, is_rocketmq=True)
