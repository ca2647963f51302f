"""When a wipe of the write permission ends: a real agent, a probe of each kind, a broker that stops and starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration
from prometheus_client import CollectorRegistry

from pointsman.clock import SystemClock
from pointsman.v1 import agent_service_pb2 as agent_wire
from pointsman.v1.admin_service_pb2 import ListBrokersRequest, SetWritePermRequest
from pointsman.v1.admin_service_pb2_grpc import AdminServiceStub
from pointsman.v1.agent_service_pb2_grpc import AgentServiceStub
from pointsman.v1.route_service_pb2 import GetTopicRouteRequest
from pointsman.v1.route_service_pb2_grpc import RouteServiceStub
from pointsman_agent.config import AgentConfig, HeartbeatSection, OffsetsSection, ProbeSection, RpcSection
from pointsman_agent.probe.configured import build_probe
from pointsman_namesrv.app import NameServerApp
from tests.kit.agent.in_process import PATIENCE_SECONDS, RunningAgent, agent_config, running_agent
from tests.kit.agent.probed_servers import SERVERS
from tests.kit.broker.redis.process import RedisProcess, free_port
from tests.kit.name_server.in_process import running_name_server

KINDS_WITHOUT_INCARNATION = [*SERVERS, "exec"]
READ, READ_WRITE = 4, 6


class Broker:
    """A broker that a probe of one kind can see, at one address for all of its processes."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind = kind
        self._folder = folder
        self._marker = folder / "runs"
        self._stack = AsyncExitStack()
        self._redis = RedisProcess(folder / "redis") if kind == "redis" else None
        self.target = self._redis.addr if self._redis else f"127.0.0.1:{free_port()}"

    def configured(self, name_server: str) -> AgentConfig:
        command = ("test", "-e", str(self._marker)) if self._kind == "exec" else ()
        target = "" if self._kind in {"none", "exec"} else self.target
        return replace(
            agent_config([name_server]),
            probe=ProbeSection(kind=self._kind, target=target, interval_seconds=0.1, command=command),
            heartbeat=HeartbeatSection(interval_seconds=1.0, expiry_seconds=60.0),
            rpc=RpcSection(listen="127.0.0.1:0", grace_seconds=0.1),
            offsets=OffsetsSection(path=str(self._folder / "offsets.db")),
        )

    async def start(self) -> None:
        if self._redis is not None:
            await self._redis.start()
            self._stack.callback(self._redis.kill)
        elif self._kind in SERVERS:
            await self._stack.enter_async_context(SERVERS[self._kind](self.target))
        else:
            self._marker.touch()
            self._stack.callback(self._marker.unlink)

    async def stop(self) -> None:
        await self._stack.aclose()


class Rig:
    """One name server, one broker, and its agents one after another."""

    def __init__(self, app: NameServerApp, broker: Broker, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._config = broker.configured(app.addr)

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[RunningAgent]:
        """Run the next agent, from when it is routed."""
        before = await self.generation()
        registry = CollectorRegistry()
        probe = build_probe(self._config, clock=SystemClock(), registry=registry)
        async with running_agent(self._config, probe=probe) as agent:
            while await self.generation() in {0, before}:  # noqa: ASYNC110  # the name server is queried over gRPC
                await asyncio.sleep(0.01)
            yield agent

    async def generation(self) -> int:
        listed = await AdminServiceStub(self._channel).ListBrokers(ListBrokersRequest(page_size=10))
        return listed.brokers[0].generation if listed.brokers else 0

    async def wipe(self) -> None:
        request = SetWritePermRequest(cluster="c1", broker_name="a", writable=False, by="ann")
        assert (await AdminServiceStub(self._channel).SetWritePerm(request)).changed
        assert await self.perm() == READ

    async def drain(self) -> None:
        listed = await AdminServiceStub(self._channel).ListBrokers(ListBrokersRequest(page_size=10))
        async with grpc.aio.insecure_channel(listed.brokers[0].agent_addr) as channel:
            request = agent_wire.DrainRequest(quiet=Duration(), producers_timeout=Duration())
            async for _ in AgentServiceStub(channel).Drain(request):
                pass
        assert await self.perm() is None

    async def perm(self) -> int | None:
        """The permission of the topic; None while it is not routed."""
        try:
            answer = await RouteServiceStub(self._channel).GetTopicRoute(GetTopicRouteRequest(topic="orders"))
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:
                raise
            return None
        return answer.route.queue_datas[0].perm if answer.route.queue_datas else None

    async def reaches(self, perm: int | None) -> None:
        while await self.perm() != perm:  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.01)


RigOf = Callable[[str], AbstractAsyncContextManager[tuple[Rig, Broker]]]


@pytest.fixture
def rig_of(tmp_path: Path) -> RigOf:
    @asynccontextmanager
    async def build(kind: str) -> AsyncIterator[tuple[Rig, Broker]]:
        async with running_name_server() as app, grpc.aio.insecure_channel(app.addr) as channel:
            async with asyncio.timeout(PATIENCE_SECONDS):
                broker = Broker(kind, tmp_path)
                await broker.start()
                try:
                    yield Rig(app, broker, channel), broker
                finally:
                    await broker.stop()

    return build


@pytest.mark.parametrize("kind", [*KINDS_WITHOUT_INCARNATION, "redis"])
async def test_a_wipe_outlives_an_upgrade_of_the_agent_and_ends_with_the_stop_of_both(rig_of: RigOf, kind: str) -> None:
    async with rig_of(kind) as (rig, broker):
        async with rig.agent() as agent:
            await rig.wipe()
            await agent.stopped()
        async with rig.agent() as upgraded:
            assert await rig.perm() == READ
            await broker.stop()
            await upgraded.stopped()
        await broker.start()
        async with rig.agent():
            await rig.reaches(READ_WRITE)


@pytest.mark.parametrize("kind", [*KINDS_WITHOUT_INCARNATION, "redis"])
async def test_a_wipe_ends_when_the_broker_is_back_under_a_living_agent(rig_of: RigOf, kind: str) -> None:
    async with rig_of(kind) as (rig, broker), rig.agent():
        await rig.wipe()
        await broker.stop()
        await rig.reaches(None)
        await broker.start()
        await rig.reaches(READ_WRITE)


@pytest.mark.parametrize("kind", ["none", *KINDS_WITHOUT_INCARNATION, "redis"])
async def test_a_drained_broker_has_its_full_permission_with_the_next_start_of_its_agent(
    rig_of: RigOf, kind: str
) -> None:
    async with rig_of(kind) as (rig, _):
        async with rig.agent() as agent:
            await rig.wipe()
            await rig.drain()
            await agent.stopped()
        async with rig.agent():
            await rig.reaches(READ_WRITE)


async def test_without_a_probe_a_wipe_outlives_agents_that_hand_over(rig_of: RigOf) -> None:
    async with rig_of("none") as (rig, _):
        for _ in range(2):
            async with rig.agent() as agent:
                if await rig.perm() != READ:
                    await rig.wipe()
                await agent.stopped()
        assert await rig.perm() == READ
