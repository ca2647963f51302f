"""Routes from a RocketMQ name server, as the messages that Pointsman's send."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from pointsman.v1 import broker_pb2, route_service_pb2
from pointsman_client import (
    BrokerData,
    InvalidInputError,
    NameServerClient,
    NameServerFailedError,
    NameServersUnavailableError,
)

ROCKETMQ_SCHEME = "rocketmq://"
"""Before the address of a name server that is queried over the remoting protocol."""


def is_rocketmq(addr: str) -> bool:
    """Return whether an address is that of a RocketMQ name server."""
    return addr.startswith(ROCKETMQ_SCHEME)


class PointsmanRequiredError(InvalidInputError):
    """The command needs what RocketMQ's name servers do not have."""

    code = "POINTSMAN_REQUIRED"

    def __init__(self, addr: str) -> None:
        super().__init__(f"this command requires a name server of Pointsman, got {addr}")


class RocketmqNameServer:
    """One name server. All methods raise NameServerFailedError and RequestRejectedError."""

    def __init__(self, addr: str) -> None:
        self.addr = addr

    async def route(self, topic: str, deadline: float, *, cluster: str, zone: str) -> route_service_pb2.TopicRoute:
        """Return the route of a topic. Raises TopicNotFoundError."""
        async with self._client(deadline) as client:
            route = await client.fetch_route(topic, cluster=cluster, zone=zone)
        return route_service_pb2.TopicRoute(
            topic=topic,
            revision=route_service_pb2.Revision(
                boot=route.revision.boot, counter=route.revision.counter, digest=route.revision.digest
            ),
            queue_datas=[
                route_service_pb2.QueueData(
                    cluster=data.cluster,
                    broker_name=data.broker_name,
                    read_queue_nums=data.read_queue_nums,
                    write_queue_nums=data.write_queue_nums,
                    perm=data.perm,
                    topic_sys_flag=data.topic_sys_flag,
                )
                for data in route.queue_datas
            ],
            broker_datas=map(_to_broker_data, route.broker_datas),
            order_topic_conf=route.order_topic_conf,
        )

    async def topics(self, deadline: float, *, cluster: str) -> route_service_pb2.ListTopicsResponse:
        """Return all topic names, sorted. Raises ClusterNotFoundError."""
        async with self._client(deadline) as client:
            return route_service_pb2.ListTopicsResponse(topics=await client.list_topics(cluster))

    async def clusters(self, deadline: float, *, cluster: str) -> route_service_pb2.GetClusterInfoResponse:
        """Return the clusters, or one. Raises ClusterNotFoundError."""
        async with self._client(deadline) as client:
            found = await client.list_clusters(cluster)
        return route_service_pb2.GetClusterInfoResponse(
            clusters=[
                route_service_pb2.ClusterData(
                    cluster=each.cluster, broker_datas=map(_to_broker_data, each.broker_datas)
                )
                for each in found
            ]
        )

    @asynccontextmanager
    async def _client(self, deadline: float) -> AsyncIterator[NameServerClient]:
        seconds = max(0.001, deadline - asyncio.get_running_loop().time())
        try:
            async with (
                NameServerClient(self.addr, lookup_timeout_seconds=seconds) as client,
                asyncio.timeout_at(deadline),
            ):
                yield client
        except NameServersUnavailableError as error:
            raise error.failures[0] from error
        except TimeoutError:
            raise NameServerFailedError(self.addr, grpc.StatusCode.DEADLINE_EXCEEDED, "no response") from None


def _to_broker_data(data: BrokerData) -> broker_pb2.BrokerData:
    return broker_pb2.BrokerData(
        cluster=data.cluster,
        broker_name=data.broker_name,
        replicas=[
            broker_pb2.BrokerReplica(
                broker_id=replica.broker_id,
                addr=replica.addr,
                state=broker_pb2.BROKER_STATE_UP,
                filter_servers=replica.filter_servers,
            )
            for replica in data.replicas
        ],
        zone=data.zone,
        acting_master=data.acting_master,
    )
