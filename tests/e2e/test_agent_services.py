"""An agent as a process next to a real Redis: its services, at the address in the route, and its drain."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from pointsman.v1 import agent_service_pb2 as agent
from pointsman.v1 import consumer_group_service_pb2 as groups
from pointsman.v1 import offset_service_pb2 as offsets
from pointsman.v1 import queue_lock_service_pb2 as locks
from pointsman.v1.agent_service_pb2_grpc import AgentServiceStub
from pointsman.v1.consumer_group_service_pb2_grpc import ConsumerGroupServiceStub
from pointsman.v1.offset_service_pb2_grpc import OffsetServiceStub
from pointsman.v1.queue_lock_service_pb2_grpc import QueueLockServiceStub
from pointsman.v1.route_service_pb2 import GetTopicRouteRequest
from pointsman.v1.route_service_pb2_grpc import RouteServiceStub
from pointsman_agent.config import (
    AgentConfig,
    BrokerSection,
    GroupsSection,
    HeartbeatSection,
    MonitoringSection,
    NameServersSection,
    OffsetsSection,
    ProbeSection,
    QueueStatsSection,
    RpcSection,
    TopicsSection,
)
from tests.kit.agent.process import agent_process
from tests.kit.broker.redis.process import RedisProcess, redis_process
from tests.kit.ctl.command import ctl
from tests.kit.name_server.process import RealNameServer, real_name_server
from tests.kit.waiting import eventually, read_until

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(240)]

PATIENCE_SECONDS = 90.0
UNREAD_SINCE = 1_700_000_000
"""Seconds since 1970."""


def config(name_server: str, redis: RedisProcess) -> AgentConfig:
    return AgentConfig(
        broker=BrokerSection(cluster="c1", name="a", addr=redis.addr),
        name_servers=NameServersSection(addrs=(name_server,)),
        heartbeat=HeartbeatSection(interval_seconds=1.0, expiry_seconds=10.0),
        probe=ProbeSection(kind="redis", interval_seconds=0.2),
        topics=TopicsSection(source="redis", check_interval_seconds=0.2),
        rpc=RpcSection(listen="127.0.0.1:0", grace_seconds=1.0),
        groups=GroupsSection(warm_up_seconds=0.0),
        offsets=OffsetsSection(flush_interval_seconds=0.1),
        queue_stats=QueueStatsSection(interval_seconds=1.0),
        monitoring=MonitoringSection(listen="127.0.0.1:0"),
    )


async def agent_addr(server: RealNameServer) -> str:
    """Wait for the broker's agent in the route of ``orders``; return its address."""
    async with grpc.aio.insecure_channel(server.addr) as channel, asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                answer = await RouteServiceStub(channel).GetTopicRoute(GetTopicRouteRequest(topic="orders"))
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.NOT_FOUND:
                    raise
            else:
                if answer.route.broker_datas:
                    return answer.route.broker_datas[0].replicas[0].agent_addr
            await asyncio.sleep(0.1)


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[tuple[RealNameServer, RedisProcess]]:
    """A name server, and a Redis with a stream of two queues."""
    async with real_name_server(folder / "namesrv") as server, redis_process(folder / "redis") as redis:
        for queue in range(2):
            await redis.command("XADD", f"orders:queue:{queue}", "0-*", "k", "v")
        yield server, redis


