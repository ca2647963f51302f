"""Masters, replicas and promotions as the probe sees them, on real redis-server processes."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_agent.core.mastership import ACCEPT_AFTER_SECONDS
from pointsman_agent.core.probe_verdict import ProbeResult, Role
from pointsman_agent.probe import ReadsRedis
from pointsman_agent.probe.redis_facts import DOES_NOT_PERSIST, RedisFacts
from pointsman_agent.probe.redis_probe import MASTERSHIP_KEY, RedisProbe
from tests.kit.broker.redis.process import RedisProcess, redis_process
from tests.kit.waiting import read_until

pytestmark = pytest.mark.redis

IN_STEP_SECONDS = 60.0


@asynccontextmanager
async def pair(folder: Path) -> AsyncIterator[tuple[RedisProcess, RedisProcess]]:
    """A master and a replica that copies it."""
    async with redis_process(folder / "a") as master, redis_process(folder / "b") as replica:
        await replica.replica_of(master)
        await in_step(replica)
        yield master, replica


async def in_step(replica: RedisProcess) -> None:
    """Wait until a replica's link to its master is up."""
    probe = RedisProbe(replica.addr)
    await read_until(probe.check, lambda found: not found.warnings, seconds=IN_STEP_SECONDS)


async def copied(replica: RedisProcess, text: str) -> None:
    """Wait until a replica has that epoch."""
    await read_until(lambda: replica.bulk("GET", MASTERSHIP_KEY), lambda found: found == text, seconds=IN_STEP_SECONDS)


async def kept_on_disk(redis: RedisProcess) -> None:
    """Wait until the append-only file is complete; a full sync from the master rewrites it."""
    await redis.until_info("persistence", "aof_rewrite_in_progress:0", seconds=IN_STEP_SECONDS)


def claim(result: ProbeResult) -> tuple[Role, int]:
    assert result.passed
    return result.role, result.master_epoch


async def test_facts_are_reported_with_each_check(tmp_path: Path) -> None:
    facts: list[RedisFacts] = []
    async with pair(tmp_path) as (master, replica):
        probe = RedisProbe(master.addr, on_facts=facts.append)
        await probe.check()
        assert isinstance(probe, ReadsRedis)
        assert probe.facts is facts[0]
        await RedisProbe(replica.addr, on_facts=facts.append).check()
        master.kill()
        await probe.check()
        assert probe.facts is None

    of_master, of_replica = facts
    assert (of_master.role, of_master.replicas, of_master.persists) == (Role.MASTER, (replica.addr,), True)
    assert (of_replica.role, of_replica.master_addr, of_replica.link_is_up) == (Role.SLAVE, master.addr, True)
    assert (of_master.used_memory_bytes or 0) > 100_000
    assert (of_master.max_memory_bytes, of_replica.replica_lag_bytes) == (0, None)
    assert of_master.replica_lag_bytes is not None
    assert 0 <= of_master.replica_lag_bytes < 100_000
    assert of_master.master_replid == of_replica.master_replid != ""


async def test_a_replica_that_lost_its_master_passes_and_warns(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, replica):
        probe = RedisProbe(replica.addr)
        master.kill()
        result = await read_until(probe.check, lambda found: found.warnings, seconds=IN_STEP_SECONDS)

    assert result.passed
    assert result.warnings == (f"its replication link to {master.addr} is down",)


async def test_a_server_that_does_not_persist_warns_in_each_check_and_logs_it_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "pointsman_agent.probe.redis_probe")
    async with redis_process(tmp_path) as redis:
        probe = RedisProbe(redis.addr)
        assert (await probe.check()).warnings == ()
        await redis.command("CONFIG", "SET", "appendonly", "no")
        first, second = await probe.check(), await probe.check()
        await redis.command("CONFIG", "SET", "save", "60 1")
        assert (await probe.check()).warnings == ()

    assert first.passed
    assert first.warnings == second.warnings == (DOES_NOT_PERSIST,)
    assert [record.message for record in caplog.records] == [DOES_NOT_PERSIST]


async def test_a_user_who_may_only_run_ping_and_info_is_enough_and_nothing_is_guessed(tmp_path: Path) -> None:
    acl = ["--appendonly", "no", "--user", "probe", "on", ">secret", "+ping", "+info"]
    async with redis_process(tmp_path, options=acl) as redis:
        result = await RedisProbe(redis.addr, username="probe", password="secret").check()

    assert result.passed
    assert result.role is Role.MASTER
    assert result.warnings == ()


