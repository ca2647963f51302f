"""A group of real redis-servers under a real Sentinel, with their agents and a real name server: who is routed when."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pointsman_agent.config import (
    AgentConfig,
    BrokerSection,
    HeartbeatSection,
    MonitoringSection,
    NameServersSection,
    ProbeSection,
    RpcSection,
    TopicsSection,
)
from pointsman_agent.core.registration_session import RegistrationState
from tests.e2e.redis_member import RedisMember, redis_member
from tests.kit.agent.process import agent_process
from tests.kit.broker.redis.process import RedisProcess, redis_process
from tests.kit.broker.redis.sentinel import sentinel_process
from tests.kit.name_server.process import RealNameServer, real_name_server
from tests.kit.name_server.route_diary import RouteDiary, route_diary
from tests.kit.waiting import eventually, read_until

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(240)]

FAILOVER_SECONDS = 60.0
CORRECTION_SECONDS = 90.0
"""Time for Sentinel to demote a returned master: 8 s after it first saw it, in its next round."""

IN_STEP = "master_link_status:up"


@asynccontextmanager
async def copying_pair(folder: Path, *options: str) -> AsyncIterator[tuple[RedisProcess, RedisProcess]]:
    """A master with a stream, and a replica that has it too."""
    async with (
        redis_process(folder / "a", options=options) as first,
        redis_process(folder / "b", options=options) as second,
    ):
        await second.replica_of(first)
        await first.command("XADD", "orders:queue:0", "0-*", "k", "v")
        await read_until(
            lambda: second.command("EXISTS", "orders:queue:0"), lambda found: found == ":1", seconds=FAILOVER_SECONDS
        )
        yield first, second


async def routed(diary: RouteDiary, replicas: dict[int, str], *, seconds: float = FAILOVER_SECONDS) -> None:
    await diary.until(lambda now: now == replicas, seconds=seconds)


async def served(redis: RedisProcess) -> None:
    """Wait until it is a replica whose link to its master is up."""
    await redis.until_info("replication", IN_STEP, seconds=CORRECTION_SECONDS)


@pytest.mark.slow
async def test_a_promotion_by_sentinel_moves_the_route_once_and_the_old_master_comes_back_as_a_replica(
    tmp_path: Path,
) -> None:
    async with (
        real_name_server(tmp_path / "namesrv") as name_server,
        copying_pair(tmp_path) as (first, second),
        sentinel_process(tmp_path / "sentinel", first, replicas=1),
        route_diary(name_server.addr, "orders") as diary,
        redis_member(first, [name_server.addr], replica_id=1) as old_master,
        redis_member(second, [name_server.addr], replica_id=2) as promoted,
    ):
        await routed(diary, {0: first.addr, 2: second.addr})

        first.kill()
        await diary.until(lambda now: now.get(0) == second.addr, seconds=FAILOVER_SECONDS)
        assert promoted.own.value.broker_id == 0
        assert diary.last == {0: second.addr}

        # It comes back as a master; Sentinel demotes it ten seconds later.
        await first.restart()
        await routed(diary, {0: second.addr, 1: first.addr}, seconds=CORRECTION_SECONDS)
        await served(first)

        assert diary.masters == [first.addr, second.addr]
        await eventually(
            lambda: old_master.registration_states == promoted.registration_states == [RegistrationState.REGISTERED]
        )
        await each_role_registered_once(name_server, first, second)


def agent_of(redis: RedisProcess, name_server: str, *, replica_id: int) -> AgentConfig:
    return AgentConfig(
        broker=BrokerSection(cluster="c1", name="a", addr=redis.addr, replica_id=replica_id),
        name_servers=NameServersSection(addrs=(name_server,)),
        heartbeat=HeartbeatSection(interval_seconds=1.0, expiry_seconds=4.0),
        probe=ProbeSection(kind="redis", interval_seconds=0.2),
        topics=TopicsSection(source="redis", check_interval_seconds=0.2),
        rpc=RpcSection(listen="127.0.0.1:0"),
        monitoring=MonitoringSection(listen="127.0.0.1:0"),
    )


@pytest.mark.slow
async def test_installed_agents_follow_a_promotion_and_the_old_master_that_comes_back(tmp_path: Path) -> None:
    async with (
        real_name_server(tmp_path / "namesrv") as name_server,
        copying_pair(tmp_path) as (first, second),
        sentinel_process(tmp_path / "sentinel", first, replicas=1),
        route_diary(name_server.addr, "orders") as diary,
        agent_process(tmp_path / "one", agent_of(first, name_server.addr, replica_id=1)),
        agent_process(tmp_path / "two", agent_of(second, name_server.addr, replica_id=2)),
    ):
        await routed(diary, {0: first.addr, 2: second.addr}, seconds=CORRECTION_SECONDS)
        first.kill()
        await diary.until(lambda now: now.get(0) == second.addr, seconds=CORRECTION_SECONDS)
        await first.restart()
        await routed(diary, {0: second.addr, 1: first.addr}, seconds=CORRECTION_SECONDS)
        assert diary.masters == [first.addr, second.addr]
        await each_role_registered_once(name_server, first, second)


@pytest.mark.slow
async def test_a_master_that_comes_back_together_with_its_agent_is_not_routed_before_sentinel_demotes_it(
    tmp_path: Path,
) -> None:
    async with (
        real_name_server(tmp_path / "namesrv") as name_server,
        copying_pair(tmp_path) as (first, second),
        sentinel_process(tmp_path / "sentinel", first, replicas=1),
        route_diary(name_server.addr, "orders") as diary,
        redis_member(second, [name_server.addr], replica_id=2),
    ):
        async with redis_member(first, [name_server.addr], replica_id=1):
            await routed(diary, {0: first.addr, 2: second.addr})
            first.kill()
        await diary.until(lambda now: now.get(0) == second.addr, seconds=FAILOVER_SECONDS)

        await first.restart()
        async with redis_member(first, [name_server.addr], replica_id=1) as returned:
            await eventually(lambda: returned.registration_states == [RegistrationState.HELD_BY_OTHER])
            assert await first.command("ROLE") == "*3", "it is corrected already: this shows nothing"
            await routed(diary, {0: second.addr, 1: first.addr}, seconds=CORRECTION_SECONDS)

        assert diary.masters == [first.addr, second.addr]


async def test_a_master_that_is_restarted_empty_next_to_its_full_replica_is_not_routed(tmp_path: Path) -> None:
    # By default a master waits 5 s for more replicas before it sends a copy; that long the replica keeps its streams.
    async with (
        real_name_server(tmp_path / "namesrv") as name_server,
        copying_pair(tmp_path, "--appendonly", "no") as (first, second),
        route_diary(name_server.addr, "orders") as diary,
        redis_member(first, [name_server.addr], replica_id=1) as empty,
        redis_member(second, [name_server.addr], replica_id=2),
    ):
        await routed(diary, {0: first.addr, 2: second.addr})
        first.kill()
        await routed(diary, {2: second.addr})
        seen = len(diary.entries)
        await restart_without_copying(first)
        await checked(empty, first, second)

        # Ten checks take one heartbeat interval: had one passed, it would be routed.
        enough = empty.looks + 10
        await eventually(lambda: empty.looks >= enough)
        assert all(0 not in entry for entry in diary.entries[seen:])
        assert diary.last == {2: second.addr}

        # An operator promotes the one with the data.
        await second.replica_of(None)
        await diary.until(lambda now: now.get(0) == second.addr, seconds=FAILOVER_SECONDS)


async def restart_without_copying(redis: RedisProcess) -> None:
    redis.add_options("--repl-diskless-sync-delay", "3600")
    await redis.restart()


async def checked(member: RedisMember, empty: RedisProcess, full: RedisProcess) -> None:
    """Wait until its agent has checked the restarted server."""
    sentence = f"redis {empty.addr}: is an empty master while {full.addr} still holds streams"
    await eventually(lambda: member.own.value.health_detail.startswith(sentence))


async def each_role_registered_once(name_server: RealNameServer, first: RedisProcess, second: RedisProcess) -> None:
    """Check that no broker re-registered repeatedly: each role of each broker was registered once."""
    events = ("REGISTERED", "REREGISTERED", "ROLE_CHANGED", "ADDRESS_CHANGED")
    await eventually(lambda: any(row["broker_id"] == 1 for row in name_server.events(*events)))
    taken = [(row["broker_addr"], row["broker_id"]) for row in name_server.events(*events)]
    assert taken.count((second.addr, 0)) == 1, taken
    assert taken[-1] == (first.addr, 1), taken
