"""Name server, agent and redis-server as processes: the route after kills and stops, and what is restored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from deploy.demo.processes import Fleet, Program, Redis
from pointsman.v1.admin_service_pb2 import ListBrokerEventsRequest, ListBrokersRequest
from pointsman.v1.admin_service_pb2_grpc import AdminServiceStub
from pointsman_client import NameServerClient, TopicNotFoundError
from tests.kit.waiting import read_until

if TYPE_CHECKING:
    from pointsman.v1.admin_service_pb2_grpc import AdminServiceAsyncStub

pytestmark = [pytest.mark.e2e, pytest.mark.redis]

PATIENCE_SECONDS = 60.0
LENIENT_SECONDS = 4.5
"""Slightly more than the expiry of the fleet's agents: until then a broken stream gets the full expiry."""

Events = list[tuple[str, str]]


@dataclass
class Small:
    """One of each."""

    fleet: Fleet
    redis: Redis
    agent: Program
    client: NameServerClient
    admin: AdminServiceAsyncStub

    async def until(self, *, routed: bool) -> None:
        """Wait until the topic is routed, or is not."""
        await read_until(self.is_routed, lambda found: found is routed, seconds=PATIENCE_SECONDS)

    async def is_routed(self) -> bool:
        try:
            route = await self.client.fetch_route("orders")
        except TopicNotFoundError:
            return False
        return bool(route.broker_datas)

    async def events(self) -> Events:
        answer = await self.admin.ListBrokerEvents(ListBrokerEventsRequest(broker_name="a"))
        return [(event.event, event.reason) for event in answer.events]

    async def generation(self) -> int:
        """The fence of the registration that is held."""
        (broker,) = (await self.admin.ListBrokers(ListBrokersRequest())).brokers
        return broker.generation


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[Small]:
    fleet = Fleet(tmp_path / "fleet")
    try:
        addr = await fleet.name_server("namesrv-1")
        redis = await fleet.redis("redis-a")
        agent = await fleet.agent("a", 0, redis, [addr], zone="z1")
        async with NameServerClient([addr]) as client, grpc.aio.insecure_channel(addr) as channel:
            running = Small(fleet, redis, agent, client, AdminServiceStub(channel))
            await running.until(routed=True)
            yield running
    finally:
        await fleet.kill_all()


async def test_a_killed_broker_is_removed_from_the_route_and_comes_back_with_its_restart(small: Small) -> None:
    await small.redis.kill()
    await small.until(routed=False)
    await small.redis.start()
    await small.until(routed=True)

    events = await small.events()
    # On a busy machine one of the failures may be a timeout, which is weak evidence.
    assert events[0] == ("REGISTERED", "")
    assert events[1] in {("PROBE_FAILED", "REFUSED"), ("PROBE_FAILED", "PROBE")}
    # Either the passing heartbeat comes first, or the registration with the new incarnation.
    assert next(event for event in events[2:] if event != ("PROBE_FAILED", "REFUSED")) in {
        ("RECOVERED", "PROBE"),
        ("REREGISTERED", ""),
    }


@pytest.mark.slow
async def test_the_broker_of_a_killed_agent_is_removed_within_the_grace_and_restored_by_the_next_agent(
    small: Small,
) -> None:
    await asyncio.sleep(LENIENT_SECONDS)
    await small.agent.kill()
    await small.until(routed=False)
    await small.agent.start()
    await small.until(routed=True)

    assert await small.events() == [
        ("REGISTERED", ""),
        ("SUSPECTED", "STREAM_BROKEN"),
        ("EXPIRED", "STREAM_BROKEN"),
        ("REGISTERED", ""),
    ]


@pytest.mark.slow
async def test_an_agent_that_is_replaced_next_to_a_running_broker_changes_no_route(small: Small) -> None:
    before, generation = await small.client.fetch_route("orders"), await small.generation()
    await small.agent.stop()
    await asyncio.sleep(LENIENT_SECONDS)
    assert await small.is_routed()
    await small.agent.start()
    await read_until(small.generation, lambda found: found != generation, seconds=PATIENCE_SECONDS)

    # It registered nothing new.
    assert await small.events() == [("REGISTERED", "")]
    after = await small.client.fetch_route("orders")
    assert after.revision == before.revision


async def test_an_agent_that_stops_with_its_broker_unregisters_it(small: Small) -> None:
    await small.redis.kill()
    await small.until(routed=False)
    await small.agent.stop()

    assert (await small.events())[-1] == ("UNREGISTERED", "SHUTDOWN")