async def test_the_first_master_keeps_epoch_one_and_its_replica_has_no_epoch(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with pair(tmp_path) as (master, replica):
        probe = RedisProbe(master.addr, member="1", clock=clock)
        assert claim(await probe.check()) == (Role.MASTER, 0)
        await clock.advance(ACCEPT_AFTER_SECONDS)
        assert claim(await probe.check()) == (Role.MASTER, 1)
        assert claim(await RedisProbe(replica.addr, member="2").check()) == (Role.SLAVE, 0)
        await copied(replica, "1 1")


async def test_nothing_is_written_for_a_broker_that_is_never_promoted(tmp_path: Path) -> None:
    async with redis_process(tmp_path) as redis:
        assert claim(await RedisProbe(redis.addr).check()) == (Role.MASTER, 0)
        assert await redis.command("DBSIZE") == ":0"


async def test_a_promoted_replica_claims_a_higher_epoch_than_the_old_master_that_comes_back(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with pair(tmp_path) as (master, replica):
        of_master = RedisProbe(master.addr, member="1", clock=clock)
        of_replica = RedisProbe(replica.addr, member="2", clock=clock)
        await master.command("SET", MASTERSHIP_KEY, "1 1")
        await copied(replica, "1 1")
        await of_replica.check()

        master.kill()
        await replica.replica_of(None)
        promoted = await of_replica.check()
        await master.restart()
        back = await of_master.check()
        back_under_a_new_agent = await RedisProbe(master.addr, member="1", clock=clock).check()
        await master.replica_of(replica)
        await in_step(master)
        demoted = await of_master.check()
        await copied(master, "2 2")

    assert claim(promoted) == (Role.MASTER, 2)
    assert claim(back) == claim(back_under_a_new_agent) == (Role.MASTER, 1)
    assert claim(demoted) == (Role.SLAVE, 0)


async def test_a_restarted_replica_that_lost_its_master_claims_a_lower_epoch_until_time_has_passed(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with pair(tmp_path) as (master, replica):
        await master.command("SET", MASTERSHIP_KEY, "1 1")
        await copied(replica, "1 1")
        await kept_on_disk(replica)
        probe = RedisProbe(replica.addr, member="2", clock=clock)
        await probe.check()

        await replica.restart()
        lost = await probe.check()
        await clock.advance(ACCEPT_AFTER_SECONDS)
        accepted = await probe.check()

    assert claim(lost) == (Role.MASTER, 0)
    assert claim(accepted) == (Role.MASTER, 2)


async def test_a_promoted_master_that_accepts_no_writes_claims_its_epoch_and_warns_that_it_is_not_stored(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as (master, replica):
        await master.command("SET", MASTERSHIP_KEY, "1 1")
        await copied(replica, "1 1")
        probe = RedisProbe(replica.addr, member="2")
        await probe.check()
        await replica.command("CONFIG", "SET", "min-replicas-to-write", "1")

        await replica.replica_of(None)
        refused = await probe.check()
        await replica.command("CONFIG", "SET", "min-replicas-to-write", "0")
        kept = await probe.check()
        text = await replica.bulk("GET", MASTERSHIP_KEY)

    assert claim(refused) == claim(kept) == (Role.MASTER, 2)
    assert refused.warnings[0].startswith("cannot store its epoch as a master in pointsman:mastership: NOREPLICAS")
    assert kept.warnings == ()
    assert text == "2 2"


async def test_a_claimed_epoch_stays_valid_when_the_key_can_no_longer_be_read(tmp_path: Path) -> None:
    async with redis_process(tmp_path) as redis:
        await redis.command("SET", MASTERSHIP_KEY, "3 1")
        probe = RedisProbe(redis.addr, member="1")
        first = await probe.check()
        await redis.command("ACL", "SETUSER", "default", "-get")
        second = await probe.check()

    assert claim(first) == claim(second) == (Role.MASTER, 3)
    assert "NOPERM" in second.warnings[0] or "no permissions" in second.warnings[0]


async def test_a_key_with_foreign_content_is_not_overwritten_and_reported(tmp_path: Path) -> None:
    async with redis_process(tmp_path) as redis:
        await redis.command("SET", MASTERSHIP_KEY, "mine")
        result = await RedisProbe(redis.addr, member="1").check()
        await redis.command("DEL", MASTERSHIP_KEY)
        await redis.command("LPUSH", MASTERSHIP_KEY, "mine")
        of_another_type = await RedisProbe(redis.addr, member="1").check()

    assert claim(result) == claim(of_another_type) == (Role.MASTER, 0)
    assert "must be 'epoch member', got 'mine'" in result.warnings[0]
    assert "WRONGTYPE" in of_another_type.warnings[0]