async def test_consumers_find_the_agent_by_the_route_and_offsets_outlive_its_death(tmp_path: Path) -> None:
    async with world(tmp_path) as (server, redis):
        async with (
            agent_process(tmp_path / "first", config(server.addr, redis)),
            grpc.aio.insecure_channel(await agent_addr(server)) as channel,
        ):
            members = ConsumerGroupServiceStub(channel)
            subscription = groups.GroupSubscription(
                group="billing",
                consume_type=groups.CONSUME_TYPE_PUSH,
                message_model=groups.MESSAGE_MODEL_CLUSTERING,
                subscriptions=[groups.Subscription(topic="orders", expression="*")],
            )
            held = members.KeepMembership()
            await held.write(groups.KeepMembershipRequest(client_id="10.0.0.9@1", groups=[subscription]))
            answer = await held.read()
            assert isinstance(answer, groups.KeepMembershipResponse)
            assert answer.status == groups.MEMBERSHIP_STATUS_OK
            shown = await members.GetGroup(groups.GetGroupRequest(group="billing"))
            assert list(shown.membership.client_ids) == ["10.0.0.9@1"]

            queue = locks.LockedQueue(topic="orders", queue_id=1)
            granted = await QueueLockServiceStub(channel).LockQueues(
                locks.LockQueuesRequest(group="billing", client_id="10.0.0.9@1", queues=[queue])
            )
            assert list(granted.granted) == [queue]

            committed = offsets.QueueOffset(topic="orders", queue_id=1, offset=1)
            await OffsetServiceStub(channel).CommitOffsets(
                offsets.CommitOffsetsRequest(group="billing", offsets=[committed]), wait_for_ready=True
            )
            await read_until(
                lambda: redis.command("HEXISTS", "pointsman:offsets:billing", "orders:1"),
                lambda found: found == ":1",
                seconds=PATIENCE_SECONDS,
            )
            await redis.command("XADD", "orders:queue:1", "0-*", "k", "v", "born_at", str(UNREAD_SINCE * 1_000))
            queues = await read_until(
                lambda: ctl("--namesrv", server.addr, "--output", "json", "queues"),
                lambda printed: any(lag["lag"] == 1 for lag in printed.document["nodes"][0]["lags"]),
                seconds=PATIENCE_SECONDS,
            )
            (node,) = queues.document["nodes"]
            (lag,) = node["lags"]
            assert (lag["group"], lag["topic"], lag["queueId"]) == ("billing", "orders", 1)
            assert lag["oldestUnreadSeconds"] > time.time() - UNREAD_SINCE - 60
            assert [(each["topic"], each["queueCount"], each["depth"]) for each in node["topics"]] == [("orders", 2, 3)]
            assert [(each["group"], each["memberCount"]) for each in node["groups"]] == [("billing", 1)]
            assert node["measuredBrokerCount"] == node["brokerCount"] == 1
            held.cancel()
        async with (
            agent_process(tmp_path / "second", config(server.addr, redis)),
            asyncio.timeout(PATIENCE_SECONDS),
        ):
            found = None
            while found is None:
                try:
                    async with grpc.aio.insecure_channel(await agent_addr(server)) as channel:
                        found = await OffsetServiceStub(channel).GetOffsets(
                            offsets.GetOffsetsRequest(group="billing", queues=[committed])
                        )
                except grpc.aio.AioRpcError as error:  # the route still names the first, or the second still loads
                    if error.code() is not grpc.StatusCode.UNAVAILABLE:
                        raise
                    await asyncio.sleep(0.1)
            assert [(each.topic, each.queue_id, each.offset) for each in found.offsets] == [("orders", 1, 1)]


async def test_a_drain_removes_the_broker_step_by_step_and_the_history_has_each_step(tmp_path: Path) -> None:
    async with world(tmp_path) as (server, redis), agent_process(tmp_path / "agent", config(server.addr, redis)):
        async with grpc.aio.insecure_channel(await agent_addr(server)) as channel:
            request = agent.DrainRequest(by="ann")
            request.quiet.FromMilliseconds(500)
            request.producers_timeout.FromSeconds(10)
            steps = [news async for news in AgentServiceStub(channel).Drain(request, timeout=PATIENCE_SECONDS)]
            done = [news.step for news in steps if news.state == agent.DRAIN_STEP_STATE_DONE]
            assert done == [
                agent.DRAIN_STEP_WIPE_WRITE_PERM,
                agent.DRAIN_STEP_WAIT_FOR_PRODUCERS,
                agent.DRAIN_STEP_WAIT_FOR_CONSUMERS,
                agent.DRAIN_STEP_STOP_GROUPS,
                agent.DRAIN_STEP_UNREGISTER,
            ]
            info = await AgentServiceStub(channel).GetAgentInfo(agent.GetAgentInfoRequest())
            assert info.drain == "drained"
        await eventually(lambda: server.events("UNREGISTERED"), seconds=PATIENCE_SECONDS)
        assert [row["reason"] for row in server.events("UNREGISTERED")] == ["DRAIN"]
        assert any(row["event"] == "QUEUE_STATS" for row in server.events("QUEUE_STATS"))
