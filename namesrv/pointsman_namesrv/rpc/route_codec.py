"""Routes as bytes ready to send, for the cache and for all watchers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from pointsman.v1 import route_service_pb2 as wire
from pointsman_namesrv.core.departed import AbsentBroker
from pointsman_namesrv.core.replica_state import Phase
from pointsman_namesrv.core.route_table import Route
from pointsman_namesrv.rpc.broker_codec import broker_data, to_identity, to_static_topic_mapping

MAX_ABSENT = 1_000
"""Absent brokers that a route or the list of clusters names at most."""
GONE_DIGEST = b""
"""Digest of a topic without a route."""


@dataclass(frozen=True, slots=True)
class RouteResponse:
    """State of one route."""

    route: bytes
    """A GetTopicRouteResponse with the route. GetTopicRoutesResponse and WatchTopicRoutesResponse use the same field
    number, so these bytes are also a piece of the first and a message of the second."""
    unchanged: bytes
    """The GetTopicRouteResponse for clients that have the digest."""
    counter: int
    digest: bytes


def route_response(route: Route, *, boot: int, unix_offset: float = 0.0) -> RouteResponse:
    """Encode a route with its revision. The digest excludes why brokers are absent, because nodes know that
    differently.

    The digest includes the states of brokers: a client that has the digest has the response. Name servers that see a
    broker differently differ in it until they agree.

    ``unix_offset``: from monotonic seconds to Unix time.
    """
    encoded = wire.TopicRoute(
        topic=route.topic,
        queue_datas=[
            wire.QueueData(
                cluster=key.cluster,
                broker_name=key.broker_name,
                read_queue_nums=queues.read_queue_nums,
                write_queue_nums=queues.write_queue_nums,
                perm=queues.perm,
                topic_sys_flag=queues.topic_sys_flag,
                # A route without weights has the same digest at a name server that does not know them.
                queue_weight=0 if queues.queue_weight == 1 else queues.queue_weight,
            )
            for key, queues in route.queues
        ],
        broker_datas=[broker_data(group) for group in route.groups],
        order_topic_conf=route.order_topic_conf,
        static_topic_mappings=[
            to_static_topic_mapping(mapping, cluster=key.cluster) for key, mapping in route.static_mappings
        ],
    )
    # No map fields, and everything sorted: the same route has the same bytes on every node.
    digest = hashlib.sha256(encoded.SerializeToString(deterministic=True)).digest()[:8]
    revision = wire.Revision(boot=boot, counter=route.counter, digest=digest)
    encoded.revision.CopyFrom(revision)
    encoded.absent_brokers.extend(
        absent_broker(broker, unix_offset=unix_offset) for broker in route.absent[:MAX_ABSENT]
    )
    return RouteResponse(
        wire.GetTopicRouteResponse(route=encoded).SerializeToString(),
        wire.GetTopicRouteResponse(unchanged=revision).SerializeToString(),
        route.counter,
        digest,
    )


def absent_broker(broker: AbsentBroker, *, unix_offset: float) -> wire.AbsentBroker:
    """Encode why a broker is not routed."""
    encoded = wire.AbsentBroker(
        identity=to_identity(broker.identity),
        is_registered=broker.phase is not Phase.GONE,
        reason="" if broker.reason is None else broker.reason.value,
    )
    if broker.since is not None:
        encoded.since.FromMilliseconds(round((broker.since + unix_offset) * 1_000))
    return encoded


def absent_brokers(brokers: Sequence[AbsentBroker], *, unix_offset: float) -> wire.AbsentBrokers:
    """Encode which brokers are not routed, and where their agents serve."""
    return wire.AbsentBrokers(
        brokers=[
            wire.AbsentBrokerAgent(
                broker=absent_broker(broker, unix_offset=unix_offset),
                agent_addr=broker.registration.agent_addr,
                is_rocketmq=broker.registration.from_broker is not None,
            )
            for broker in brokers[:MAX_ABSENT]
        ],
        left_out=max(0, len(brokers) - MAX_ABSENT),
    )


def gone(topic: str, *, boot: int, counter: int) -> bytes:
    """Encode that no broker has a topic."""
    revision = wire.Revision(boot=boot, counter=counter, digest=GONE_DIGEST)
    return wire.WatchTopicRoutesResponse(gone=wire.TopicGone(topic=topic, revision=revision)).SerializeToString()


def absent(topics: list[str], *, boot: int, counter: int) -> bytes:
    """Encode that these topics have no route."""
    revision = wire.Revision(boot=boot, counter=counter, digest=GONE_DIGEST)
    return wire.WatchTopicRoutesResponse(absent=wire.TopicsAbsent(topics=topics, revision=revision)).SerializeToString()


def synced(*, node: str, unchanged: int) -> bytes:
    """Encode the end of a watch's first state."""
    return wire.WatchTopicRoutesResponse(synced=wire.WatchSynced(node=node, unchanged=unchanged)).SerializeToString()
