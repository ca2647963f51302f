"""What a running name server shows of its brokers: over the wire, and in its history."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from pointsman.v1.admin_service_pb2 import ListBrokersRequest
from pointsman.v1.admin_service_pb2_grpc import AdminServiceStub
from pointsman.v1.broker_pb2 import BrokerState, BrokerStatus
from pointsman.v1.route_service_pb2 import GetTopicRouteRequest
from pointsman.v1.route_service_pb2_grpc import RouteServiceStub
from tests.kit.name_server.process import RealNameServer

POLL_SECONDS = 0.05
ON_DISK_SECONDS = 60.0
"""A row reaches the disk within a second or so; this is when a test gives up."""
LEAVES = ("EXPIRED", "UNREGISTERED", "PROBE_FAILED")
ROUTINE = {"TOPICS", "CHECKPOINT", "HEARTBEATS"}


class Look:
    """What a name server returns about its brokers, over a separate connection."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._admin = AdminServiceStub(channel)
        self._route = RouteServiceStub(channel)

    async def brokers(self) -> list[BrokerStatus]:
        """Every known broker."""
        return list((await self._admin.ListBrokers(ListBrokersRequest(page_size=1_000), timeout=60)).brokers)

    async def states(self, cluster: str = "") -> dict[str, int]:
        """How many brokers are in each state."""
        tally: dict[str, int] = {}
        for broker in await self.brokers():
            if not cluster or broker.identity.cluster == cluster:
                name = BrokerState.Name(broker.state).removeprefix("BROKER_STATE_")
                tally[name] = tally.get(name, 0) + 1
        return tally

    async def routed(self, topic: str, cluster: str = "") -> dict[str, str]:
        """State by name of the brokers in the route of a topic; empty without one."""
        try:
            answer = await self._route.GetTopicRoute(GetTopicRouteRequest(topic=topic, cluster=cluster), timeout=60)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return {}
            raise
        return {
            broker.broker_name: BrokerState.Name(replica.state).removeprefix("BROKER_STATE_")
            for broker in answer.route.broker_datas
            for replica in broker.replicas
        }

    async def all_up(self, count: int, *, patience: float) -> None:
        """Wait until that many brokers are known, and all are UP."""
        async with asyncio.timeout(patience):
            while await self.states() != {"UP": count}:  # noqa: ASYNC110  # other processes decide
                await asyncio.sleep(POLL_SECONDS)

    async def leaves_the_routes(self, name: str, *, since: float, patience: float) -> float:
        """Wait until the broker is in no route; return the seconds since then."""
        async with asyncio.timeout(patience):
            while name in await self.routed("orders"):  # noqa: ASYNC110  # another process decides
                await asyncio.sleep(POLL_SECONDS)
        return time.monotonic() - since


@asynccontextmanager
async def look(addr: str) -> AsyncIterator[Look]:
    """Connect to a name server."""
    async with grpc.aio.insecure_channel(addr, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield Look(channel)


def of_broker(server: RealNameServer, name: str) -> list[tuple[str, str]]:
    """The history of one broker: event and reason; without routine rows."""
    return [
        (row["event"], row.get("reason") or "")
        for row in server.events()
        if row.get("broker_name") == name and row["event"] not in ROUTINE
    ]


async def on_disk(server: RealNameServer, name: str, last: tuple[str, str]) -> list[tuple[str, str]]:
    """Wait until the last event of the broker on the disk is that one; return all of them."""
    found: list[tuple[str, str]] = []
    deadline = time.monotonic() + ON_DISK_SECONDS
    while found[-1:] != [last]:
        found = of_broker(server, name)
        assert time.monotonic() < deadline, f"{name}: {found}, the last is not {last}"
        await asyncio.sleep(POLL_SECONDS)
    return found


def removals(server: RealNameServer, name: str) -> int:
    """How often it was removed from the routes."""
    return sum(event in LEAVES for event, _ in of_broker(server, name))
