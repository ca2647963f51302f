"""A running fleet changes from grpcio's listener to the lane and back, one restart after the other."""

from __future__ import annotations

import asyncio
import functools
import operator
import struct
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from pointsman.daemon.rpc.listeners import GRPCIO, LANE
from pointsman.http2.frame_codec import Setting
from pointsman.v1.admin_service_pb2 import SetWritePermRequest
from pointsman.v1.admin_service_pb2_grpc import AdminServiceStub
from pointsman_client.client import NameServerClient
from pointsman_client.consumer.push_consumer import PushConsumer
from pointsman_client.core.message import Message, ReceivedMessage
from pointsman_client.core.rebalance import ConsumeFrom
from pointsman_client.producer.producer import Producer
from pointsman_client.redis_streams import RedisStreamsTransport
from tests.kit.agent.process import AgentProcess
from tests.kit.broker.redis.process import free_port
from tests.kit.broker.redis.with_agent import BrokerPlan, redis_broker
from tests.kit.http2.raw_client import raw_client
from tests.kit.name_server.process import RealNameServer
from tests.kit.waiting import eventually, read_until

if TYPE_CHECKING:
    from pointsman.v1.admin_service_pb2_grpc import AdminServiceAsyncStub

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(180)]

BROKERS, CLIENTS = 2, 2
WARM_UP_SECONDS = 5.0
"""Members need a second or two to be back at a restarted agent."""
PATIENCE_SECONDS = 90.0


async def listener_at(addr: str) -> str:
    """By its first frame: only the lane forbids a table of headers."""
    async with raw_client(addr, "") as raw:
        payload = (await raw.frame()).payload
    return LANE if struct.pack(">HL", Setting.HEADER_TABLE_SIZE, 0) in payload else GRPCIO


async def written_brokers(client: NameServerClient) -> int:
    """The number of brokers that producers may use, by the client's own route."""
    return len({queue.broker_name for queue in await client.publish_queues("orders")})


async def until_back(server: RealNameServer) -> None:
    """Wait until agents, and the clients that watch, are connected to a name server."""
    for name, expected in (("keep_alive_streams", BROKERS), ("watchers", CLIENTS)):
        metric = functools.partial(server.metric, f"pointsman_namesrv_{name}")
        await read_until(metric, functools.partial(operator.eq, expected), seconds=PATIENCE_SECONDS)


@pytest.mark.slow
async def test_a_fleet_changes_its_listener_by_restarts_and_loses_nothing(tmp_path: Path) -> None:
    consumed: list[ReceivedMessage] = []

    async def listener(message: ReceivedMessage) -> None:
        consumed.append(message)

    async with AsyncExitStack() as stack:
        server = RealNameServer(tmp_path / "namesrv", settings={"server.listen": f"127.0.0.1:{free_port()}"})
        server.use_listener(GRPCIO)
        stack.push_async_callback(server.kill)
        await server.start()
        agents: list[AgentProcess] = []
        agent_addrs: list[str] = []
        for number in range(BROKERS):
            plan = BrokerPlan(f"broker-{number}", agent_port=free_port(), warm_up_seconds=WARM_UP_SECONDS)
            broker = await stack.enter_async_context(redis_broker(tmp_path / plan.name, plan, [server.addr]))
            agents.append(broker.agent)
            agent_addrs.append(f"127.0.0.1:{plan.agent_port}")
            await broker.agent.stop()
            broker.agent.use_listener(GRPCIO)
            await broker.agent.start()
        client = await stack.enter_async_context(NameServerClient([server.addr]))
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for change in client.route_changes("orders"):
                if change.new is not None and len(change.new.broker_datas) == BROKERS:
                    break
        producer = await stack.enter_async_context(Producer(client, transport=RedisStreamsTransport))
        await stack.enter_async_context(
            PushConsumer(
                [server.addr],
                group="billing",
                subscriptions={"orders": "*"},
                listener=listener,
                transport=RedisStreamsTransport,
                consume_from=ConsumeFrom.FIRST_OFFSET,
            )
        )
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.addr))
        admin: AdminServiceAsyncStub = AdminServiceStub(channel)
        await until_back(server)
        sent: list[str] = []

        async def send_some() -> None:
            for _ in range(20):
                body = f"{len(sent)}"
                await producer.send(Message("orders", body.encode()))
                sent.append(body)
            await eventually(lambda: {message.body.decode() for message in consumed} == set(sent))

        await send_some()
        for chosen in (LANE, GRPCIO):
            server.use_listener(chosen)
            await server.stop()
            await server.start()
            await send_some()
            await until_back(server)
            for agent in agents:
                agent.use_listener(chosen)
                await agent.stop()
                await agent.start()
                await send_some()
            await until_back(server)

            assert {await listener_at(addr) for addr in (server.addr, *agent_addrs)} == {chosen}

            # A change reaches the client by its new watch.
            for writable in (False, True):
                await admin.SetWritePerm(
                    SetWritePermRequest(cluster="c1", broker_name="broker-0", writable=writable, by="test")
                )
                await read_until(
                    lambda: written_brokers(client), functools.partial(operator.eq, BROKERS - (not writable))
                )
            assert client.describe("orders")["watched"]
            await send_some()
        assert {row["event"] for row in server.events()}.isdisjoint({"EXPIRED", "UNREGISTERED"})
