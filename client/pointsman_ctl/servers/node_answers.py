"""What one name server reports to ``pointsmanctl doctor``: each part by itself, because an older server lacks some."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import route_service_pb2
from pointsman.wire.json_document import enum_name
from pointsman_client import ClusterNotFoundError, PointsmanError, TopicNotFoundError
from pointsman_ctl.servers.name_servers import BrokerHistory, NodeBrokers, NodeDigests, PointsmanNameServer

MAX_LIVE_ROWS = 1_000
"""The most that a name server returns of each list of queues."""
BROKERS, ROUTES, QUEUES, TOPIC, HISTORY = "brokers", "routes and settings", "queues", "the topic", "the broker's events"
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class NodeAnswers:
    """The parts that one name server reported; None: it did not, or was not asked."""

    info: admin.GetNodeInfoResponse
    brokers: NodeBrokers | None = None
    digests: NodeDigests | None = None
    """Only if there are several name servers to compare."""
    queues: admin.ListLiveQueuesResponse | None = None
    route: route_service_pb2.TopicRoute | None = None
    """Of the topic with the given name; None also if it is not known there."""
    history: BrokerHistory | None = None
    """Of the broker with the given name."""
    failures: Mapping[str, PointsmanError] = field(default_factory=dict)
    """By part."""

    @property
    def node(self) -> str:
        """The server's own name."""
        return self.info.node

    @property
    def state(self) -> str:
        """READY, WARMING or DRAINING."""
        return enum_name(self.info, "state")


async def ask_node(
    server: PointsmanNameServer, deadline: float, *, cluster: str, name: str, is_compared: bool
) -> NodeAnswers:
    """Query all parts. Raises NameServerFailedError and RequestRejectedError if the server does not report itself.

    ``name``: of a topic or broker, whichever it is; empty: none. ``is_compared``: with routes and settings.
    """
    info = await server.node_info(deadline)
    failures: dict[str, PointsmanError] = {}

    async def attempt(part: str, call: Awaitable[ResultT]) -> ResultT | None:
        try:
            return await call
        except TopicNotFoundError:
            return None
        except PointsmanError as failure:
            failures[part] = failure
            return None

    async def no_part() -> None:
        return None

    async def live_queues() -> admin.ListLiveQueuesResponse:
        request = admin.ListLiveQueuesRequest(cluster=cluster, limit=MAX_LIVE_ROWS)
        return await server.call(server.admin.ListLiveQueues, request, deadline=deadline)

    brokers, digests, queues, route, history = await asyncio.gather(
        attempt(BROKERS, server.brokers(deadline, cluster=cluster, with_departed=True)),
        attempt(ROUTES, _digests(server, deadline, cluster)) if is_compared else no_part(),
        attempt(QUEUES, live_queues()),
        attempt(TOPIC, server.route(name, deadline, cluster=cluster)) if name else no_part(),
        attempt(HISTORY, server.history(deadline, cluster=cluster, broker_name=name)) if name else no_part(),
    )
    return NodeAnswers(info, brokers, digests, queues, route, history, failures)


async def _digests(server: PointsmanNameServer, deadline: float, cluster: str) -> NodeDigests:
    """Return digests and settings, of one cluster if it is given; keys of the configuration have none."""
    found = await server.digests(deadline)
    if not cluster:
        return found
    try:
        topics = set((await server.topics(deadline, cluster=cluster)).topics)
    except ClusterNotFoundError:
        topics = set()
    digests = {topic: digest for topic, digest in found.digests.items() if topic in topics}
    settings = {key: value for key, value in found.settings.items() if key[0] == "KV" or key[1] == cluster}
    return replace(found, digests=digests, settings=settings)
