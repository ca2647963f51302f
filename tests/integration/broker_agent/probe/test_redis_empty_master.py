"""A master that came back without its data, on real redis-server processes: it fails while another one has them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pointsman_agent.core.probe_verdict import Evidence, ProbeStatus, VerdictKeeper
from pointsman_agent.probe.redis_probe import PEER_SECONDS, RedisProbe
from tests.kit.broker.redis.process import RedisProcess, free_port, redis_process
from tests.kit.waiting import read_until

pytestmark = pytest.mark.redis

SLOW_COPY = ["--appendonly", "no", "--repl-diskless-sync-delay", "3600"]
"""A master that keeps nothing; its replica stays as it was for long when it comes back empty (by default 5 s)."""


@asynccontextmanager
async def full_pair(folder: Path) -> AsyncIterator[tuple[RedisProcess, RedisProcess]]:
    """A master that does not persist, and its replica with a copy of a stream."""
    async with (
        redis_process(folder / "a", options=SLOW_COPY) as master,
        redis_process(folder / "b", options=["--appendonly", "no"]) as replica,
    ):
        await master.command("CONFIG", "SET", "repl-diskless-sync-delay", "0")
        await replica.replica_of(master)
        await master.command("XADD", "orders:queue:0", "0-*", "k", "v")
        await read_until(lambda: replica.command("EXISTS", "orders:queue:0"), lambda found: found == ":1")
        yield master, replica


async def test_a_master_restarted_empty_fails_immediately_while_its_replica_holds_streams(tmp_path: Path) -> None:
    async with full_pair(tmp_path) as (master, replica):
        probe, keeper = RedisProbe(master.addr), VerdictKeeper(rise=1, fall=3)
        assert keeper.record(await probe.check()).status is ProbeStatus.PASSING

        await master.restart()
        verdict = keeper.record(await probe.check())

    assert (verdict.status, verdict.evidence) == (ProbeStatus.FAILING, Evidence.STRONG)
    assert f"is an empty master while {replica.addr} still holds streams" in verdict.detail


async def test_it_passes_again_once_its_data_are_back(tmp_path: Path) -> None:
    async with full_pair(tmp_path) as (master, _):
        probe = RedisProbe(master.addr)
        await probe.check()
        await master.restart()
        assert not (await probe.check()).passed

        await master.command("XADD", "orders:queue:0", "0-*", "k", "v")

        assert (await probe.check()).passed


async def test_it_passes_again_once_no_replica_holds_more_than_it(tmp_path: Path) -> None:
    async with full_pair(tmp_path) as (master, replica):
        probe = RedisProbe(master.addr)
        await probe.check()
        await master.restart()
        assert not (await probe.check()).passed

        replica.kill()

        assert (await probe.check()).passed


async def test_an_agent_that_was_just_started_queries_the_connected_replicas(tmp_path: Path) -> None:
    async with full_pair(tmp_path) as (master, replica):
        await master.restart()
        await master.until_info("replication", "ip=")

        result = await RedisProbe(master.addr).check()

    assert not result.passed
    assert replica.addr in result.detail


async def test_an_agent_that_was_just_started_queries_the_peers_of_the_configuration(tmp_path: Path) -> None:
    async with full_pair(tmp_path) as (master, replica):
        await replica.replica_of(None)
        await master.restart()

        assert (await RedisProbe(master.addr).check()).passed
        assert not (await RedisProbe(master.addr, peers=[replica.addr]).check()).passed


async def test_a_replica_that_is_promoted_before_it_has_copied_anything_fails_while_its_old_master_runs(
    tmp_path: Path,
) -> None:
    async with full_pair(tmp_path) as (master, _), redis_process(tmp_path / "c") as late:
        await master.command("CONFIG", "SET", "repl-diskless-sync-delay", "3600")
        await late.replica_of(master)
        probe = RedisProbe(late.addr)
        assert (await probe.check()).passed

        await late.replica_of(None)

        assert not (await probe.check()).passed


async def test_streams_that_clients_delete_are_their_own_doing(tmp_path: Path) -> None:
    async with full_pair(tmp_path) as (master, replica):
        probe = RedisProbe(master.addr)
        assert (await probe.check()).passed
        await replica.replica_of(None)

        await master.command("FLUSHALL")

        assert (await probe.check()).passed


async def test_a_new_master_without_a_stream_passes_when_no_replica_has_one(tmp_path: Path) -> None:
    async with redis_process(tmp_path / "a") as master, redis_process(tmp_path / "b") as replica:
        await replica.replica_of(master)
        await replica.command("CONFIG", "SET", "replica-read-only", "no")
        await replica.command("SET", "no-stream", "x")

        assert (await RedisProbe(master.addr, peers=[replica.addr], member="1").check()).passed


async def test_a_peer_that_hangs_or_is_down_is_ignored_and_delays_the_check_no_longer_than_its_timeout(
    tmp_path: Path,
) -> None:
    with socket.socket() as hung:
        hung.bind(("127.0.0.1", 0))
        hung.listen()
        async with redis_process(tmp_path) as redis:
            await check_peers_count_for_nothing(redis, f"127.0.0.1:{hung.getsockname()[1]}", f"127.0.0.1:{free_port()}")


async def check_peers_count_for_nothing(redis: RedisProcess, *peers: str) -> None:
    started_at = asyncio.get_running_loop().time()

    result = await RedisProbe(redis.addr, peers=peers).check()

    assert result.passed
    assert PEER_SECONDS <= asyncio.get_running_loop().time() - started_at < 10 * PEER_SECONDS
